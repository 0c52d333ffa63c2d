"""The perplexity of a text that was scored in windows, as llama-perplexity works it out, with two errors of it.

Two of them side by side, too. Does not live here: cutting the text into windows (``core.windows``), and which windows
are paired (``core.scores``).

Source: ``tools/perplexity/perplexity.cpp`` of llama.cpp, function ``perplexity``, with ``--ppl-stride 0``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from qlock.core.base import Base, Count, Finite
from qlock.core.exchange import (
    Divergence,
    Excluded,
    Nats,
    Outcome,
    Partial,
    Right,
    Ungraded,
    Unparsable,
    Wrong,
)
from qlock.core.stats import CannotTell, Interval

LARGEST_NATS = 1e6
"""Of one token; float32 logits of a working model give under 200, and squares must stay finite."""
LARGEST_MEAN_NATS = 300.0
"""Beyond it a perplexity and its error would leave what a float can hold."""
_MOST_NATS = 700.0  # exp of more is no number


class Perplexity(Base, frozen=True, kw_only=True):
    """The figure over all windows, with two standard errors of it."""

    perplexity: Finite
    """exp of the mean cost of a scored token."""
    standard_error: Finite | CannotTell
    """llama-perplexity's own ``+/-``: it takes tokens for independent of each other, so it is too small."""
    cluster_error: Finite | CannotTell
    """The same, but with windows as clusters: tokens of one window may depend on each other in any way."""
    scored_tokens: Count
    windows: Count


class Perplexities(Base, frozen=True, kw_only=True, tag_field="kind", tag="perplexities"):
    """exp of nats per token, and the ratio B / A with its interval."""

    a: Finite
    b: Finite
    ratio: Finite
    ratio_low: Finite | CannotTell
    ratio_high: Finite | CannotTell


def perplexities(
    a: float, b: float, *, change: float, difference: Interval | CannotTell
) -> Perplexities | CannotTell:
    """Both perplexities and their ratio, or why there are none.

    Args:
        a: Nats per token of side A.
        b: Nats per token of side B.
        change: B − A.
        difference: The same with its interval, in nats.
    """
    if max(a, b) > _MOST_NATS:
        return CannotTell(why=f"the cost is beyond {_MOST_NATS:g} nats per token")
    low: float | CannotTell
    high: float | CannotTell
    match difference:
        case Interval():
            low, high = math.exp(difference.low), math.exp(min(difference.high, _MOST_NATS))
        case CannotTell():
            low = high = difference
    return Perplexities(a=math.exp(a), b=math.exp(b), ratio=math.exp(change), ratio_low=low, ratio_high=high)


def perplexity_of(outcomes: Iterable[Outcome]) -> Perplexity | CannotTell:
    """The figure over all windows, or why there is none.

    With the sum S and the sum of squares Q over n scored tokens, and m = S / n:

    - perplexity = exp(m);
    - standard error = exp(m) · sqrt((Q / n - m²) / (n - 1)), as llama-perplexity prints it;
    - cluster error = exp(m) · sqrt(k / (k - 1) · Σ (S_w - n_w · m)²) / n over the k windows w (CR1, as
      ``stats.cluster_mean``; windows taken as independent).

    Every outcome must be a window's ``Nats``: a figure over the windows that happened to work would be another
    figure under the same name.
    """
    windows: list[Nats] = []
    for number, outcome in enumerate(outcomes):
        match outcome:
            case Nats():
                windows.append(outcome)
            case Right() | Wrong() | Partial() | Unparsable() | Ungraded() | Excluded() | Divergence():
                return CannotTell(why=f"window {number + 1} has no cost")
    count = sum(window.scored_tokens for window in windows)
    if count == 0:
        return CannotTell(why="no token was scored")
    mean = math.fsum(window.nats_sum for window in windows) / count
    if mean > LARGEST_MEAN_NATS:
        return CannotTell(why=f"got a mean cost of `{mean}` nats, expected at most `{LARGEST_MEAN_NATS}`")
    perplexity = math.exp(mean)
    return Perplexity(
        perplexity=perplexity,
        standard_error=_token_error(windows, mean=mean, perplexity=perplexity),
        cluster_error=_cluster_error(windows, mean=mean, perplexity=perplexity),
        scored_tokens=count,
        windows=len(windows),
    )


def _token_error(windows: Sequence[Nats], *, mean: float, perplexity: float) -> float | CannotTell:
    count = sum(window.scored_tokens for window in windows)
    if count < 2:
        return CannotTell(why="one scored token has no spread")
    variance = math.fsum(window.nats_square_sum for window in windows) / count - mean * mean
    # Rounding can leave the variance of equal costs a hair below zero.
    return perplexity * math.sqrt(max(variance, 0.0) / (count - 1))


def _cluster_error(windows: Sequence[Nats], *, mean: float, perplexity: float) -> float | CannotTell:
    many = len(windows)
    if many < 2:
        return CannotTell(why="one window has no spread")
    count = sum(window.scored_tokens for window in windows)
    spread = math.fsum((window.nats_sum - window.scored_tokens * mean) ** 2 for window in windows)
    return perplexity * math.sqrt(many / (many - 1) * spread) / count
