"""The file of an own exam: JSON lines into checked rows.

Strict, because a question that is silently skipped or misread changes a score: every fault is an ``InputError``
with its line, unknown keys name the nearest known one, and an ``expected`` that its grader cannot use is refused
before anything is asked.

Does not live here: what the graders do (``graders``), and trying gold and bad replies (``tasks.trials``).
"""

from __future__ import annotations

import re

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import ITEM_ID, SLICE, Base, is_item_id, wrong_slice
from qlock.core.canon import to_struct
from qlock.core.exchange import Chat, Message, Raw, Unparsable
from qlock.core.words import did_you_mean
from qlock.errors import InputError
from qlock.suites.tasks.graders import KINDS, Grader
from qlock.suites.tasks.reading import inner_values, quoted, read_json

_BOM = b"\xef\xbb\xbf"
_INTEGER_MAX = 2**63


class Task(Base, frozen=True, kw_only=True):
    """One question without its id and slices; what an item's ``body`` holds."""

    prompt: str | UnsetType = UNSET
    """Text that the model continues as it stands, without a chat template."""
    messages: tuple[Message, ...] | UnsetType = UNSET
    """A conversation, rendered with the model's chat template; exactly one of both is given."""
    tools: tuple[dict[str, object], ...] = ()
    """Functions that the template shows to the model."""
    expected: object = UNSET
    """What is right; its shape depends on the grader."""
    grader: Grader | UnsetType = UNSET
    """How the reply is graded; the suite's own grader where a row names none."""
    gold: str | UnsetType = UNSET
    """A reply that must pass; derived from ``expected`` where the grader can."""
    bad: str | UnsetType = UNSET
    """A reply that must not pass."""

    def asked(self) -> Chat | Raw:
        """What the model is given."""
        if self.messages is not UNSET:
            return Chat(messages=self.messages, tools=self.tools)
        return Raw(text="" if self.prompt is UNSET else self.prompt)


class Row(Task, frozen=True, kw_only=True):
    """One line of the file."""

    id: str
    slices: dict[str, str] = {}

    def task(self) -> Task:
        """The row without id and slices."""
        return Task(
            prompt=self.prompt,
            messages=self.messages,
            tools=self.tools,
            expected=self.expected,
            grader=self.grader,
            gold=self.gold,
            bad=self.bad,
        )


def read_rows(data: bytes, grader: Grader | UnsetType) -> tuple[Row, ...]:
    """The rows in order, each with its grader.

    Args:
        data: UTF-8, one JSON object a line, lines split at ``\\n`` alone.
        grader: For rows that name none.

    Raises:
        InputError: Any fault, with its line.
    """
    if data.startswith(_BOM):
        raise InputError("the file starts with a BOM (bytes EF BB BF)", hint="save it as UTF-8 without BOM")
    if not data.strip():
        raise InputError("the file is empty: got no rows, expected at least 1")
    rows: list[Row] = []
    line_of: dict[str, int] = {}
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), start=1):
        place = f"line {number}"
        row = _row(line, place, grader)
        if row.id in line_of:
            raise InputError(
                f"the id {quoted(row.id)} occurs twice: on line {line_of[row.id]} and on line {number}"
            )
        line_of[row.id] = number
        rows.append(row)
    return tuple(rows)


def _row(line: bytes, place: str, default: Grader | UnsetType) -> Row:
    table = _table(line, place)
    _refuse_unknown_kind(table, place)
    row = to_struct(table, Row, name=place)
    if row.grader is UNSET:
        row = msgspec.structs.replace(row, grader=default)
    fault = _fault(row)
    if fault is not None:
        raise fault.in_document(place)
    return row


def _table(line: bytes, place: str) -> dict[str, object]:
    if not line.strip():
        raise InputError("the line is empty", hint="delete it").in_document(place)
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8: byte {error.start + 1} of the line").in_document(place) from None
    read = read_json(text)
    if isinstance(read, Unparsable):
        raise InputError(read.why).in_document(place)
    if not isinstance(read.value, dict):
        raise InputError("got a JSON value, expected a table `{…}`").in_document(place)
    for value in inner_values(read.value):
        if isinstance(value, int) and not -_INTEGER_MAX <= value < _INTEGER_MAX:
            raise InputError(
                f"got the number {quoted(str(value))}, expected one of 64 bits", hint="write it as text"
            ).in_document(place)
        if isinstance(value, str) and re.search("[\ud800-\udfff]", value):
            raise InputError(f"got the text {quoted(value)}, expected no lone surrogate").in_document(place)
    return read.value


def _refuse_unknown_kind(table: dict[str, object], place: str) -> None:
    grader = table.get("grader")
    kind = grader.get("kind") if isinstance(grader, dict) else None
    if isinstance(kind, str) and kind not in KINDS:
        hint = did_you_mean(kind, KINDS) or f"known kinds: {', '.join(KINDS)}"
        raise InputError(f"unknown kind {quoted(kind)}", hint=hint).within("grader").in_document(place)


def _fault(row: Row) -> InputError | None:
    """The first fault that the types alone do not show."""
    if not is_item_id(row.id):
        return InputError(f"got the id {quoted(row.id)}, expected {ITEM_ID}")
    wrong = wrong_slice(row.slices)
    if wrong is not None:
        return InputError(f"got the slice {quoted(wrong)}, expected {SLICE}")
    if (row.prompt is UNSET) == (row.messages is UNSET):
        got = "neither" if row.prompt is UNSET else "both"
        return InputError(f"got {got} of `prompt` and `messages`, expected exactly one")
    if row.messages == ():
        return InputError("got no messages, expected at least 1")
    if row.tools and row.messages is UNSET:
        return InputError("got `tools` beside `prompt`, expected them beside `messages`")
    if row.grader is UNSET:
        return InputError(
            "no grader: the row names none, nor does the suite", hint="add `grader` to the row or the suite"
        )
    refusal = row.grader.refusal(row.expected)
    if refusal:
        return InputError(refusal).within("expected")
    if row.gold is UNSET and row.grader.gold(row.expected) is None:
        kind = row.grader.__struct_config__.tag
        return InputError(
            f"no gold reply follows from `expected` for the grader `{kind}`",
            hint="add the key `gold`: a reply that must pass",
        )
    return None
