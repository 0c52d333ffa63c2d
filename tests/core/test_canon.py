"""The door for outside text: what comes in, what is refused and in which words, and the canonical text that goes out."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qlock.core.base import Base
from qlock.core.canon import (
    check_version,
    decode_text,
    from_json,
    json_bytes,
    read_toml_table,
    refuse_non_finite,
    to_struct,
    toml_text,
)
from qlock.errors import ExitCode, InputError
from tests.strategies import FINITE, PLAIN, TEXTS

T = TypeVar("T")
JSON: Any = dict[str, Any]


class Loose(Base, frozen=True, kw_only=True):
    """Any plain table under one key."""

    table: dict[str, Any]


class Entry(Base, frozen=True, kw_only=True):
    b: int
    a: tuple[str, ...] = ()


class Document(Base, frozen=True, kw_only=True):
    last: tuple[Entry, ...]
    first: dict[str, Any]
    middle: float
    one: Entry


NO_EQUALS = "Expected '=' after a key in a key/value pair"


def refusal(data: bytes) -> tuple[str, str]:
    """The text and hint with which a TOML file is refused."""
    with pytest.raises(InputError) as caught:
        read_toml_table(data, name="x.toml")
    assert caught.value.exit_code is ExitCode.INPUT
    return str(caught.value), caught.value.hint


# ---------------------------------------------------------------- reading TOML


@pytest.mark.parametrize(
    "text, message, hint",
    [
        (
            "\ufeffa = 1",
            "x.toml: the file starts with a BOM (bytes EF BB BF)",
            "save it as UTF-8 without BOM",
        ),
        ("a = 1\na = 2", "x.toml: not TOML: Cannot overwrite a value (at line 2, column 6)", ""),
        ("a = 1\na = 2\nb = 3", "x.toml: not TOML: Cannot overwrite a value (at line 2, column 6)", ""),
        ("[a]\n[a]", "x.toml: not TOML: Cannot declare ('a',) twice (at line 2, column 3)", ""),
        ("a.b = 1\n[a]\nb = 2", "x.toml: not TOML: Cannot declare ('a',) twice (at line 2, column 3)", ""),
        ("[a]\nb = 1\n[a.b]", "x.toml: not TOML: Cannot overwrite a value (at line 3, column 5)", ""),
        ("a = ", "x.toml: not TOML: Invalid value (at line 1, column 5)", ""),
        (
            "a = 1\r\ntеmp = 1",
            f"x.toml: not TOML: {NO_EQUALS} (at line 2, column 2): got `е` (U+0435 CYRILLIC SMALL LETTER IE)",
            "write keys in ASCII letters, and text in quotes",
        ),
        (
            "a = 1 # one\n\u200bb = 2",
            "x.toml: not TOML: Invalid statement (at line 2, column 1): got `\\u200b` (U+200B ZERO WIDTH SPACE)",
            "write keys in ASCII letters, and text in quotes",
        ),
        (
            "a = “quoted”",
            "x.toml: not TOML: Invalid value (at line 1, column 5): got `“` (U+201C LEFT DOUBLE QUOTATION MARK)",
            "write keys in ASCII letters, and text in quotes",
        ),
        ("a = nan", "x.toml: a: got `nan`, expected a finite number", ""),
        ("[a]\nb = [1.0, 1e400]", "x.toml: a.b[1]: got `inf`, expected a finite number", ""),
        ("a = -inf", "x.toml: a: got `-inf`, expected a finite number", ""),
        ("a = 9223372036854775808", "x.toml: a: got an integer that does not fit 64 bits", ""),
        ("a = -9223372036854775809", "x.toml: a: got an integer that does not fit 64 bits", ""),
        (f"a = {'1' * 5000}", "x.toml: got an integer that does not fit 64 bits", ""),
        (
            "a = 2026-01-01",
            "x.toml: a: got a date or time `2026-01-01`, expected text or a number",
            "put text in quotes",
        ),
        (
            "a = [12:30:00]",
            "x.toml: a[0]: got a date or time `12:30:00`, expected text or a number",
            "put text in quotes",
        ),
        ('"\u0430" = nan', "x.toml: \u0430 (U+0430): got `nan`, expected a finite number", ""),
        ('"." = nan', "x.toml: .: got `nan`, expected a finite number", ""),
    ],
)
def test_what_is_refused(text: str, message: str, hint: str) -> None:
    assert refusal(text.encode()) == (message, hint)


def test_bytes_that_are_no_utf8() -> None:
    assert refusal(b"a = 1\nb = '\xff'") == ("x.toml: line 2 is not UTF-8", "")


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_git_conflicts_are_named_with_their_line(end: bytes) -> None:
    lines = [b"a = 1", b"<<<<<<< HEAD", b"b = 1", b"=======", b"b = 2", b">>>>>>> branch", b""]
    hint = "take one side, then run `qlock resolve` again"
    assert refusal(end.join(lines)) == ("x.toml: unresolved git conflict at line 2", hint)
    assert refusal(end.join([*lines[:1], *lines[2:]])) == ("x.toml: unresolved git conflict at line 5", hint)
    assert refusal(end.join([b"<<<<<<<", *lines])) == ("x.toml: unresolved git conflict at line 1", hint)


def test_what_only_looks_like_a_conflict() -> None:
    text = '"<<<<<<<" = """\n=======\n  <<<<<<< x\n<<<<<<<<\n"""\n'
    assert read_toml_table(text.encode(), name="x") == {"<<<<<<<": "=======\n  <<<<<<< x\n<<<<<<<<\n"}


def test_the_sizes_that_are_borne() -> None:
    limit = 8 * 2**20
    assert refusal(b"#" * (limit + 1)) == (f"x.toml: got {limit + 1} bytes, expected at most {limit}", "")
    assert read_toml_table(b"#" * limit, name="x") == {}


DEEP = ("x.toml: tables or arrays are nested too deep, expected at most 64 levels", "")


def test_the_depths_that_are_borne() -> None:
    assert read_toml_table(b"a = " + b"[" * 63 + b"]" * 63, name="x")
    assert refusal(b"a = " + b"[" * 64 + b"]" * 64) == DEEP
    assert refusal(b"a = " + b"[" * 100_000) == DEEP
    assert refusal(b"a = " + b"{a = " * 100_000) == DEEP
    assert refusal(("[" + "a." * 40 + "a]\n" + "b." * 40 + "b = 1").encode()) == DEEP
    assert read_toml_table(("a." * 63 + "a = 1").encode(), name="x")


@pytest.mark.parametrize(
    "text",
    [
        "a." * 100_000 + "a = 1",
        "x = 1\n[" + "a . " * 100_000 + "a]",
        "x = 1\n  [[" + '\'a\'."b\\"".c\t.\t' * 50_000 + "a]]",
    ],
)
def test_endless_dotted_keys_are_refused_before_they_cost_time(text: str) -> None:
    line = text.count("\n") + 1
    assert refusal(text.encode()) == (f"x.toml: line {line}: got a key of more than 64 parts", "")


def test_many_dots_within_a_text_are_no_key() -> None:
    assert read_toml_table(f'a = "{"b." * 100}"'.encode(), name="x") == {"a": "b." * 100}


def test_numbers_that_are_welcome() -> None:
    table = read_toml_table(b"a = -0.0\nb = 1_000\nc = 9223372036854775807\nd = true\ne = 0xff", name="x")
    assert table == {"a": 0.0, "b": 1000, "c": 2**63 - 1, "d": True, "e": 255}
    assert math.copysign(1.0, table["a"]) == 1.0


def test_dotted_keys_are_tables() -> None:
    dotted = read_toml_table(b"a.b = 1\na.c.d = 2", name="x")
    assert dotted == read_toml_table(b"[a]\nb = 1\n[a.c]\nd = 2", name="x")
    assert dotted == read_toml_table(b"a = {b = 1, c = {d = 2}}", name="x")


def test_text_of_a_file() -> None:
    assert decode_text("é\r\n".encode(), name="x") == "é\r\n"


# ---------------------------------------------------------------- structs


def test_a_struct_out_of_a_table() -> None:
    plain = {"last": [{"b": 1}], "first": {}, "middle": 2, "one": {"b": 3, "a": ["x"]}}
    assert to_struct(plain, Document, name="x") == Document(
        last=(Entry(b=1),), first={}, middle=2.0, one=Entry(b=3, a=("x",))
    )


def test_a_wrong_value_is_named_with_file_and_key() -> None:
    plain = {"last": [{"b": 1}, {"b": True}], "first": {}, "middle": 2, "one": {"b": 3}}
    with pytest.raises(InputError) as caught:
        to_struct(plain, Document, name="x.toml")
    assert str(caught.value) == "x.toml: last[1].b: got `true`, expected an integer"
    with pytest.raises(InputError) as caught:
        to_struct({}, Document, name="x.toml")
    assert str(caught.value) == "x.toml: the key `last` is missing"


def test_values_without_end_are_refused() -> None:
    plain: Any = {}
    for _ in range(100_000):
        plain = {"next": plain}
    with pytest.raises(InputError) as caught:
        to_struct(plain, Link, name="x.toml")
    assert (str(caught.value), caught.value.hint) == DEEP


class Link(Base, frozen=True, kw_only=True):
    next: Link | None = None


@pytest.mark.parametrize(
    "table, message, hint",
    [
        ({}, "x: the key `v` is missing", ""),
        ({"v": 3}, "x: got v `3`, this qlock reads up to `2`", "upgrade qlock"),
        ({"v": 1}, "x: got v `1`, expected `2`", ""),
        ({"v": True}, "x: got v `True`, expected `2`", ""),
        ({"v": 2.0}, "x: got v `2.0`, expected `2`", ""),
        ({"v": "2\x1b[2J"}, "x: got v `2\\x1b[2J`, expected `2`", ""),
    ],
)
def test_other_versions(table: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        check_version("v", table, 2, name="x")
    assert (str(caught.value), caught.value.hint) == (message, hint)
    check_version("v", {"v": 2}, 2, name="x")


# ---------------------------------------------------------------- JSON


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "x: not JSON: Input data was truncated"),
        (b"{", "x: not JSON: Input data was truncated"),
        (b'{"b":1} x', "x: not JSON: JSON is malformed: trailing characters (byte 9)"),
        (b'{"b":NaN}', "x: not JSON: JSON is malformed: invalid character (byte 5)"),
        (b'{"b":"\xff"}', "x: b: got text, expected an integer"),
        (b'{"b":1,"a":["\xff"]}', "x: not JSON: Invalid UTF-8 encoded string"),
        (
            b'{"b":1,"a":["\\ud800"]}',
            "x: not JSON: Input data was truncated",
        ),
        (b'{"b":1e400}', "x: b: number out of range"),
        (b'{"b":' + b"1" * 5000 + b"}", "x: b: integer value out of range"),
        (b'{"b":true}', "x: b: got `true`, expected an integer"),
        (b'{"b":1,"c":2}', "x: unknown key `c`"),
        (b"[" * 100_000, "x: got an array, expected a table"),
    ],
)
def test_json_that_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        from_json(data, Entry, name="x")
    assert str(caught.value) == message


@pytest.mark.parametrize("depth, data", [(64, b"["), (64, b'{"":'), (100_000, b"["), (100_000, b'{"":')])
def test_the_depths_of_json_that_are_borne(depth: int, data: bytes) -> None:
    closing = b"]" if data == b"[" else b"}"
    whole = b'{"a":' + data * depth + b"1" + closing * depth + b"}"
    with pytest.raises(InputError) as caught:
        from_json(whole, JSON, name="x.toml")
    assert (str(caught.value), caught.value.hint) == DEEP
    assert from_json(b'{"a":' + data * 63 + b"1" + closing * 63 + b"}", JSON, name="x")


def test_brackets_within_a_text_are_no_depth() -> None:
    data = b'{"a":"' + b"[" * 1000 + b'"}'
    assert from_json(data, JSON, name="x") == {"a": "[" * 1000}


def test_json_has_one_form() -> None:
    assert json_bytes(Entry(b=1, a=("x",))) == b'{"b":1,"a":["x"]}'
    assert json_bytes({"b": 1, "a": {"d": 1, "c": 2.0}}) == b'{"a":{"c":2.0,"d":1},"b":1}'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_number_that_is_none_is_written(value: float) -> None:
    for thing in (value, [1.0, value], (value,), {"a": {"b": [value]}}):
        for write in (json_bytes, refuse_non_finite):
            with pytest.raises(ValueError) as caught:
                write(thing)
            assert str(caught.value) == f"{value} cannot be recorded"
    with pytest.raises(ValueError) as caught:
        toml_text(Loose(table={"a": [value]}))
    assert str(caught.value) == f"{value} cannot be recorded"


@given(PLAIN)
def test_json_comes_back(value: Any) -> None:
    data = json_bytes({"a": value})
    assert b"\n" not in data
    assert from_json(data, JSON, name="x") == {"a": value}
    assert json_bytes(from_json(data, JSON, name="x")) == data


# ---------------------------------------------------------------- canonical TOML


def test_the_canonical_form() -> None:
    document = Document(
        last=(Entry(b=1), Entry(b=2, a=("x", "y"))),
        first={
            "z": 1,
            "a": {"odd key": {}, "é": [[1], {"k": "\n"}]},
            "empty": [],
            "t": [{}, {"u": "\x7f\t"}],
        },
        middle=-0.0,
        one=Entry(b=3),
    )
    assert toml_text(document) == (
        "middle = 0.0\n"
        "\n[[last]]\nb = 1\na = []\n"
        '\n[[last]]\nb = 2\na = [\n    "x",\n    "y",\n]\n'
        "\n[first]\nempty = []\nz = 1\n"
        '\n[first.a]\n"odd key" = {}\n"é" = [\n    [\n        1,\n    ],\n    { k = "\\n" },\n]\n'
        '\n[[first.t]]\n\n[[first.t]]\nu = "\\u007f\t"\n'
        "\n[one]\nb = 3\na = []\n"
    )


KEYS = TEXTS | st.sampled_from(
    ["", "a", "a\n", "a.b", '"', "'", "\\", "\x00", "é", "-", "1", "inf", " a", "[x]", "#"]
)
TABLES = st.dictionaries(
    KEYS,
    st.recursive(
        st.booleans() | st.integers(-(2**63), 2**63 - 1) | FINITE | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=10,
    ),
    max_size=4,
)


@given(TABLES)
@example({"a": {"a\n": {"b": 1}}})
@example({"a": [{"a": [{"a": [{}]}]}], "b": [[], {}], "c": [{}, []]})
@example({"a": '\r\n\u2028\x85\x1c\x7f\x00\'"""\\'})
def test_whatever_is_written_is_read_back(table: dict[str, Any]) -> None:
    text = toml_text(Loose(table=table))
    assert tomllib.loads(text) == {"table": table}
    assert text.endswith("\n")
    assert not text.startswith("\n")
    assert "\r" not in text
    assert "\n\n\n" not in text
    again = to_struct(read_toml_table(text.encode(), name="x"), Loose, name="x")
    assert toml_text(again) == text


@given(TABLES)
def test_the_order_of_keys_does_not_show(table: dict[str, Any]) -> None:
    assert toml_text(Loose(table=table)) == toml_text(Loose(table=_reversed(table)))


def _reversed(value: Any) -> Any:
    match value:
        case dict():
            return {key: _reversed(inner) for key, inner in reversed(value.items())}
        case list():
            return [_reversed(inner) for inner in value]
        case _:
            return value


# ---------------------------------------------------------------- any bytes


def value_or_refused(read: Callable[[], T]) -> T | None:
    """What a reader gives, or nothing where it refuses in bounded words; anything else it raises fails the test."""
    try:
        return read()
    except InputError as error:
        if not (str(error).startswith("x") and len(str(error)) < 2_000):
            raise
        return None


TOMLISH = st.text(alphabet="ab.=[]{}\"'\\#,-_:+0123456789eE \t\n\r\x00é\u0435TZ", max_size=60)


@given(st.binary(max_size=60) | TOMLISH.map(str.encode))
@example(b"a=" + b"1" * 4301)
def test_any_bytes_are_a_table_or_an_error(data: bytes) -> None:
    table = value_or_refused(lambda: read_toml_table(data, name="x"))
    if table is not None:
        assert tomllib.loads(toml_text(Loose(table=table)))["table"] == table


JSONISH = st.text(alphabet='ab.[]{}",:\\u0123456789eE-+ truefalsn\n\x00é', max_size=60)


@given(st.binary(max_size=60) | JSONISH.map(str.encode))
def test_any_bytes_are_json_or_an_error(data: bytes) -> None:
    for kind in (JSON, Entry):
        value = value_or_refused(lambda kind=kind: from_json(data, kind, name="x"))  # type: ignore[misc]
        if value is not None:
            assert from_json(json_bytes(value), kind, name="x") == value
