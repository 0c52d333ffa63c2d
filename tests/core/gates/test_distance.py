from typing import Any

import msgspec
import pytest

from qlock.core.compare import compare
from qlock.core.comparison import Distances
from qlock.core.distance import Distance
from qlock.core.gates import DistanceSeen, Gate
from qlock.core.gates.distance import judge
from qlock.core.ladder import MarkDistance, ladder, mark_in
from qlock.core.rules import Kld
from qlock.core.sides import Side
from qlock.core.stats import CannotTell, Interval
from tests.fakes.comparisons import a_distance, a_plain_lock, a_side
from tests.fakes.documents import with_kld

replace = msgspec.structs.replace
APART = [0.02 + 0.002 * (index % 4) for index in range(40)]
"""Their mean is 0.023."""


def far(kld: list[float], *, model: str = "Q4_K_M", slack: float = 0.0, **params: Any) -> Side:
    lock = with_kld(a_plain_lock())
    if params:
        first, *others = lock.suite
        lock = replace(lock, suite=(replace(first, params={**first.params, **params}), *others))
    return a_side(lock=lock, model=model, sittings={"distance": (a_distance(kld, slack=slack),)})


def judged(b: Side, margin: float, slice_: str = "", **asked: Any) -> Gate:
    return judge(Kld(suite="distance", slice=slice_, margin_nats=margin), b, **asked)


def seen(gate: Gate) -> DistanceSeen:
    assert isinstance(gate.seen, DistanceSeen)
    return gate.seen


def test_b_passes_where_the_whole_interval_lies_below_the_margin() -> None:
    found = judged(far(APART), 0.03)
    assert (found.verdict, found.why) == ("pass", "")
    assert (seen(found).items, seen(found).noise_nats) == (40, CannotTell(why="no point was run twice"))
    assert seen(found).kld_nats == pytest.approx(0.023)
    interval = seen(found).interval
    assert isinstance(interval, Interval)
    assert 0.02 < interval.low < 0.023 < interval.high < 0.03


def test_the_interval_of_a_divergence_is_one_wherever_it_is_told() -> None:
    kld = [0.001 * (1 + index**3 % 97) for index in range(40)]
    found = compare(far([0.0] * 40, model="F16"), far(kld))
    (suite,) = (one for one in found.suite if one.suite == "distance")
    assert isinstance(suite.distances, Distances)
    assert isinstance(suite.distances.b, Distance)
    mark = mark_in(ladder([found]).rung[-1], "distance")
    assert mark is not None
    assert isinstance(mark.distance, MarkDistance)
    interval = suite.distances.b.figures.kld_nats.interval
    assert isinstance(interval, Interval)
    told = (suite.score.b, suite.score.difference, mark.interval, mark.difference, mark.distance.interval)
    assert told == (interval,) * 5
    assert seen(judged(far(kld), 0.05)).interval == interval
    parts = {part.name: part for one in suite.distances.b.parts for part in one.row}
    assert seen(judged(far(kld), 0.05, "first")).interval == parts["half=first"].kld_nats.interval
    slices = {row.slice: row for row in suite.slices.row}
    assert slices["half=first"].difference == parts["half=first"].kld_nats.interval


def test_b_fails_where_it_lies_above_and_is_undecided_where_it_holds_the_margin() -> None:
    assert judged(far(APART), 0.01).verdict == "fail"
    found = judged(far(APART), 0.023)
    assert (found.verdict, found.why) == ("undecided", "the interval holds the margin")


def test_the_reference_itself_passes() -> None:
    found = judged(far([0.0] * 40, model="F16"), 0.001)
    assert (found.verdict, found.why, seen(found).kld_nats) == ("pass", "it is the reference itself", 0.0)


def test_another_model_that_gives_the_same_numbers_has_no_interval() -> None:
    found = judged(far([0.0] * 40), 0.001)
    assert (found.verdict, found.why) == (
        "undecided",
        "all means of clusters are 0, which does not show how far they could differ",
    )


def test_a_margin_below_what_can_be_told_from_nothing_decides_nothing() -> None:
    assert judged(far(APART, stored=True), 1e-5).why == (
        "the margin lies under what this way of measuring cannot tell from 0, 5e-05 nats"
    )
    assert judged(far(APART, stored=True), 0.03).verdict == "pass"


def test_repeats_do_not_stand_for_items() -> None:
    def repeated(kld: list[float]) -> Side:
        return replace(far(kld), sittings={"distance": (a_distance(kld),) * 4})

    assert judged(repeated(APART[:9]), 0.05).why == "a verdict needs 10 items, got 9"
    once, often = seen(judged(far(APART), 0.03)), seen(judged(repeated(APART), 0.03))
    assert (once.items, often.items) == (40, 40)
    assert isinstance(once.interval, Interval)
    assert isinstance(often.interval, Interval)
    assert (often.interval.low, often.interval.high) == pytest.approx((once.interval.low, once.interval.high))


@pytest.mark.parametrize("far_off, verdict", [(4e-5, "undecided"), (6e-5, "decided")])
@pytest.mark.parametrize("end", ["low", "high"])
def test_the_margin_must_lie_farther_off_than_what_cannot_be_told_from_nothing(
    end: str, far_off: float, verdict: str
) -> None:
    b = far(APART, stored=True)
    interval = seen(judged(b, 0.023)).interval
    assert isinstance(interval, Interval)
    margin, decided = {
        "low": (interval.low - far_off, "fail"),
        "high": (interval.high + far_off, "pass"),
    }[end]
    found = judged(b, margin)
    if verdict == "decided":
        assert (found.verdict, found.why) == (decided, "")
    else:
        assert (found.verdict, found.why) == (
            "undecided",
            "the margin lies so near the interval that the way of measuring alone could reach it, 5e-05 nats",
        )


def test_a_lower_bound_passes_with_all_that_may_be_missing_of_it() -> None:
    found = judged(far(APART, slack=0.1), 0.03)
    assert (found.verdict, found.why) == (
        "undecided",
        "only the likeliest tokens are stored: it may be 0.100000 nats more",
    )
    assert seen(found).kld_slack_nats == pytest.approx(0.1)
    assert judged(far(APART, slack=0.1), 0.01).verdict == "fail"
    assert judged(far(APART, slack=0.1), 0.023).why == "the interval holds the margin"
    assert judged(far(APART, slack=0.1), 0.2).verdict == "pass"


def test_few_items_are_undecided() -> None:
    found = judged(far(APART[:9]), 0.03)
    assert (found.verdict, found.why) == ("undecided", "a verdict needs 10 items, got 9")


@pytest.mark.parametrize("slice_", ["half=first", "first"])
def test_a_slice_is_named_in_full_or_by_its_value(slice_: str) -> None:
    found = judged(far([0.02, 0.021] * 10 + [0.4, 0.41] * 10), 0.05, slice_)
    assert (found.verdict, seen(found).items) == ("pass", 20)
    assert judged(far([0.02, 0.021] * 10 + [0.4, 0.41] * 10), 0.05).verdict == "fail"
    unknown = judged(far(APART), 0.05, "third")
    assert (unknown.verdict, unknown.why) == ("undecided", "no item lies in the slice `third`")


def test_items_without_a_divergence_leave_it_open() -> None:
    side = far(APART)
    (sitting,) = side.sittings["distance"]
    short = replace(side, sittings={"distance": (replace(sitting, rows=sitting.rows[:-1]),)})
    assert judged(short, 0.03).why == "1 item without a divergence, which has no upper bound"
    ungraded = replace(sitting, outcomes={})
    assert judged(replace(side, sittings={"distance": (ungraded,)}), 0.03).why == (
        "40 items without a divergence, which has no upper bound"
    )


def test_two_runs_that_differ_by_as_much_leave_it_undecided() -> None:
    b = far(APART)
    other = far([value + 0.01 for value in APART])
    found = judged(b, 0.03, again=[(b, other)])
    assert (found.verdict, found.why) == (
        "undecided",
        "two runs of one point differ by as much, 0.010000 nats",
    )
    assert judged(b, 0.04, again=[(b, other)]).verdict == "pass"
    short = judged(far(APART, slack=0.01), 0.04, again=[(b, other)])
    assert short.why == "two runs of one point differ by as much, 0.010000 nats"
    silent = judged(b, 0.03, again=[(b, a_side())])
    assert (silent.verdict, seen(silent).noise_nats) == ("pass", CannotTell(why="no point was run twice"))


def test_a_suite_that_was_not_sat_and_what_is_withheld() -> None:
    assert judged(a_side(), 0.03).why == "the suite `distance` was not sat"
    assert judged(far(APART), 0.03, withheld="it is open").seen == CannotTell(why="it is open")
