"""How the next token is chosen from a row of logits: in float64, with every choice a function of the item alone.

The order of the steps is llama.cpp's: penalties, top-k, top-p, min-p, temperature, draw. The draw of step ``n`` uses
one number of Philox, keyed by the item's seed with ``n`` as the counter, so it depends neither on other items nor on
when the step ran.

Does not live here: what is done with the token (``lockstep``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.random import Philox  # numpy loads it lazily; what is mapped must not depend on what is asked
from numpy.typing import NDArray

from qlock.engines.interface import Sampling

Row = NDArray[np.float32]
"""Logits of one step, shape ``(vocabulary,)``."""

_KEY_BITS = 128
_FIRST_LOOK = 512
"""How many of the largest logits are sorted before it is known how many are needed."""


def uniform(seed: int, step: int) -> float:
    """A number in [0, 1) that depends on the seed and the step alone: 53 bits of Philox 4×64-10."""
    generator = Philox(key=seed % (1 << _KEY_BITS), counter=step)
    return float(int(generator.random_raw()) >> 11) * 2.0**-53


def choose(logits: Row, history: Sequence[int], sampling: Sampling, *, step: int) -> int:
    """The token of one step.

    Args:
        logits: As the model gave them, finite.
        history: Prompt and answer so far; the penalties look at its last ``penalty_tokens``.
        sampling: Of the item.
        step: Number of tokens already chosen for it.
    """
    if sampling.temperature <= 0 and not _has_penalties(sampling):
        return int(np.argmax(logits))
    scores = penalized(logits, history, sampling)
    if sampling.temperature <= 0:
        return int(np.argmax(scores))
    tokens = surviving(scores, sampling)
    with np.errstate(over="ignore"):
        weights = np.cumsum(np.exp((scores[tokens] - scores.max()) / sampling.temperature))
    place = np.searchsorted(weights, uniform(sampling.seed, step) * weights[-1], side="right")
    return int(tokens[min(int(place), len(tokens) - 1)])


def penalized(logits: Row, history: Sequence[int], sampling: Sampling) -> NDArray[np.float64]:
    """The logits in float64 after the penalties (source: ``llama_sampler_penalties_apply``).

    A token seen ``c`` times is divided (if positive, else multiplied) by ``repeat_penalty``, then lowered by
    ``c × frequency_penalty + presence_penalty``.
    """
    scores = logits.astype(np.float64)
    if _has_penalties(sampling) and history:
        recent = np.asarray(history[-sampling.penalty_tokens :], dtype=np.int64)
        seen, counts = np.unique(recent, return_counts=True)
        values = scores[seen]
        values = np.where(values <= 0, values * sampling.repeat_penalty, values / sampling.repeat_penalty)
        scores[seen] = values - counts * sampling.frequency_penalty - sampling.presence_penalty
    return scores


def surviving(scores: NDArray[np.float64], sampling: Sampling) -> NDArray[np.intp]:
    """Tokens left by top-k, top-p and min-p, by rising id; of equal scores the smaller id is the better.

    top-p keeps the shortest head whose share reaches ``top_p``; min-p those at least ``min_p`` times as likely as
    the best. The best always stays. Shares are those before the temperature, as in llama.cpp.
    """
    count = len(scores)
    kept = min(sampling.top_k or count, count)
    if sampling.top_p < 1:
        tokens = _head(scores, kept, sampling.top_p)
    elif kept < count:
        tokens = _largest(scores, kept)
    else:
        tokens = np.arange(count)
    if sampling.min_p > 0:
        tokens = tokens[scores[tokens] >= scores.max() + np.log(sampling.min_p)]
    return np.sort(tokens)


def log_probability(logits: Row, token: int) -> float:
    """Natural log of the softmax of the raw logits at a token, in float64."""
    scores = logits.astype(np.float64)
    top = scores.max()
    return float(scores[token] - top - np.log(np.exp(scores - top).sum()))


def _has_penalties(sampling: Sampling) -> bool:
    is_on = sampling.repeat_penalty != 1 or sampling.presence_penalty != 0 or sampling.frequency_penalty != 0
    return is_on and sampling.penalty_tokens > 0


def _largest(scores: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """The ``count`` largest in falling order, ties by id."""
    if count < len(scores):
        edge = np.partition(scores, len(scores) - count)[len(scores) - count]
        candidates = np.flatnonzero(scores >= edge)
    else:
        candidates = np.arange(len(scores))
    order = np.argsort(-scores[candidates], kind="stable")
    return candidates[order[:count]]


def _head(scores: NDArray[np.float64], kept: int, share: float) -> NDArray[np.intp]:
    """The shortest head of the ``kept`` largest that holds ``share`` of what these hold together.

    Sorting a whole vocabulary for each token would cost more than the model does, so few are sorted at first.
    """
    top = scores.max()
    pool = scores if kept >= len(scores) else scores[_largest(scores, kept)]
    wanted = share * float(np.exp(pool - top).sum())
    looked_at = min(kept, _FIRST_LOOK)
    while True:
        tokens = _largest(scores, looked_at)
        held = np.cumsum(np.exp(scores[tokens] - top))
        if held[-1] >= wanted or looked_at >= kept:
            return tokens[: int(np.searchsorted(held, wanted, side="left")) + 1]
        looked_at = min(8 * looked_at, kept)
