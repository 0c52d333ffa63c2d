"""How far a run is, by its folders and by Slurm; and ending what Slurm still has of it."""

from __future__ import annotations

import pytest

from qlock.errors import AbsentError
from qlock.flows.merge import Asked as ToMerge
from qlock.flows.merge import merge
from qlock.flows.status import cancel, status
from qlock.flows.submit import Asked, submit
from qlock.world.interface import Missing, SlurmTask
from tests.fakes.project import Project
from tests.fakes.world import ScriptedSlurm

ENDED = Missing(why="it has ended")


@pytest.fixture
def slurm(project: Project) -> ScriptedSlurm:
    made = ScriptedSlurm()
    project.change_world(slurm=made)
    return made


def states(project: Project) -> list[tuple[str, str, int, str]]:
    return [
        (task.id, task.state, task.done, task.why) for task in status(project.world, project.lock_path).tasks
    ]


def queue(project: Project) -> None:
    submit(project.world, Asked(lock_path=project.lock_path, program=("qlock",)))


def test_what_never_was_queued_is_open(project: Project, slurm: ScriptedSlurm) -> None:
    slurm.absent = AbsentError("`squeue` is not on the PATH")  # nobody asks it
    assert states(project) == [("A@plain", "open", 0, ""), ("B@plain", "open", 0, "")]


def test_the_queue_says_what_waits_and_what_runs(project: Project, slurm: ScriptedSlurm) -> None:
    queue(project)
    slurm.queued = [
        SlurmTask(job="101", index=0, state="RUNNING", reason="", node="n1", left_s=90),
        SlurmTask(job="101", index=1, state="PENDING", reason="Resources", node="", left_s=600),
    ]
    first, second = status(project.world, project.lock_path).tasks
    assert (first.state, first.job, first.left_s, first.why) == ("running", "101_0", 90, "on n1")
    assert (second.state, second.job, second.why) == ("queued", "101_1", "Resources")
    assert second.left_s == Missing(why="it does not run")


def test_shards_are_told_one_by_one(project: Project, slurm: ScriptedSlurm) -> None:
    submit(
        project.world,
        Asked(lock_path=project.lock_path, program=("qlock",), wishes={"shard_items": 6}),
    )
    project.run(task="A@plain@2of2")
    slurm.queued = [SlurmTask(job="101", index=0, state="RUNNING", reason="", node="n1", left_s=90)]
    assert states(project) == [
        ("A@plain@1of2", "running", 0, "on n1"),
        ("A@plain@2of2", "done", 6, ""),
        ("B@plain@1of2", "failed", 0, ""),
        ("B@plain@2of2", "failed", 0, ""),
    ]
    assert [task.items for task in status(project.world, project.lock_path).tasks] == [5, 6, 5, 6]


def test_what_left_the_queue_undone_has_failed_and_says_why(project: Project, slurm: ScriptedSlurm) -> None:
    queue(project)
    project.run(task="B@plain")
    slurm.ended = (
        SlurmTask(job="101", index=0, state="FAILED", reason="exit code 8", node="n1", left_s=ENDED),
    )
    folder = status(project.world, project.lock_path).folder
    (folder / "slurm/101_0.log").write_text("error: the disk is full\n")
    assert states(project) == [
        ("A@plain", "failed", 0, "FAILED exit code 8: the disk is full"),
        ("B@plain", "done", 11, ""),
    ]


def test_what_cannot_be_asked_is_said_and_not_guessed(project: Project, slurm: ScriptedSlurm) -> None:
    queue(project)
    slurm.queued = [
        SlurmTask(job="101", index=index, state="RUNNING", reason="", node="n1", left_s=90)
        for index in (0, 1)
    ]
    # Of what runs, no accounts are wanted.
    assert status(project.world, project.lock_path).notes == ()
    slurm.queued = []
    assert status(project.world, project.lock_path).notes == (
        "Slurm's accounts are not known: Slurm keeps no accounts here",
    )
    slurm.absent = AbsentError("squeue: no answer")
    seen = status(project.world, project.lock_path)
    assert seen.notes == ("Slurm's queue is not known: squeue: no answer",)
    assert [task.state for task in seen.tasks] == ["open", "open"]


def test_a_merged_run_is_done(project: Project, slurm: ScriptedSlurm) -> None:
    for task in ("A@plain", "B@plain"):
        project.run(task=task)
    assert not status(project.world, project.lock_path).is_sealed
    merge(project.world, ToMerge(path=project.lock_path))
    seen = status(project.world, project.lock_path)
    assert (seen.is_sealed, {task.state for task in seen.tasks}) == (True, {"done"})
    assert seen.tasks == status(project.world, seen.folder).tasks


def test_only_jobs_of_this_run_are_cancelled(project: Project, slurm: ScriptedSlurm) -> None:
    assert cancel(project.world, project.lock_path) == ()
    queue(project)
    slurm.queued = [
        SlurmTask(job="101", index=1, state="RUNNING", reason="", node="n1", left_s=90),
        SlurmTask(job="77", index=0, state="RUNNING", reason="", node="n1", left_s=90),
    ]
    assert cancel(project.world, project.lock_path) == ("B@plain",)
    assert slurm.cancelled == ["101"]
