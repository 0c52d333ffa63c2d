"""How far a run is, by its folders and by Slurm; and ending what Slurm still has of it."""

from __future__ import annotations

import pytest

from qlock.errors import AbsentError
from qlock.flows.merge import Asked as ToMerge
from qlock.flows.merge import merge
from qlock.flows.run_folder import RunFolder
from qlock.flows.status import cancel, status
from qlock.flows.submit import Asked, submit
from qlock.world.interface import Missing, SlurmTask
from tests.fakes.project import Project, kill_after, sealed
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
    assert [task.state for task in seen.tasks] == ["unknown", "unknown"]
    project.run(task="B@plain")
    seen = status(project.world, project.lock_path)
    assert [task.state for task in seen.tasks] == ["unknown", "done"]


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


def test_what_a_run_without_tasks_has_answered_counts(project: Project) -> None:
    kill_after(project, 9)
    assert sum(done for _, _, done, _ in states(project)) == answered(project) > 0
    assert {state for _, state, _, _ in states(project)} == {"open"}
    seen = status(project.world, project.lock_path)
    assert seen == status(project.world, seen.folder)


def test_an_answer_of_the_whole_run_counts_in_the_shard_that_would_ask_it(project: Project) -> None:
    kill_after(project, 9)
    first = [done for _, _, done, _ in states(project)]
    project.write_spec(lambda text: text + "\n[slurm]\nshard_items = 3\n")
    cut = status(project.world, project.lock_path)
    assert [task.id for task in cut.tasks][:2] == ["A@plain@1of4", "A@plain@2of4"]
    assert sum(task.done for task in cut.tasks) == sum(first)
    assert all(task.done <= task.items for task in cut.tasks)
    # The folder of the run leads to the same spec, and so to the same shards.
    assert cut == status(project.world, cut.folder)
    # What was asked is gone: then nobody knows to which shard of a job an answer belongs.
    for path in (cut.folder / "items").iterdir():
        path.unlink()
    whole = RunFolder(project.world, cut.folder).present_record("text.A@plain.1")
    left = {task.id: task.done for task in status(project.world, project.lock_path).tasks if task.done}
    assert left == {"A@plain@4of4": len(whole.rows)}


def test_a_run_elsewhere_has_no_spec_that_says_how_it_is_cut(project: Project) -> None:
    kill_after(project, 9)
    project.write_spec(lambda text: text + "\n[slurm]\nshard_items = 3\n")
    folder = status(project.world, project.lock_path).folder
    moved = folder.rename(project.path / "moved")
    assert [task.id for task in status(project.world, moved).tasks] == ["A@plain", "B@plain"]


def test_an_open_repeat_is_told_of_instead_of_the_sealed_run(project: Project) -> None:
    ran = sealed(project)
    assert ran.folder is not None
    assert status(project.world, project.lock_path).notes == ()
    kill_after(project, 9, repeat_lock=True)
    seen = status(project.world, project.lock_path)
    name = ran.folder.name
    assert seen.folder == ran.folder.with_name(f"{name}.2")
    assert seen.notes == (f"this is `{name}.2`, a repeat that is not done; `{name}` is sealed",)
    assert status(project.world, seen.folder).notes == ()
    assert status(project.world, ran.folder).is_sealed


def answered(project: Project) -> int:
    """Rows in the records of the only run."""
    (path,) = project.runs.iterdir()
    folder = RunFolder(project.world, path)
    return sum(len(folder.present_record(one.stem).rows) for one in (path / "record").iterdir())
