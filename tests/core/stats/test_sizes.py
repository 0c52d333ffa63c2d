"""How much data a statement needs: brute force on small sizes, textbook formula on large ones, then laws."""

from __future__ import annotations

from math import comb, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from qlock.core import stats
from qlock.core.stats import CannotTell, Detectable, DetectableMean, Interval, PairsNeeded
from qlock.errors import InputError


def brute_power(n: int, discordant_share: float, difference: float, alpha: float) -> float:
    """Every table of n pairs, its probability, and whether our own test rejects there."""
    only_a, only_b = (discordant_share + difference) / 2, (discordant_share - difference) / 2
    power = 0.0
    for b in range(n + 1):
        for c in range(n - b + 1):
            if stats.mcnemar_exact(b, c).p_value <= alpha:
                ways = comb(n, b) * comb(n - b, c)
                power += ways * only_a**b * only_b**c * (1 - discordant_share) ** (n - b - c)
    return power


def connor(n: int, psi: float, power: float, alpha: float) -> float:
    """The difference at which Connor's normal approximation has this power."""
    za, zb = norm.isf(alpha / 2), norm.isf(1 - power)
    return float(sqrt(psi) * (sqrt(n) * za + zb * sqrt(n + zb**2 - za**2)) / (n + zb**2))


@pytest.mark.parametrize("n, discordant_share", [(20, 0.6), (30, 0.5), (40, 1.0)])
def test_the_power_at_the_detectable_difference_is_the_one_asked_for(n: int, discordant_share: float) -> None:
    found = stats.smallest_detectable_difference(n, discordant_share)
    assert isinstance(found, Detectable)
    assert brute_power(n, discordant_share, found.difference_share, 0.05) == pytest.approx(0.8, abs=1e-9)


@pytest.mark.parametrize("n, discordant_share", [(2_000, 0.1), (12_000, 0.05), (1_000_000, 0.05)])
def test_large_sizes_agree_with_the_textbook(n: int, discordant_share: float) -> None:
    found = stats.smallest_detectable_difference(n, discordant_share, power=0.9, alpha=0.01)
    assert isinstance(found, Detectable)
    assert found.difference_share == pytest.approx(connor(n, discordant_share, 0.9, 0.01), rel=0.03)


def test_too_few_pairs_cannot_detect_anything() -> None:
    assert stats.smallest_detectable_difference(5, 1.0) == CannotTell(
        why="of so few pairs, 5, the power would be 0.00 even if all that differ went one way"
    )
    assert stats.smallest_detectable_difference(0, 0.1) == CannotTell(why="there are no pairs")
    assert stats.smallest_detectable_difference(100, 0.0) == CannotTell(why="no pairs are expected to differ")


@pytest.mark.parametrize(
    "discordant_share, power, message",
    [
        (1.5, 0.8, "`discordant_share` lies between 0 and 1: got `1.5`"),
        (0.5, 1.0, "`power` lies between 0 and 1, both excluded: got `1.0`"),
    ],
)
def test_senseless_plans_are_refused(discordant_share: float, power: float, message: str) -> None:
    with pytest.raises(InputError) as caught:
        stats.smallest_detectable_difference(100, discordant_share, power=power)
    assert str(caught.value) == message


@given(st.integers(20, 400), st.floats(0.05, 1))
def test_more_power_needs_a_larger_difference(n: int, discordant_share: float) -> None:
    less = stats.smallest_detectable_difference(n, discordant_share, power=0.6)
    more = stats.smallest_detectable_difference(n, discordant_share, power=0.9)
    match less, more:
        case Detectable(), Detectable():
            assert 0 < less.difference_share < more.difference_share <= discordant_share
        case CannotTell(), Detectable():
            pytest.fail("less power cannot be harder to reach")
        case _:
            pass


def test_the_detectable_mean_is_2_8_standard_errors() -> None:
    mean = stats.paired_mean_interval([float(n) for n in range(30)])
    assert isinstance(mean, Interval)
    assert isinstance(mean.standard_error, float)
    found = stats.detectable_mean(mean)
    assert isinstance(found, DetectableMean)
    assert found.difference == pytest.approx(2.801585 * mean.standard_error, rel=1e-6)
    assert (found.n, found.power, found.alpha) == (30, 0.8, 0.05)


def test_without_a_standard_error_no_mean_is_detectable() -> None:
    unknown = stats.paired_mean_interval([1.0, 1.0])
    assert stats.detectable_mean(unknown) == unknown
    assert stats.detectable_mean(stats.wilson(3, 9)) == CannotTell(why="there is no standard error")
    with pytest.raises(InputError) as caught:
        stats.detectable_mean(unknown, power=1.0)
    assert str(caught.value) == "`power` lies between 0 and 1, both excluded: got `1.0`"


# ---------------------------------------------------------------- fewest to pass


@pytest.mark.parametrize(
    "margin_share, fewest", [(0.005, 765), (0.02, 189), (0.05, 73), (0.1, 35), (0.4, 10), (1.0, 10)]
)
def test_so_many_items_pass_where_nothing_differs(margin_share: float, fewest: int) -> None:
    assert stats.fewest_to_pass(margin_share) == fewest
    assert verdict((fewest, 0, 0, 0), margin_share) == "pass"
    assert verdict((fewest - 1, 0, 0, 0), margin_share) == "undecided"


def test_a_margin_of_nothing_is_passed_by_no_number_of_items() -> None:
    assert stats.fewest_to_pass(0.0) == CannotTell(why="with a margin of 0 only a better side passes")
    why = "the margin 1e-12 is too small for any number of items"
    assert stats.fewest_to_pass(1e-12) == CannotTell(why=why)
    with pytest.raises(InputError) as caught:
        stats.fewest_to_pass(1.5)
    assert str(caught.value) == "`margin_share` lies between 0 and 1: got `1.5`"


# ---------------------------------------------------------------- pairs to decide


def needed(cells: tuple[int, int, int, int], margin_share: float) -> PairsNeeded | CannotTell:
    both, only_a, only_b, neither = cells
    marks = stats.marks_of_counts(both=both, only_a=only_a, only_b=only_b, neither=neither)
    return stats.pairs_to_decide(marks, margin_share=margin_share)


def verdict(cells: tuple[int, int, int, int], margin_share: float) -> str:
    both, only_a, only_b, neither = cells
    marks = stats.marks_of_counts(both=both, only_a=only_a, only_b=only_b, neither=neither)
    return stats.non_inferior(marks, margin_share=margin_share).verdict


def test_a_decided_comparison_needs_no_more() -> None:
    assert needed((900, 10, 12, 78), 0.02) == PairsNeeded(verdict="pass", pairs=1000, more=0)


def test_an_undecided_one_is_told_how_many_would_do() -> None:
    found = needed((360, 8, 6, 26), 0.01)
    assert found == PairsNeeded(verdict="pass", pairs=5568, more=5168)


def test_the_same_table_at_that_size_decides() -> None:
    found = needed((80, 4, 4, 12), 0.01)
    assert isinstance(found, PairsNeeded)
    times = -(-found.pairs // 100)
    assert verdict((80 * times, 4 * times, 4 * times, 12 * times), 0.01) == found.verdict == "pass"
    times = found.pairs // 100 - 1
    assert verdict((80 * times, 4 * times, 4 * times, 12 * times), 0.01) == "undecided"


def test_repeats_that_are_alike_are_needed_in_whole_items() -> None:
    once = needed((80, 4, 4, 12), 0.01)
    right_a = [1.0] * 84 + [0.0] * 16
    right_b = [1.0] * 80 + [0.0] * 4 + [1.0] * 4 + [0.0] * 12
    four = stats.paired_marks(right_a * 4, right_b * 4, [f"{item}" for item in range(100)] * 4)
    often = stats.pairs_to_decide(four, margin_share=0.01)
    assert isinstance(once, PairsNeeded)
    assert isinstance(often, PairsNeeded)
    assert often.pairs == pytest.approx(4 * once.pairs, rel=0.05)
    assert often.more == often.pairs - 400


def test_a_difference_at_the_margin_is_never_decided() -> None:
    assert needed((360, 8, 6, 26), 0.005) == CannotTell(
        why="the difference lies at the margin, and no number of pairs would decide"
    )


def test_no_pairs_say_nothing_about_how_many_are_needed() -> None:
    assert needed((0, 0, 0, 0), 0.01) == CannotTell(why="there are no pairs")


def test_few_clear_pairs_need_the_fewest_for_a_verdict() -> None:
    assert needed((0, 3, 0, 0), 0.01) == PairsNeeded(verdict="fail", pairs=10, more=7)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.floats(0, 0.2))
def test_needed_pairs_agree_with_the_verdict(
    both: int, only_a: int, only_b: int, neither: int, margin_share: float
) -> None:
    n = both + only_a + only_b + neither
    found = needed((both, only_a, only_b, neither), margin_share)
    now = verdict((both, only_a, only_b, neither), margin_share)
    match found:
        case PairsNeeded():
            assert found.pairs == n + found.more
            assert (found.more == 0) == (now != "undecided")
            assert (found.verdict == "pass") == ((only_b - only_a) / n > -margin_share)
        case CannotTell():
            assert now == "undecided"
