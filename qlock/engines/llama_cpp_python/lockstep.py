"""The schedule that repeats: every prompt prefilled alone, every decode made of exactly ``slots`` rows.

A row is a sequence with a KV cache of its own. A running row decodes its last token; an idle row decodes one dummy
token at position 0 of its emptied cache, so that the width of the batch, and with it the choice of kernels, never
changes. New work enters as rows become free, between two decodes. What a row computes then depends on its own tokens
alone, which the schedule probe proves for each model and device.

Does not live here: calls into the library (``native``), sampling and endings (``answer``).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from qlock.core.facts import ReadBack, Setting
from qlock.engines.interface import Broken, Contrast, Done, Generate, Keep, Measure, Measured, Work
from qlock.engines.llama_cpp_python.answer import Answer
from qlock.engines.llama_cpp_python.measure import NotFiniteError, nats_of


class Decoder(Protocol):
    """What the schedule needs of a loaded model; ``native.Native`` is the real one."""

    setting: Setting
    vocab_tokens: int
    end_tokens: frozenset[int]
    read_back: ReadBack

    def clear(self, sequence: int) -> None:
        """Forget all that a sequence holds."""

    def copy(self, source: int, target: int) -> None:
        """Give an emptied sequence all that another one holds."""

    def extend(
        self, sequence: int, tokens: tuple[int, ...], *, at: int, logits_from: int
    ) -> NDArray[np.float32]:
        """Decode tokens of one sequence; logits of those from index ``logits_from`` on."""

    def step(self, tokens: list[int], positions: list[int]) -> NDArray[np.float32]:
        """Decode one token in each of the first sequences; their logits."""

    def use_threads(self, threads: int, batch_threads: int) -> None:
        """Compute with so many threads from now on."""

    def piece(self, token: int) -> bytes:
        """The bytes of a token."""


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

    @property
    def is_busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._waiting) or any(row is not None for row in self._rows)

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
            case Measure():
                return self._measure(work, row)
            case Contrast() | Keep():
                return Broken(id=work.id, why="no reference yet")
            case Generate():
                return self._begin(work, row)

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

    def _measure(self, work: Measure, row: int) -> Done:
        began_s = time.monotonic()
        tokens = np.asarray(work.tokens, dtype=np.int32)
        first = work.score_from - 1
        nats: list[float] = []
        self._decoder.clear(row)
        try:
            for at in range(0, len(tokens), self._decoder.setting.batch_tokens):
                piece = work.tokens[at : at + self._decoder.setting.batch_tokens]
                skipped = min(max(0, first - at), len(piece))
                logits = self._decoder.extend(row, piece, at=at, logits_from=skipped)
                # The last token of all predicts nothing that was given; it is asked for all the same, as
                # llama-perplexity does, since the number of rows can change the arithmetic.
                targets = tokens[at + skipped + 1 : at + len(piece) + 1]
                nats += nats_of(logits[: len(targets)], targets).tolist()
                self._alive()
        except NotFiniteError:
            return Broken(id=work.id, why="logits are not finite")
        finally:
            self._decoder.clear(row)
        return Measured(id=work.id, nats=tuple(nats), elapsed_s=time.monotonic() - began_s)


def prefill(
    decoder: Decoder, row: int, tokens: tuple[int, ...], alive: Callable[[], None]
) -> NDArray[np.float32]:
    """Decode a prompt alone into its emptied row; logits of its last token, shape ``(vocabulary,)``."""
    decoder.clear(row)
    size = decoder.setting.batch_tokens
    last = (len(tokens) - 1) // size * size
    for at in range(0, last, size):
        decoder.extend(row, tokens[at : at + size], at=at, logits_from=size)
        alive()
    rest = tokens[last:]
    logits: NDArray[np.float32] = decoder.extend(row, rest, at=last, logits_from=len(rest) - 1)[0]
    alive()
    return logits


def dummy_token(decoder: Decoder) -> int:
    """What an idle row decodes: any token will do."""
    return max(0, decoder.read_back.bos_token)


def unfit(work: Work, decoder: Decoder) -> str:
    """Why this work cannot be done at all; empty when it can."""
    if not work.tokens:
        return "got no tokens, expected at least one"
    lowest, highest, vocabulary = min(work.tokens), max(work.tokens), decoder.vocab_tokens
    if lowest < 0 or highest >= vocabulary:
        strange = lowest if lowest < 0 else highest
        return f"got token `{strange}`, expected one of `0` to `{vocabulary - 1}`"
    match work:
        case (
            Measure(tokens=tokens, score_from=score_from)
            | Contrast(tokens=tokens, score_from=score_from)
            | Keep(tokens=tokens, score_from=score_from)
        ):
            room = decoder.setting.context_tokens
            if len(tokens) > room:
                return f"got `{len(tokens)}` tokens to measure, expected at most the context of `{room}`"
            if not 1 <= score_from < len(tokens):
                return f"got `score_from = {score_from}`, expected `1` to `{len(tokens) - 1}`"
        case Generate():
            pass
    return ""
