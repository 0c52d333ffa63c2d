from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core import parts as module
from qlock.core.exchange import Reading
from qlock.core.pairs import Pair, pair
from qlock.core.parts import PartDifference, PartRow, Parts, part_differences, parts
from tests.fakes.comparisons import a_sitting

replace = msgspec.structs.replace

NAMES = st.sampled_from(["book", "find", "a.b", ""])
READINGS = st.none() | st.dictionaries(
    NAMES, st.dictionaries(st.sampled_from(["date", "who", "é"]), st.sampled_from(["1", "2", '"x"']))
)


def pairs_of(*read: tuple[Reading | None, Reading | None]) -> tuple[Pair, ...]:
    """A pair for each two readings."""
    made = pair((a_sitting("r" * len(read)),), (a_sitting("r" * len(read)),)).matched
    return tuple(
        replace(one, a=replace(one.a, read=a), b=replace(one.b, read=b))
        for one, (a, b) in zip(made, read, strict=True)
    )


def test_an_argument_with_another_value_is_told_with_both() -> None:
    a = {"book": {"date": '"2026-01-01"', "seats": "2", "window": "true"}}
    b = {"book": {"date": '"2026-01-02"', "seats": "2", "meal": '"none"'}}
    (found,) = pairs_of((a, b))
    assert part_differences(found) == (
        PartDifference(thing="book", part="date", on="both", a='"2026-01-01"', b='"2026-01-02"'),
        PartDifference(thing="book", part="meal", on="b", a="", b='"none"'),
        PartDifference(thing="book", part="window", on="a", a="true", b=""),
    )
    assert parts([found]) == Parts(
        pairs=1,
        same=0,
        row=(
            PartRow(thing="book", part="date", pairs=1, other=1, only_a=0, only_b=0),
            PartRow(thing="book", part="meal", pairs=1, other=0, only_a=0, only_b=1),
            PartRow(thing="book", part="window", pairs=1, other=0, only_a=1, only_b=0),
        ),
        left_out=0,
    )


def test_of_another_function_the_arguments_are_not_compared() -> None:
    (found,) = pairs_of(({"book": {"date": "1"}}, {"cancel": {"date": "1"}}))
    assert part_differences(found) == (
        PartDifference(thing="book", part="", on="a", a="", b=""),
        PartDifference(thing="cancel", part="", on="b", a="", b=""),
    )


def test_a_function_that_one_side_calls_and_the_other_does_not_need_differs_too() -> None:
    (found,) = pairs_of(({"book": {}}, {}))
    assert [(one.thing, one.on) for one in part_differences(found)] == [("book", "a")]


def test_the_most_frequent_parts_come_first() -> None:
    read = [({"f": {"x": "1", "y": "1"}}, {"f": {"x": "2", "y": "1"}})] * 2
    read += [({"f": {"x": "1", "y": "1"}}, {"f": {"x": "1", "y": "2"}})] * 3
    found = parts(pairs_of(*read, ({"f": {}}, {"f": {}})))
    assert [(row.part, row.pairs, row.other) for row in found.row] == [("y", 5, 3), ("x", 5, 2)]
    assert (found.pairs, found.same) == (6, 1)


def test_answers_that_nobody_read_are_not_compared() -> None:
    found = pairs_of((None, {"f": {}}), ({"f": {}}, None), (None, None))
    assert parts(found) == Parts(pairs=0, same=0, row=(), left_out=0)
    assert [part_differences(one) for one in found] == [(), (), ()]


def test_of_too_many_parts_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 2)
    monkeypatch.setattr(module, "MOST_DIFFERENCES", 1)
    (one,) = pairs_of(({"f": {"x": "1", "y": "1", "z": "1"}}, {"f": {}}))
    found = parts([one])
    assert ([row.part for row in found.row], found.left_out) == (["x", "y"], 1)
    assert [difference.part for difference in part_differences(one)] == ["x"]


def test_names_and_values_cannot_write_to_the_terminal() -> None:
    (one,) = pairs_of(({"f\x1b[2J": {"x\x07": "\x1b]0;"}}, {"f\x1b[2J": {"x\x07": "y"}}))
    (row,) = parts([one]).row
    (found,) = part_differences(one)
    assert (row.thing, row.part) == (found.thing, found.part) == ("f\\x1b[2J", "x\\x07")
    assert found.a == "\\x1b]0;"


@given(st.lists(st.tuples(READINGS, READINGS), max_size=8))
def test_exchanging_the_sides_exchanges_what_is_told_of_them(
    read: list[tuple[Reading | None, Reading | None]],
) -> None:
    one, other = parts(pairs_of(*read)), parts(pairs_of(*((b, a) for a, b in read)))
    assert other == replace(
        one, row=tuple(replace(row, only_a=row.only_b, only_b=row.only_a) for row in one.row)
    )
    both = [(a, b) for a, b in read if a is not None and b is not None]
    assert (one.pairs, one.same) == (len(both), sum(a == b for a, b in both))
