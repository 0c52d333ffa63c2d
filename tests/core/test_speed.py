"""The speed of a job, and how steady the ratio of two is."""

from __future__ import annotations

import math
import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from scipy import stats as scipy_stats

from qlock.core.record import Times
from qlock.core.sides import Sitting
from qlock.core.speed import Speed, speed_of, speed_ratio
from qlock.core.stats import CannotTell, Interval
from tests.fakes.comparisons import a_distance, a_reading, a_sitting, a_timed_sitting

replace = msgspec.structs.replace


def test_all_tokens_over_all_laps_are_the_speed() -> None:
    one = a_timed_sitting([(10, 0.5), (30, 1.5)])
    assert speed_of([one]) == Speed(tokens=40, answering_s=2.0)
    assert speed_of([one, replace(one, repeat=2)]) == Speed(tokens=80, answering_s=4.0)
    assert Speed(tokens=40, answering_s=2.0).tokens_per_s == 20.0


def test_scored_tokens_count_where_nothing_is_written() -> None:
    text = a_reading([1.0] * 3, tokens=50)
    rows = tuple(replace(row, times=replace(row.times, lap_s=0.5)) for row in text.rows)
    assert speed_of([replace(text, rows=rows)]) == Speed(tokens=150, answering_s=1.5)


def test_where_a_reference_is_asked_in_the_same_time_there_is_no_speed() -> None:
    apart = a_distance([0.1] * 3)
    rows = tuple(replace(row, times=replace(row.times, lap_s=0.5)) for row in apart.rows)
    unknown = CannotTell(why="the reference was asked in the same time")
    assert speed_of([replace(apart, rows=rows)]) == unknown
    assert speed_ratio([replace(apart, rows=rows)], [replace(apart, rows=rows)], at_once=1) == unknown


def test_a_row_without_a_lap_leaves_the_speed_unknown() -> None:
    timed = a_timed_sitting([(10, 0.5), (30, 1.5)])
    first, second = timed.rows
    rows = (first, replace(second, times=Times(prefill_s=1.0, decode_s=1.0)))
    assert speed_of([replace(timed, rows=rows)]) == CannotTell(
        why="rows that do not say how long they took: 1 of 2"
    )
    assert second.times.lap_s is not UNSET


@pytest.mark.parametrize("rows", [[], [(0, 1.0)], [(5, 0.0)]])
def test_without_tokens_or_time_there_is_no_speed(rows: list[tuple[int, float]]) -> None:
    assert speed_of([a_timed_sitting(rows)]) == CannotTell(why="nothing was answered")


def timed(count: int, seed: int, *, factor: float = 1.0) -> Sitting:
    """Answers of random length, each as long under way as it is long, give or take."""
    draw = random.Random(seed)
    lengths = random.Random(0)
    rows = []
    for _ in range(count):
        tokens = lengths.randint(5, 60)
        rows.append((tokens, factor * tokens * draw.gauss(0.01, 0.001)))
    return a_timed_sitting(rows)


def test_the_ratio_is_that_of_the_speeds_and_its_interval_that_of_the_blocks() -> None:
    a, b = timed(95, 1), timed(95, 2, factor=1.25)
    found = speed_ratio((a,), (b,), at_once=8)
    one, two = speed_of([a]), speed_of([b])
    assert isinstance(found, Interval)
    assert isinstance(one, Speed)
    assert isinstance(two, Speed)
    assert found.point == pytest.approx(two.tokens_per_s / one.tokens_per_s)
    assert (found.n, found.standard_error) == (11, UNSET)
    low, high = _by_jackknife(a, b, blocks=11)
    assert found.low == pytest.approx(low, rel=2e-3)
    assert found.high == pytest.approx(high, rel=2e-3)


def _by_jackknife(a: Sitting, b: Sitting, *, blocks: int) -> tuple[float, float]:
    """The same interval by leaving out one block at a time, which approximates the same variance another way."""
    n = len(a.rows)
    cuts = [n * k // blocks for k in range(blocks + 1)]

    def log_ratio(left_out: int | None) -> float:
        keep = [i for k in range(blocks) if k != left_out for i in range(cuts[k], cuts[k + 1])]
        speeds = []
        for side in (a, b):
            found = speed_of([replace(side, rows=tuple(side.rows[i] for i in keep))])
            assert isinstance(found, Speed)
            speeds.append(found.tokens_per_s)
        return math.log(speeds[1] / speeds[0])

    whole = log_ratio(None)
    left = np.array([log_ratio(k) for k in range(blocks)])
    error = math.sqrt((blocks - 1) / blocks * ((left - left.mean()) ** 2).sum())
    t = scipy_stats.t.ppf(0.975, blocks - 1)
    return math.exp(whole - t * error), math.exp(whole + t * error)


def test_exchanged_sides_turn_the_ratio_over() -> None:
    a, b = timed(200, 1), timed(200, 2, factor=1.25)
    one, other = speed_ratio((a,), (b,), at_once=4), speed_ratio((b,), (a,), at_once=4)
    assert isinstance(one, Interval)
    assert isinstance(other, Interval)
    assert other.point == pytest.approx(1 / one.point)
    assert other.low == pytest.approx(1 / one.high)
    assert other.high == pytest.approx(1 / one.low)


def test_of_many_items_there_are_forty_blocks() -> None:
    found = speed_ratio((timed(900, 1),), (timed(900, 2),), at_once=1)
    assert isinstance(found, Interval)
    assert found.n == 40


def test_few_items_do_not_say_how_steady_a_speed_is() -> None:
    assert speed_ratio((timed(79, 1),), (timed(79, 2),), at_once=8) == CannotTell(
        why="to see how steady a speed is, 80 answers are needed with 8 at once, got 79"
    )


def test_sides_must_have_the_same_items() -> None:
    assert speed_ratio((timed(80, 1),), (timed(81, 2),), at_once=8) == CannotTell(
        why="not every item is on both sides"
    )


def test_where_nothing_varies_there_is_no_interval() -> None:
    rows = [(10, 0.5)] * 80
    found = speed_ratio((a_timed_sitting(rows),), (a_timed_sitting(rows),), at_once=8)
    assert isinstance(found, CannotTell)


def test_repeats_are_more_blocks() -> None:
    def twice(one: Sitting, two: Sitting) -> tuple[Sitting, Sitting]:
        return one, replace(two, repeat=2)

    found = speed_ratio(twice(timed(40, 1), timed(40, 2)), twice(timed(40, 3), timed(40, 4)), at_once=4)
    assert isinstance(found, Interval)
    assert found.n == 20


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """Blocks of noise that lasts for several items; 300 draws, so the share is known to 2.5 points or so."""
    draw = np.random.default_rng(1)
    covered = 0
    for _ in range(300):
        sides = []
        for factor in (1.0, 1.1):
            lengths = draw.integers(5, 60, 320)
            drift = np.repeat(draw.normal(1.0, 0.05, 80), 4)
            sides.append(
                a_timed_sitting(
                    [(int(n), float(factor * 0.01 * n * d)) for n, d in zip(lengths, drift, strict=True)]
                )
            )
        found = speed_ratio((sides[0],), (sides[1],), at_once=8)
        assert isinstance(found, Interval)
        covered += found.low <= 1 / 1.1 <= found.high
    assert 0.91 <= covered / 300 <= 0.99


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(0.01, 10.0)), min_size=20, max_size=60),
    st.floats(0.1, 10.0),
)
def test_a_slower_clock_changes_no_ratio(rows: list[tuple[int, float]], factor: float) -> None:
    a = a_timed_sitting(rows)
    b = a_timed_sitting([(tokens, lap_s * factor) for tokens, lap_s in rows])
    found = speed_ratio((a,), (b,), at_once=2)
    one = speed_of([a]), speed_of([b])
    if isinstance(found, Interval):
        assert found.point == pytest.approx(1 / factor)
    assert all(isinstance(speed, Speed) for speed in one)


def test_marks_have_no_say() -> None:
    assert isinstance(speed_of([a_sitting("rw")]), CannotTell)
