import msgspec
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.compare import compare
from qlock.core.comparison import Comparison
from qlock.core.ladder import Best, Ladder, ladder, mark_in, value_of
from qlock.core.stats import CannotTell
from tests.fakes.comparisons import a_reading, a_side

replace = msgspec.structs.replace


def a_rung(letters: str, size: int, name: str = "Q4_K_M@f16kv", reference: str = "r" * 20) -> Comparison:
    """A comparison with a reference of 100 bytes, of a point of this size."""
    found = compare(a_side(reference), a_side(letters, model="Q4_K_M"))
    return replace(
        found,
        b=replace(found.b, name=f"runs/ladder:{name}", point=name),
        recipes=replace(found.recipes, file_bytes_a=100, file_bytes_b=size),
    )


def on_front(found: Ladder, suite: str = "orders") -> list[str]:
    marks = [(rung.name, mark_in(rung, suite)) for rung in found.rung]
    return [name for name, mark in marks if mark is not None and mark.is_on_front]


def test_each_point_is_one_rung_the_largest_first() -> None:
    found = ladder([a_rung("r" * 19 + "w", 50, "Q4@s"), a_rung("r" * 20, 80, "Q8@s")])
    assert [(rung.name, rung.is_reference, rung.file_bytes) for rung in found.rung] == [
        ("F16@f16kv", True, 100),
        ("Q8@s", False, 80),
        ("Q4@s", False, 50),
    ]
    assert found.best == ()


def test_a_mark_is_what_the_comparison_says() -> None:
    found = ladder([a_rung("r" * 10 + "w" * 8 + "bb", 50)])
    reference, judged = found.rung
    mark = mark_in(judged, "orders")
    assert mark is not None
    assert (mark.level, mark.change, mark.verdict) == (0.5, -0.5, "b-worse")
    assert (mark.unfinished_share, mark.loop_share, mark.equal_share) == (0.1, 0.0, 0.5)
    of_reference = mark_in(reference, "orders")
    assert of_reference is not None
    assert (of_reference.level, of_reference.verdict) == (1.0, "reference")
    assert of_reference.equal_share == CannotTell(why="it is the reference")
    assert mark_in(judged, "other") is None


def test_a_point_that_is_larger_and_no_better_stands_on_no_front() -> None:
    found = ladder(
        [a_rung("r" * 20, 50, "small@s"), a_rung("r" * 20, 60, "large@s"), a_rung("w" * 20, 40, "tiny@s")]
    )
    assert on_front(found) == ["small@s", "tiny@s"]


def test_two_points_that_are_alike_both_stand_on_it() -> None:
    assert on_front(ladder([a_rung("r" * 20, 50, "a@s"), a_rung("r" * 20, 50, "b@s")])) == ["a@s", "b@s"]


def test_a_point_that_may_not_be_compared_stands_nowhere() -> None:
    bad = replace(a_rung("r" * 20, 10), state="invalid")
    found = ladder([bad], at_most_bytes=50)
    assert on_front(found) == ["F16@f16kv"]
    assert found.best[1] == Best(
        suite="orders", rung=CannotTell(why="no valid point with a score is so small"), candidates=0
    )


def test_the_best_at_or_under_a_size_is_the_highest_and_of_two_alike_the_smaller() -> None:
    rungs = [
        a_rung("r" * 19 + "w", 50, "a@s"),
        a_rung("r" * 19 + "w", 40, "b@s"),
        a_rung("r" * 20, 51, "c@s"),
    ]
    found = ladder(rungs, at_most_bytes=50)
    assert found.best[1] == Best(suite="orders", rung="b@s", candidates=2)
    assert ladder(rungs, at_most_bytes=51).best[1] == Best(suite="orders", rung="c@s", candidates=3)


def test_of_text_the_lower_cost_is_better() -> None:
    cheap = a_side(sittings={"wikitext": (a_reading([90.0] * 12),)})
    dear = a_side(sittings={"wikitext": (a_reading([100.0] * 12),)}, model="Q4_K_M")
    found = ladder([compare(cheap, dear)])
    values = {
        rung.name: value_of(mark) for rung in found.rung for mark in rung.mark if mark.suite == "wikitext"
    }
    assert values == {"F16@f16kv": -0.9, "Q4_K_M@f16kv": -1.0}
    assert on_front(found, "wikitext") == ["F16@f16kv"]


def test_a_suite_without_pairs_has_no_level() -> None:
    found = ladder([compare(a_side("r" * 3), a_side("...", model="Q4_K_M"))])
    levels = [mark.level for rung in found.rung for mark in rung.mark if mark.suite == "orders"]
    assert levels == [CannotTell(why="there are no pairs")] * 2
    assert [mark.unfinished_share for mark in found.rung[-1].mark] == [
        CannotTell(why="nothing was written in this suite"),
        CannotTell(why="nothing was written on this side"),
    ]
    assert on_front(found) == []


def test_a_reference_is_shown_with_the_most_pairs_that_it_is_in() -> None:
    few = a_rung("r" * 10 + "." * 10, 50, "few@s", "r" * 10 + "w" * 10)
    all_of_them = a_rung("r" * 20, 60, "all@s", "r" * 10 + "w" * 10)
    for order in ([few, all_of_them], [all_of_them, few]):
        mark = mark_in(ladder(order).rung[0], "orders")
        assert mark is not None
        assert mark.level == 0.5


def test_points_of_one_name_are_told_apart_by_their_runs() -> None:
    found = compare(a_side("r" * 20), a_side("r" * 20, name="runs/later:F16@f16kv"))
    assert [rung.name for rung in ladder([found]).rung] == ["runs/ladder:F16@f16kv", "runs/later:F16@f16kv"]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)), min_size=1, max_size=6))
def test_nothing_beats_a_point_on_the_front_and_something_beats_every_other(
    points: list[tuple[int, int]],
) -> None:
    rungs = [
        a_rung("r" * right + "w" * (20 - right), size, f"q{number}@s")
        for number, (right, size) in enumerate(points)
    ]
    found = ladder(rungs)
    standing = {
        rung.name: (rung.file_bytes, value_of(mark))
        for rung in found.rung
        for mark in rung.mark
        if mark.suite == "orders"
    }
    front = on_front(found)
    for name, (size, value) in standing.items():
        assert value is not None
        beaten = any(
            other_size <= size
            and other is not None
            and other >= value
            and (other_size, other) != (size, value)
            for other_size, other in standing.values()
        )
        assert beaten == (name not in front)
