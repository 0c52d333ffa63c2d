"""The file of an own exam: what is read, and every fault with its line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from qlock.core.exchange import Chat, Message, Raw
from qlock.errors import InputError
from qlock.suites.tasks.number import Number
from qlock.suites.tasks.rows import Row, read_rows
from qlock.suites.tasks.texts import Exact

GOOD = '{"id": "a", "prompt": "p", "expected": "x", "grader": {"kind": "exact"}}'


def lines(*rows: dict[str, Any] | str) -> bytes:
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows).encode()


def with_(**keys: object) -> dict[str, Any]:
    """A good row with some keys changed; a key of `...` is left out."""
    row = json.loads(GOOD) | keys
    return {key: value for key, value in row.items() if value is not ...}


def refused(data: bytes) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        read_rows(data, UNSET)
    return str(caught.value), caught.value.hint


def test_a_row_is_read() -> None:
    (row,) = read_rows(lines(with_(slices={"topic": "t"}, gold="x ", bad="y")), UNSET)
    assert row == Row(
        id="a", slices={"topic": "t"}, prompt="p", expected="x", grader=Exact(), gold="x ", bad="y"
    )
    assert row.task().asked() == Raw(text="p")


def test_messages_and_tools_make_a_chat() -> None:
    row = with_(prompt=..., messages=[{"role": "user", "content": "hi"}], tools=[{"name": "f"}])
    (read,) = read_rows(lines(row), UNSET)
    assert read.asked() == Chat(messages=(Message(role="user", content="hi"),), tools=({"name": "f"},))


def test_rows_without_a_grader_get_the_suites() -> None:
    rows = read_rows(lines(with_(grader=..., expected=1), with_(id="b")), Number(tolerance=0.5))
    assert [row.grader for row in rows] == [Number(tolerance=0.5), Exact()]


def test_lines_are_split_at_line_feeds_alone() -> None:
    text = "a\u2028b\u0085c\x0bd"
    rows = read_rows(
        json.dumps(with_(prompt=text), ensure_ascii=False).replace("\x0b", "\\u000b").encode(), UNSET
    )
    assert [row.prompt for row in rows] == [text]


SLICE = "expected a name without `=` and a value, each 1 to 200 printable characters without outer spaces"


def test_windows_line_ends_are_read() -> None:
    assert len(read_rows(f"{GOOD}\r\n{json.dumps(with_(id='b'))}\r\n".encode(), UNSET)) == 2


@pytest.mark.parametrize(
    "data, message, hint",
    [
        (b"", "the file is empty: got no rows, expected at least 1", ""),
        (b"\n \n", "the file is empty: got no rows, expected at least 1", ""),
        (b"\xef\xbb\xbf" + lines(GOOD), "the file starts with a BOM (bytes EF BB BF)", "save it as UTF-8 without BOM"),
        (lines(GOOD, ""), "line 2: the line is empty", "delete it"),
        (lines(GOOD) + b'{"id": "\xff"}\n', "line 2: not UTF-8: byte 9 of the line", ""),
        (lines(GOOD, "{"), "line 2: not JSON: Expecting property name enclosed in double quotes at line 1, column 2", ""),
        (lines("[1]"), "line 1: got a JSON value, expected a table `{…}`", ""),
        (lines('{"id": NaN}'), "line 1: got the number `NaN`, expected a finite number", ""),
        (lines('{"id": "a", "id": "a"}'), "line 1: the key `id` occurs twice", ""),
        (lines(with_(expected=99999999999999999999)), "line 1: got the number `99999999999999999999`, expected one of 64 bits",
         "write it as text"),
        (lines(with_(prompt="\ud800")), "line 1: got the text `\\ud800`, expected no lone surrogate", ""),
        (lines(GOOD, with_(id="b"), GOOD), "the id `a` occurs twice: on line 1 and on line 3", ""),
        (lines(with_(promt="p")), "line 1: unknown key `promt`", "did you mean `prompt`?"),
        (lines(with_(grader={"kind": "exact", "casfold": True})), "line 1: grader: unknown key `casfold`", "did you mean `casefold`?"),
        (lines(with_(grader={"kind": "exakt"})), "line 1: grader: unknown kind `exakt`", "did you mean `exact`?"),
        (lines(with_(grader={"kind": "??"})), "line 1: grader: unknown kind `??`",
         "known kinds: exact, number, choice, regex, contains, json_schema, field_f1, tool_call"),
        (lines(with_(grader={})), "line 1: grader: the key `kind` is missing", ""),
        (lines(with_(grader={"kind": "number", "tolerance": -1})), "line 1: grader.tolerance: got `-1`, expected a number >= 0.0", ""),
        (lines(with_(grader={"kind": "number", "decimal": ","})), "line 1: grader: `thousands` and `decimal` are both `,`", ""),
        (lines(with_(id=...)), "line 1: the key `id` is missing", ""),
        (lines(with_(id=7)), "line 1: id: got `7`, expected text", ""),
        (lines(with_(id="")), "line 1: got the id ``, expected 1 to 200 printable characters without outer spaces", ""),
        (lines(with_(id="a\n")), "line 1: got the id `a↵`, expected 1 to 200 printable characters without outer spaces", ""),
        (lines(with_(slices={"topic": 1})), "line 1: slices[...]: got an integer, expected text", ""),
        (lines(GOOD, with_(id="b", slices={"": "x"})), f"line 2: got the slice `=x`, {SLICE}", ""),
        (lines(with_(slices={"topic": ""})), f"line 1: got the slice `topic=`, {SLICE}", ""),
        (lines(with_(prompt=...)), "line 1: got neither of `prompt` and `messages`, expected exactly one", ""),
        (lines(with_(messages=[{"role": "user", "content": "x"}])),
         "line 1: got both of `prompt` and `messages`, expected exactly one", ""),
        (lines(with_(prompt=..., messages=[])), "line 1: got no messages, expected at least 1", ""),
        (lines(with_(tools=[{"name": "f"}])), "line 1: got `tools` beside `prompt`, expected them beside `messages`", ""),
        (lines(with_(grader=...)), "line 1: no grader: the row names none, nor does the suite",
         "add `grader` to the row or the suite"),
        (lines(with_(expected=3)), "line 1: expected: expected a text or a list of texts", ""),
        (lines(with_(expected=...)), "line 1: expected: expected a text or a list of texts", ""),
        (lines(with_(grader={"kind": "regex", "pattern": "(a"}, expected=...)),
         "line 1: grader: not a pattern of RE2: missing ): (a", ""),
        (lines(with_(grader={"kind": "json_schema"}, expected={})),
         "line 1: no gold reply follows from `expected` for the grader `json_schema`",
         "add the key `gold`: a reply that must pass"),
        (lines(with_(grader={"kind": "json_schema"}, expected={"$ref": "http://x"}, gold="1")),
         "line 1: expected: got the reference `http://x`, expected one inside the schema (`#…`)", ""),
    ],
)  # fmt: skip
def test_every_fault_has_its_line(data: bytes, message: str, hint: str) -> None:
    assert refused(data) == (message, hint)


@given(st.binary(max_size=80) | st.text(alphabet='{}[]":,\n idprompt1', max_size=80).map(str.encode))
def test_any_bytes_are_rows_or_an_input_error(data: bytes) -> None:
    try:
        rows = read_rows(data, Exact())
    except InputError:
        return
    assert rows


ids = st.text(alphabet="abcdefgh/_-. 0", min_size=1, max_size=9).filter(lambda text: text.strip() == text)


@given(st.lists(st.tuples(ids, st.text(), st.text()), min_size=1, max_size=5, unique_by=lambda row: row[0]))
def test_rows_come_in_the_order_of_the_file(made: list[tuple[str, str, str]]) -> None:
    data = lines(*({"id": one, "prompt": prompt, "expected": expected} for one, prompt, expected in made))
    rows = read_rows(data, Exact())
    assert [(row.id, row.prompt, row.expected) for row in rows] == made
