"""The grader tool_call: names, arguments, alternatives, order."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.exchange import Outcome, Reading, Right, Unparsable, Wrong
from qlock.suites.tasks.tool_call import ToolCall

WEATHER = [{"name": "weather", "arguments": {"city": "Bern", "days": 3}}]
TWO = [{"name": "f", "arguments": {"a": 1}}, {"name": "f", "arguments": {"a": 2}}]
ALLOWED = [{"name": "f", "arguments": {"a": [1, 2], "b": ["x", ""]}}]
BFCL = ToolCall(alternatives=True, loose_strings=True)


@pytest.mark.parametrize(
    "grader, text, expected, outcome",
    [
        (ToolCall(), "[weather(city='Bern', days=3)]", WEATHER, Right()),
        (ToolCall(), "weather(days=3.0, city='Bern')", WEATHER, Right()),
        (ToolCall(), '{"name": "weather", "arguments": {"city": "Bern", "days": 3}}', WEATHER, Right()),
        (ToolCall(), "rain(city='Bern', days=3)", WEATHER, Wrong(why="got a call of `rain`, expected `weather`")),
        (ToolCall(), "weather(city='Bern')", WEATHER, Wrong(why="the argument `days` is missing")),
        (ToolCall(), "weather(city='bern', days=3)", WEATHER,
         Wrong(why='the argument `city`: got `"bern"`, expected `"Bern"`')),
        (ToolCall(loose_strings=True), "weather(city='b-e.r n', days=3)", WEATHER, Right()),
        (ToolCall(), "weather(city='Bern', days='3')", WEATHER,
         Wrong(why='the argument `days`: got `"3"`, expected `3`')),
        (ToolCall(), "weather(city='Bern', days=True)", [{"name": "weather", "arguments": {"city": "Bern", "days": 1}}],
         Wrong(why="the argument `days`: got `true`, expected `1`")),
        (ToolCall(), "weather(city='Bern', days=3, x=1)", WEATHER, Wrong(why="the argument `x` is not expected")),
        (ToolCall(extra_arguments=True), "weather(city='Bern', days=3, x=1)", WEATHER, Right()),
        (ToolCall(tolerance=0.5), "weather(city='Bern', days=3.5)", WEATHER, Right()),
        (ToolCall(tolerance=0.5), "weather(city='Bern', days=3.6)", WEATHER,
         Wrong(why="the argument `days`: got `3.6`, expected `3`")),
        (ToolCall(), "Bern", WEATHER, Unparsable(why="no call: got the end at character 5")),
        (ToolCall(), "[]", WEATHER, Wrong(why="got 0 calls, expected 1")),
        (ToolCall(), "f(a=2), f(a=1)", TWO, Right()),
        (ToolCall(ordered=True), "f(a=2), f(a=1)", TWO, Wrong(why="the argument `a`: got `2`, expected `1`")),
        (ToolCall(ordered=True), "f(a=1), f(a=2)", TWO, Right()),
        (ToolCall(), "f(a=1), f(a=1)", TWO, Wrong(why="the calls are not the expected ones")),
        (ToolCall(), "f(a=1)", TWO, Wrong(why="got 1 calls, expected 2")),
        (ToolCall(), "f(a=[1, {'k': None}])", [{"name": "f", "arguments": {"a": [1, {"k": None}]}}], Right()),
        (ToolCall(), "f(a=[1, {'k': 0}])", [{"name": "f", "arguments": {"a": [1, {"k": None}]}}],
         Wrong(why='the argument `a`: got `[1, {"k": 0}]`, expected `[1, {"k": null}]`')),
        (BFCL, "f(a=2)", ALLOWED, Right()),
        (BFCL, "f(a=1, b='X ')", ALLOWED, Right()),
        (BFCL, "f(a=3)", ALLOWED, Wrong(why="the argument `a`: got `3`, expected `1 or 2`")),
        (BFCL, "f(b='x')", ALLOWED, Wrong(why="the argument `a` is missing")),
        (ToolCall(), "I would rather not", [], Right()),
        (ToolCall(), "", [], Right()),
        (ToolCall(), "[]", [], Right()),
        (ToolCall(), "f()", [], Wrong(why="got 1 calls, expected 0")),
        (ToolCall(), "[f(a=", [], Unparsable(why="no call: got the end at character 6")),
    ],
)  # fmt: skip
def test_outcomes(grader: ToolCall, text: str, expected: object, outcome: Outcome) -> None:
    assert grader.refusal(expected) == ""
    assert grader.grade(text, expected) == outcome


def test_calls_are_paired_whatever_the_order_of_trying() -> None:
    # The first expected call could take either made call, the second only one of them.
    expected = [{"name": "f", "arguments": {"a": [1, 2]}}, {"name": "f", "arguments": {"a": [1]}}]
    for made in (["f(a=1)", "f(a=2)"], ["f(a=2)", "f(a=1)"]):
        assert BFCL.grade(", ".join(made), expected) == Right()
    assert BFCL.grade("f(a=2), f(a=2)", expected) == Wrong(why="the calls are not the expected ones")


SHAPE = 'expected a list of calls such as `{"name": "f", "arguments": {"a": 1}}`'


@pytest.mark.parametrize(
    "grader, expected, refusal",
    [
        (ToolCall(), {"name": "f", "arguments": {}}, SHAPE),
        (ToolCall(), [{"name": "f"}], SHAPE),
        (ToolCall(), [{"name": "f", "arguments": {}, "x": 1}], SHAPE),
        (ToolCall(), None, SHAPE),
        (ToolCall(), [{"name": "f", "arguments": {}}] * 65, "got 65 calls, expected at most 64"),
        (BFCL, WEATHER, "with `alternatives`, expected a list of allowed values for every argument"),
        (BFCL, [{"name": "f", "arguments": {"a": []}}], "with `alternatives`, expected a list of allowed values for every argument"),
    ],
)  # fmt: skip
def test_what_does_not_fit(grader: ToolCall, expected: object, refusal: str) -> None:
    assert grader.refusal(expected) == refusal


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, 1e300]) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["f", "g.h"])
expected_calls = st.lists(
    st.fixed_dictionaries(
        {"name": names, "arguments": st.dictionaries(st.sampled_from("abc"), values, max_size=3)}
    ),
    max_size=4,
)
graders = st.builds(
    ToolCall,
    tolerance=st.sampled_from([0.0, 0.1]),
    loose_strings=st.booleans(),
    extra_arguments=st.booleans(),
    ordered=st.booleans(),
)


@given(graders, expected_calls)
def test_the_derived_gold_passes_and_the_bad_does_not(grader: ToolCall, expected: list[object]) -> None:
    assert grader.refusal(expected) == ""
    gold, bad = grader.gold(expected), grader.bad(expected)
    assert gold is not None
    assert bad is not None
    assert grader.grade(gold, expected) == Right()
    assert isinstance(grader.grade(bad, expected), Wrong)


@given(st.dictionaries(st.sampled_from("abc"), st.lists(values, min_size=1, max_size=3), max_size=3))
def test_the_derived_gold_passes_with_alternatives(arguments: dict[str, object]) -> None:
    expected = [{"name": "f", "arguments": arguments}]
    gold = BFCL.gold(expected)
    assert gold is not None
    assert BFCL.grade(gold, expected) == Right()


@given(expected_calls.filter(lambda calls: len(calls) > 1))
def test_without_order_any_order_is_right(expected: list[object]) -> None:
    for order in itertools.permutations(expected):
        assert ToolCall().grade(json.dumps(order), expected) == Right()


@given(graders, st.text(), st.sampled_from([WEATHER, [], TWO]))
def test_any_text_has_an_outcome(grader: ToolCall, text: str, expected: object) -> None:
    assert isinstance(grader.grade(text, expected), Right | Wrong | Unparsable)


@pytest.mark.parametrize(
    "text, read",
    [
        ('book(date="2026-01-01", seats=2.0)', {"book": {"date": '"2026-01-01"', "seats": "2"}}),
        (
            '[f(a=1), g(), f(a=[1, {"b": None}])]',
            {"f": {"a": "1"}, "g": {}, "f #2": {"a": '[1, {"b": null}]'}},
        ),
        ("[f(), f(), f()]", {"f": {}, "f #2": {}, "f #3": {}}),
        ("[]", {}),
        ("There is nothing to call.", {}),
        ("f(a=", None),
    ],
)
def test_what_is_read_out_of_a_reply(text: str, read: Reading | None) -> None:
    assert ToolCall().read(text) == read


@given(st.text(max_size=60) | st.sampled_from(["f(", "[f(a=1)", "<tool_call>{", '{"name": 1}']))
def test_any_text_can_be_read_or_not(text: str) -> None:
    read = ToolCall().read(text)
    if read:
        assert isinstance(ToolCall().grade(text, [{"name": "x", "arguments": {}}]), Right | Wrong)
