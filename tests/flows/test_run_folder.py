from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from qlock.core.exchange import Failed, Right
from qlock.core.plan import jobs
from qlock.core.record import (
    Closing,
    Grade,
    Header,
    Part,
    Record,
    Row,
    answers_digest,
    line_bytes,
    run_answers_digest,
)
from qlock.errors import AbsentError, InputError
from qlock.flows.run_folder import (
    RunFolder,
    digest_of_items,
    folder_name,
    folder_of_lock,
    header_of,
    items_name,
    next_repeat,
    row_bytes,
    run_folders,
)
from qlock.flows.segments import RunFacts
from qlock.suites.interface import Item
from tests.broken.make import sealed
from tests.fakes.documents import a_lock, a_row, lock_bytes
from tests.fakes.world import fake_world

LOCK = lock_bytes(a_lock())
JOB = jobs(a_lock())[0]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(fake_world(tmp_path), tmp_path / "runs" / folder_name(LOCK))
    made.prepare(LOCK)
    return made


def a_record(*items: str, segment: int = 0) -> Record:
    rows = tuple(a_row(item=item, segment=segment) for item in items)
    closing = Closing(items=len(rows), answers_digest=answers_digest(rows))
    return Record(header=header_of(JOB, items=len(rows)), rows=rows, closing=closing, torn_bytes=0)


def stored(folder: RunFolder, record: Record) -> None:
    lines = [record.header, *record.rows, *([record.closing] if record.closing else [])]
    folder.write(f"record/{record.header.job}.jsonl", b"".join(line_bytes(line) for line in lines))


def test_a_folder_is_called_as_it_is_found_from_here(folder: RunFolder, tmp_path: Path) -> None:
    assert folder.place == str(folder.path)
    world = msgspec.structs.replace(fake_world(tmp_path), cwd=folder.path.parent)
    assert RunFolder(world, folder.path).place == folder.path.name


def test_a_folder_is_prepared_once_and_holds_its_lock(folder: RunFolder) -> None:
    assert sorted(path.name for path in folder.path.iterdir()) == ["grades", "items", "lock.toml", "record"]
    folder.prepare(LOCK)
    lock, data = folder.lock()
    assert (data, lock.name) == (LOCK, a_lock().name)


@pytest.mark.parametrize(
    "kept, message, hint",
    [
        (
            sealed,
            "setting[0]: the key `replicas` is missing",
            "read this run with the version of qlock that made it",
        ),
        (bytes, "setting[0]: the key `replicas` is missing", ""),
    ],
    ids=["another qlock's", "edited"],
)
def test_a_lock_that_is_none_of_ours_is_not_to_be_made_anew(
    folder: RunFolder, kept: Callable[[bytes], bytes], message: str, hint: str
) -> None:
    folder.prepare(LOCK)
    folder.write("lock.toml", kept(LOCK.replace(b"replicas = 1\n", b"", 1)))
    with pytest.raises(InputError) as caught:
        folder.lock()
    assert (str(caught.value), caught.value.hint) == (f"{folder.path}/lock.toml: {message}", hint)


def test_a_folder_of_another_lock_is_refused(folder: RunFolder) -> None:
    with pytest.raises(InputError) as caught:
        folder.prepare(b"another")
    assert (str(caught.value), caught.value.hint) == (
        f"the run in `{folder.path}` was made with another lock",
        "give another folder with --runs",
    )


def test_a_folder_that_cannot_be_made_is_absent(tmp_path: Path) -> None:
    (tmp_path / "runs").write_bytes(b"a file")
    with pytest.raises(AbsentError) as caught:
        RunFolder(fake_world(tmp_path), tmp_path / "runs/x").prepare(LOCK)
    runs = tmp_path / "runs"
    assert str(caught.value) == f"cannot make the folder `{runs}/x`: `{runs}` is no folder"


def test_a_record_is_none_before_its_first_line_is_whole(folder: RunFolder) -> None:
    assert folder.record(JOB.name) is None
    folder.record_path(JOB.name).write_bytes(b'{"kind":"header"')
    assert folder.record(JOB.name) is None


def test_closing_puts_rows_in_the_order_of_the_items_and_keeps_the_last_try(folder: RunFolder) -> None:
    first, second = a_row(item="a", segment=0, replies=(Failed(why="hung"),)), a_row(item="a", segment=1)
    lines: list[Row | Header] = [header_of(JOB, items=2), a_row(item="b"), first, second]
    folder.record_path(JOB.name).write_bytes(b"".join(row_bytes(line) + b"\n" for line in lines))
    record = folder.record(JOB.name)
    assert record is not None
    closed = folder.close_record(record, ("a", "b"))
    assert folder.record(JOB.name) == closed
    assert closed.rows == (second, a_row(item="b"))
    assert closed.closing == Closing(items=2, answers_digest=answers_digest(closed.rows))


def test_rows_of_elsewhere_are_written_as_the_closed_record_of_a_job(folder: RunFolder) -> None:
    record = a_record("a", "b")
    job = msgspec.structs.replace(JOB, name="suite.Other@s.1", point="Other@s", suite="suite", items=2)
    folder.write_closed(job, record.rows)
    assert folder.record(job.name) == msgspec.structs.replace(record, header=header_of(job, items=2))
    part = msgspec.structs.replace(job, items=9, part=Part(start=7, stop=9))
    folder.write_closed(part, record.rows)
    written = folder.record(job.name)
    assert written is not None
    assert (written.header.items, written.header.part, written.closing) == (9, part.part, record.closing)


def test_what_is_set_aside_is_open_again(folder: RunFolder) -> None:
    rows = (a_row(item="a", segment=0), a_row(item="b", segment=1))
    stored(folder, msgspec.structs.replace(a_record("a", "b"), rows=rows))
    before = folder.record(JOB.name)
    folder.set_aside(JOB.name, 2)
    assert folder.record(JOB.name) == before
    folder.set_aside(JOB.name, 1)
    after = folder.record(JOB.name)
    assert after is not None
    assert (after.rows, after.closing) == (rows[:1], None)
    folder.set_aside("no such job", 1)


def test_grades_stand_apart_and_name_the_record_they_are_of(folder: RunFolder) -> None:
    grades = (Grade(item="a", outcome=Right()),)
    folder.write_grades(a_record("a"), grades, grade_version=2)
    header, found = folder.grades(JOB.name)
    assert found == grades
    assert (header.job, header.grade_version, header.job_digest) == (JOB.name, 2, JOB.digest)
    (folder.path / f"grades/{JOB.name}.jsonl").write_bytes(b"")
    with pytest.raises(InputError) as caught:
        folder.grades(JOB.name)
    assert str(caught.value) == f"grades/{JOB.name}.jsonl: got no header line, expected grades"


def test_items_are_kept_by_the_digest_of_their_order_and_content(folder: RunFolder) -> None:
    items = (Item(id="a\u2028", slices={"s": "x"}, body={"n": 1}), Item(id="b", slices={}, body={}))
    digest = digest_of_items(items)
    folder.write_items(digest, items)
    folder.write_items(digest, items)
    assert folder.items(digest) == items
    assert items_name(digest) == f"items/{digest[7:23]}.jsonl"


def test_items_that_were_edited_are_refused(folder: RunFolder) -> None:
    items = (Item(id="a", slices={}, body={"n": 1}),)
    digest = digest_of_items(items)
    folder.write_items(digest, items)
    path = folder.path / items_name(digest)
    path.write_bytes(path.read_bytes().replace(b'"n":1', b'"n":2'))
    for _ in range(2):
        with pytest.raises(InputError) as caught:
            folder.write_items(digest, items)
        assert (str(caught.value), caught.value.hint) == (
            f"{items_name(digest)}: the items are not those that were asked: the file was edited",
            "put it back as it was, or give another folder with --runs",
        )


def test_a_record_that_must_be_there_is_absent_or_of_its_job(folder: RunFolder) -> None:
    with pytest.raises(AbsentError) as caught:
        folder.present_record(JOB.name)
    assert str(caught.value) == f"`record/{JOB.name}.jsonl` is gone from the run in `{folder.path}`"
    record = a_record("a")
    stored(folder, record)
    assert folder.present_record(JOB.name) == record
    header = msgspec.structs.replace(record.header, job="../../../../escaped")
    folder.record_path(JOB.name).write_bytes(line_bytes(header))
    with pytest.raises(InputError) as edited:
        folder.present_record(JOB.name)
    assert str(edited.value) == (
        f"record/{JOB.name}.jsonl: got a record of `../../../../escaped`, expected one of `{JOB.name}`"
    )
    (folder.path / "lock.toml").unlink()
    with pytest.raises(AbsentError) as gone:
        folder.still_here()
    assert str(gone.value) == f"the run folder `{folder.path}` is gone"


def test_facts_are_empty_until_they_are_written(folder: RunFolder) -> None:
    empty = RunFacts(facts_version=1, segment=())
    assert folder.facts() == empty
    folder.write_facts(empty)
    assert (folder.path / "facts.json").read_bytes() == b'{\n "facts_version": 1,\n "segment": []\n}\n'
    assert folder.facts() == empty


def test_a_seal_covers_what_a_run_is_made_of_and_nothing_else(folder: RunFolder) -> None:
    stored(folder, a_record("a"))
    folder.write("record/.qlock-00.tmp", b"unfinished")
    folder.write("held.1.json", b"{}")
    folder.write("notes.txt", b"of the user")
    assert folder.seal() is None
    seal = folder.write_seal((), forced=("device",), lock_bytes=LOCK)
    assert [file.path for file in seal.file] == ["lock.toml", f"record/{JOB.name}.jsonl"]
    assert (seal.forced, seal.answers_digest) == (("device",), run_answers_digest(()))
    assert folder.seal() == seal


def test_run_folders_are_those_named_by_a_lock(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert run_folders(runs) == ()
    for name in ("0123abcd", "0123abcd.2", "0123abcd.0", "0123abcd.x", "latest", "0123ABCD"):
        (runs / name).mkdir(parents=True)
    (runs / "89abcdef").write_bytes(b"a file")
    assert [path.name for path in run_folders(runs)] == ["0123abcd", "0123abcd.2"]


def test_a_repeat_takes_the_next_free_number(tmp_path: Path) -> None:
    name = folder_name(LOCK)
    for expected in (name, f"{name}.2", f"{name}.3"):
        path = next_repeat(tmp_path, LOCK)
        assert path == tmp_path / expected
        path.mkdir()
        (path / "facts.json").touch()


@pytest.mark.parametrize("begun", ["facts.json", "record", "seal.json", "slurm", "tasks"])
def test_a_repeat_that_was_refused_before_it_began_is_no_run(tmp_path: Path, begun: str) -> None:
    name = folder_name(LOCK)
    whole, repeat = tmp_path / name, tmp_path / f"{name}.2"
    for path in (whole, repeat):
        path.mkdir()
        (path / "lock.toml").write_bytes(LOCK)
    (whole / "seal.json").touch()
    assert (folder_of_lock(tmp_path, LOCK), next_repeat(tmp_path, LOCK)) == (whole, repeat)
    (repeat / begun).touch()
    open_one = whole if begun == "seal.json" else repeat
    assert (folder_of_lock(tmp_path, LOCK), next_repeat(tmp_path, LOCK)) == (open_one, tmp_path / f"{name}.3")


def test_a_row_for_a_journal_has_no_newline() -> None:
    row: Row = a_row(item="a")
    assert row_bytes(row) + b"\n" == line_bytes(row)
