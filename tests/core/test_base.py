"""The base struct, and what the numbers and names within the ranges are."""

from __future__ import annotations

import datetime as dt
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qlock.core.base import (
    LONGEST_NAME,
    Base,
    Count,
    Day,
    Finite,
    Name,
    Positive,
    Share,
    is_name,
    refuse_no_day,
    wrong_slice,
)
from tests.strategies import NAMES, strategy, structs


class Pair(Base, frozen=True, kw_only=True):
    a: int
    b: str = ""


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="Object contains unknown field `c`"):
        msgspec.convert({"a": 1, "c": 2}, Pair)


def test_a_struct_does_not_change() -> None:
    with pytest.raises(AttributeError, match="immutable type: 'Pair'"):
        Pair(a=1).a = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    "kind, good, bad",
    [
        (Name, ["a", "Q4_K_M", "0.5B-x+y", "a" * 80], ["", "a\n", ".a", "a b", "a/b", "é", "a" * 81, 3]),
        (Count, [0, 2**63 - 1], [-1, 1.0, True, "1"]),
        (Positive, [1], [0]),
        (Share, [0, 0.0, 1.0, 0.5], [-0.001, 1.001, math.nan, math.inf, True]),
        (Finite, [0, -1.5, 1.7e308], [math.inf, -math.inf, "1"]),
        (Day, ["2026-01-01", "2026-02-30"], ["2026-1-1", "20260101", "2026-01-01\n", "２０２６-01-01", ""]),
    ],
)
def test_ranges(kind: Any, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert msgspec.convert(value, kind) == value
    for value in bad:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(value, kind)


@given(st.text(max_size=6) | NAMES | NAMES.map(lambda name: f"{name}\n"))
def test_a_name_is_what_can_be_read_as_one(text: str) -> None:
    try:
        is_read = msgspec.convert(text, Name) == text
    except msgspec.ValidationError:
        is_read = False
    assert is_name(text) == is_read


def test_a_record_of_the_longest_names_can_be_a_file(tmp_path: Path) -> None:
    name = "a" * LONGEST_NAME
    (tmp_path / f"{name}.{name}@{name}.1000.jsonl").write_bytes(b"")


@given(NAMES)
def test_drawn_names_are_names(name: str) -> None:
    assert msgspec.convert(name, Name) == name


@pytest.mark.parametrize("kind", structs(), ids=lambda kind: kind.__name__)
def test_every_struct_states_what_it_must(kind: type[Base]) -> None:
    info = kind.__struct_config__
    assert (info.frozen, info.forbid_unknown_fields) == (True, True)
    with pytest.raises(TypeError, match="Extra positional arguments provided"):
        kind(*range(100))


@pytest.mark.parametrize("kind", structs(), ids=lambda kind: kind.__name__)
@settings(max_examples=20)
@given(data=st.data())
def test_what_is_drawn_keeps_to_the_ranges(kind: type[Base], data: st.DataObject) -> None:
    value = data.draw(strategy(kind))
    assert msgspec.convert(msgspec.to_builtins(value), kind, strict=True) == value


@pytest.mark.parametrize(
    "slices, wrong",
    [
        ({}, None),
        ({"bank": "north", "Größe": "a=b"}, None),
        ({"bank": "north", "": "x"}, "=x"),
        ({"bank": ""}, "bank="),
        ({"": ""}, "="),
        ({"a=b": "c"}, "a=b=c"),
        ({" a": "c"}, " a=c"),
        ({"a": "c\n"}, "a=c\n"),
        ({"a": 201 * "c"}, "a=" + 201 * "c"),
    ],
)
def test_a_slice_has_a_name_and_a_value(slices: dict[str, str], wrong: str | None) -> None:
    assert wrong_slice(slices) == wrong


@given(st.dates())
def test_every_day_of_the_calendar_is_one(day: dt.date) -> None:
    refuse_no_day(day.isoformat(), key="day")


@pytest.mark.parametrize("text", ["2026-02-30", "2025-02-29", "2026-13-01", "2026-00-10", "0000-01-01"])
def test_what_is_no_day_of_the_calendar_is_refused(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        refuse_no_day(text, key="day")
    assert str(caught.value) == f"day: got `{text}`, expected a day of the calendar"
