"""The file of kept log-probabilities that ``llama-perplexity --save-all-logits`` writes and ``--kl-divergence`` reads.

All little-endian and without alignment: ``_logits_``; window, vocabulary and number of windows (int32); the token ids
of every window (int32; llama.cpp writes them as they stand in the text, also where BOS takes the place of the first one
when they are decoded, and qlock as they are asked). Then a row for each scored token: a step and the lowest
log-probability (float32), and for each token of the vocabulary how many steps it lies above the lowest (uint16, one more
of 0 where the vocabulary is odd). Scored is the last half of a window: the predictions made at token ``window // 2`` and
after it.

Whatever lies more than 16 nats below the likeliest token is kept as if it lay 16 below. So a divergence near 0 is off by
some 5e-5 nats, and one of that size says nothing; of a large one, and of the reference's own costs, the third or fourth
digit may differ from that of two models side by side.

Here a window is a *part*, since it is written and read by itself. Pure: bytes to numbers and back. Does not live here:
files (``engines``), whose log-probabilities they are (the format does not say).

Source: ``tools/perplexity/perplexity.cpp`` of llama.cpp: ``log_softmax``, ``perplexity``, ``kl_divergence``.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, NamedTuple

from qlock.core.base import Base, Positive
from qlock.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAGIC = b"_logits_"

FLOOR_NATS = 5e-5
"""A divergence from kept rows that is smaller says nothing: it is the rounding to 16 bits."""

LOOSE_SHARE = 1e-3
"""What the probabilities of a kept row may miss of 1 by rounding to 16 bits."""

_DEPTH = 16
_MOST_VOCABULARY = 1 << 19
"""Tokens; twice what the largest vocabularies of today hold."""

LEAST_NATS = -(LOOSE_SHARE + _MOST_VOCABULARY * math.exp(-_DEPTH))
"""No divergence from kept rows is less.

Kept rows are no distribution: up to all tokens of a vocabulary are kept as e⁻¹⁶ times as likely as the likeliest, and are
left out of one direction. With p of the kept rows, whose sum S over the tokens looked at is at least 1 − x and at most
1 + x, and q of the point, whose sum is at most 1, Σ p · ln(p / q) ≥ S · ln(S) ≥ −x, and Σ q · ln(q / p) ≥ −ln(S) ≥ −x, by
the log sum inequality.
"""

_SIZES = struct.Struct("<iii")
_ROW_HEAD_BYTES = 8
_TOKEN_BYTES = 4
_MOST_TOKENS = 1 << 28
"""Of all parts together: their ids are held in memory."""
_STEPS = 65535

HEAD_BYTES = len(MAGIC) + _SIZES.size
"""What ``layout_in`` needs."""


class Layout(Base, frozen=True, kw_only=True):
    """Where everything lies in a file of kept rows."""

    window_tokens: Positive
    vocab_tokens: Positive
    parts: Positive

    @property
    def score_from(self) -> int:
        """Index of the first scored token of a part."""
        return self.window_tokens // 2 + 1

    @property
    def rows(self) -> int:
        """Rows of a part."""
        return self.window_tokens - self.score_from

    @property
    def tokens_bytes(self) -> int:
        """Of the token ids of all parts, which follow the first ``HEAD_BYTES``."""
        return self.parts * self.window_tokens * _TOKEN_BYTES

    @property
    def row_bytes(self) -> int:
        """Of one row."""
        return _ROW_HEAD_BYTES + 2 * (self.vocab_tokens + self.vocab_tokens % 2)

    @property
    def part_bytes(self) -> int:
        """Of all rows of a part."""
        return self.rows * self.row_bytes

    @property
    def total_bytes(self) -> int:
        """Of the whole file."""
        return self.offset(self.parts)

    def shape_of(self, _: int) -> tuple[int, int]:
        """How many tokens a part has, and the index of the first that is scored: the same in all."""
        return self.window_tokens, self.score_from

    def offset(self, part: int, row: int = 0) -> int:
        """Where a row begins."""
        return HEAD_BYTES + self.tokens_bytes + part * self.part_bytes + row * self.row_bytes


class KeptRows(NamedTuple):
    """Rows as they are kept."""

    step: NDArray[np.float32]
    """Shape ``(rows,)``."""
    lowest: NDArray[np.float32]
    """Shape ``(rows,)``, nats."""
    steps: NDArray[np.uint16]
    """Shape ``(rows, vocabulary)``."""

    def log_probabilities(self) -> NDArray[np.float32]:
        """Shape ``(rows, vocabulary)``, nats; whatever the bytes say, also where that is no log-probability."""
        import numpy as np

        with np.errstate(over="ignore", invalid="ignore"):
            found = self.steps.astype(np.float32)
            found *= self.step[:, None]
            found += self.lowest[:, None]
        return found


def layout_in(data: bytes) -> Layout:
    """The layout that the first ``HEAD_BYTES`` of a file tell.

    Raises:
        InputError: It is no file of kept rows.
    """
    if len(data) < HEAD_BYTES or not data.startswith(MAGIC):
        raise InputError(f"it holds no log-probabilities: got `{data[: len(MAGIC)]!r}`, expected `{MAGIC!r}`")
    window, vocabulary, parts = _SIZES.unpack_from(data, len(MAGIC))
    for fact, got, least in (("window", window, 3), ("vocabulary", vocabulary, 1), ("parts", parts, 1)):
        if got < least:
            raise InputError(f"got `{got}` as its {fact}, expected at least `{least}`")
    if window * parts > _MOST_TOKENS:
        raise InputError(f"got `{window * parts}` tokens, expected at most `{_MOST_TOKENS}`")
    return Layout(window_tokens=window, vocab_tokens=vocabulary, parts=parts)


def head_bytes(layout: Layout, tokens: NDArray[np.int32]) -> bytes:
    """Everything in front of the rows.

    Args:
        layout: Of the file.
        tokens: Ids of every part as asked, so with BOS where it takes the place of the first one, shape ``(parts, window)``.
    """
    if tokens.shape != (layout.parts, layout.window_tokens):
        raise ValueError(f"got tokens of shape `{tokens.shape}`")
    sizes = _SIZES.pack(layout.window_tokens, layout.vocab_tokens, layout.parts)
    return MAGIC + sizes + tokens.astype("<i4").tobytes()


def tokens_in(layout: Layout, data: bytes) -> NDArray[np.int32]:
    """The ids of every part, shape ``(parts, window)``, out of the ``tokens_bytes`` behind the head."""
    import numpy as np

    tokens = np.frombuffer(data, dtype="<i4", count=layout.parts * layout.window_tokens)
    return tokens.astype(np.int32).reshape(layout.parts, layout.window_tokens)


def encoded(logits: NDArray[np.float32]) -> bytes:
    """Rows as they are kept, one after another.

    Everything is in float32 but the sum of ``exp``, as in llama.cpp.

    Args:
        logits: Shape ``(rows, vocabulary)``, finite.
    """
    import numpy as np

    rows, vocabulary = logits.shape
    top = logits.max(axis=1)
    lowest = np.maximum(logits.min(axis=1), top - np.float32(_DEPTH))
    exponentials = np.subtract(logits, top[:, None])
    rounded_exp(exponentials, out=exponentials)
    log_sum = np.log(exponentials.sum(axis=1, dtype=np.float64)).astype(np.float32)
    step = (top - lowest) / np.float32(_STEPS)
    # Rows of equal logits have no step; what they are divided by is of no matter then.
    scale = np.float32(1) / np.where(step == 0, np.float32(1), step)
    above = np.maximum(logits - lowest[:, None], np.float32(0)) * scale[:, None]
    kept = np.zeros(rows, dtype=_row_type(vocabulary))
    kept["step"] = step
    kept["lowest"] = lowest - top - log_sum
    kept["steps"][:, :vocabulary] = np.rint(above)
    return kept.tobytes()


def rounded_exp(values: NDArray[np.float32], *, out: NDArray[np.float32]) -> NDArray[np.float32]:
    """``exp`` in float64, rounded to float32: what C's ``expf`` gives almost everywhere, unlike numpy's in float32."""
    import numpy as np

    np.copyto(out, np.exp(values, dtype=np.float64), casting="same_kind")
    return out


def decoded(data: bytes, vocab_tokens: int) -> KeptRows:
    """Rows out of whole rows' bytes."""
    import numpy as np

    kept = np.frombuffer(data, dtype=_row_type(vocab_tokens))
    return KeptRows(
        step=kept["step"].astype(np.float32),
        lowest=kept["lowest"].astype(np.float32),
        steps=kept["steps"][:, :vocab_tokens],
    )


def _row_type(vocab_tokens: int) -> np.dtype[np.void]:
    import numpy as np

    wide = vocab_tokens + vocab_tokens % 2
    return np.dtype([("step", "<f4"), ("lowest", "<f4"), ("steps", "<u2", (wide,))])
