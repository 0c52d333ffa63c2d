"""The grader field_f1: the share of fields that are right."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.exchange import Outcome, Partial, Reading, Right, Unparsable, Wrong
from qlock.suites.tasks.fields import FieldF1

ORDER = {"id": 7, "lines": [{"item": "Tea", "price": 2.5}, {"item": "Milk", "price": 1}], "note": None}
NOTHING = Wrong(why="no field is as expected")


@pytest.mark.parametrize(
    "grader, text, expected, outcome",
    [
        (FieldF1(), json.dumps(ORDER), ORDER, Right()),
        (FieldF1(), f"```json\n{json.dumps(ORDER)}\n```", ORDER, Right()),
        (FieldF1(), '{"a": 1}', {"a": 1, "b": 2}, Partial(share=2 / 3)),
        (FieldF1(), '{"a": 1, "b": 2, "c": 3}', {"a": 1, "b": 2}, Partial(share=0.8)),
        (FieldF1(), '{"a": 1, "b": 3}', {"a": 1, "b": 2}, Partial(share=0.5)),
        (FieldF1(), '{"b": 1}', {"a": 1}, NOTHING),
        (FieldF1(), "{}", {"a": 1}, NOTHING),
        (FieldF1(), "3", {"a": 3}, NOTHING),
        (FieldF1(), '{"a": 1.0}', {"a": 1}, Right()),
        (FieldF1(), '{"a": true}', {"a": 1}, NOTHING),
        (FieldF1(), '{"a": "1"}', {"a": 1}, NOTHING),
        (FieldF1(), '{"a": null}', {"a": None}, Right()),
        (FieldF1(), '{"a": []}', {"a": []}, Right()),
        (FieldF1(), '{"a": {}}', {"a": []}, NOTHING),
        (FieldF1(), '{"a": " x "}', {"a": "x"}, Right()),
        (FieldF1(strip=False), '{"a": " x "}', {"a": "x"}, NOTHING),
        (FieldF1(), '{"a": "X"}', {"a": "x"}, NOTHING),
        (FieldF1(casefold=True), '{"a": "X"}', {"a": "x"}, Right()),
        (FieldF1(single_spaces=True), '{"a": "x \\n y"}', {"a": "x y"}, Right()),
        (FieldF1(), "[2, 1]", [1, 2], NOTHING),
        (FieldF1(list_order=False), "[2, 1]", [1, 2], Right()),
        (FieldF1(list_order=False), "[1, 1]", [1, 2], Partial(share=0.5)),
        (FieldF1(), '{"a": {"b": 1}}', {"a/b": 1}, NOTHING),
        (FieldF1(), "a: 1", {"a": 1}, Unparsable(why="not JSON: Expecting value at line 1, column 1")),
    ],
)
def test_outcomes(grader: FieldF1, text: str, expected: object, outcome: Outcome) -> None:
    assert grader.refusal(expected) == ""
    assert grader.grade(text, expected) == outcome


@pytest.mark.parametrize("expected", [{}, [], "a", 3, None])
def test_what_does_not_fit(expected: object) -> None:
    assert FieldF1().refusal(expected) == "expected a table or list that is not empty"


def test_long_paths_are_not_repeated_for_every_leaf() -> None:
    leaves = "[" + ",".join("1" * 20_000) + "]"
    text = f'{{"{"k" * 400_000}": {{"{"m" * 400_000}": {leaves}}}}}'
    assert FieldF1().grade(text, {"a": 1}) == NOTHING


leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)
tables = st.dictionaries(st.text(max_size=3), values, min_size=1, max_size=4) | st.lists(
    values, min_size=1, max_size=4
)
graders = st.builds(
    FieldF1,
    strip=st.booleans(),
    casefold=st.booleans(),
    single_spaces=st.booleans(),
    list_order=st.booleans(),
)


@given(graders, tables)
def test_the_derived_gold_passes_and_the_bad_does_not(grader: FieldF1, expected: object) -> None:
    gold, bad = grader.gold(expected), grader.bad(expected)
    assert gold is not None
    assert bad is not None
    assert grader.grade(gold, expected) == Right()
    assert grader.grade(bad, expected) == NOTHING


def share(outcome: Outcome) -> float:
    match outcome:
        case Right():
            return 1.0
        case Partial(share=value):
            assert 0 < value < 1
            return value
        case _:
            return 0.0


@given(graders, tables, tables)
def test_the_share_is_the_same_in_both_directions(grader: FieldF1, one: object, other: object) -> None:
    there = grader.grade(json.dumps(one), other)
    assert share(there) == share(grader.grade(json.dumps(other), one))


@given(graders, st.text())
def test_any_text_has_an_outcome(grader: FieldF1, text: str) -> None:
    assert isinstance(grader.grade(text, ORDER), Right | Wrong | Partial | Unparsable)


@pytest.mark.parametrize(
    "text, read",
    [
        ('```json\n{"total": 3.0, "lines": [1, 2.5]}\n```', {"": {"total": "3", "lines": "[1, 2.5]"}}),
        ("{}", {"": {}}),
        ("[1, 2]", None),
        ("three", None),
    ],
)
def test_what_is_read_out_of_a_reply(text: str, read: Reading | None) -> None:
    assert FieldF1().read(text) == read
