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
    weights = np.cumsum(np.exp((scores[tokens] - scores[tokens[0]]) / sampling.temperature))
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
    """Tokens left by top-k, top-p and min-p, best first; of equal scores the smaller id comes first.

    top-p keeps the shortest head whose share reaches ``top_p``; min-p those at least ``min_p`` times as likely as
    the best. The best always stays. Shares are those before the temperature, as in llama.cpp.
    """
    count = len(scores)
    kept = min(sampling.top_k or count, count)
    looked_at = kept if sampling.top_p >= 1 else min(kept, _FIRST_LOOK)
    while True:
        tokens = _largest(scores, looked_at)
        if looked_at >= kept or _reaches(scores, tokens, kept, sampling):
            break
        looked_at = min(8 * looked_at, kept)
    if sampling.top_p < 1:
        shares = np.exp(scores[tokens] - scores[tokens[0]])
        wanted = sampling.top_p * _total(scores, kept)
        tokens = tokens[: max(1, int(np.searchsorted(np.cumsum(shares), wanted, side="left")) + 1)]
    if sampling.min_p > 0:
        tokens = tokens[scores[tokens] >= scores[tokens[0]] + np.log(sampling.min_p)]
    return tokens


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


def _total(scores: NDArray[np.float64], kept: int) -> float:
    """Sum of the unnormalized shares of the ``kept`` largest."""
    chosen = scores if kept >= len(scores) else scores[_largest(scores, kept)]
    return float(np.exp(chosen - scores.max()).sum())


def _reaches(scores: NDArray[np.float64], tokens: NDArray[np.intp], kept: int, sampling: Sampling) -> bool:
    """Whether the tokens looked at so far hold the share that top-p asks for."""
    held = float(np.exp(scores[tokens] - scores[tokens[0]]).sum())
    return held >= sampling.top_p * _total(scores, kept)
