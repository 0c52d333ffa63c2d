"""What is kept of submissions, and what is found in their logs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from qlock.errors import AbsentError
from qlock.flows.run_folder import RunFolder
from qlock.flows.submissions import (
    Submission,
    by_task,
    hand_over,
    last_error,
    last_words,
    next_number,
    script_path,
    submissions,
    write_submission,
)
from qlock.world.interface import SlurmTask, UndoneError
from tests.fakes.world import ScriptedSlurm, fake_world


def submission(number: int, job: str, **tasks: int) -> Submission:
    return Submission(number=number, job=job, submitted_utc="2026-01-01T12:00:00+00:00", tasks=tasks)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(fake_world(tmp_path), tmp_path / "run")
    (made.path / "slurm").mkdir(parents=True)
    return made


def test_they_are_read_back_in_their_order(folder: RunFolder) -> None:
    assert (submissions(folder), next_number(folder.path / "slurm")) == ((), 1)
    for number in (10, 2, 1):
        script_path(folder, number).write_text("")
        write_submission(folder, submission(number, str(number), a=0))
    assert [one.number for one in submissions(folder)] == [1, 2, 10]
    assert next_number(folder.path / "slurm") == 11


class Refusing(ScriptedSlurm):
    """Stands for Slurm that takes no job."""

    def __init__(self, error: AbsentError) -> None:
        super().__init__()
        self.error = error

    def submit(self, script: Path) -> str:
        super().submit(script)
        raise self.error


def test_a_script_that_was_not_queued_leaves_nothing_behind(tmp_path: Path) -> None:
    place = tmp_path / "run/slurm"
    place.mkdir(parents=True)
    taking = msgspec.structs.replace(fake_world(tmp_path), slurm=ScriptedSlurm())
    error = UndoneError("sbatch: invalid partition")
    refusing = msgspec.structs.replace(taking, slurm=Refusing(error))
    with pytest.raises(UndoneError) as caught:
        hand_over(refusing, place / "1.sbatch", "text")
    assert (caught.value, place.exists()) == (error, False)
    place.mkdir()
    assert hand_over(taking, place / "1.sbatch", "text") == "101"
    with pytest.raises(UndoneError):
        hand_over(refusing, place / "2.sbatch", "text")
    assert [path.name for path in place.iterdir()] == ["1.sbatch"]


def test_a_script_that_may_have_been_queued_keeps_its_number(tmp_path: Path) -> None:
    slurm = Refusing(AbsentError("`sbatch` did not answer within 60 s"))
    world = msgspec.structs.replace(fake_world(tmp_path), slurm=slurm)
    (tmp_path / "slurm").mkdir()
    with pytest.raises(AbsentError):
        hand_over(world, tmp_path / "slurm/1.sbatch", "text")
    assert next_number(tmp_path / "slurm") == 2


def test_the_newest_element_of_a_task_counts() -> None:
    def element(job: str) -> SlurmTask:
        return SlurmTask(job=job, index=3, state="RUNNING", reason="", node="", left_s=1)

    submitted = (submission(1, "7", a=3), submission(2, "8", a=3))
    assert by_task(submitted, [element("8"), element("7"), element("9")]) == {"a": element("8")}
    assert by_task(submitted, [element("7")]) == {"a": element("7")}


@pytest.mark.parametrize(
    "log, words",
    [
        (b"note: x\nerror: one\nhint: y\nerror: two\nhint: z\n", "two"),
        (
            b"slurmstepd: error: *** JOB 7 CANCELLED DUE TO TIME LIMIT ***\n",
            "slurmstepd: error: *** JOB 7 CANCELLED DUE TO TIME LIMIT ***",
        ),
        (b"all is well\n", ""),
        (b"x" * 200_000 + b"\nerror: late\n", "late"),
        (b"error: \xff\n", "\ufffd"),
        (b"", ""),
    ],
)
def test_the_last_error_of_the_newest_log_is_found(folder: RunFolder, log: bytes, words: str) -> None:
    submitted = (submission(1, "7", a=3), submission(2, "8", a=3, b=4))
    (folder.path / "slurm/7_3.log").write_text("error: old\n")
    (folder.path / "slurm/8_3.log").write_bytes(log)
    assert last_words(folder, submitted, "a") == words
    assert last_words(folder, submitted, "b") == ""
    assert last_words(folder, submitted, "c") == ""


@pytest.mark.parametrize(
    "text, words", [("", ""), ("note: x", ""), ("error: a\nerror: b\nhint: c", "b"), ("an error: x", "")]
)
def test_the_last_error_of_a_text(text: str, words: str) -> None:
    assert last_error(text) == words
