"""The schedule that repeats: every prompt prefilled alone, every decode made of exactly ``slots`` rows.

A row is a sequence with a KV cache of its own. A running row decodes its last token; an idle row decodes one dummy
token at position 0 of its emptied cache, so that the width of the batch, and with it the choice of kernels, never
changes. New work enters as rows become free, between two decodes. What a row computes then depends on its own tokens
alone, which the schedule probe proves for each model and device.

Work that writes no tokens is done at once, in a free row that it leaves as it was.

Does not live here: calls into the library (``native``), sampling and endings (``answer``), figures (``reading``).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import msgspec

from qlock.engines.interface import Broken, Done, Generate, Work
from qlock.engines.llama_cpp_python.answer import Answer
from qlock.engines.llama_cpp_python.decoder import Decoder, dummy_token, prefill, unfit
from qlock.engines.llama_cpp_python.reading import Reader, Reference


class _Row(msgspec.Struct):
    """A running row."""

    answer: Answer
    prefill_s: float
    began_s: float


class Lockstep:
    """Work in, done out; each ``advance`` does one bounded piece of it.

    Args:
        decoder: The loaded model.
        alive: Called after every decode.
    """

    def __init__(self, decoder: Decoder, alive: Callable[[], None]) -> None:
        self._decoder = decoder
        self._alive = alive
        self._waiting: deque[Work] = deque()
        self._rows: list[_Row | None] = [None] * decoder.setting.slots
        self._reader = Reader(decoder, alive)

    @property
    def is_busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._waiting) or any(row is not None for row in self._rows)

    def refer(self, reference: Reference | None) -> None:
        """Hold the model against this from now on, or against nothing."""
        self._reader.refer(reference)

    def submit(self, work: Work) -> None:
        """Queue a piece of work."""
        self._waiting.append(work)

    def advance(self) -> list[Done]:
        """Take one piece of waiting work into a free row, or else decode every row once; what became finished."""
        if self._waiting and None in self._rows:
            done = self._enter(self._waiting.popleft(), self._rows.index(None))
            return [] if done is None else [done]
        return self._step()

    def _enter(self, work: Work, row: int) -> Done | None:
        why = unfit(work, self._decoder)
        if why:
            return Broken(id=work.id, why=why)
        match work:
            case Generate():
                return self._begin(work, row)
            case _:
                return self._reader.read(work, row)

    def _begin(self, work: Generate, row: int) -> Done | None:
        began_s = time.monotonic()
        answer = Answer(
            work,
            self._decoder.piece,
            end_tokens=self._decoder.end_tokens,
            context_tokens=self._decoder.setting.context_tokens,
        )
        if not answer.is_over:
            answer.take(prefill(self._decoder, row, work.tokens, self._alive))
        now_s = time.monotonic()
        self._rows[row] = _Row(answer=answer, prefill_s=now_s - began_s, began_s=now_s)
        return self._leave(row)

    def _step(self) -> list[Done]:
        tokens, positions = [], []
        for index, row in enumerate(self._rows):
            if row is None:
                self._decoder.clear(index)
                tokens.append(dummy_token(self._decoder))
                positions.append(0)
            else:
                tokens.append(row.answer.tokens[-1])
                positions.append(row.answer.length_tokens - 1)
        logits = self._decoder.step(tokens, positions)
        self._alive()
        finished = []
        for index, row in enumerate(self._rows):
            if row is not None:
                row.answer.take(logits[index])
                done = self._leave(index)
                if done is not None:
                    finished.append(done)
        return finished

    def _leave(self, index: int) -> Done | None:
        """Free the row when its answer is over."""
        row = self._rows[index]
        if row is None or not row.answer.is_over:
            return None
        self._rows[index] = None
        self._decoder.clear(index)
        return row.answer.done(prefill_s=row.prefill_s, decode_s=time.monotonic() - row.began_s)
