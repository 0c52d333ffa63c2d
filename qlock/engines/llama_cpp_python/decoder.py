"""What is needed of a loaded model, which work fits it, and the ways in which given tokens are decoded into a row of it.

Does not live here: the loaded model itself (``native``), answers (``lockstep``), figures (``reading``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from qlock.core.facts import ReadBack, Setting
from qlock.engines.interface import Generate, Reading, Work

Predictions = Iterator[tuple[NDArray[np.float32], NDArray[np.int32]]]
"""Batches of logits, shape ``(rows, vocabulary)``, and of the tokens that they predict, shape ``(rows,)``."""


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

    def keep(self, sequence: int, *, most_bytes: int) -> bytes | None:
        """What a sequence holds, to be put back later; ``None`` where it takes more bytes, or cannot be read."""

    def put_back(self, sequence: int, kept: bytes) -> bool:
        """Empty a sequence and give it what was kept; whether that worked."""

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


def predictions(decoder: Decoder, row: int, work: Reading, alive: Callable[[], None]) -> Predictions:
    """Decode given tokens alone into an emptied row; what predicts the scored ones.

    The logits are views that the decoder's next decode overwrites; it comes when the next batch is asked for.
    """
    tokens = np.asarray(work.tokens, dtype=np.int32)
    first = work.score_from - 1
    decoder.clear(row)
    for at in range(0, len(tokens), decoder.setting.batch_tokens):
        piece = work.tokens[at : at + decoder.setting.batch_tokens]
        skipped = min(max(0, first - at), len(piece))
        logits = decoder.extend(row, piece, at=at, logits_from=skipped)
        # The last token of all predicts nothing that was given; it is asked for all the same, as llama-perplexity
        # does, since the number of rows can change the arithmetic.
        targets = tokens[at + skipped + 1 : at + len(piece) + 1]
        alive()
        if len(targets):
            yield logits[: len(targets)], targets


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
        case Generate():
            return ""
        case _:
            count, room = len(work.tokens), decoder.setting.context_tokens
            if count > room:
                return f"got `{count}` tokens to measure, expected at most the context of `{room}`"
            if not 1 <= work.score_from < count:
                return f"got `score_from = {work.score_from}`, expected `1` to `{count - 1}`"
            return ""
