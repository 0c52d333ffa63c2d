"""How much data a statement needs: before a run, and after one that did not decide.

Lives here: power of the exact paired test, and sizes for the verdict of non-inferiority. Does not live here: the
test and the verdict themselves (``shares``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from qlock.core.base import Positive
from qlock.core.stats.interface import (
    FEWEST_PAIRS,
    CannotTell,
    Detectable,
    DetectableMean,
    Interval,
    PairsNeeded,
    check_counts,
    check_probability,
    quantile_of_level,
)
from qlock.core.stats.marks import PairedMarks, decided, non_inferior
from qlock.errors import InputError

_MOST_PAIRS = 1_000_000_000
_MOST_STEPS = 2_000  # values of the number of differing pairs that are looked at, evenly spread


def pairs_to_decide(
    marks: PairedMarks, *, margin_share: float, level: float = 0.95
) -> PairsNeeded | CannotTell:
    """The number of pairs at which ``non_inferior`` would decide, if all four cells grew in proportion.

    A plan, not a promise: with the shares seen being the true ones, about half of all runs of this size decide.
    The smallest size is found by doubling and halving. Cannot tell without pairs, or where the difference
    lies so near the margin that a thousand million pairs would not do.
    """
    now = non_inferior(marks, margin_share=margin_share, level=level)
    n = marks.pairs
    if n == 0:
        return CannotTell(why="there are no pairs")
    if now.verdict != "undecided":
        return PairsNeeded(verdict=now.verdict, pairs=n, more=0)
    z = quantile_of_level(level)
    shares = tuple(cell / n for cell in marks.cells)
    fewest = -(-FEWEST_PAIRS * n // marks.items)

    def verdict_at(pairs: int) -> Literal["pass", "fail"] | None:
        a, b, c, d = (share * pairs for share in shares)
        return decided((a, b, c, d), margin_share, z)

    few, enough = n, max(2 * n, fewest)
    while verdict_at(enough) is None:
        if enough > _MOST_PAIRS:
            return CannotTell(why="the difference lies at the margin, and no number of pairs would decide")
        few, enough = enough, 2 * enough
    while enough - few > 1:
        middle = (few + enough) // 2
        if middle < fewest or verdict_at(middle) is None:
            few = middle
        else:
            enough = middle
    verdict = verdict_at(enough)
    assert verdict is not None
    return PairsNeeded(verdict=verdict, pairs=enough, more=enough - n)


def fewest_to_pass(margin_share: float, *, level: float = 0.95) -> Positive | CannotTell:
    """The number of independent items from which on ``non_inferior`` can pass where no pair differs.

    Without any difference the low end of the interval is −z²/(n + z²), for Newcombe, Tango and Wilson alike; it lies above
    −m from n > z²·(1 − m)/m on. Cannot tell for a margin of 0: then no number of items would do.
    """
    if not 0 <= margin_share <= 1:
        raise InputError(f"`margin_share` lies between 0 and 1: got `{margin_share}`")
    if margin_share == 0:
        return CannotTell(why="with a margin of 0 only a better side passes")
    bound = quantile_of_level(level) ** 2 * (1 - margin_share) / margin_share
    if bound > _MOST_PAIRS:
        return CannotTell(why=f"the margin {margin_share:g} is too small for any number of items")
    return max(int(bound) + 1, FEWEST_PAIRS)


def smallest_detectable_difference(
    n: int, discordant_share: float, *, power: float = 0.8, alpha: float = 0.05
) -> Detectable | CannotTell:
    """The smallest true difference of paired shares that the exact McNemar test would find with this power.

    The power at a difference δ is Σ_m P(m of n pairs differ) · P(the test rejects | m, X ~ Binomial(m, (1 +
    δ/ψ)/2)), ψ being the share of pairs that differ; it rises with δ and is solved for δ by halving. Assumes
    independent pairs. Cannot tell where even δ = ψ (all pairs that differ go one way) is found too seldom.

    Source: unconditional power as in Connor 1987, doi 10.2307/2531961, with exact binomials for his normal ones.
    """
    check_counts(n=n)
    check_probability("power", power)
    check_probability("alpha", alpha)
    if not 0 <= discordant_share <= 1:
        raise InputError(f"`discordant_share` lies between 0 and 1: got `{discordant_share}`")
    if n == 0 or discordant_share == 0:
        return CannotTell(why="there are no pairs" if n == 0 else "no pairs are expected to differ")
    found = _mcnemar_power(n, discordant_share, alpha)
    low, high = 0.0, 1.0
    if found(high) < power:
        return CannotTell(
            why=f"of so few pairs, {n}, the power would be {found(high):.2f} even if all that differ went one way"
        )
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) >= power else (middle, high)
    return Detectable(
        difference_share=high * discordant_share,
        n=n,
        discordant_share=discordant_share,
        power=power,
        alpha=alpha,
    )


def detectable_mean(
    mean: Interval | CannotTell, *, power: float = 0.8, alpha: float = 0.05
) -> DetectableMean | CannotTell:
    """The smallest true difference of means that the normal test would find with this power: (z_1−α/2 + z_power)·SE.

    Args:
        mean: Of the differences, with its t interval.
        power: Chance to find it.
        alpha: Of the two-sided test.

    Source: Cohen 1988, chapter 2.
    """
    from scipy.special import ndtri

    check_probability("power", power)
    check_probability("alpha", alpha)
    match mean:
        case Interval(clusters=clusters, standard_error=float(error)):
            z = quantile_of_level(1 - alpha) + float(ndtri(power))
            return DetectableMean(difference=z * error, n=clusters, power=power, alpha=alpha)
        case Interval():
            return CannotTell(why="there is no standard error")
        case CannotTell():
            return mean


def _mcnemar_power(n: int, discordant_share: float, alpha: float) -> Callable[[float], float]:
    """The power of the exact McNemar test as a function of the lean, δ/ψ, of the pairs that differ (0 to 1)."""
    import numpy as np
    from scipy.special import bdtr
    from scipy.stats import binom

    spread = 9 * (n * discordant_share * (1 - discordant_share)) ** 0.5 + 1
    least = max(int(n * discordant_share - spread), 0)
    most = min(int(n * discordant_share + spread) + 1, n)
    differing = np.unique(np.linspace(least, most, min(most - least + 1, _MOST_STEPS)).astype(np.int64))
    weight = binom.pmf(differing, n, discordant_share)
    weight = weight / weight.sum()
    # The test rejects up to this many on the smaller side, and never where that is below 0.
    border = binom.ppf(alpha / 2, differing, 0.5)
    border = np.where(binom.cdf(border, differing, 0.5) <= alpha / 2, border, border - 1)
    rejects_at_all = border >= 0
    weight, differing, border = weight[rejects_at_all], differing[rejects_at_all], border[rejects_at_all]

    def found(lean: float) -> float:
        often = (1 + lean) / 2
        rejects = bdtr(border, differing, often) + bdtr(border, differing, 1 - often)
        return float((weight * rejects).sum())

    return found
