"""A compact file of kept log-probabilities: the likeliest tokens of each row, and what is left for all others together.

For long texts, for which the rows of ``core.kept_logits`` take too much room: 6 or 8 bytes for each of the kept tokens
instead of 2 for each of the vocabulary. It is qlock's own, and told by its first bytes. All little-endian and without
alignment: ``_qlktop_``; vocabulary, number of parts and number of kept tokens (int32); for each part how many tokens it
has and from which one on they are scored (int32); the token ids of every part as they stand in the text (int32). Then a
row for each scored token: its own log-probability, the logarithm of the probability of all tokens that are not in the
row, the log-probabilities of the kept tokens from the likeliest down (float32), and their ids (uint16, or uint32 where
the vocabulary is larger).

What can be said of the divergence from such a row. Let ``p`` be the reference, ``q`` the model, ``C`` the kept tokens
and the scored one, ``P`` and ``Q`` the probability of all others:

- at least Σ_C p·ln(p/q) + P·ln(P/Q), the divergence of the two once all others are taken for one token (log-sum
  inequality; Cover and Thomas, Elements of Information Theory, theorem 2.7.1). It is 0 for a model against itself;
- at most P·ln(p_K·Q / (P·q_least)) more, since no token outside has more than the least kept probability ``p_K``, and
  none has less than the model's smallest ``q_least``.

The second is a guarantee against the worst, and wide. What is really missing is P times the divergence within the
others. ``benchmarks/kept_top.py`` measures both with SmolLM2-135M, Q8_0, Q4_K_M and Q2_K against F16 on prose: with 1024
kept tokens of 49,152 (rows of 6 % of the size) 2.4 to 2.7 % of the mean divergence are missing and 0.39 nats guaranteed,
with 4096 (25 %) 0.5 to 0.6 % and 0.07 nats, with 8192 (50 %) 0.2 % and 0.02 nats.

Pure: bytes to numbers and back. Does not live here: files (``engines``), the divergences (``engines``, ``measure``).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from qlock.core.base import Base, Positive
from qlock.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAGIC = b"_qlktop_"

_SIZES = struct.Struct("<iii")
_SHAPE_BYTES = 8
_TOKEN_BYTES = 4
_MOST_TOKENS = 1 << 28
_SHORT_IDS = 1 << 16

SPARE_TOKENS = 2
"""So many of a vocabulary are left out at least: the others have a likelihood, also where the scored one is not kept."""

HEAD_BYTES = len(MAGIC) + _SIZES.size
"""What ``sizes_in`` needs."""


class Sizes(Base, frozen=True, kw_only=True):
    """What the head tells."""

    vocab_tokens: Positive
    parts: Positive
    kept_tokens: Positive

    @property
    def shapes_bytes(self) -> int:
        """Of the shapes of all parts, which follow the head."""
        return self.parts * _SHAPE_BYTES


class TopLayout:
    """Where everything lies in a file.

    Args:
        sizes: As the head tells.
        shapes: Of each part: how many tokens it has, and the index of the first that is scored.
    """

    def __init__(self, sizes: Sizes, shapes: Sequence[tuple[int, int]]) -> None:
        self.vocab_tokens = sizes.vocab_tokens
        self.parts = sizes.parts
        self.kept_tokens = sizes.kept_tokens
        self.shapes = tuple(shapes)
        self.tokens_at = HEAD_BYTES + sizes.shapes_bytes
        self.tokens_bytes = _TOKEN_BYTES * sum(count for count, _ in self.shapes)
        id_bytes = 2 if self.vocab_tokens <= _SHORT_IDS else 4
        self.row_bytes = 8 + self.kept_tokens * (4 + id_bytes)
        rows = accumulate((count - first for count, first in self.shapes), initial=0)
        start = self.tokens_at + self.tokens_bytes
        self._offsets = [start + row * self.row_bytes for row in rows]

    @property
    def total_bytes(self) -> int:
        """Of the whole file."""
        return self._offsets[-1]

    def shape_of(self, part: int) -> tuple[int, int]:
        """How many tokens a part has, and the index of the first that is scored."""
        return self.shapes[part]

    def offset(self, part: int, row: int = 0) -> int:
        """Where a row begins."""
        return self._offsets[part] + row * self.row_bytes


class TopRows(NamedTuple):
    """Rows as they are kept."""

    own: NDArray[np.float32]
    """Log-probability of the scored token, shape ``(rows,)``."""
    rest: NDArray[np.float32]
    """Logarithm of the probability of all tokens that are neither kept nor scored, shape ``(rows,)``."""
    likeliest: NDArray[np.float32]
    """Shape ``(rows, kept tokens)``, from the largest down."""
    ids: NDArray[np.int64]
    """The same shape."""


def sizes_in(data: bytes) -> Sizes:
    """What the first ``HEAD_BYTES`` of a file tell.

    Raises:
        InputError: It is no compact file of kept rows.
    """
    if len(data) < HEAD_BYTES or not data.startswith(MAGIC):
        raise InputError(f"it holds no kept tokens: got `{data[: len(MAGIC)]!r}`, expected `{MAGIC!r}`")
    vocabulary, parts, kept = _SIZES.unpack_from(data, len(MAGIC))
    for fact, got, least in (("vocabulary", vocabulary, 4), ("parts", parts, 1), ("kept tokens", kept, 1)):
        if got < least:
            raise InputError(f"got `{got}` as its {fact}, expected at least `{least}`")
    if kept > vocabulary - SPARE_TOKENS:
        raise InputError(f"got `{kept}` as its kept tokens, expected at most `{vocabulary - SPARE_TOKENS}`")
    if parts > _MOST_TOKENS:
        raise InputError(f"got `{parts}` as its parts, expected at most `{_MOST_TOKENS}`")
    return Sizes(vocab_tokens=vocabulary, parts=parts, kept_tokens=kept)


def top_layout_in(sizes: Sizes, data: bytes) -> TopLayout:
    """The layout, out of the ``shapes_bytes`` behind the head.

    Raises:
        InputError: A part has no scored token, or there are too many tokens.
    """
    shapes = list(struct.iter_unpack("<ii", data))
    for part, (count, first) in enumerate(shapes):
        if not 1 <= first < count:
            raise InputError(f"part `{part}` has `{count}` tokens scored from `{first}` on")
    total = sum(count for count, _ in shapes)
    if total > _MOST_TOKENS:
        raise InputError(f"got `{total}` tokens, expected at most `{_MOST_TOKENS}`")
    return TopLayout(sizes, shapes)


def top_head_bytes(sizes: Sizes, parts: Sequence[tuple[Sequence[int], int]]) -> bytes:
    """Everything in front of the rows.

    Args:
        sizes: Of the file.
        parts: Token ids of each as they stand in the text, and the index of the first that is scored.
    """
    if len(parts) != sizes.parts:
        raise ValueError(f"got `{len(parts)}` parts, expected `{sizes.parts}`")
    head = MAGIC + _SIZES.pack(sizes.vocab_tokens, sizes.parts, sizes.kept_tokens)
    shapes = b"".join(struct.pack("<ii", len(tokens), first) for tokens, first in parts)
    return head + shapes + b"".join(struct.pack(f"<{len(tokens)}i", *tokens) for tokens, _ in parts)


def top_tokens_in(layout: TopLayout, data: bytes) -> list[NDArray[np.int32]]:
    """The ids of every part, out of the ``tokens_bytes`` at ``tokens_at``."""
    import numpy as np

    ends = list(accumulate(count for count, _ in layout.shapes))
    return np.split(np.frombuffer(data, dtype="<i4").astype(np.int32), ends[:-1])


def top_encoded(logits: NDArray[np.float32], targets: NDArray[np.int32], kept_tokens: int) -> bytes:
    """Rows as they are kept, one after another.

    Args:
        logits: Shape ``(rows, vocabulary)``, finite.
        targets: The scored tokens, shape ``(rows,)``.
        kept_tokens: At most two less than the vocabulary.
    """
    import numpy as np

    rows = np.arange(len(logits))
    lowered = logits - logits.max(axis=1, keepdims=True)
    exponentials = np.exp(lowered)
    total = np.log(exponentials.sum(axis=1, dtype=np.float64))
    ids = np.sort(np.argpartition(lowered, -kept_tokens, axis=1)[:, -kept_tokens:], axis=1)
    values = np.take_along_axis(lowered, ids, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    exponentials[rows[:, None], ids] = 0
    exponentials[rows, targets] = 0
    kept = np.zeros(len(logits), dtype=_row_type(logits.shape[1], kept_tokens))
    kept["own"] = lowered[rows, targets] - total
    least = np.finfo(np.float64).tiny
    kept["rest"] = np.log(np.maximum(exponentials.sum(axis=1, dtype=np.float64), least)) - total
    kept["likeliest"] = np.take_along_axis(values, order, axis=1) - total[:, None]
    kept["ids"] = np.take_along_axis(ids, order, axis=1)
    return kept.tobytes()


def top_decoded(data: bytes, *, vocab_tokens: int, kept_tokens: int) -> TopRows:
    """Rows out of whole rows' bytes."""
    import numpy as np

    kept = np.frombuffer(data, dtype=_row_type(vocab_tokens, kept_tokens))
    return TopRows(
        own=kept["own"].astype(np.float32),
        rest=kept["rest"].astype(np.float32),
        likeliest=kept["likeliest"].astype(np.float32),
        ids=kept["ids"].astype(np.int64),
    )


def _row_type(vocab_tokens: int, kept_tokens: int) -> np.dtype[np.void]:
    import numpy as np

    identity = "<u2" if vocab_tokens <= _SHORT_IDS else "<u4"
    numbers = ("likeliest", "<f4", (kept_tokens,))
    return np.dtype([("own", "<f4"), ("rest", "<f4"), numbers, ("ids", identity, (kept_tokens,))])
