"""Negative log-probabilities of given tokens, out of the logits and with llama-perplexity's own arithmetic.

Does not live here: decoding (``native``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROWS = 16
"""Rows reduced at a time: the scratch stays in the processor's cache whatever the window."""


class NotFiniteError(ArithmeticError):
    """A logit is NaN or infinite."""


def nats_of(logits: NDArray[np.float32], targets: NDArray[np.int32]) -> NDArray[np.float64]:
    """``−ln p`` of one target per row; source: ``log_softmax`` in llama.cpp's ``tools/perplexity/perplexity.cpp``.

    The largest logit is taken off in float32, ``exp`` is in float32, the sum and its logarithm are in float64.

    Args:
        logits: Shape ``(rows, vocabulary)``.
        targets: Shape ``(rows,)``.

    Raises:
        NotFiniteError: A logit is NaN or infinite.
    """
    rows, vocabulary = logits.shape
    nats = np.empty(rows, dtype=np.float64)
    scratch = np.empty((min(rows, _ROWS), vocabulary), dtype=np.float32)
    for start in range(0, rows, _ROWS):
        piece = logits[start : start + _ROWS]
        mine = targets[start : start + _ROWS]
        exponentials = scratch[: len(piece)]
        top = piece.max(axis=1)
        # NaN passes through both extremes; an infinity is one of them.
        if not (np.isfinite(top).all() and np.isfinite(piece.min(axis=1)).all()):
            raise NotFiniteError
        np.subtract(piece, top[:, None], out=exponentials)
        lowered = exponentials[np.arange(len(piece)), mine].astype(np.float64)
        np.exp(exponentials, out=exponentials)
        nats[start : start + _ROWS] = np.log(exponentials.sum(axis=1, dtype=np.float64)) - lowered
    return nats
