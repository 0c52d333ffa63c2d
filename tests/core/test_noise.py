import msgspec
from msgspec import UNSET

from qlock.core.noise import Floor, floor, unmeasured
from qlock.core.stats import CannotTell, share_interval, wilson
from tests.fakes.comparisons import a_plain_lock, a_reading, a_side, a_sitting, with_first

replace = msgspec.structs.replace


def test_two_runs_of_one_point_show_how_many_marks_flip() -> None:
    found = floor("a", (a_sitting("r" * 48 + "ww"),), (a_sitting("r" * 47 + "wrw"),))
    assert found == Floor(side="a", measure="right-share", pairs=50, value=0.04, flips=wilson(2, 50))


def test_repeats_that_flip_together_are_one_flip() -> None:
    one = tuple(a_sitting("r" * 50, repeat=repeat) for repeat in (1, 2))
    again = tuple(a_sitting("r" * 48 + "ww", repeat=repeat) for repeat in (1, 2))
    found = floor("a", one, again)
    assert isinstance(found, Floor)
    items = [f"{number}" for number in range(50)] * 2
    assert (found.pairs, found.value) == (100, 0.04)
    assert found.flips == share_interval(([0.0] * 48 + [1.0] * 2) * 2, items)


def test_two_runs_of_a_text_show_how_far_its_cost_moves() -> None:
    found = floor("b", (a_reading([100.0, 200.0]),), (a_reading([101.0, 196.0]),))
    assert isinstance(found, Floor)
    assert (found.measure, found.pairs, round(found.value, 12)) == ("nats-per-token", 2, 0.015)
    assert found.flips == CannotTell(why="text has no marks")


def test_without_pairs_there_is_no_floor() -> None:
    assert floor("a", (a_sitting("r"),), (a_sitting("."),)) == CannotTell(why="there are no pairs")


def test_points_that_repeat_bit_for_bit_need_no_second_run() -> None:
    assert unmeasured(a_side(), a_side()) == (
        "not measured; both points repeat bit for bit on their machine, so a second run there gives the same answers"
    )


def test_points_that_do_not_repeat_need_one() -> None:
    lock = with_first(a_plain_lock(), point={"repeatable": "no"})
    assert unmeasured(a_side(lock=lock), a_side(model="Q4_K_M")) == (
        "not measured, and a second run may differ (not repeatable); run the lock again and give that run as noise"
    )
    lock = with_first(a_plain_lock(), point={"repeatable": UNSET})
    tokens = with_first(a_plain_lock(), point={"repeatable": "tokens"})
    assert unmeasured(a_side(lock=lock), a_side(lock=tokens)) == (
        "not measured, and a second run may differ (repeatable in tokens only, unknown); "
        "run the lock again and give that run as noise"
    )
