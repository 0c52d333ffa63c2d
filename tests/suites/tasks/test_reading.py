"""JSON within bounds, and fenced blocks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.exchange import Unparsable
from qlock.suites.tasks.reading import (
    DEEPEST,
    LONGEST_JSON,
    LONGEST_PART,
    MOST_PARTS,
    MOST_VALUES,
    Parsed,
    alike,
    inner_values,
    json_part,
    last_fenced,
    parts_of,
    quoted,
    read_json,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "not JSON: Expecting value at line 1, column 1"),
        ('{"a": 1,\n}', "not JSON: Illegal trailing comma before end of object at line 1, column 8"),
        ("{'a': 1}", "not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
        ("1 2", "not JSON: Extra data at line 1, column 3"),
        ('{"a": 1, "b": 2, "a": 1}', "the key `a` occurs twice"),
        ('[{"\\u202e": 1, "\\u202e": 2}]', "the key `\\u202e` occurs twice"),
        ("[NaN]", "got the number `NaN`, expected a finite number"),
        ("-Infinity", "got the number `-Infinity`, expected a finite number"),
        ("1e999", "got the number `1e999`, expected one that fits a float"),
        ("9" * 5_000, "got a number of 5000 characters, expected at most 300"),
        ("[" * 65, "JSON is nested deeper than 64"),
        ('{"a":' * 1_000_00, "JSON is nested deeper than 64"),
        ("[" * 1_000_000, "JSON is nested deeper than 64"),
        (" " * (LONGEST_JSON + 1), "got JSON of 1000001 characters, expected at most 1000000"),
        ("[" + "0," * MOST_VALUES + "0]", "JSON holds more than 50000 values"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    read = read_json(text)
    assert isinstance(read, Unparsable)
    if why.startswith("not JSON: Illegal"):  # Pythons before 3.13 word it differently
        assert read.why.startswith("not JSON: ")
    else:
        assert read.why == why


def test_the_depth_is_counted_exactly() -> None:
    assert isinstance(read_json("[" * DEEPEST + "]" * DEEPEST), Parsed)
    assert isinstance(read_json("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1)), Unparsable)


def test_brackets_in_strings_do_not_nest() -> None:
    text = json.dumps(["[" * 1_000, '"{[', "\\"])
    assert read_json(text) == Parsed(value=json.loads(text))


def test_many_shallow_brackets_do_not_nest() -> None:
    assert isinstance(read_json("[" + "[]," * 1_000 + "{}]"), Parsed)


@pytest.mark.parametrize(
    "hostile", ['"\\"' * 300_000, '[{"' * 300_000, "[]," * 100 + '"', "\\" * 900_000, '"[' * 400_000]
)
def test_hostile_text_ends_in_a_refusal(hostile: str) -> None:
    assert isinstance(read_json(hostile), Unparsable)


@given(json_values)
def test_what_was_written_is_read(value: object) -> None:
    assert read_json(json.dumps(value)) == Parsed(value=value)


@given(st.text(alphabet='[]{}",:\\ \n01eE.-antrufls') | st.text())
def test_any_text_is_read_as_the_standard_library_does_or_refused(text: str) -> None:
    match read_json(text):
        case Parsed(value=value):
            assert json.dumps(value) == json.dumps(json.loads(text))
        case Unparsable(why=why):
            assert why
            assert "\n" not in why


@pytest.mark.parametrize(
    "text, block",
    [
        ("no fence", None),
        ("```json\n{}\n```", "{}"),
        ("Sure:\n```\n[1]\n```\nDone.", "[1]"),
        ("```json\n1\n```\nor rather\n```json\n2\n```", "2"),
        ('```json\n{"a":', '{"a":'),
        ("```{}```", "{}"),
        ("```[1,\n2]```", "[1,\n2]"),
        ("```", ""),
        ("```json\n1\n```\nand ```json\n2", "2"),
    ],
)
def test_the_last_fenced_block(text: str, block: str | None) -> None:
    assert last_fenced(text) == block


@pytest.mark.parametrize(
    "text, part",
    [
        (" {} \n", "{}"),
        ("Sure:\n```json\n{}\n```", "{}"),
        ('{"a": "```b```"}', '{"a": "```b```"}'),
        ('{"a": 1}\n```', '{"a": 1}'),
        ("plain", "plain"),
    ],
)
def test_the_part_that_should_be_json(text: str, part: str) -> None:
    assert json_part(text) == part


def test_a_million_fences_end() -> None:
    assert last_fenced("```" * 1_000_000) == ""


@pytest.mark.parametrize(
    "strip, casefold, single_spaces, text",
    [
        (False, False, False, " Die  STRASSE "),
        (True, False, False, "Die  STRASSE"),
        (False, True, False, " die  strasse "),
        (False, False, True, "Die STRASSE"),
    ],
)
def test_texts_made_alike(strip: bool, casefold: bool, single_spaces: bool, text: str) -> None:  # noqa: FBT001 - a table
    assert alike(" Die  STRASSE ", strip=strip, casefold=casefold, single_spaces=single_spaces) == text
    assert alike(text, strip=strip, casefold=casefold, single_spaces=single_spaces) == text


def test_quoted_text_is_one_line() -> None:
    assert quoted("a\nb\x1b[2K") == "`a↵b\\x1b[2K`"


def test_inner_values_are_all_keys_and_values() -> None:
    inner = list(inner_values({"a": [1, {"b": None}]}))
    assert sorted(map(repr, inner)) == sorted(
        map(repr, [{"a": [1, {"b": None}]}, "a", [1, {"b": None}], 1, {"b": None}, "b", None])
    )


def test_parts_are_the_first_fields_with_their_values() -> None:
    assert parts_of({"b": 1.0, "a": {"z": 1, "y": [2.0, True, None]}, "c": "é\n"}) == {
        "b": "1",
        "a": '{"y": [2, true, null], "z": 1}',
        "c": '"é\\n"',
    }
    assert list(parts_of({f"{n}": n for n in range(MOST_PARTS + 1)})) == [f"{n}" for n in range(MOST_PARTS)]


def test_long_values_are_cut_and_still_told_apart() -> None:
    one, other = parts_of({"a": "x" * 500})["a"], parts_of({"a": "x" * 499 + "y"})["a"]
    assert one.startswith('"' + "x" * (LONGEST_PART // 2 - 1) + "… (502 characters, blake3:")
    assert one != other
    assert len(one) < 2 * LONGEST_PART
    assert parts_of({"a": "\ud800" * 300})["a"] != parts_of({"a": "\ud801" * 300})["a"]


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_equal_values_are_written_alike(value: object) -> None:
    assert parts_of({"a": value}) == parts_of({"a": json.loads(json.dumps(value))})
