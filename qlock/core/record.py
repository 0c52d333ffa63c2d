"""The record of a job, and the seal of a run.

A record is JSON lines: a header, one row per item in finishing order while the run goes on, and a closing line once
the job is done; at the seal the rows are put in the order of the items. It keeps what the model replied, not what
that is worth: grades are worked out from it, and stand apart.

Lives here: the structs, reading with the rules of damage, and the digests. Does not live here: appending and syncing
(``world.files``), grading (``flows.grading``).
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from qlock.core.base import Base, Count, Positive, Seconds
from qlock.core.canon import check_version, from_json, json_bytes
from qlock.core.digest import Digest, digest_of, digest_of_each
from qlock.core.exchange import Completed, Diverged, Failed, Outcome, Reading, Reply, Scored
from qlock.errors import InputError

RECORD_VERSION = 1
_MOST_IDS = 1 << 20  # of a vocabulary; what is beyond is kept as it was read


class Times(Base, frozen=True, kw_only=True):
    """Wall times of one item; rows share the engine, so times of items overlap."""

    prefill_s: Seconds
    decode_s: Seconds
    lap_s: Seconds | UnsetType = UNSET
    """Since the row before was finished, or since the asking began. All laps of a job add up to the time in which an
    engine was there to answer it. Unset where nobody looked at a clock."""


class Part(Base, frozen=True, kw_only=True):
    """A stretch of the items of a job, by their places in its suite, counted from 0."""

    start: Count
    """The first one."""
    stop: Positive
    """The one behind the last."""

    def __post_init__(self) -> None:
        """No part is empty."""
        if self.stop <= self.start:
            raise ValueError(f"stop: got `{self.stop}`, expected more than start `{self.start}`")


class Header(Base, frozen=True, kw_only=True, tag_field="kind", tag="header"):
    """First line: which job this is."""

    record_version: int
    job: str
    """Name: ``SUITE.POINT.REPEAT``."""
    job_digest: Digest
    """Of all that can change the replies; a row of another digest never mixes in."""
    suite: str
    point: str
    repeat: Positive
    items: Positive
    """Of the whole job."""
    part: Part | UnsetType = UNSET
    """Which of them are asked here, in the record of a shard; all of them otherwise."""

    def __post_init__(self) -> None:
        """A part lies within the items."""
        if self.part is not UNSET and self.part.stop > self.items:
            raise ValueError(f"part.stop: got `{self.part.stop}`, expected at most items `{self.items}`")

    @property
    def asked(self) -> int:
        """How many items the record has when it is closed."""
        return self.items if self.part is UNSET else self.part.stop - self.part.start


class Row(Base, frozen=True, kw_only=True, tag_field="kind", tag="row"):
    """One item and what was replied."""

    item: str
    item_digest: Digest
    slices: dict[str, str]
    replies: tuple[Reply, ...]
    times: Times
    segment: Count
    """Which segment of ``facts.json`` it was measured in."""


class Closing(Base, frozen=True, kw_only=True, tag_field="kind", tag="closing"):
    """Last line: all items are there."""

    items: Count
    answers_digest: Digest


Line = Header | Row | Closing
_LINE: Any = Line
"""The union as msgspec takes it; mypy has no type for unions as values."""


class Record(Base, frozen=True, kw_only=True):
    """A record as read: with ``closing`` when it is whole."""

    header: Header
    rows: tuple[Row, ...]
    """Good rows; of several for one item, the last: all before it failed."""
    closing: Closing | None
    torn_bytes: Count
    """Bytes of a last line that was cut off by a kill; such a line counts as not written."""


class Grade(Base, frozen=True, kw_only=True):
    """One item's outcome, in ``grades/JOB.jsonl``."""

    item: str
    outcome: Outcome
    read: Reading | UnsetType = UNSET
    """Unset where the grader does not read answers part by part, or could not read this one."""


class GradeHeader(Base, frozen=True, kw_only=True):
    """First line of a file of grades."""

    job: str
    job_digest: Digest
    grade_version: Positive
    answers_digest: Digest
    """Of the record that was graded."""


class SealedFile(Base, frozen=True, kw_only=True):
    """A file of a run and its digest."""

    path: str
    digest: Digest


class SealedJob(Base, frozen=True, kw_only=True):
    """A finished job."""

    job: str
    job_digest: Digest
    answers_digest: Digest
    items: Count
    """In its record."""
    part: Part | UnsetType = UNSET
    """As in the header of its record."""
    taken_from: str
    """Run that the record was taken over from; empty when it was measured here."""


class Seal(Base, frozen=True, kw_only=True):
    """``seal.json``: what makes a run whole; absent while it is not."""

    seal_version: Annotated[int, msgspec.Meta(ge=1, le=1)]
    lock_digest: Digest
    answers_digest: Digest
    """Of all answers, without times: what a third party compares."""
    forced: tuple[str, ...]
    """Facts that the user allowed to differ; no comparison with this run is valid."""
    job: tuple[SealedJob, ...]
    file: tuple[SealedFile, ...]


def is_done(row: Row) -> bool:
    """Whether the row needs no second try: no reply failed or ended in an error."""
    for reply in row.replies:
        match reply:
            case Failed() | Completed(ending="error"):
                return False
            case _:
                pass
    return True


def tokens_of(row: Row) -> int:
    """Tokens that were written or scored."""
    total = 0
    for reply in row.replies:
        match reply:
            case Completed(tokens=tokens):
                total += len(tokens)
            case Scored(nats=nats) | Diverged(nats=nats):
                total += len(nats)
            case _:
                pass
    return total


def line_bytes(line: Base) -> bytes:
    """One line of a record with its newline."""
    return json_bytes(line) + b"\n"


def read_record(lines: Iterable[bytes], *, name: str, shared: Shared | None = None) -> Record:
    r"""A record out of the lines of its file, each with its newline, split on ``\n`` only.

    A last line without a newline is what a kill leaves behind: it is dropped and counted. Damage anywhere else is
    an error, never skipped.

    Args:
        lines: Read one after the other; they need not be in memory at the same time.
        name: Of the file.
        shared: What other records have that are in memory too; it learns what this one has.

    Raises:
        InputError: No header, a damaged line, a second answer to an item, rows after the closing line, or a closing
            line that does not fit.
    """
    numbered = enumerate(lines, start=1)
    _, first = next(numbered, (1, b""))
    if first in (b"", b"\n") or not first.endswith(b"\n"):
        raise InputError("got no header line, expected a record").in_document(name)
    header = _header(first[:-1], name)
    rows: dict[str, Row] = {}
    shared = shared or Shared()
    closing: Closing | None = None
    torn_bytes = 0
    for number, text in numbered:
        if not text.endswith(b"\n"):
            torn_bytes = len(text)
            break
        line: Line = from_json(text[:-1], _LINE, name=f"{name}: line {number}")
        if closing is not None:
            raise InputError(f"line {number} stands after the closing line").in_document(name)
        match line:
            case Row():
                if line.item in rows and is_done(rows[line.item]):
                    raise InputError(f"line {number} is a second answer to `{line.item}`").in_document(name)
                rows[line.item] = shared.row(line)
            case Closing():
                closing = line
            case Header():
                raise InputError(f"line {number} is a second header").in_document(name)
    if closing is not None and torn_bytes:
        raise InputError(f"{torn_bytes} bytes stand after the closing line").in_document(name)
    record = Record(header=header, rows=tuple(rows.values()), closing=closing, torn_bytes=torn_bytes)
    _check_closing(record, name)
    return record


class Shared:
    """Keeps what occurs again in memory once: token ids, whole answers, slices.

    Args:
        rows: Of another record that is in memory already, most of whose answers may be the same.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._ids: list[int] = []
        self._tokens: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._texts: dict[str, str] = {}
        self._slices: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        for row in rows:
            self._slices.setdefault(tuple(row.slices.items()), row.slices)
            for reply in row.replies:
                match reply:
                    case Completed(text=text, tokens=tokens):
                        self._texts[text] = text
                        self._tokens[tokens] = tokens
                    case _:
                        pass

    def row(self, row: Row) -> Row:
        """The same row, made of what is known already."""
        replies: list[Reply] = []
        for reply in row.replies:
            match reply:
                case Completed(text=text, tokens=tokens):
                    text = self._texts.setdefault(text, text)
                    replies.append(replace(reply, text=text, tokens=self._known(tokens)))
                case _:
                    replies.append(reply)
        slices = self._slices.setdefault(tuple(row.slices.items()), row.slices)
        return replace(row, slices=slices, replies=tuple(replies))

    def _known(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        known = self._tokens.get(tokens)
        if known is None:
            known = self._of_known_ids(tokens)
            self._tokens[known] = known
        return known

    def _of_known_ids(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The same ids, each number an object that is shared: a quarter of the memory."""
        if len(tokens) < 2:
            return tokens
        most = max(tokens) + 1
        if most > _MOST_IDS:
            return tokens
        self._ids.extend(range(len(self._ids), most))
        found: tuple[int, ...] = itemgetter(*tokens)(self._ids)
        return found


def _header(text: bytes, name: str) -> Header:
    """The first line; its version is looked at first, since a newer one may have other keys."""
    here = f"{name}: line 1"
    plain = from_json(text, dict[str, Any], name=here)
    if plain.get("kind") != "header":
        raise InputError("got no header line, expected a record").in_document(here)
    check_version("record_version", plain, RECORD_VERSION, name=here)
    return from_json(text, Header, name=here)


def _check_closing(record: Record, name: str) -> None:
    if record.closing is None:
        return
    if record.closing.items != record.header.asked:
        raise InputError(
            f"got {record.closing.items} items in the closing line, expected {record.header.asked} as the header says"
        ).in_document(name)
    if record.closing.items != len(record.rows):
        raise InputError(
            f"got {len(record.rows)} rows, expected {record.closing.items} as the closing line says"
        ).in_document(name)
    if record.closing.answers_digest != answers_digest(record.rows):
        raise InputError("the rows do not fit the answers_digest of the closing line").in_document(name)


def answers_digest(rows: tuple[Row, ...]) -> str:
    """Digest of what was answered, whatever the order of finishing, without times and segments."""
    plain = (
        {"item": row.item, "item_digest": row.item_digest, "replies": row.replies}
        for row in sorted(rows, key=lambda row: row.item)
    )
    return digest_of_each("answers", plain)


def run_answers_digest(jobs: tuple[SealedJob, ...]) -> str:
    """Digest over all jobs of a run."""
    return digest_of("run answers", {job.job: job.answers_digest for job in jobs})


def item_digest(id_: str, slices: dict[str, str], body: dict[str, Any]) -> str:
    """Digest of one item as it was asked and will be graded."""
    return digest_of("item", {"id": id_, "slices": slices, "body": body})
