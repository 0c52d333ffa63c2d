"""The grader json_schema: what obeys a schema, and that nothing is fetched, matched by Python's re, or endless."""

from __future__ import annotations

import json
import re
import socket
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from qlock.core.exchange import Outcome, Right, Unparsable, Wrong
from qlock.suites.tasks.schema import JsonSchema

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}
TREE = {"$defs": {"node": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "$ref": "#/$defs/node"}
TOO_MUCH = Unparsable(why="the JSON takes more steps than the schema is given")


@pytest.mark.parametrize(
    "schema, text, outcome",
    [
        (PERSON, '{"name": "Ada", "age": 36}', Right()),
        (PERSON, 'Here you are:\n```json\n{"name": "Ada"}\n```', Right()),
        (PERSON, "{}", Wrong(why="at `$`: 'name' is a required property")),
        (PERSON, '{"name": "ada"}', Wrong(why="at `$.name`: `ada` does not match `^[A-Z]`")),
        (PERSON, '{"name": "Ada", "age": "36"}', Wrong(why="at `$.age`: '36' is not of type 'integer'")),
        (PERSON, '{"name": "Ada", "job": 1}', Wrong(why="at `$`: the key `job` is not allowed")),
        (PERSON, "Ada", Unparsable(why="not JSON: Expecting value at line 1, column 1")),
        (PERSON, '{"name": "A", "name": "B"}', Unparsable(why="the key `name` occurs twice")),
        (PERSON, '{"name": NaN}', Unparsable(why="got the number `NaN`, expected a finite number")),
        (PERSON, "[" * 1_000_000, Unparsable(why="JSON is nested deeper than 64")),
        ({"uniqueItems": True}, "[1, 2, 1.0]", Wrong(why="at `$`: two elements are the same")),
        ({"uniqueItems": True}, '[{"a": 1, "b": [2]}, {"b": [2], "a": 1}]', Wrong(why="at `$`: two elements are the same")),
        ({"uniqueItems": True}, '[1, true, "1", [1], {"1": 1}]', Right()),
        ({"uniqueItems": False}, "[1, 1]", Right()),
        ({"uniqueItems": True}, "[0.5, -0.0, 0]", Wrong(why="at `$`: two elements are the same")),
        ({"patternProperties": {"^n_": {"type": "integer"}}, "additionalProperties": {"type": "null"}},
         '{"n_a": 1, "b": null}', Right()),
        ({"patternProperties": {"^n_": {"type": "integer"}}}, '{"n_a": "x"}',
         Wrong(why="at `$.n_a`: 'x' is not of type 'integer'")),
        ({"additionalProperties": {"type": "null"}}, '{"b": 1}', Wrong(why="at `$.b`: 1 is not of type 'null'")),
        ({"additionalProperties": True, "pattern": "x", "uniqueItems": True}, '{"b": 1}', Right()),
        ({"patternProperties": {"a": True}, "additionalProperties": False}, "[1]", Right()),
        ({"format": "date"}, '"no date"', Right()),
        (TREE, "[[[]], []]", Right()),
        (TREE, "[" * 64 + "]" * 64, TOO_MUCH),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", "items": {"$ref": "#/$defs/a"},
          "$defs": {"a": {"pattern": "^(a+)+$"}}}, json.dumps(["a" * 50 + "b"]),
         Wrong(why=f"at `$[0]`: `{'a' * 50}b` does not match `^(a+)+$`")),
    ],
)  # fmt: skip
def test_outcomes(schema: dict[str, object], text: str, outcome: Outcome) -> None:
    assert JsonSchema().refusal(schema) == ""
    assert JsonSchema().grade(text, schema) == outcome


@pytest.mark.parametrize(
    "schema, refusal",
    [
        (True, "expected a JSON Schema (a table)"),
        ({"type": "strin"}, "no JSON Schema: at `$.type`: 'strin' is not valid under any of the given schemas"),
        ({"$ref": "https://example.org/s.json"}, "got the reference `https://example.org/s.json`, expected one inside the schema (`#…`)"),
        ({"items": {"$ref": "file:///etc/passwd"}}, "got the reference `file:///etc/passwd`, expected one inside the schema (`#…`)"),
        ({"$dynamicRef": "other"}, "got the reference `other`, expected one inside the schema (`#…`)"),
        ({"$ref": "#/$defs/none"}, "the reference `#/$defs/none` leads nowhere"),
        ({"$ref": "#"}, "the reference `#` leads nowhere"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"},
         "got the dialect `http://json-schema.org/draft-07/schema#`, expected `https://json-schema.org/draft/2020-12/schema`, once"),
        ({"items": {"$schema": "https://json-schema.org/draft/2020-12/schema"}},
         "got the dialect `https://json-schema.org/draft/2020-12/schema`, expected `https://json-schema.org/draft/2020-12/schema`, once"),
        ({"items": {"$id": "x"}}, "got the inner `$id` `x`, expected none below the top"),
        ({"unevaluatedItems": False}, "`unevaluatedItems` is not checked here"),
        ({"allOf": [{"unevaluatedProperties": False}]}, "`unevaluatedProperties` is not checked here"),
        ({"pattern": "(?=a)"}, "the pattern `(?=a)`: not a pattern of RE2: invalid perl operator: (?="),
        ({"patternProperties": {"(a": True}}, "the pattern `(a`: not a pattern of RE2: missing ): (a"),
    ],
)  # fmt: skip
def test_what_is_no_schema_for_us(schema: object, refusal: str) -> None:
    assert JsonSchema().refusal(schema) == refusal


def test_a_schema_of_many_levels_is_read() -> None:
    schema: dict[str, object] = {"type": "null"}
    for _ in range(60):
        schema = {"items": schema}

    def refusal(calls_above: int) -> str:
        return refusal(calls_above - 1) if calls_above else JsonSchema().refusal(schema)

    assert refusal(0) == refusal(300) == ""
    assert refusal(600) == "the schema is nested too deep"  # the interpreter's own limit, and no traceback


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    outcome = JsonSchema().grade('"x"', {"$ref": "https://example.org/s.json"})
    assert outcome.__struct_config__.tag == "ungraded"


def test_patterns_never_reach_pythons_re(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"patternProperties": {"(a+)+$": {"pattern": "(b+)+$"}}, "additionalProperties": False}
    assert JsonSchema().refusal(schema) == ""
    searched: list[object] = []
    monkeypatch.setattr(re, "search", lambda pattern, text, *_: searched.append(pattern))
    assert JsonSchema().grade('{"a": "b"}', schema) == Right()
    assert searched == []


def test_the_outcome_does_not_depend_on_how_deep_the_caller_stands() -> None:
    def graded(calls_above: int, text: str) -> Outcome:
        return graded(calls_above - 1, text) if calls_above else JsonSchema().grade(text, TREE)

    for depth in (10, 30, 50, 63):
        text = "[" * depth + "]" * depth
        assert graded(0, text) == graded(300, text)


def test_a_schema_that_doubles_its_work_at_every_level_ends() -> None:
    branch = {"type": "array", "items": {"$ref": "#"}}
    schema = {"anyOf": [branch, {"type": "array", "contains": {"$ref": "#"}}], "type": "array"}
    assert JsonSchema().grade("[" * 24 + "1" + "]" * 24, schema) == TOO_MUCH


def test_a_long_list_is_checked() -> None:
    text = json.dumps(list(range(40_000)))
    assert (
        JsonSchema().grade(text, {"items": {"type": "integer", "minimum": 0}, "uniqueItems": True}) == Right()
    )


def test_there_is_no_gold_in_a_schema_and_prose_is_bad() -> None:
    assert JsonSchema().gold(PERSON) is None
    bad = JsonSchema().bad(PERSON)
    assert bad is not None
    assert isinstance(JsonSchema().grade(bad, PERSON), Unparsable)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0]) | st.text("abA", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=8,
)
types = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
schemas: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.builds(lambda kind: {"type": kind}, types)
    | st.builds(lambda values: {"enum": values}, st.lists(json_values, min_size=1, max_size=3))
    | st.sampled_from([{}, {"pattern": "^a"}, {"uniqueItems": True}, {"minimum": 1}, {"required": ["a"]}]),
    lambda inner: st.builds(
        lambda key, a, b: {
            "items": {"items": a},
            "properties": {"properties": {"a": a}, "additionalProperties": b},
            "patternProperties": {"patternProperties": {"^a": a}, "additionalProperties": False},
            "anyOf": {"anyOf": [a, b]},
            "not": {"not": a},
            "contains": {"contains": a, "prefixItems": [b]},
        }[key],
        st.sampled_from(["items", "properties", "patternProperties", "anyOf", "not", "contains"]),
        inner,
        inner,
    ),
    max_leaves=5,
)


@given(schemas, json_values)
def test_a_value_is_right_exactly_when_the_library_says_so(schema: dict[str, Any], value: Any) -> None:
    assert JsonSchema().refusal(schema) == ""
    is_valid = Draft202012Validator(schema).is_valid(value)
    assert (JsonSchema().grade(json.dumps(value), schema) == Right()) is is_valid


@given(st.text() | st.text(alphabet='[]{}",:\\ 01aA'))
def test_any_text_has_an_outcome(text: str) -> None:
    assert isinstance(JsonSchema().grade(text, PERSON), Right | Wrong | Unparsable)
