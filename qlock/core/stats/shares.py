"""Shares of right answers, alone and in pairs: intervals, the exact test, and the verdict of non-inferiority.

Lives here: whatever can be computed from counts. Does not live here: means of numbers (``means``), and how many
items a statement needs (``sizes``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from qlock.core.stats.interface import (
    FEWEST_PAIRS,
    CannotTell,
    Interval,
    NonInferiority,
    PairedTest,
    check_counts,
    note_on_few,
    quantile_of_level,
)
from qlock.errors import InputError

Cells = tuple[float, float, float, float]
"""Pairs that both, only A, only B, neither got right; whole numbers, or their expectations."""


def mcnemar_exact(b: int, c: int) -> PairedTest:
    """Exact McNemar test: do the pairs that differ lean to one side?

    With n = b + c and X ~ Binomial(n, 1/2), p = min(1, 2·P(X ≤ min(b, c))); the mid-p has P(X = min(b, c)) once
    less, and is 1 for b = c. Assumes independent pairs (repeats or windows of one document are not: average
    them and use ``permutation_paired``). Where so few pairs differ that p cannot fall below 0.05, the note says
    so; where none does, p is 1 and the note is "no discordant pairs".

    Args:
        b: Pairs that only A got right.
        c: Pairs that only B got right.

    Source: McNemar 1947; mid-p: Fagerland, Lydersen & Laake 2013, doi 10.1186/1471-2288-13-91.
    """
    from scipy.special import bdtr

    check_counts(b=b, c=c)
    n, fewer = b + c, min(b, c)
    up_to = float(bdtr(fewer, n, 0.5))
    below = float(bdtr(fewer - 1, n, 0.5)) if fewer else 0.0
    tie = b == c  # then both are 1 by symmetry, which rounding would miss
    return PairedTest(
        p_value=1.0 if tie else min(1.0, 2 * up_to),
        mid_p=1.0 if tie else min(1.0, up_to + below),
        n=n,
        method="mcnemar-exact",
        note=note_on_few(n),
    )


def wilson(successes: int, n: int, *, level: float = 0.95) -> Interval | CannotTell:
    """Wilson score interval of a share: (x + z²/2 ± z·√(x(n−x)/n + z²/4)) / (n + z²).

    Assumes independent items. Honest down to n = 1, where it is nearly the whole range; n = 0 cannot tell.

    Source: Wilson 1927; Newcombe 1998, doi 10.1002/(SICI)1097-0258(19980430)17:8<857::AID-SIM777>3.0.CO;2-E.
    """
    z = quantile_of_level(level)
    check_counts(successes=successes, failures=n - successes)
    if n == 0:
        return CannotTell(why="there are no items")
    low, high = wilson_limits(successes, n, z)
    return Interval(point=successes / n, low=low, high=high, level=level, n=n, clusters=n, method="wilson")


def newcombe_paired(
    *, both: int, only_a: int, only_b: int, neither: int, level: float = 0.95
) -> Interval | CannotTell:
    """Interval of the difference of two paired shares, share of B − share of A (Newcombe's method 10).

    The Wilson intervals of both sides are joined as θ − √(δ_b² − 2φ·δ_b·ε_a + ε_a²) and θ + √(ε_b² − 2φ·ε_b·δ_a
    + δ_a²), where δ and ε reach from each share down and up to its limits, and φ is the correlation of the pairs,
    its numerator ad − bc lessened by n/2, down to 0, where it is positive. Assumes independent pairs. Usable
    from about ten pairs, also where no pair differs; without pairs it cannot tell.

    Args:
        both: Pairs that both got right.
        only_a: Pairs that only A got right.
        only_b: Pairs that only B got right.
        neither: Pairs that both got wrong.
        level: Confidence, as a share.

    Source: Newcombe 1998, doi 10.1002/(SICI)1097-0258(19981130)17:22<2635::AID-SIM954>3.0.CO;2-C.
    """
    z = quantile_of_level(level)
    check_counts(both=both, only_a=only_a, only_b=only_b, neither=neither)
    n = both + only_a + only_b + neither
    if n == 0:
        return CannotTell(why="there are no pairs")
    low, high = newcombe_limits((both, only_a, only_b, neither), z)
    point = (only_b - only_a) / n
    return Interval(
        point=point,
        low=min(low, point),
        high=max(high, point),
        level=level,
        n=n,
        clusters=n,
        method="newcombe-10",
    )


def tango_paired(
    *, both: int, only_a: int, only_b: int, neither: int, level: float = 0.95
) -> Interval | CannotTell:
    """Interval of the difference of two paired shares, share of B − share of A (Tango's score interval).

    All differences δ whose score test is not rejected: |b − a − nδ| ≤ z·√(n(2q + δ − δ²)), a and b being the pairs
    that only one side got right, and q the likeliest share of "only A" if δ were true, the larger root of
    2n·q² − (a + b − (2n + a − b)δ)·q − aδ(1 − δ) = 0. Assumes independent pairs; without pairs it cannot tell.

    Arguments are those of ``newcombe_paired``; ``both`` and ``neither`` count alike.

    Source: Tango 1998, doi 10.1002/(SICI)1097-0258(19980430)17:8<891::AID-SIM780>3.0.CO;2-B.
    """
    z = quantile_of_level(level)
    check_counts(both=both, only_a=only_a, only_b=only_b, neither=neither)
    n = both + only_a + only_b + neither
    if n == 0:
        return CannotTell(why="there are no pairs")
    low, high = tango_limits((both, only_a, only_b, neither), z)
    point = (only_b - only_a) / n
    return Interval(point=point, low=low, high=high, level=level, n=n, clusters=n, method="tango")


def verdict_of(interval: Interval | CannotTell, margin_share: float) -> NonInferiority:
    """What an interval of the difference of shares, B − A, says about a margin.

    Pass: all of it lies above −margin. Fail: all of it lies below. Undecided: it holds −margin, it could not be
    computed, or fewer than ``FEWEST_PAIRS`` independent pairs or clusters stand behind it. Each of the two
    decisions errs with probability (1 − level) / 2.

    Args:
        interval: Of any method; a clustered one where pairs are not independent.
        margin_share: How much worse B may be, as a share, fixed before the run; 0 asks whether B is better.

    Raises:
        InputError: The margin is not between 0 and 1.

    Source: confidence limits against a margin as in CONSORT, Piaggio et al. 2012, doi 10.1001/jama.2012.87802.
    """
    if not 0 <= margin_share <= 1:
        raise InputError(f"`margin_share` lies between 0 and 1: got `{margin_share}`")
    verdict: Literal["pass", "fail"] | None = None
    if isinstance(interval, CannotTell):
        why = interval.why
    elif interval.clusters < FEWEST_PAIRS:
        why = f"a verdict needs {FEWEST_PAIRS} independent pairs, got {interval.clusters}"
    else:
        verdict = decision(interval.low, interval.high, margin_share)
        why = "" if verdict else "the interval holds the margin"
    return NonInferiority(
        verdict=verdict or "undecided", margin_share=margin_share, interval=interval, why=why
    )


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """P-values adjusted for their number (Holm's step-down), in the order given.

    The i-th smallest of m becomes the largest of min(1, (m − j + 1)·p_j) over j ≤ i. Keeps the chance of any false
    alarm at the level, whatever the dependence between the tests. One p-value stays as it is; none gives none.

    Raises:
        InputError: A value is not between 0 and 1.

    Source: Holm 1979.
    """
    for value in p_values:
        if not 0 <= value <= 1:
            raise InputError(f"a p-value lies between 0 and 1: got `{value}`")
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return tuple(adjusted)


def decision(low: float, high: float, margin_share: float) -> Literal["pass", "fail"] | None:
    """What an interval of the difference says about the margin; None where it holds −margin."""
    if low > -margin_share:
        return "pass"
    return "fail" if high < -margin_share else None


def newcombe_limits(cells: Cells, z: float) -> tuple[float, float]:
    """Both ends of Newcombe's interval of B − A; ``newcombe_paired`` has the formula. At least one pair."""
    both, only_a, only_b, neither = cells
    n = math.fsum(cells)
    share_a, share_b = (both + only_a) / n, (both + only_b) / n
    low_a, high_a = wilson_limits(both + only_a, n, z)
    low_b, high_b = wilson_limits(both + only_b, n, z)
    margins = ((both + only_a) * (both + only_b)) * ((only_a + neither) * (only_b + neither))
    excess = both * neither - only_a * only_b
    if excess > 0:
        excess = max(excess - n / 2, 0.0)
    phi = excess / math.sqrt(margins) if margins > 0 else 0.0

    def reach(one: float, other: float) -> float:
        # Written so that exchanging both gives the same bits: B against A is then exactly −(A against B).
        return math.sqrt(max((one * one + other * other) - 2 * phi * (one * other), 0.0))

    point = (only_b - only_a) / n
    low = point - reach(share_b - low_b, high_a - share_a)
    high = point + reach(high_b - share_b, share_a - low_a)
    return max(low, -1.0), min(high, 1.0)


def tango_limits(cells: Cells, z: float) -> tuple[float, float]:
    """Both ends of Tango's interval of B − A; ``tango_paired`` has the formula. At least one pair."""
    _, only_a, only_b, _ = cells
    n = math.fsum(cells)
    # The high end is the low one of B against A with its sign changed, so that exchanging both gives the same bits.
    return _tango_low(only_a, only_b, n, z), -_tango_low(only_b, only_a, n, z)


def _tango_low(only_a: float, only_b: float, n: float, z: float) -> float:
    """The smallest difference that Tango's test does not reject, by halving until no number lies between."""
    rejected, kept = -1.0, (only_b - only_a) / n
    while rejected < (middle := (rejected + kept) / 2) < kept:
        if tango_z(only_a, only_b, n, middle) > z:
            rejected = middle
        else:
            kept = middle
    return kept


def tango_z(only_a: float, only_b: float, n: float, difference: float) -> float:
    """How many standard errors, taken as if a difference were true, the pairs lie above it."""
    linear = (2 * n + only_a - only_b) * difference - only_a - only_b
    constant = -only_a * difference * (1 - difference)
    share = (math.sqrt(max(linear * linear - 8 * n * constant, 0.0)) - linear) / (4 * n)
    share = max(share, -difference, 0.0)
    variance = n * (2 * share + difference - difference * difference)
    excess = only_b - only_a - n * difference
    if variance > 0:
        return excess / math.sqrt(variance)
    return math.copysign(math.inf, excess) if excess else 0.0


def wilson_limits(successes: float, n: float, z: float) -> tuple[float, float]:
    """Both ends of the Wilson interval; exactly 0 or 1 where all are failures or successes."""
    failures = n - successes
    half = z * math.sqrt(successes * failures / n + z * z / 4)
    low = (successes + z * z / 2 - half) / (n + z * z) if successes else 0.0
    high = (successes + z * z / 2 + half) / (n + z * z) if failures else 1.0
    return min(low, successes / n), max(high, successes / n)
