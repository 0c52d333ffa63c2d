"""Means of differences: figures by hand, foreign oracles, full enumeration, then laws."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import optimize
from scipy import stats as scipy_stats

from qlock.core import stats
from qlock.core.stats import CannotTell, Interval, LargeSample
from qlock.errors import InputError

NUMBERS = st.floats(-1e6, 1e6).map(lambda x: round(x, 6) + 0.0)
OUTCOMES = st.sampled_from([-1.0, 0.0, 0.0, 1.0])
DIFFERENCES = st.lists(NUMBERS, min_size=2, max_size=30) | st.lists(OUTCOMES, min_size=2, max_size=30)


def interval(found: Interval | CannotTell) -> Interval:
    assert isinstance(found, Interval)
    return found


def gaussian(n: int, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(0.3, 1.0) for _ in range(n)]


# ---------------------------------------------------------------- t intervals


def test_a_t_interval_by_hand() -> None:
    found = interval(stats.paired_mean_interval([1.0, 2.0, 3.0]))
    assert found.point == 2.0
    assert found.standard_error == pytest.approx(1 / math.sqrt(3))
    assert found.high == pytest.approx(2 + 4.302652729911275 / math.sqrt(3))
    assert (found.n, found.clusters, found.method, found.level) == (3, 3, "t", 0.95)


@given(DIFFERENCES, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_a_t_interval_equals_scipy(differences: list[float], level: float) -> None:
    found = stats.paired_mean_interval(differences, level=level)
    if len(set(differences)) == 1:
        assert found == CannotTell(
            why=f"all values are {differences[0]:g}, which does not show how far they could differ"
        )
        return
    theirs = scipy_stats.ttest_1samp(differences, 0.0).confidence_interval(level)
    scale = max(abs(d) for d in differences)
    assert interval(found).low == pytest.approx(theirs.low, rel=1e-9, abs=1e-9 * scale)
    assert interval(found).high == pytest.approx(theirs.high, rel=1e-9, abs=1e-9 * scale)


def clustered(seed: int) -> tuple[list[float], list[int]]:
    rng = random.Random(seed)
    values: list[float] = []
    groups: list[int] = []
    for group in range(rng.randint(2, 15)):
        shift = rng.gauss(0, 1)
        for _ in range(rng.randint(1, 6)):
            values.append(shift + rng.gauss(0, 0.3))
            groups.append(group)
    return values, groups


@pytest.mark.parametrize("seed", range(20))
def test_a_clustered_mean_equals_statsmodels(seed: int) -> None:
    values, groups = clustered(seed)
    found = interval(stats.cluster_mean(values, groups))
    fit = sm.OLS(values, np.ones(len(values))).fit(
        cov_type="cluster", cov_kwds={"groups": np.array(groups)}, use_t=True
    )
    low, high = fit.conf_int()[0]
    assert found.point == pytest.approx(fit.params[0], rel=1e-9)
    assert found.standard_error == pytest.approx(fit.bse[0], rel=1e-9)
    assert found.low == pytest.approx(low, rel=1e-9)
    assert found.high == pytest.approx(high, rel=1e-9)
    assert (found.n, found.clusters, found.method) == (len(values), len(set(groups)), "cluster-t")


@given(DIFFERENCES)
def test_clusters_of_one_item_are_no_clusters(differences: list[float]) -> None:
    alone = stats.paired_mean_interval(differences)
    grouped = stats.cluster_mean(differences, list(range(len(differences))))
    match alone, grouped:
        case Interval(), Interval():
            assert msgspec.structs.replace(grouped, method="t") == alone
        case _:
            assert isinstance(alone, CannotTell)
            assert isinstance(grouped, CannotTell)


def test_repeats_of_the_same_answers_add_nothing() -> None:
    differences = gaussian(12)
    once = interval(stats.paired_mean_interval(differences))
    thrice = interval(stats.cluster_mean(differences * 3, list(range(12)) * 3))
    assert thrice.standard_error == pytest.approx(once.standard_error)
    assert (thrice.n, thrice.clusters) == (36, 12)


# ---------------------------------------------------------------- means of clusters that lean


CLUSTERS = st.lists(
    st.lists(st.floats(0, 100).map(lambda x: round(x, 3)), min_size=1, max_size=5), min_size=2
)


def mean_of(groups: Iterable[Sequence[float]], **asked: Any) -> Interval | CannotTell:
    """The interval of the mean of all values, group by group."""
    every = list(groups)
    return stats.mean_of_clusters(
        [math.fsum(group) for group in every], [len(group) for group in every], **asked
    )


def solved(groups: Sequence[Sequence[float]], level: float = 0.95) -> tuple[float, float]:
    """Both ends as the roots of Hall's cubic, with the error of statsmodels."""
    values = [value for group in groups for value in group]
    owners = np.array([number for number, group in enumerate(groups) for _ in group])
    fit = sm.OLS(values, np.ones(len(values))).fit(cov_type="cluster", cov_kwds={"groups": owners})
    mean, error = float(fit.params[0]), float(fit.bse[0])
    excess = np.array([sum(group) - len(group) * mean for group in groups])
    k = float((excess**3).sum() / (excess**2).sum() ** 1.5)
    quantile = float(scipy_stats.t.ppf((1 + level) / 2, len(groups) - 1))

    def root(of: float) -> float:
        def cubic(t: float) -> float:
            return t + k * t**2 / 3 + k**2 * t**3 / 27 + k / 6 - of

        return float(optimize.brentq(cubic, -1e7, 1e7, xtol=1e-12))

    return mean - error * root(quantile), mean - error * root(-quantile)


@given(CLUSTERS)
def test_the_ends_of_a_leaning_mean_are_the_roots_of_halls_cubic(groups: list[list[float]]) -> None:
    found = mean_of(groups)
    if isinstance(found, Interval):
        scale = max(abs(found.high), abs(found.low), 1.0)
        assert (found.low, found.high) == pytest.approx(solved(groups), rel=1e-5, abs=1e-5 * scale)
        assert (found.n, found.clusters, found.method) == (sum(map(len, groups)), len(groups), "hall-t")


@given(CLUSTERS)
def test_clusters_that_lie_evenly_have_students_interval(groups: list[list[float]]) -> None:
    mirrored = [[100 - value for value in group] for group in groups]
    found = mean_of([*groups, *mirrored])
    owners = [number for number, group in enumerate([*groups, *mirrored]) for _ in group]
    plain = stats.cluster_mean([value for group in [*groups, *mirrored] for value in group], owners)
    if isinstance(found, Interval):
        assert isinstance(plain, Interval)
        assert (found.low, found.high) == pytest.approx((plain.low, plain.high), rel=1e-6, abs=1e-6)
        assert found.standard_error == pytest.approx(plain.standard_error, rel=1e-6)


@given(CLUSTERS, st.sampled_from([0.5, 0.95, 0.999]))
def test_an_interval_keeps_to_where_a_mean_can_lie_and_contains_it(
    groups: list[list[float]], level: float
) -> None:
    found, free = mean_of(groups, within=(0.0, 100.0), level=level), mean_of(groups, level=level)
    if isinstance(found, Interval):
        assert isinstance(free, Interval)
        assert 0.0 <= found.low <= found.point <= found.high <= 100.0
        assert (found.low, found.high) == (max(free.low, 0.0), min(free.high, 100.0))


@given(CLUSTERS)
def test_a_mean_with_its_sign_changed_has_the_mirrored_interval(groups: list[list[float]]) -> None:
    found, turned = mean_of(groups), mean_of([[-value for value in group] for group in groups])
    if isinstance(found, Interval):
        assert isinstance(turned, Interval)
        assert (turned.low, turned.point, turned.high) == (-found.high, -found.point, -found.low)


def test_a_mean_that_rounding_left_below_its_range_is_still_in_its_interval() -> None:
    found = interval(stats.mean_of_clusters([-3e-9, 1e-9], [10, 10], within=(0.0, math.inf)))
    assert found.low == found.point == pytest.approx(-1e-10)


def test_a_leaning_mean_is_held_as_often_as_promised_where_students_interval_is_not() -> None:
    generator = np.random.default_rng(7)
    held = {"hall-t": 0, "t": 0}
    for _ in range(4_000):
        drawn = generator.exponential(1.0, 20).tolist()
        for found in (
            stats.mean_of_clusters(drawn, [1] * 20, within=(0.0, math.inf)),
            stats.paired_mean_interval(drawn),
        ):
            held[interval(found).method] += interval(found).low <= 1.0 <= interval(found).high
    assert 0.94 < held["hall-t"] / 4_000 < 0.96
    assert held["t"] / 4_000 < 0.93


# ---------------------------------------------------------------- what cannot be told


def all_answers(values: Sequence[float]) -> list[object]:
    return [
        stats.paired_mean_interval(values),
        stats.bootstrap_paired(values, seed=1),
        stats.permutation_paired(values, 1),
    ]


def test_nothing_cannot_be_told() -> None:
    assert all_answers([]) == [CannotTell(why="there are no items")] * 3


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e200])
def test_numbers_that_are_none_cannot_be_told(odd: float) -> None:
    why = "values that are no finite number of ordinary size: 1 of 3"
    assert all_answers([1.0, odd, 2.0]) == [CannotTell(why=why)] * 3


def test_one_item_or_one_cluster_shows_no_spread() -> None:
    one_item = CannotTell(why="there is only one item, and at least two show how far they differ")
    one_cluster = CannotTell(why="there is only one cluster, and at least two show how far they differ")
    assert stats.paired_mean_interval([0.5]) == one_item
    assert stats.bootstrap_paired([0.5], seed=1) == one_item
    assert stats.cluster_mean([0.5, 0.7], ["a", "a"]) == one_cluster
    assert stats.bootstrap_paired([0.5, 0.7], seed=1, clusters=["a", "a"]) == one_cluster


def test_equal_values_show_no_spread() -> None:
    why = "all values are 0.1, which does not show how far they could differ"
    assert stats.paired_mean_interval([0.1] * 7) == CannotTell(why=why)
    assert stats.bootstrap_paired([0.1] * 7, seed=1) == CannotTell(why=why)
    why = "all means of clusters are 0.5, which does not show how far they could differ"
    assert stats.cluster_mean([0.0, 1.0, 0.5], [1, 1, 2]) == CannotTell(why=why)


def test_one_cluster_for_every_value() -> None:
    with pytest.raises(InputError) as caught:
        stats.cluster_mean([1.0, 2.0], [1])
    assert str(caught.value) == "every value has a cluster: got `1` clusters for `2` values"


@pytest.mark.parametrize(
    "ask",
    [
        lambda: stats.bootstrap_paired([1.0, 2.0], seed=-1),
        lambda: stats.permutation_paired([1.0, 2.0], -1),
    ],
)
def test_a_negative_seed_is_refused(ask: Callable[[], object]) -> None:
    with pytest.raises(InputError) as caught:
        ask()
    assert str(caught.value) == "`seed` is not negative: got `-1`, expected at least `0`"


@pytest.mark.parametrize("scale", [1e-90, 1e90])
def test_tiny_and_huge_numbers_keep_their_shape(scale: float) -> None:
    differences = gaussian(25)
    scaled = [d * scale for d in differences]
    one, other = (
        interval(stats.paired_mean_interval(differences)),
        interval(stats.paired_mean_interval(scaled)),
    )
    assert other.low == pytest.approx(one.low * scale)
    one = interval(stats.bootstrap_paired(differences, seed=3))
    other = interval(stats.bootstrap_paired(scaled, seed=3))
    assert other.method == one.method == "bootstrap-t"
    assert other.low == pytest.approx(one.low * scale)


# ---------------------------------------------------------------- bootstrap


def ratios(differences: Sequence[float], draws: Iterable[Sequence[float]]) -> list[float]:
    """How many of its own standard errors the mean of each draw lies above the mean of all; sorted."""
    point = sum(differences) / len(differences)
    found = []
    for draw in draws:
        shift = sum(draw) / len(draw) - point
        error = math.sqrt(sum((d - point - shift) ** 2 for d in draw) / (len(draw) - 1) / len(draw))
        found.append(shift / error if error > 1e-12 else math.copysign(math.inf, shift))
    return sorted(found)


def limits(differences: Sequence[float], found: Sequence[float]) -> tuple[float, float]:
    """Both ends, from the sorted ratios of all draws, or those of t where they are farther."""
    n, last = len(differences), len(found) - 1
    point = sum(differences) / n
    error = math.sqrt(sum((d - point) ** 2 for d in differences) / (n - 1) / n)
    t = scipy_stats.t.ppf(0.975, n - 1)
    down, up = found[round(0.975 * last)], -found[round(0.025 * last)]
    return point - max(down, t) * error, point + max(up, t) * error


def test_the_bootstrap_of_few_items_equals_full_enumeration() -> None:
    differences = [-1.0, 0.0, 0.5, 2.0, 4.0, 7.0]
    low, high = limits(differences, ratios(differences, itertools.product(differences, repeat=6)))
    found = interval(stats.bootstrap_paired(differences, seed=2))
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.4)
    assert found.method == "bootstrap-t"
    assert found.high - found.point > 1.3 * (found.point - found.low)


def test_the_bootstrap_of_many_items_equals_a_slow_one() -> None:
    differences = [d**2 for d in gaussian(60)]  # skewed, so that both ends differ
    rng = random.Random(3)
    low, high = limits(
        differences, ratios(differences, [rng.choices(differences, k=60) for _ in range(10_000)])
    )
    found = interval(stats.bootstrap_paired(differences, seed=5))
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.05 * (high - low))


def test_the_interval_is_never_shorter_than_that_of_t() -> None:
    for seed in range(20):
        differences = gaussian(15, seed)
        plain = interval(stats.paired_mean_interval(differences))
        found = interval(stats.bootstrap_paired(differences, seed=seed))
        assert found.low <= plain.low
        assert found.high >= plain.high


def test_the_clustered_bootstrap_draws_whole_clusters() -> None:
    rng = random.Random(4)
    shifts = [rng.gauss(0, 1) for _ in range(40)]
    values = [shift + rng.gauss(0, 0.05) for shift in shifts for _ in range(5)]
    groups = [group for group in range(40) for _ in range(5)]
    alone = interval(stats.bootstrap_paired(values, seed=1))
    whole = interval(stats.bootstrap_paired(values, seed=1, clusters=groups))
    robust = interval(stats.cluster_mean(values, groups))
    assert (whole.n, whole.clusters) == (200, 40)
    assert (whole.high - whole.low) == pytest.approx(robust.high - robust.low, rel=0.1)
    assert (whole.high - whole.low) > 1.8 * (alone.high - alone.low)


def test_where_many_draws_have_no_spread_the_t_interval_stands_alone() -> None:
    outlier = [0.0] * 50 + [1.0]
    assert stats.bootstrap_paired(outlier, seed=1) == stats.paired_mean_interval(outlier)
    groups = [n // 2 for n in range(51)]
    assert stats.bootstrap_paired(outlier, seed=1, clusters=groups) == stats.cluster_mean(outlier, groups)


@hypothesis_settings(max_examples=25)
@given(DIFFERENCES, st.integers(0, 2**63))
def test_the_bootstrap_keeps_its_laws(differences: list[float], seed: int) -> None:
    found = stats.bootstrap_paired(differences, seed=seed)
    shuffled = list(differences)
    random.Random(seed).shuffle(shuffled)
    assert stats.bootstrap_paired(shuffled, seed=seed) == found
    exchanged = stats.bootstrap_paired([-d for d in differences], seed=seed)
    match found, exchanged:
        case Interval(), Interval():
            assert found.low <= found.point <= found.high
            assert (exchanged.point, exchanged.low, exchanged.high) == (-found.point, -found.high, -found.low)
            assert all(math.isfinite(x) for x in (found.low, found.high))
        case _:
            assert isinstance(found, CannotTell)
            assert isinstance(exchanged, CannotTell)


@hypothesis_settings(max_examples=25)
@given(st.integers(0, 10**6))
def test_the_clustered_laws(seed: int) -> None:
    values, groups = clustered(seed)
    order = list(range(len(values)))
    random.Random(seed).shuffle(order)
    renamed = [f"document {groups[i]}" for i in order]
    shuffled = [values[i] for i in order]
    negated = [-value for value in values]

    def bootstrapped(v: Sequence[float], c: Sequence[object]) -> Interval:
        return interval(stats.bootstrap_paired(v, seed=seed, clusters=c))

    def robust(v: Sequence[float], c: Sequence[object]) -> Interval:
        return interval(stats.cluster_mean(v, c))

    for ask in (bootstrapped, robust):
        found, exchanged = ask(values, groups), ask(negated, groups)
        assert ask(shuffled, renamed) == found
        assert found.low <= found.point <= found.high
        assert (exchanged.point, exchanged.low, exchanged.high) == (-found.point, -found.high, -found.low)


def test_a_symmetric_sample_has_a_symmetric_interval() -> None:
    half = gaussian(20)
    found = interval(stats.bootstrap_paired(half + [-d for d in half], seed=1))
    assert (found.point, found.low) == (0.0, -found.high)
    assert found.high > 0.1


def test_small_differences_on_a_large_offset_are_seen() -> None:
    near = interval(stats.bootstrap_paired([d * 1e-6 for d in gaussian(30)], seed=1))
    far = interval(stats.bootstrap_paired([1e3 + d * 1e-6 for d in gaussian(30)], seed=1))
    assert far.high - far.point == pytest.approx(near.high - near.point, rel=1e-5)


def test_other_seeds_give_other_ends_of_about_the_same_place() -> None:
    differences = gaussian(80)
    one, other = (interval(stats.bootstrap_paired(differences, seed=seed)) for seed in (1, 2))
    assert one != other
    assert one.low == pytest.approx(other.low, abs=0.05 * (one.high - one.low))


# ---------------------------------------------------------------- the normal test


def test_the_large_sample_test_is_the_normal_one() -> None:
    differences = gaussian(500)
    mean = interval(stats.paired_mean_interval(differences))
    assert isinstance(mean.standard_error, float)
    theirs = 2 * scipy_stats.norm.sf(abs(mean.point) / mean.standard_error)
    found = stats.large_sample_test(mean)
    assert isinstance(found, LargeSample)
    assert found.p_value == pytest.approx(theirs, rel=1e-9)
    assert found.n == 500


def test_without_a_standard_error_there_is_no_large_sample_test() -> None:
    unknown = stats.paired_mean_interval([1.0, 1.0])
    assert stats.large_sample_test(unknown) == unknown
    assert stats.large_sample_test(stats.wilson(3, 9)) == CannotTell(why="there is no standard error")
