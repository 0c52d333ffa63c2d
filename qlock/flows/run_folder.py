"""The folder of a run: where its files lie, and how it becomes whole.

::

    lock.toml                 the bytes that it ran
    facts.json                one segment for each time somebody ran it
    items/DIGEST.jsonl        the items that were asked, by the digest of their order and content
    record/JOB.jsonl          journal while the job goes on; rows by item and a closing line after
    grades/JOB.jsonl          outcomes, worked out again at will
    seal.json                 absent while anything is missing
    tasks/TASK/               the same for one task alone, until they are merged

Every file but a journal is written whole and put in its place at once, so that a kill at any moment leaves a folder
that can be gone on with.

Does not live here: what is measured (``flows.run``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import msgspec

from qlock.core.base import Base
from qlock.core.canon import check_version, from_json, json_bytes
from qlock.core.digest import StreamDigests, digest_of
from qlock.core.lock import Lock, is_sealed, lock_digest, read_lock
from qlock.core.plan import Job
from qlock.core.record import (
    Closing,
    Grade,
    GradeHeader,
    Header,
    Record,
    Row,
    Seal,
    SealedFile,
    SealedJob,
    Shared,
    answers_digest,
    item_digest,
    line_bytes,
    read_record,
    run_answers_digest,
)
from qlock.errors import AbsentError, InputError
from qlock.flows.segments import FACTS_VERSION, RunFacts
from qlock.suites.interface import Item
from qlock.world.files import make_folder
from qlock.world.interface import World

MOST_RECORD_BYTES = 8 << 30
TASKS = "tasks"
_BEGUN = ("facts.json", "record", "seal.json", "slurm", TASKS)
"""What comes of a run once it is begun or queued."""
_NUMBERED = re.compile(r"^[0-9a-f]{8}(\.[1-9][0-9]*)?$")


class ItemLine(Base, frozen=True, kw_only=True):
    """One line of ``items/DIGEST.jsonl``."""

    id: str
    slices: dict[str, str]
    body: dict[str, object]


class RunFolder:
    """The files of one run.

    Args:
        world: The effects.
        path: The folder, made when something is first written.
    """

    def __init__(self, world: World, path: Path) -> None:
        self._world = world
        self.path = path

    @property
    def whole(self) -> Path:
        """The folder of the whole run, where this is the folder of one of its tasks."""
        return self.path.parent.parent if self.path.parent.name == TASKS else self.path

    @property
    def place(self) -> str:
        """The folder as people find it from where they are."""
        here = self._world.cwd
        return str(self.path.relative_to(here) if self.path.is_relative_to(here) else self.path)

    def prepare(self, lock_bytes: bytes) -> None:
        """Make the folder and put the lock in it; a folder of another lock is refused.

        Raises:
            InputError: Another lock lies in it.
            AbsentError: It cannot be written.
        """
        for name in (".", "record", "grades", "items"):
            make_folder(self.path / name)
        lock = self.path / "lock.toml"
        if not lock.exists():
            self._world.files.write_atomic(lock, lock_bytes)
        elif self.read("lock.toml") != lock_bytes:
            raise InputError(
                f"the run in `{self.path}` was made with another lock", hint="give another folder with --runs"
            )

    def read(self, name: str) -> bytes:
        """The bytes of one of its files."""
        return self._world.files.read_bounded(self.path / name, MOST_RECORD_BYTES, name)

    def digest(self, name: str) -> str:
        """``blake3:…`` of one of its files, which is never in memory as a whole."""
        digests = StreamDigests()
        for line in self._world.files.read_lines(self.path / name, MOST_RECORD_BYTES, name):
            digests.feed_blake3(line)
        return digests.blake3()

    def write(self, name: str, data: bytes) -> None:
        """Put one of its files in place."""
        self._world.files.write_atomic(self.path / name, data)

    def lock(self) -> tuple[Lock, bytes]:
        """The lock that it ran."""
        data = self.read("lock.toml")
        try:
            return read_lock(data, name=f"{self.place}/lock.toml"), data
        except InputError as error:
            seems_whole = is_sealed(data.decode(errors="replace"))
            error.hint = "read this run with the version of qlock that made it" if seems_whole else ""
            raise

    def record_path(self, job: str) -> Path:
        """Where the record of a job lies."""
        return self.path / "record" / f"{job}.jsonl"

    def record(self, job: str, *, shared: Shared | None = None) -> Record | None:
        """The record of a job as far as it goes; ``None`` before its first line is whole.

        Args:
            job: Its name.
            shared: What other records have that are in memory too.
        """
        path = self.record_path(job)
        if not path.exists():
            return None
        name = f"record/{job}.jsonl"
        lines = self._world.files.read_lines(path, MOST_RECORD_BYTES, name)
        first = next(lines, b"")
        return read_record(chain([first], lines), name=name, shared=shared) if first.endswith(b"\n") else None

    def present_record(self, job: str) -> Record:
        """The record of a job that has one.

        Raises:
            InputError: It is one of another job.
            AbsentError: It, or the whole folder, was moved or removed meanwhile.
        """
        record = self.record(job)
        if record is None:
            self.still_here()
            raise AbsentError(
                f"`record/{job}.jsonl` is gone from the run in `{self.path}`",
                hint="leave the folder alone while qlock works in it, and run again",
            )
        # Files are named by the header's job from here on.
        if record.header.job != job:
            raise InputError(f"got a record of `{record.header.job}`, expected one of `{job}`").in_document(
                f"record/{job}.jsonl"
            )
        return record

    def still_here(self) -> None:
        """Refuse to go on in a folder that was moved or removed: what is written would be nowhere.

        Raises:
            AbsentError: It is gone.
        """
        if not (self.path / "lock.toml").is_file():
            raise AbsentError(
                f"the run folder `{self.path}` is gone",
                hint="put it back and run again; the rows that are in it are not asked again",
            )

    def close_record(self, record: Record, order: tuple[str, ...]) -> Record:
        """Put the rows in the order of the items and write the closing line."""
        by_item = {row.item: row for row in record.rows}
        rows = tuple(by_item[item] for item in order)
        closing = closing_of(rows)
        lines = [record.header, *rows, closing]
        self.write(f"record/{record.header.job}.jsonl", b"".join(line_bytes(line) for line in lines))
        return Record(header=record.header, rows=rows, closing=closing, torn_bytes=0)

    def set_aside(self, job: str, segment: int) -> bool:
        """Take the rows of a segment that cannot be trusted out of a record, so that they are measured again.

        Gives whether there were any.
        """
        record = self.record(job)
        if record is None or all(row.segment != segment for row in record.rows):
            return False
        rows = [row for row in record.rows if row.segment != segment]
        lines = [record.header, *rows]
        self.write(f"record/{job}.jsonl", b"".join(line_bytes(line) for line in lines))
        return True

    def write_closed(self, job: Job, rows: tuple[Row, ...]) -> None:
        """Write the closed record of a job out of all its rows, which are in the order of the items."""
        lines = [header_of(job, items=job.items), *rows, closing_of(rows)]
        self.write(f"record/{job.name}.jsonl", b"".join(line_bytes(line) for line in lines))

    def write_grades(self, record: Record, grades: tuple[Grade, ...], *, grade_version: int) -> None:
        """Write the outcomes of a closed record."""
        assert record.closing is not None
        header = GradeHeader(
            job=record.header.job,
            job_digest=record.header.job_digest,
            grade_version=grade_version,
            answers_digest=record.closing.answers_digest,
        )
        self.write(
            f"grades/{record.header.job}.jsonl", b"".join(line_bytes(line) for line in (header, *grades))
        )

    def grades(self, job: str) -> tuple[GradeHeader, tuple[Grade, ...]]:
        """The outcomes of a job."""
        name = f"grades/{job}.jsonl"
        lines = self.read(name).split(b"\n")[:-1]
        if not lines:
            raise InputError("got no header line, expected grades").in_document(name)
        header = from_json(lines[0], GradeHeader, name=f"{name}: line 1")
        return header, tuple(
            from_json(line, Grade, name=f"{name}: line {number}")
            for number, line in enumerate(lines[1:], start=2)
        )

    def write_items(self, digest: str, items: tuple[Item, ...]) -> None:
        """Keep the items that were asked; those that are kept already must be the same.

        Raises:
            InputError: They are others.
        """
        name = items_name(digest)
        if (self.path / name).exists():
            self.refuse_other_items(digest_of_items(items), self.items(digest), name=name)
        else:
            lines = [
                json_bytes(ItemLine(id=item.id, slices=item.slices, body=item.body)) + b"\n" for item in items
            ]
            self.write(name, b"".join(lines))

    def refuse_other_items(self, digest: str, items: tuple[Item, ...], *, name: str = "") -> None:
        """Stop when items of the file ``name`` are not those with this digest.

        Raises:
            InputError: They are others.
        """
        if digest_of_items(items) != digest:
            raise InputError(
                "the items are not those that were asked: the file was edited",
                hint="put it back as it was, or give another folder with --runs",
            ).in_document(name or items_name(digest))

    def items(self, digest: str) -> tuple[Item, ...]:
        """The items that were asked, in order, as the file has them; whether they fit the digest is not looked at."""
        name = items_name(digest)
        lines = self.read(name).split(b"\n")[:-1]
        rows = [from_json(line, ItemLine, name=f"{name}: line {n}") for n, line in enumerate(lines, start=1)]
        return tuple(Item(id=row.id, slices=row.slices, body=row.body) for row in rows)

    def facts(self) -> RunFacts:
        """What was seen in each segment so far."""
        if not (self.path / "facts.json").exists():
            return RunFacts(facts_version=FACTS_VERSION, segment=())
        data = self.read("facts.json")
        plain = from_json(data, dict[str, object], name="facts.json")
        check_version("facts_version", plain, FACTS_VERSION, name="facts.json")
        return from_json(data, RunFacts, name="facts.json")

    def write_facts(self, run_facts: RunFacts) -> None:
        """Put ``facts.json`` in place."""
        self.write("facts.json", msgspec.json.format(json_bytes(run_facts), indent=1) + b"\n")

    def seal(self) -> Seal | None:
        """The seal; ``None`` while the run is not whole."""
        if not (self.path / "seal.json").exists():
            return None
        return from_json(self.read("seal.json"), Seal, name=f"{self.place}/seal.json")

    def write_seal(self, jobs: tuple[SealedJob, ...], *, forced: tuple[str, ...], lock_bytes: bytes) -> Seal:
        """Digest every file and write the seal."""
        seal = Seal(
            seal_version=1,
            lock_digest=lock_digest(lock_bytes),
            answers_digest=run_answers_digest(jobs),
            forced=forced,
            job=jobs,
            file=tuple(self.sealed_files()),
        )
        self.write("seal.json", msgspec.json.format(json_bytes(seal), indent=1) + b"\n")
        return seal

    def sealed_files(self) -> Iterator[SealedFile]:
        """Every file that the seal covers, with its digest now."""
        names = [path.relative_to(self.path).as_posix() for path in self.path.rglob("*") if path.is_file()]
        for name in sorted(names):
            # A kill while a file is put in place leaves its unfinished neighbour, whose name begins with a dot.
            is_whole = not name.rpartition("/")[2].startswith(".")
            if is_whole and (
                name in ("facts.json", "lock.toml") or name.startswith(("record/", "grades/", "items/"))
            ):
                yield SealedFile(path=name, digest=self.digest(name))


def digest_of_items(items: tuple[Item, ...]) -> str:
    """Digest of a suite's items, in order: what a lock pins of them."""
    return items_digest([(item.id, item_digest(item.id, item.slices, item.body)) for item in items])


def items_digest(items: list[tuple[str, str]]) -> str:
    """The same out of the id and digest of each."""
    return digest_of("items", items)


def items_name(digest: str) -> str:
    """The file of items with this digest."""
    return f"items/{digest.removeprefix('blake3:')[:16]}.jsonl"


def closing_of(rows: tuple[Row, ...]) -> Closing:
    """The last line of a record with these rows."""
    return Closing(items=len(rows), answers_digest=answers_digest(rows))


def header_of(job: Job, *, items: int) -> Header:
    """The first line of the record of a job with so many items."""
    return Header(
        record_version=1,
        job=job.name,
        job_digest=job.digest,
        suite=job.suite,
        point=job.point,
        repeat=job.repeat,
        items=items,
        part=job.part,
    )


def row_bytes(row: Row | Header) -> bytes:
    """A line for a journal, which adds the newline itself."""
    return line_bytes(row)[:-1]


def folder_name(lock_bytes: bytes) -> str:
    """``LOCK8``: the first eight digits of the lock's digest."""
    return lock_digest(lock_bytes).removeprefix("blake3:")[:8]


def run_folders(runs: Path) -> tuple[Path, ...]:
    """Every folder of a run in ``runs/NAME@DEVICE``, oldest lock digests first."""
    if not runs.is_dir():
        return ()
    return tuple(sorted(path for path in runs.iterdir() if path.is_dir() and _NUMBERED.match(path.name)))


def is_of_one_lock(run: Path, other: Path) -> bool:
    """Whether two folders are runs of one lock: ``LOCK8`` and ``LOCK8.2``."""
    return run.name.partition(".")[0] == other.name.partition(".")[0]


def folder_of_lock(runs: Path, lock_bytes: bytes) -> Path:
    """The folder of a lock: an unfinished repeat of it is gone on with first."""
    first = runs / folder_name(lock_bytes)
    mine = [path for path in run_folders(runs) if is_of_one_lock(path, first)]
    open_ones = [path for path in mine if _is_begun(path) and not (path / "seal.json").exists()]
    return open_ones[0] if open_ones else first


def next_repeat(runs: Path, lock_bytes: bytes) -> Path:
    """The folder of the next run of the same lock: ``LOCK8``, then ``LOCK8.2`` and so on."""
    name = folder_name(lock_bytes)
    turn = 1
    while _is_begun(runs / (name if turn == 1 else f"{name}.{turn}")):
        turn += 1
    return runs / (name if turn == 1 else f"{name}.{turn}")


def _is_begun(run: Path) -> bool:
    """Whether more came of a run than its folder: one that was refused before its first stretch is none."""
    return any((run / name).exists() for name in _BEGUN)
