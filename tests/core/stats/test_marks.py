"""Marks in pairs: tables by hand, errors by full enumeration at the margin, then laws."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy.stats import binom, multinomial

from qlock.core import stats
from qlock.core.stats import CannotTell, Interval, NonInferiority, PairedMarks
from qlock.errors import InputError

COUNTS = st.integers(0, 60)
MARKS = st.sampled_from([0.0, 1.0, 0.0, 1.0, 0.5, 0.25])


def interval(found: Interval | CannotTell) -> Interval:
    assert isinstance(found, Interval)
    return found


def counts(both: int, only_a: int, only_b: int, neither: int) -> PairedMarks:
    return stats.marks_of_counts(both=both, only_a=only_a, only_b=only_b, neither=neither)


# ---------------------------------------------------------------- tables


def test_right_and_wrong_are_counted() -> None:
    found = stats.paired_marks([1, 1, 1, 0, 0], [1, 1, 0, 1, 0])
    assert found == counts(2, 1, 1, 1)
    assert (found.pairs, found.items, found.design_effect, found.difference) == (5, 5, 1.0, 0.0)


def test_a_mark_in_part_is_shared_out() -> None:
    found = stats.paired_marks([0.75, 0.25], [0.5, 1.0])
    assert (found.both, found.only_a, found.only_b, found.neither) == (0.75, 0.25, 0.75, 0.25)
    assert (found.pairs, found.difference) == (2, 0.25)


def test_repeats_that_are_alike_say_what_one_says() -> None:
    a, b = [1.0] * 30 + [0.0] * 10, [1.0] * 25 + [0.0] * 15
    items = [f"item-{number}" for number in range(40)]
    four = stats.paired_marks(a * 4, b * 4, items * 4)
    assert (four.pairs, four.items) == (160, 40)
    assert four.design_effect == pytest.approx(4, rel=0.02)
    once, often = interval(stats.paired_interval(counts(25, 5, 0, 10))), interval(stats.paired_interval(four))
    assert (often.point, often.low, often.high) == pytest.approx((once.point, once.low, once.high), abs=0.003)


def test_repeats_without_any_difference_say_what_one_says() -> None:
    found = stats.paired_marks([1.0] * 40, [1.0] * 40, [f"{number // 4}" for number in range(40)])
    assert (found.items, found.design_effect, found.cells) == (10, 4.0, (10.0, 0.0, 0.0, 0.0))


def test_small_parts_of_a_mark_say_more_than_right_and_wrong() -> None:
    a = [0.5 + 0.01 * (number % 7) for number in range(200)]
    b = [0.5 + 0.01 * (number % 5) for number in range(200)]
    found = stats.paired_marks(a, b)
    assert found.design_effect < 0.25
    assert (
        interval(stats.paired_interval(found)).high
        < interval(stats.paired_interval(counts(0, 2, 0, 198))).high
    )


def test_one_item_in_many_repeats_is_one() -> None:
    found = stats.paired_marks([1.0] * 6, [0.0, 1.0] * 3, ["only"] * 6)
    assert (found.items, found.design_effect) == (1, 6.0)


def test_the_design_effect_is_the_clustered_variance_over_the_plain_one() -> None:
    rng = random.Random(5)
    items = [f"{number // 3}" for number in range(90)]
    chances = {item: rng.random() for item in items}
    a = [float(rng.random() < chances[item]) for item in items]
    b = [float(rng.random() < chances[item]) for item in items]
    differences = [mine - theirs for theirs, mine in zip(a, b, strict=True)]
    robust, plain = stats.cluster_mean(differences, items), stats.paired_mean_interval(differences)
    assert isinstance(robust, Interval)
    assert isinstance(plain, Interval)
    assert isinstance(robust.standard_error, float)
    assert isinstance(plain.standard_error, float)
    squares = [max(robust.standard_error, plain.standard_error) ** 2, plain.standard_error**2]
    between, within = (
        90**2 * square for square in squares
    )  # sums of squares; one imagined item of 3 goes with them
    assert stats.paired_marks(a, b, items).design_effect == pytest.approx(
        (between + 9) / (within + 3), rel=1e-9
    )


def test_marks_that_are_none_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        stats.paired_marks([1.0], [1.0, 0.0])
    assert str(caught.value) == "marks come in pairs: got `1` and `2`"
    for odd in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError) as caught:
            stats.paired_marks([1.0], [odd])
        assert str(caught.value) == f"a mark lies between 0 and 1: got `{odd}`"
        with pytest.raises(InputError) as caught:
            stats.share_interval([odd])
        assert str(caught.value) == f"a mark lies between 0 and 1: got `{odd}`"


# ---------------------------------------------------------------- intervals


def test_without_pairs_nothing_can_be_told() -> None:
    assert stats.paired_interval(stats.paired_marks([], [])) == CannotTell(why="there are no pairs")
    assert stats.share_interval([]) == CannotTell(why="there are no items")


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_each_end_is_the_farther_one_of_newcombes_and_tangos(
    both: int, only_a: int, only_b: int, neither: int
) -> None:
    if both + only_a + only_b + neither == 0:
        return
    cells = {"both": both, "only_a": only_a, "only_b": only_b, "neither": neither}
    found = interval(stats.paired_interval(stats.marks_of_counts(**cells)))
    newcombe, tango = interval(stats.newcombe_paired(**cells)), interval(stats.tango_paired(**cells))
    assert (found.low, found.high) == (min(newcombe.low, tango.low), max(newcombe.high, tango.high))
    assert found.low < found.high


@given(st.integers(0, 40), st.integers(0, 40))
def test_a_share_of_items_of_their_own_has_wilsons_interval(right: int, wrong: int) -> None:
    assert stats.share_interval([1.0] * right + [0.0] * wrong) == stats.wilson(right, right + wrong)


def test_a_share_of_repeats_that_are_alike_is_that_of_one() -> None:
    once = interval(stats.wilson(15, 40))
    marks = [1.0] * 15 + [0.0] * 25
    often = interval(stats.share_interval(marks * 3, [f"{number}" for number in range(40)] * 3))
    assert (often.n, often.clusters, often.method) == (120, 40, "wilson")
    assert (often.point, often.low, often.high) == pytest.approx((once.point, once.low, once.high), abs=0.003)


@hypothesis_settings(max_examples=50)
@given(st.lists(st.tuples(MARKS, MARKS, st.integers(0, 5)), min_size=1, max_size=30), st.randoms())
def test_neither_order_nor_names_matter_and_exchange_changes_the_signs(
    rows: list[tuple[float, float, int]], rng: random.Random
) -> None:
    a, b, items = ([row[column] for row in rows] for column in range(3))
    found = interval(stats.paired_interval(stats.paired_marks(a, b, items)))
    rng.shuffle(rows)
    a, b, names = ([row[0] for row in rows], [row[1] for row in rows], [f"item {row[2]}" for row in rows])
    assert stats.paired_interval(stats.paired_marks(a, b, names)) == found
    other = interval(stats.paired_interval(stats.paired_marks(b, a, names)))
    assert (other.point, other.low, other.high) == (-found.point, -found.high, -found.low)
    assert -1 <= found.low <= found.point <= found.high <= 1


# ---------------------------------------------------------------- non-inferiority


def verdict(cells: tuple[int, int, int, int], margin_share: float) -> NonInferiority:
    return stats.non_inferior(counts(*cells), margin_share=margin_share)


def test_a_quant_that_loses_nothing_of_many_passes() -> None:
    found = verdict((900, 10, 12, 78), 0.02)
    assert (found.verdict, found.why, found.margin_share) == ("pass", "", 0.02)
    assert isinstance(found.interval, Interval)
    assert found.interval.low > -0.02


def test_a_quant_that_loses_a_lot_fails() -> None:
    found = verdict((700, 200, 20, 80), 0.02)
    assert (found.verdict, found.why) == ("fail", "")


def test_a_quant_near_the_margin_is_undecided() -> None:
    found = verdict((360, 8, 6, 26), 0.005)
    assert (found.verdict, found.why) == ("undecided", "the interval holds the margin")


def test_nine_pairs_give_no_verdict_however_clear() -> None:
    found = verdict((0, 9, 0, 0), 0.005)
    assert found.verdict == "undecided"
    assert found.why == "a verdict needs 10 independent pairs, got 9"
    assert verdict((0, 10, 0, 0), 0.005).verdict == "fail"


def test_no_pairs_give_no_verdict() -> None:
    assert verdict((0, 0, 0, 0), 0.005) == NonInferiority(
        verdict="undecided",
        margin_share=0.005,
        interval=CannotTell(why="there are no pairs"),
        why="there are no pairs",
    )


def test_a_whole_margin_passes_all_but_a_total_loss() -> None:
    assert verdict((0, 19, 0, 1), 1.0).verdict == "pass"
    assert verdict((0, 20, 0, 0), 1.0).verdict == "undecided"


@given(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS), st.floats(0, 1), st.floats(0, 1))
def test_a_wider_margin_never_turns_a_pass(
    cells: tuple[int, int, int, int], one: float, other: float
) -> None:
    rank = {"fail": 0, "undecided": 1, "pass": 2}
    narrow, wide = sorted((one, other))
    assert rank[verdict(cells, narrow).verdict] <= rank[verdict(cells, wide).verdict]


@pytest.mark.parametrize("n, margin_share", [(20, 0.1), (200, 0.02), (200, 0.05), (2_000, 0.005)])
def test_where_items_are_only_lost_a_verdict_at_the_margin_errs_as_seldom_as_promised(
    n: int, margin_share: float
) -> None:
    errors = {"pass": 0.0, "fail": 0.0, "undecided": 0.0}
    most = int(n * margin_share + 10 * (n * margin_share) ** 0.5) + 10
    for lost in range(min(most, n) + 1):
        errors[verdict((n - lost, lost, 0, 0), margin_share).verdict] += binom.pmf(lost, n, margin_share)
    assert errors["pass"] <= 0.025
    assert errors["fail"] <= 0.025
    assert sum(errors.values()) == pytest.approx(1)


@pytest.mark.parametrize("differing", [0.1, 0.2, 0.3, 0.6])
@pytest.mark.parametrize("margin_share", [0.0, 0.05, 0.1])
def test_of_few_pairs_a_verdict_at_the_margin_errs_hardly_more_often(
    differing: float, margin_share: float
) -> None:
    n, errors = 20, {"pass": 0.0, "fail": 0.0, "undecided": 0.0}
    shares = [(differing + margin_share) / 2, (differing - margin_share) / 2, 1 - differing]
    for only_a, only_b in itertools.product(range(n + 1), repeat=2):
        if only_a + only_b <= n:
            same = n - only_a - only_b
            found = verdict((same // 2, only_a, only_b, same - same // 2), margin_share).verdict
            errors[found] += float(multinomial.pmf([only_a, only_b, same], n, shares))
    assert errors["pass"] <= 0.032
    assert errors["fail"] <= 0.032


def test_lost_pairs_count_for_one_side() -> None:
    assert counts(5, 2, 1, 4).with_lost(only_a=3) == counts(5, 5, 1, 4)
    assert counts(5, 2, 1, 4).with_lost(only_b=3) == counts(5, 2, 4, 4)
