"""A run held against its seal: every way in which it can be another one than was sealed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from qlock.core.canon import json_bytes
from qlock.core.exchange import Right, Wrong
from qlock.core.record import (
    Closing,
    Grade,
    GradeHeader,
    Record,
    Seal,
    SealedJob,
    answers_digest,
    line_bytes,
    run_answers_digest,
)
from qlock.errors import AbsentError, InputError
from qlock.flows.run_folder import RunFolder
from qlock.flows.verify_run import Fault, Verified, verify_run
from tests.fakes.project import Project, edit

JOB = "digits.A@plain.1"


class Sealed:
    """A sealed run that can be changed and sealed again, as somebody who wants to deceive would."""

    def __init__(self, project: Project, path: Path) -> None:
        self.project = project
        self.path = path
        self.folder = RunFolder(project.world, path)

    def seal(self) -> Seal:
        seal = self.folder.seal()
        assert seal is not None
        return seal

    def put_seal(self, **changes: object) -> None:
        self.folder.write("seal.json", json_bytes(msgspec.structs.replace(self.seal(), **changes)))

    def seal_files_again(self) -> None:
        """Give every file as it is now its digest in the seal."""
        self.put_seal(file=tuple(self.folder.sealed_files()))

    def record(self) -> Record:
        record = self.folder.record(JOB)
        assert record is not None
        return record

    def look(self) -> Verified:
        return verify_run(self.project.world, self.path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("verify"))
    project.lock()
    assert project.run().state == "sealed"
    return project


@pytest.fixture
def run(made: Project, tmp_path: Path) -> Sealed:
    """A copy of the sealed run, to be changed."""
    (source,) = [path for path in made.runs.iterdir() if path.is_dir()]
    return Sealed(made, Path(shutil.copytree(source, tmp_path / source.name)))


def test_a_run_as_it_was_sealed_is_verified(run: Sealed) -> None:
    seen = run.look()
    assert (seen.state, seen.faults, seen.notes, seen.forced) == ("verified", (), (), ())
    assert seen.jobs == 4
    assert seen.files == len(run.seal().file)
    assert seen.answers_digest == run.seal().answers_digest
    assert {score.suite for score in seen.scores} <= {"digits", "text"}
    assert len(seen.scores) == 4


def test_no_model_no_engine_and_no_spec_is_needed(run: Sealed, tmp_path: Path) -> None:
    project = Project(tmp_path / "elsewhere")
    shutil.rmtree(project.path)
    project.path.mkdir()
    assert verify_run(project.world, run.path).state == "verified"


def test_it_changes_nothing(run: Sealed) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    run.look()
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before


def test_a_run_that_is_not_whole_is_not_sealed(run: Sealed) -> None:
    (run.path / "seal.json").unlink()
    assert run.look() == Verified(state="unsealed")


def test_a_folder_without_a_run_is_said(tmp_path: Path, made: Project) -> None:
    with pytest.raises(AbsentError) as caught:
        verify_run(made.world, tmp_path)
    assert str(caught.value) == f"no run in `{tmp_path}`: no `lock.toml` and no `seal.json`"


def test_an_unreadable_seal_is_an_error(run: Sealed) -> None:
    run.folder.write("seal.json", b"{")
    with pytest.raises(InputError) as caught:
        run.look()
    assert str(caught.value).startswith(f"{run.folder.place}/seal.json: not JSON: ")


@pytest.mark.parametrize("pattern", ["lock.toml", "facts.json", "record/*", "grades/*", "items/*"])
def test_a_changed_byte_in_any_sealed_file_is_found(run: Sealed, pattern: str) -> None:
    for path in sorted(run.path.glob(pattern)):
        name = path.relative_to(run.path).as_posix()
        before = path.read_bytes()
        path.write_bytes(before[:-2] + b" " + before[-1:])
        seen = run.look()
        assert seen.state == "broken"
        assert [fault.what for fault in seen.faults] == [name]
        assert seen.scores == ()
        path.write_bytes(before)
    assert run.look().state == "verified"


def test_half_a_character_in_a_reply_is_no_text_though_it_is_sealed(run: Sealed) -> None:
    edit(run.path / f"record/{JOB}.jsonl", b'"text":"', rb'"text":"\ud800')
    run.seal_files_again()
    with pytest.raises(InputError) as caught:
        run.look()
    assert str(caught.value).startswith(f"record/{JOB}.jsonl: line 2: not JSON: JSON is malformed: ")


@pytest.mark.parametrize("pattern", ["lock.toml", "facts.json", "record/*", "grades/*", "items/*"])
def test_a_sealed_file_that_is_gone_is_found(run: Sealed, pattern: str) -> None:
    path = min(run.path.glob(pattern))
    name = path.relative_to(run.path).as_posix()
    path.unlink()
    (run.path / "lock.toml.was").write_bytes(b"")
    seen = run.look()
    assert seen.state == "broken"
    digest = next(file.digest for file in run.seal().file if file.path == name)
    assert seen.faults == (Fault(what=name, expected=digest, found="missing"),)


def test_a_file_more_is_found(run: Sealed) -> None:
    (run.path / "grades" / "extra.jsonl").write_bytes(b"")
    (fault,) = run.look().faults
    assert (fault.what, fault.expected) == ("grades/extra.jsonl", "no such file")


def test_a_name_that_leads_out_of_the_run_is_never_opened(run: Sealed, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"")
    outside = msgspec.structs.replace(run.seal().file[0], path="../secret")
    run.put_seal(file=(*run.seal().file, outside))
    (fault,) = run.look().faults
    assert fault == Fault(what="../secret", expected=outside.digest, found="missing")


def changed_answer(run: Sealed) -> None:
    """Another answer in the first row, with a closing line that fits it."""
    record = run.record()
    first, *others = record.rows
    (reply,) = first.replies
    rows = (msgspec.structs.replace(first, replies=(msgspec.structs.replace(reply, text="7"),)), *others)
    closing = Closing(items=len(rows), answers_digest=answers_digest(rows))
    lines = (record.header, *rows, closing)
    run.folder.write(f"record/{JOB}.jsonl", b"".join(line_bytes(line) for line in lines))


def test_an_answer_changed_together_with_its_closing_line_and_file_digest_is_found(run: Sealed) -> None:
    changed_answer(run)
    run.seal_files_again()
    found = [fault.what for fault in run.look().faults]
    assert f"record/{JOB}.jsonl: answers_digest" in found


def test_an_answers_digest_that_does_not_follow_from_the_jobs_is_found(run: Sealed) -> None:
    whole = run.seal().answers_digest
    run.put_seal(answers_digest="blake3:" + "0" * 64)
    assert run.look().faults == (Fault(what="answers_digest", expected="blake3:" + "0" * 64, found=whole),)


def edited_job(seal: Seal, edit: Callable[[SealedJob], SealedJob]) -> tuple[SealedJob, ...]:
    return tuple(edit(job) if job.job == JOB else job for job in seal.job)


def test_a_job_of_another_lock_is_found(run: Sealed) -> None:
    other = "blake3:" + "1" * 64
    locked = next(job.job_digest for job in run.seal().job if job.job == JOB)
    run.put_seal(job=edited_job(run.seal(), lambda job: msgspec.structs.replace(job, job_digest=other)))
    assert run.look().faults == (Fault(what=f"job.{JOB}.job_digest", expected=locked, found=other),)


def test_a_job_that_is_not_sealed_is_found(run: Sealed) -> None:
    jobs = tuple(job for job in run.seal().job if job.job != JOB)
    run.put_seal(job=jobs, answers_digest=run_answers_digest(jobs))
    assert run.look().faults == (Fault(what=f"job.{JOB}", expected="sealed", found="missing"),)


def test_a_sealed_job_that_the_lock_does_not_have_is_found(run: Sealed) -> None:
    jobs = (*run.seal().job, msgspec.structs.replace(run.seal().job[0], job="more.A@plain.1"))
    run.put_seal(job=jobs, answers_digest=run_answers_digest(jobs))
    assert run.look().faults == (Fault(what="job.more.A@plain.1", expected="no such job", found="sealed"),)


def test_a_record_without_its_closing_line_is_found(run: Sealed) -> None:
    path = run.path / f"record/{JOB}.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    run.seal_files_again()
    assert run.look().faults == (Fault(what=f"record/{JOB}.jsonl", expected="a closing line", found="none"),)


def test_a_record_that_is_as_sealed_and_unreadable_is_an_error(run: Sealed) -> None:
    run.folder.write(f"record/{JOB}.jsonl", b"{\n")
    run.seal_files_again()
    with pytest.raises(InputError, match=r"^record/digits\.A@plain\.1\.jsonl: line 1"):
        run.look()


def regraded(
    run: Sealed, edit: Callable[[GradeHeader, list[Grade]], tuple[GradeHeader, list[Grade]]]
) -> None:
    header, grades = run.folder.grades(JOB)
    new_header, new = edit(header, list(grades))
    run.folder.write(f"grades/{JOB}.jsonl", b"".join(line_bytes(line) for line in (new_header, *new)))
    run.seal_files_again()


def test_a_grade_that_todays_grader_does_not_give_is_found(run: Sealed) -> None:
    _, grades = run.folder.grades(JOB)
    wrong = next(grade for grade in grades if isinstance(grade.outcome, Wrong))

    def flatter(header: GradeHeader, grades: list[Grade]) -> tuple[GradeHeader, list[Grade]]:
        return header, [
            msgspec.structs.replace(grade, outcome=Right()) if grade.item == wrong.item else grade
            for grade in grades
        ]

    regraded(run, flatter)
    (fault,) = run.look().faults
    assert (fault.what, fault.found) == (f"grades/{JOB}.jsonl: {wrong.item}", "right")
    assert fault.expected.startswith("wrong: ")


def test_a_grade_too_few_and_a_grade_too_many_are_found(run: Sealed) -> None:
    regraded(
        run,
        lambda header, grades: (header, [*grades[1:], Grade(item="never asked", outcome=Right())]),
    )
    faults = run.look().faults
    assert [fault.what for fault in faults] == [
        f"grades/{JOB}.jsonl: q00",
        f"grades/{JOB}.jsonl: never asked",
    ]
    assert (faults[0].found, faults[1].expected) == ("no grade", "no grade")


def test_grades_of_another_record_are_found(run: Sealed) -> None:
    other = "blake3:" + "2" * 64
    regraded(run, lambda header, grades: (msgspec.structs.replace(header, answers_digest=other), grades))
    assert [fault.what for fault in run.look().faults] == [f"grades/{JOB}.jsonl: answers_digest"]


def test_grades_of_another_version_are_said_and_not_compared(run: Sealed) -> None:
    regraded(
        run,
        lambda header, grades: (
            msgspec.structs.replace(header, grade_version=header.grade_version + 1),
            [msgspec.structs.replace(grade, outcome=Right()) for grade in grades],
        ),
    )
    seen = run.look()
    assert seen.state == "verified"
    assert seen.notes == (
        f"grades/{JOB}.jsonl: graded by version 2 of `tasks`, this qlock has 1; not compared",
    )


def test_items_that_are_not_the_locked_ones_are_found(run: Sealed) -> None:
    path = next(path for path in sorted(run.path.glob("items/*")) if b'"q00"' in path.read_bytes())
    path.write_bytes(path.read_bytes().replace(b'"expected":"0"', b'"expected":"7"', 1))
    run.seal_files_again()
    name = path.relative_to(run.path).as_posix()
    assert f"{name}: items_digest" in [fault.what for fault in run.look().faults]


def test_rows_and_header_that_are_not_those_of_the_job_are_found(run: Sealed) -> None:
    """Answers are the sealed ones; what they are said to be answers to is not."""
    record = run.record()
    rows = (msgspec.structs.replace(record.rows[0], slices={"part": "mine"}), *record.rows[1:])
    header = msgspec.structs.replace(record.header, repeat=7)
    lines = (header, *rows, record.closing)
    run.folder.write(f"record/{JOB}.jsonl", b"".join(line_bytes(line) for line in lines if line))
    run.seal_files_again()
    where = f"record/{JOB}.jsonl"
    assert run.look().faults == (
        Fault(what=f"{where}: header.repeat", expected="1", found="7"),
        Fault(what=f"{where}: q00.slices", expected="{'part': 'a'}", found="{'part': 'mine'}"),
    )


def test_a_mark_that_only_one_of_seal_and_segments_has_is_found(run: Sealed) -> None:
    run.put_seal(forced=("device",))
    seen = run.look()
    assert seen.forced == ("device",)
    assert seen.faults == (Fault(what="forced", expected="", found="device"),)
