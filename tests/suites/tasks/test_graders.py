"""The union of graders: every one is known by its kind and survives a file."""

from __future__ import annotations

import msgspec
import pytest

from qlock.suites.tasks.fields import FieldF1
from qlock.suites.tasks.graders import KINDS, Grader, read_by
from qlock.suites.tasks.tool_call import ToolCall


@pytest.mark.parametrize("kind", KINDS)
def test_a_grader_is_made_from_its_kind_and_written_back(kind: str) -> None:
    needed = {"pattern": "a"} if kind == "regex" else {}
    grader = msgspec.convert({"kind": kind, **needed}, Grader)
    plain = msgspec.to_builtins(grader)
    assert plain["kind"] == kind
    assert msgspec.convert(plain, Grader) == grader


def test_the_kinds_are_these() -> None:
    assert KINDS == ("exact", "number", "choice", "regex", "contains", "json_schema", "field_f1", "tool_call")


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({"kind": "exact", "ignorecase": True}, Grader)
    assert str(caught.value) == "Object contains unknown field `ignorecase`"


def test_calls_and_fields_are_read_part_by_part() -> None:
    assert read_by(ToolCall(), "f(a=1)") == {"f": {"a": "1"}}
    assert read_by(FieldF1(), '{"a": 1}') == {"": {"a": "1"}}
    assert read_by(ToolCall(), "f(") is None


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"tool_call", "field_f1"}))
def test_other_answers_are_read_as_a_whole(kind: str) -> None:
    own = {"pattern": "a"} if kind == "regex" else {}
    grader: Grader = msgspec.convert({"kind": kind, **own}, Grader)
    assert read_by(grader, '{"a": 1}') is None
