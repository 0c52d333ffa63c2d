"""Counts: published figures first, then exact and foreign oracles, then laws."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import comb, log, sqrt

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binomtest
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from qlock.core import stats
from qlock.core.stats import CannotTell, Interval, NonInferiority
from qlock.errors import InputError

COUNTS = st.integers(0, 60)
LEVELS = st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99, 1 - 2**-53])


def newcombe(both: int, only_a: int, only_b: int, neither: int) -> Interval:
    found = stats.newcombe_paired(both=both, only_a=only_a, only_b=only_b, neither=neither)
    assert isinstance(found, Interval)
    return found


# ---------------------------------------------------------------- McNemar


@pytest.mark.parametrize(
    "b, c, p_value",
    [(6, 0, 0.03125), (5, 0, 0.0625), (25, 12, 0.047031), (100, 60, 0.001954), (10, 10, 1.0), (1, 0, 1.0)],
)
def test_mcnemar_gives_the_known_p_values(b: int, c: int, p_value: float) -> None:
    assert stats.mcnemar_exact(b, c).p_value == pytest.approx(p_value, abs=5e-7)
    assert stats.mcnemar_exact(c, b) == stats.mcnemar_exact(b, c)


def test_no_discordant_pairs() -> None:
    assert stats.mcnemar_exact(0, 0) == stats.PairedTest(
        p_value=1.0, mid_p=1.0, n=0, method="mcnemar-exact", note="no discordant pairs"
    )


@pytest.mark.parametrize(
    "b, note",
    [
        (1, "pairs that differ: 1, so p cannot be below 1"),
        (5, "pairs that differ: 5, so p cannot be below 0.0625"),
        (6, ""),
    ],
)
def test_too_few_discordant_pairs_are_named(b: int, note: str) -> None:
    assert stats.mcnemar_exact(b, 0).note == note


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        stats.mcnemar_exact(3, -1)
    assert str(caught.value) == "`c` is a count: got `-1`, expected at least `0`"


@given(COUNTS, COUNTS)
def test_mcnemar_equals_exact_fractions(b: int, c: int) -> None:
    n, fewer = b + c, min(b, c)
    below = Fraction(sum(comb(n, k) for k in range(fewer)), 2**n)
    at = Fraction(comb(n, fewer), 2**n)
    found = stats.mcnemar_exact(b, c)
    assert found.p_value == pytest.approx(float(min(Fraction(1), 2 * (below + at))), rel=1e-12)
    assert found.mid_p == pytest.approx(float(2 * below + at), rel=1e-12)
    assert found.n == n


@given(COUNTS, COUNTS)
def test_mcnemar_equals_scipy_and_statsmodels(b: int, c: int) -> None:
    found = stats.mcnemar_exact(b, c).p_value
    if b + c:
        assert found == pytest.approx(binomtest(b, b + c).pvalue, rel=1e-9)
        assert found == pytest.approx(mcnemar([[7, b], [c, 5]], exact=True).pvalue, rel=1e-9)


def test_mcnemar_of_very_many_pairs_stays_a_number() -> None:
    assert stats.mcnemar_exact(1_000_000, 0).p_value == 0.0
    assert stats.mcnemar_exact(10**9, 10**9).p_value == 1.0


# ---------------------------------------------------------------- Wilson


@pytest.mark.parametrize(
    "successes, n, low, high", [(1, 1, 0.2065, 1.0), (0, 1, 0.0, 0.7935), (100, 100, 0.963, 1.0)]
)
def test_wilson_gives_the_known_limits(successes: int, n: int, low: float, high: float) -> None:
    found = stats.wilson(successes, n)
    assert isinstance(found, Interval)
    assert found.low == pytest.approx(low, abs=5e-5)
    assert found.high == pytest.approx(high, abs=5e-5)
    assert (found.point, found.n, found.clusters, found.method) == (successes / n, n, n, "wilson")


def test_wilson_of_nothing_cannot_tell() -> None:
    assert stats.wilson(0, 0) == CannotTell(why="there are no items")


@pytest.mark.parametrize(
    "successes, n, level, message",
    [
        (2, 1, 0.95, "`failures` is a count: got `-1`, expected at least `0`"),
        (-1, 1, 0.95, "`successes` is a count: got `-1`, expected at least `0`"),
        (1, 1, 1.0, "`level` lies between 0 and 1, both excluded: got `1.0`"),
        (1, 1, float("nan"), "`level` lies between 0 and 1, both excluded: got `nan`"),
    ],
)
def test_wilson_refuses_what_makes_no_sense(successes: int, n: int, level: float, message: str) -> None:
    with pytest.raises(InputError) as caught:
        stats.wilson(successes, n, level=level)
    assert str(caught.value) == message


@given(COUNTS, COUNTS, LEVELS)
def test_wilson_equals_statsmodels_and_contains_the_point(right: int, wrong: int, level: float) -> None:
    found = stats.wilson(right, right + wrong, level=level)
    if right + wrong == 0:
        assert found == CannotTell(why="there are no items")
        return
    assert isinstance(found, Interval)
    low, high = proportion_confint(right, right + wrong, alpha=1 - level, method="wilson")
    assert found.low == pytest.approx(low, abs=1e-9)
    assert found.high == pytest.approx(high, abs=1e-9)
    assert 0 <= found.low <= found.point <= found.high <= 1
    assert found.low < found.high


# ---------------------------------------------------------------- Newcombe


@pytest.mark.parametrize(
    "cells, low, high",
    [
        # Newcombe 1998, table of method 10, and Fagerland, Lydersen & Laake 2014 (the last)
        ((36, 12, 2, 0), 0.0569, 0.3404),
        ((18, 12, 2, 18), 0.0562, 0.3290),
        ((53, 0, 0, 1), -0.0729, 0.0729),
        ((1, 1, 7, 12), -0.5069, -0.0256),
    ],
)
def test_newcombe_gives_the_published_limits(
    cells: tuple[int, int, int, int], low: float, high: float
) -> None:
    both, only_first, only_second, neither = cells  # published as first − second: A is the second
    found = newcombe(both, only_second, only_first, neither)
    assert found.low == pytest.approx(low, abs=5e-5)
    assert found.high == pytest.approx(high, abs=5e-5)


def test_newcombe_without_pairs_cannot_tell() -> None:
    found = stats.newcombe_paired(both=0, only_a=0, only_b=0, neither=0)
    assert found == CannotTell(why="there are no pairs")


@pytest.mark.parametrize("cells", [(50, 0, 0, 0), (0, 0, 0, 50), (0, 50, 0, 0), (0, 0, 50, 0), (1, 0, 0, 0)])
def test_one_sided_tables_have_an_interval_of_some_width(cells: tuple[int, int, int, int]) -> None:
    found = newcombe(*cells)
    assert -1 <= found.low <= found.point <= found.high <= 1
    assert found.low < found.high


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_newcombe_equals_the_formula_as_printed(both: int, only_a: int, only_b: int, neither: int) -> None:
    a, b, c, d = both, only_b, only_a, neither  # the paper's cells, for first − second with B as the first
    n = a + b + c + d
    if n == 0:
        return
    p1, p2 = (a + b) / n, (a + c) / n
    l1, u1 = proportion_confint(a + b, n, method="wilson")
    l2, u2 = proportion_confint(a + c, n, method="wilson")
    product = (a + b) * (c + d) * (a + c) * (b + d)
    numerator = a * d - b * c
    if numerator > n / 2:
        corrected = numerator - n / 2
    elif numerator >= 0:
        corrected = 0.0
    else:
        corrected = numerator
    phi = corrected / sqrt(product) if product else 0.0
    delta = (p1 - l1) ** 2 - 2 * phi * (p1 - l1) * (u2 - p2) + (u2 - p2) ** 2
    epsilon = (p2 - l2) ** 2 - 2 * phi * (p2 - l2) * (u1 - p1) + (u1 - p1) ** 2
    found = newcombe(both, only_a, only_b, neither)
    assert found.low == pytest.approx(p1 - p2 - sqrt(max(delta, 0)), abs=1e-9)
    assert found.high == pytest.approx(p1 - p2 + sqrt(max(epsilon, 0)), abs=1e-9)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_exchanging_the_sides_only_changes_the_signs(
    both: int, only_a: int, only_b: int, neither: int
) -> None:
    if both + only_a + only_b + neither == 0:
        return
    one, other = newcombe(both, only_a, only_b, neither), newcombe(both, only_b, only_a, neither)
    assert (one.point, one.low, one.high) == (-other.point, -other.high, -other.low)
    assert one.low <= one.point <= one.high


# ---------------------------------------------------------------- Tango


def tango(both: int, only_a: int, only_b: int, neither: int) -> Interval:
    found = stats.tango_paired(both=both, only_a=only_a, only_b=only_b, neither=neither)
    assert isinstance(found, Interval)
    return found


def test_tango_gives_the_published_limits() -> None:
    found = tango(1, 7, 1, 12)  # Fagerland, Lydersen & Laake 2014, doi 10.1002/sim.6148
    assert (found.low, found.high) == pytest.approx((-0.517, -0.026), abs=5e-4)
    assert (found.point, found.n, found.method) == (-6 / 21, 21, "tango")


def test_tango_without_pairs_cannot_tell() -> None:
    found = stats.tango_paired(both=0, only_a=0, only_b=0, neither=0)
    assert found == CannotTell(why="there are no pairs")


def likeliest(only_a: int, only_b: int, n: int, difference: float) -> float:
    """The share of "only A" under which the counts are likeliest, were the difference true; found by search."""

    def cost(share: float) -> float:
        shares = (share, share + difference, 1 - 2 * share - difference)
        counts = (only_a, only_b, n - only_a - only_b)
        return -sum(count * log(max(one, 1e-300)) for count, one in zip(counts, shares, strict=True) if count)

    bounds = (max(0.0, -difference), (1 - difference) / 2)
    return float(minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 1e-12}).x)


@hypothesis_settings(max_examples=40)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 200))
def test_at_tangos_limits_the_score_test_is_just_not_rejected(only_a: int, only_b: int, same: int) -> None:
    found, n = tango(same, only_a, only_b, 0), same + only_a + only_b
    for end in (found.low, found.high):
        share = likeliest(only_a, only_b, n, end)
        z = (only_b - only_a - n * end) / sqrt(n * (2 * share + end - end * end))
        assert abs(z) == pytest.approx(1.959964, abs=1e-3)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_tangos_interval_keeps_its_laws(both: int, only_a: int, only_b: int, neither: int) -> None:
    if both + only_a + only_b + neither == 0:
        return
    one, other = tango(both, only_a, only_b, neither), tango(neither, only_b, only_a, both)
    assert (one.point, one.low, one.high) == (-other.point, -other.high, -other.low)
    assert -1 <= one.low <= one.point <= one.high <= 1
    assert one.low < one.high


# ---------------------------------------------------------------- verdicts


def test_clusters_count_for_the_fewest_not_their_items() -> None:
    interval = stats.cluster_mean([0.0, 0.1] * 9, [i // 2 for i in range(14)] + [7, 7, 8, 8])
    assert (
        stats.verdict_of(interval, 0.2).why
        == "all means of clusters are 0.05, which does not show how far they could differ"
    )
    values = [i / 100 for i in range(18)]
    nine = stats.cluster_mean(values, [i // 2 for i in range(18)])
    assert stats.verdict_of(nine, 0.2).why == "a verdict needs 10 independent pairs, got 9"
    ten = stats.cluster_mean([*values, 0.2], [*(i // 2 for i in range(18)), 9])
    assert stats.verdict_of(ten, 0.2).verdict == "pass"


def test_a_margin_that_is_no_share_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        stats.verdict_of(stats.wilson(1, 2), 2.0)
    assert str(caught.value) == "`margin_share` lies between 0 and 1: got `2.0`"


# ---------------------------------------------------------------- Holm


def test_holm_by_hand() -> None:
    assert stats.holm([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.06, 0.06))
    assert stats.holm([]) == ()
    assert stats.holm([0.2]) == (0.2,)
    assert stats.holm([0.6, 0.9]) == (1.0, 1.0)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_holm_refuses_what_is_no_p_value(value: float) -> None:
    with pytest.raises(InputError) as caught:
        stats.holm([0.1, value])
    assert str(caught.value) == f"a p-value lies between 0 and 1: got `{value}`"


@hypothesis_settings(max_examples=20)  # statsmodels takes its time
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_equals_statsmodels(p_values: list[float]) -> None:
    adjusted = multipletests(p_values, method="holm")[1]
    assert stats.holm(p_values) == pytest.approx(tuple(adjusted), rel=1e-12)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=4))
def test_holm_does_not_depend_on_the_order(p_values: list[float]) -> None:
    by_value = dict(zip(p_values, stats.holm(p_values), strict=True))
    for order in itertools.permutations(p_values):
        assert stats.holm(order) == tuple(by_value[value] for value in order)


# ---------------------------------------------------------------- as records


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_answers_survive_json_strictly(both: int, only_a: int, only_b: int, neither: int) -> None:
    answers: list[stats.PairedTest | NonInferiority | Interval | CannotTell] = [
        stats.mcnemar_exact(only_a, only_b),
        stats.wilson(both, both + neither),
        stats.newcombe_paired(both=both, only_a=only_a, only_b=only_b, neither=neither),
        stats.verdict_of(tango(both, only_a, only_b, neither + 1), 0.01),
    ]
    written = msgspec.json.encode(answers)
    assert b"null" not in written
    assert (
        msgspec.json.decode(written, type=list[stats.PairedTest | NonInferiority | Interval | CannotTell])
        == answers
    )
