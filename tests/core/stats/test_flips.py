"""Sign flips: figures by hand, full enumeration, the exact test of counts, then laws."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from qlock.core import stats
from qlock.core.stats import CannotTell, PairedTest
from qlock.core.stats.flips import FLIPS, MOST_COUNTED

NUMBERS = st.floats(-1e6, 1e6).map(lambda x: round(x, 6) + 0.0)
OUTCOMES = st.sampled_from([-1.0, 0.0, 0.0, 1.0])
DIFFERENCES = st.lists(NUMBERS, min_size=2, max_size=30) | st.lists(OUTCOMES, min_size=2, max_size=30)


def gaussian(n: int, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(0.3, 1.0) for _ in range(n)]


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
    found = stats.permutation_paired([0.5] * 100, 1)
    assert found == PairedTest(
        p_value=1 / (FLIPS + 1), mid_p=1 / (FLIPS + 1), n=100, method="sign-flip-random", note=""
    )


def test_random_flips_come_close_to_the_exact_test() -> None:
    found = paired_test(stats.permutation_paired([0.5] * 25 + [-0.5] * 12, 1))
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
@given(st.lists(st.integers(-4, 4), min_size=17, max_size=40))
def test_whole_numbers_are_counted_in_full(differences: list[int]) -> None:
    sums = Counter({0: 1})
    for d in differences:
        for total, ways in list(sums.items()):
            sums[total] -= ways
            sums[total + d] += ways
            sums[total - d] += ways
    observed, every = abs(sum(differences)), 2 ** len(differences)
    extreme = sum(ways for total, ways in sums.items() if abs(total) >= observed)
    equal = sum(ways for total, ways in sums.items() if abs(total) == observed) if observed else 0
    found = paired_test(stats.permutation_paired(differences, 1))
    assert found.method == "sign-flip-exact"
    assert found.p_value == pytest.approx(extreme / every, rel=1e-9)
    assert found.mid_p == pytest.approx((extreme - equal / 2) / every, rel=1e-9)


def test_whole_numbers_beyond_counting_are_tried() -> None:
    many = [float(MOST_COUNTED)] * 17
    assert paired_test(stats.permutation_paired(many, 1)).method == "sign-flip-random"


@hypothesis_settings(max_examples=25)
@given(DIFFERENCES, st.integers(0, 2**63))
def test_neither_order_nor_exchange_changes_the_test(differences: list[float], seed: int) -> None:
    found = stats.permutation_paired(differences, seed)
    shuffled = list(differences)
    random.Random(seed).shuffle(shuffled)
    assert stats.permutation_paired(shuffled, seed) == found
    assert stats.permutation_paired([-d for d in differences], seed) == found
    assert 0 < paired_test(found).mid_p <= paired_test(found).p_value <= 1
