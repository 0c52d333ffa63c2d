import random

import msgspec
import pytest

from qlock.core.gates import Gate, SpeedSeen
from qlock.core.gates.speed import judge
from qlock.core.rules import SpeedAtLeast
from qlock.core.sides import Side, Sitting
from qlock.core.speed import Speed, speed_of, speed_ratio
from qlock.core.stats import CannotTell, Interval
from tests.fakes.comparisons import a_plain_lock, a_side, a_timed_sitting, with_first
from tests.fakes.documents import a_device, a_setting

replace = msgspec.structs.replace
UNTWICE = CannotTell(why="no point was run twice")


def laps(seed: int, *, times: float = 1.0, count: int = 200) -> Sitting:
    """Answers of 20 tokens at about 100 tokens a second, or so many times that."""
    draw = random.Random(seed)
    return a_timed_sitting([(20, draw.gauss(0.2, 0.02) / times) for _ in range(count)])


def timed(seed: int, *, times: float = 1.0, **changes: object) -> Side:
    side = a_side("r", sittings={"orders": (laps(seed, times=times),)}, devices=(a_device(),))
    return replace(side, **changes)


def judged(b: Side, ratio: float = 1.0, **asked: object) -> Gate:
    return judge(SpeedAtLeast(suite="orders", at_least_ratio=ratio), timed(1), b, **asked)  # type: ignore[arg-type]


def test_b_passes_where_the_whole_interval_is_as_fast_as_asked() -> None:
    b = timed(2, times=1.5)
    found = judged(b, 1.4)
    mine, theirs = timed(1).sittings["orders"], b.sittings["orders"]
    assert found == Gate(
        asked=SpeedAtLeast(suite="orders", at_least_ratio=1.4),
        verdict="pass",
        why="",
        seen=SpeedSeen(
            a=speed_of(mine),
            b=speed_of(theirs),
            ratio=speed_ratio(mine, theirs, at_once=8),
            noise_ratio=UNTWICE,
        ),
    )
    assert isinstance(found.seen, SpeedSeen)
    assert isinstance(found.seen.ratio, Interval)
    assert 1.4 < found.seen.ratio.low < found.seen.ratio.high < 1.6


@pytest.mark.parametrize(("slots", "replicas"), [(1, 8), (2, 4), (8, 1)])
def test_items_of_all_processes_are_in_one_block(slots: int, replicas: int) -> None:
    setting = a_setting(slots=slots, replicas=replicas)
    a, b = (timed(seed, lock=a_plain_lock(setting=(setting,))) for seed in (1, 2))
    found = judge(SpeedAtLeast(suite="orders", at_least_ratio=0.5), a, b).seen
    assert isinstance(found, SpeedSeen)
    assert found.ratio == speed_ratio(a.sittings["orders"], b.sittings["orders"], at_once=8)


def test_b_fails_where_the_whole_interval_is_slower() -> None:
    assert judged(timed(2, times=0.8), 0.9).verdict == "fail"


def test_an_interval_that_holds_the_limit_is_undecided() -> None:
    found = judged(timed(2), 1.0)
    assert (found.verdict, found.why) == ("undecided", "the interval holds the limit")


def test_two_runs_that_differ_by_as_much_leave_it_undecided() -> None:
    b = timed(2, times=1.2)
    assert judged(b, 1.1).verdict == "pass"
    found = judged(b, 1.1, again=[(b, timed(3, times=1.35))])
    assert found.verdict == "undecided"
    assert found.why.startswith("two runs of one point differ by as much, x1.1")
    assert judged(b, 1.1, again=[(b, timed(3, times=1.21))]).verdict == "pass"
    slower = judged(timed(2, times=0.8), 0.9, again=[(b, timed(3, times=1.0))])
    assert slower.verdict == "undecided"


def test_another_run_without_times_is_no_noise() -> None:
    found = judged(timed(2, times=1.5), again=[(timed(1), a_side("r"))])
    assert isinstance(found.seen, SpeedSeen)
    assert (found.verdict, found.seen.noise_ratio) == ("pass", UNTWICE)


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"devices": (a_device(cores=4),)}, "device.cores: `2` and `4`"),
        ({"devices": (a_device(), a_device(cores=4))}, "device.cores: `2` and `4`"),
        ({"lock": with_first(a_plain_lock(), setting={"mmap": False})}, "setting.mmap: `true` and `false`"),
        ({"lock": with_first(a_plain_lock(), device={"cores": 8})}, "device.cores: `2` and `8`"),
        ({"other_timing": ("device.cores: `1` and `2`",)}, "device.cores: `1` and `2`"),
    ],
)
def test_what_can_change_speed_alone_must_be_the_same(changes: dict[str, object], told: str) -> None:
    found = judged(timed(2, times=1.5, **changes))
    assert (found.verdict, found.why) == (
        "undecided",
        f"what can change the speed was not the same: {told}",
    )
    assert isinstance(found.seen, SpeedSeen)
    assert isinstance(found.seen.b, Speed)


def test_without_facts_of_the_run_it_is_undecided() -> None:
    found = judged(timed(2, times=1.5, devices=()))
    assert (found.verdict, found.why) == ("undecided", "it is not known on what the points were measured")


def test_without_times_or_with_few_items_it_is_undecided() -> None:
    untimed = timed(2, sittings=a_side("r" * 200).sittings)
    assert judged(untimed).why == "rows that do not say how long they took: 200 of 200"
    a = timed(1, sittings={"orders": (laps(1, count=30),)})
    rule = SpeedAtLeast(suite="orders", at_least_ratio=0.5)
    assert judge(rule, a, a).why == (
        "to see how steady a speed is, 80 answers are needed with 8 at once, got 30"
    )


def test_a_suite_that_one_side_did_not_sit_and_what_is_withheld() -> None:
    assert judged(a_side(devices=(a_device(),))).why == "the suite `orders` is not on both sides"
    assert judged(timed(2), withheld="it is open").seen == CannotTell(why="it is open")
