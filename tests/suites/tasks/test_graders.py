"""The union of graders: every one is known by its kind and survives a file."""

from __future__ import annotations

import msgspec
import pytest

from qlock.suites.tasks.graders import KINDS, Grader


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
