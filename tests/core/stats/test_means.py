"""Means of differences: figures by hand, foreign oracles, full enumeration, then laws."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from qlock.core import stats
from qlock.core.stats import CannotTell, Interval, PairedTest
from qlock.core.stats.means import FLIPS
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
            why=f"all values are `{differences[0]:g}`, which does not show how far they could differ"
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
    why = "`1` of `3` values are not finite numbers of ordinary size"
    assert all_answers([1.0, odd, 2.0]) == [CannotTell(why=why)] * 3


def test_one_item_or_one_cluster_shows_no_spread() -> None:
    one_item = CannotTell(why="there is only one item, and at least two show how far they differ")
    one_cluster = CannotTell(why="there is only one cluster, and at least two show how far they differ")
    assert stats.paired_mean_interval([0.5]) == one_item
    assert stats.bootstrap_paired([0.5], seed=1) == one_item
    assert stats.cluster_mean([0.5, 0.7], ["a", "a"]) == one_cluster
    assert stats.bootstrap_paired([0.5, 0.7], seed=1, clusters=["a", "a"]) == one_cluster


def test_equal_values_show_no_spread() -> None:
    why = "all values are `0.1`, which does not show how far they could differ"
    assert stats.paired_mean_interval([0.1] * 7) == CannotTell(why=why)
    assert stats.bootstrap_paired([0.1] * 7, seed=1) == CannotTell(why=why)
    why = "all means of clusters are `0.5`, which does not show how far they could differ"
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
    assert other.method == one.method == "bca"
    assert other.low == pytest.approx(one.low * scale)


# ---------------------------------------------------------------- bootstrap


def test_the_bootstrap_equals_scipy_within_its_own_noise() -> None:
    differences = [d**2 for d in gaussian(60)]  # skewed, so that the correction matters
    found = interval(stats.bootstrap_paired(differences, seed=5))
    theirs = scipy_stats.bootstrap(
        (np.array(differences),), np.mean, n_resamples=20_000, method="BCa", rng=np.random.default_rng(5)
    ).confidence_interval
    noise = 0.05 * (theirs.high - theirs.low)
    assert found.method == "bca"
    assert found.low == pytest.approx(theirs.low, abs=noise)
    assert found.high == pytest.approx(theirs.high, abs=noise)


def test_the_bootstrap_of_few_items_equals_full_enumeration() -> None:
    differences = [-1.0, 0.0, 0.5, 2.0, 4.0, 7.0]
    means = sorted(sum(draw) / 6 for draw in itertools.product(differences, repeat=6))
    point = sum(differences) / 6
    below = (sum(m < point - 1e-12 for m in means) + sum(abs(m - point) <= 1e-12 for m in means) / 2) / 6**6
    bias = scipy_stats.norm.ppf(below)
    without = [(sum(differences) - d) / 5 for d in differences]
    apart = [sum(without) / 6 - w for w in without]
    acceleration = sum(a**3 for a in apart) / (6 * sum(a**2 for a in apart) ** 1.5)
    ends = []
    for tail in (0.025, 0.975):
        z = bias + scipy_stats.norm.ppf(tail)
        ends.append(np.quantile(means, scipy_stats.norm.cdf(bias + z / (1 - acceleration * z))))
    found = interval(stats.bootstrap_paired(differences, seed=2))
    assert found.low == pytest.approx(ends[0], abs=0.1)
    assert found.high == pytest.approx(ends[1], abs=0.1)


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


def test_percentiles_stand_in_where_the_correction_is_undefined() -> None:
    outlier = [0.0] * 50 + [1.0]
    assert interval(stats.bootstrap_paired(outlier, seed=1)).method == "bca"
    found = interval(stats.bootstrap_paired(outlier, seed=1, level=1 - 2**-53))
    assert (found.method, found.low) == ("percentile", 0.0)


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


# ---------------------------------------------------------------- sign flips


def paired_test(found: PairedTest | CannotTell) -> PairedTest:
    assert isinstance(found, PairedTest)
    return found


def test_six_of_one_sign() -> None:
    assert stats.permutation_paired([1, 1, 1, 1, 1, 1, 0, 0], 1) == PairedTest(
        p_value=0.03125, mid_p=0.015625, n=6, method="sign-flip-exact", note=""
    )
    assert stats.permutation_paired([0.0, 0.0], 1) == PairedTest(
        p_value=1.0, mid_p=1.0, n=0, method="sign-flip-exact", note="no discordant pairs"
    )


def test_random_flips_are_never_certain() -> None:
    found = stats.permutation_paired([1.0] * 100, 1)
    assert found == PairedTest(
        p_value=1 / (FLIPS + 1), mid_p=1 / (FLIPS + 1), n=100, method="sign-flip-random", note=""
    )


def test_random_flips_come_close_to_the_exact_test() -> None:
    found = paired_test(stats.permutation_paired([1.0] * 25 + [-1.0] * 12, 1))
    assert found.method == "sign-flip-random"
    assert found.p_value == pytest.approx(0.047031, abs=4 * 0.0015)


def test_random_flips_come_close_to_scipy() -> None:
    differences = gaussian(40, seed=9)
    theirs = scipy_stats.permutation_test(
        (np.array(differences),),
        np.sum,
        permutation_type="samples",
        n_resamples=20_000,
        rng=np.random.default_rng(1),
    )
    found = paired_test(stats.permutation_paired(differences, 1))
    assert found.p_value == pytest.approx(theirs.pvalue, abs=0.012)


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=9))
def test_sign_flips_equal_full_enumeration(differences: list[int]) -> None:
    observed = abs(sum(differences))
    sums = [
        abs(sum(sign * d for sign, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    found = paired_test(stats.permutation_paired(differences, 1))
    assert found.p_value == sum(s >= observed for s in sums) / len(sums)
    if observed:
        assert found.mid_p == (sum(s >= observed for s in sums) - sums.count(observed) / 2) / len(sums)
    else:
        assert found.mid_p == 1


@given(st.integers(0, 16), st.integers(0, 16), st.integers(0, 5))
def test_sign_flips_of_ones_are_the_mcnemar_test(b: int, c: int, same: int) -> None:
    if b + c > 16 or b + c + same == 0:
        return
    found = paired_test(stats.permutation_paired([-1] * b + [1] * c + [0] * same, 1))
    exact = stats.mcnemar_exact(b, c)
    assert found.p_value == pytest.approx(exact.p_value, rel=1e-12)
    assert found.mid_p == pytest.approx(exact.mid_p, rel=1e-12)
    assert (found.n, found.note) == (exact.n, exact.note)


@hypothesis_settings(max_examples=25)
@given(DIFFERENCES, st.integers(0, 2**63))
def test_neither_order_nor_exchange_changes_the_test(differences: list[float], seed: int) -> None:
    found = stats.permutation_paired(differences, seed)
    shuffled = list(differences)
    random.Random(seed).shuffle(shuffled)
    assert stats.permutation_paired(shuffled, seed) == found
    assert stats.permutation_paired([-d for d in differences], seed) == found
    assert 0 < paired_test(found).mid_p <= paired_test(found).p_value <= 1
