from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.reports.html.scale import Scale, by_ratio, rounds, spanning, steps, ticks


def test_a_straight_scale() -> None:
    scale = Scale(low=0, high=10, start=100, end=200)
    assert [scale.place(value) for value in (0, 5, 10)] == [100, 150, 200]
    assert [scale.place(value) for value in (-1, 11)] == [100, 200]


def test_a_scale_may_run_upwards() -> None:
    assert Scale(low=0, high=1, start=200, end=0).place(0.25) == 150


def test_doubling_is_always_as_far() -> None:
    scale = by_ratio([1, 16], 0, 100)
    places = [scale.place(value) for value in (1, 2, 4, 8, 16)]
    gaps = [other - one for one, other in pairwise(places)]
    assert gaps == pytest.approx([gaps[0]] * 4)


def test_one_value_and_none_have_a_scale_too() -> None:
    assert spanning([], 0, 1) == Scale(low=-1, high=1, start=0, end=1)
    assert spanning([5.0], 0, 1) == Scale(low=4.5, high=5.5, start=0, end=1)
    assert by_ratio([2.0], 0, 1).place(2.0) == pytest.approx(0.5)


def test_ticks_are_round() -> None:
    assert ticks(Scale(low=0, high=10, start=0, end=1)) == (0, 2, 4, 6, 8, 10)
    assert ticks(Scale(low=-0.03, high=0.04, start=0, end=1), 4) == (-0.02, 0.0, 0.02, 0.04)


def test_steps_are_powers_of_two_and_what_lies_between() -> None:
    assert steps(by_ratio([2, 16], 0, 1)) == (2, 3, 4, 6, 8, 12, 16)
    assert steps(by_ratio([1, 2**20], 0, 1)) == (0.5, 8, 128, 2048, 32768, 524288)
    assert steps(by_ratio([0.1, 0.11], 0, 1)) == ticks(by_ratio([0.1, 0.11], 0, 1), 4)


def test_rounds_are_values_that_people_count_in() -> None:
    assert rounds(by_ratio([0.07, 0.27], 0, 1)) == pytest.approx((0.08, 0.1, 0.15, 0.2, 0.3))
    assert rounds(by_ratio([4.0, 40.0], 0, 1)) == pytest.approx((5, 10, 20))
    assert rounds(by_ratio([1.0, 1e5], 0, 1)) == pytest.approx((1, 10, 100, 1_000, 10_000, 100_000))
    assert rounds(by_ratio([0.1, 0.11], 0, 1)) == ticks(by_ratio([0.1, 0.11], 0, 1), 4)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_every_value_and_tick_lies_inside(values: list[float]) -> None:
    scale = spanning(values, 10, 90)
    assert all(10 <= scale.place(value) <= 90 for value in values)
    found = ticks(scale)
    assert 1 <= len(found) <= 6
    assert all(scale.low <= tick <= scale.high for tick in found)


@given(st.lists(st.floats(1e-6, 1e9), min_size=1))
def test_steps_lie_inside_and_are_few(values: list[float]) -> None:
    scale = by_ratio(values, 0, 1)
    for found in (steps(scale), rounds(scale)):
        assert len(found) <= 8
        assert all(scale.low <= step <= scale.high for step in found)
