"""Queueing what is missing: once, only what is missing, and with a script that is kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from qlock.errors import AbsentError, InputError, QlockError, UsageError
from qlock.flows.run_folder import RunFolder
from qlock.flows.submissions import Submission, submissions
from qlock.flows.submit import Asked, Submitted, submit
from qlock.flows.tasks import place_of
from qlock.world import folder
from qlock.world.interface import Missing, SlurmTask, UndoneError
from qlock.world.process import this_process
from tests.fakes.project import Project
from tests.fakes.world import ScriptedSlurm

BOTH = ("A@plain", "B@plain")


@pytest.fixture
def slurm(project: Project) -> ScriptedSlurm:
    made = ScriptedSlurm()
    project.change_world(slurm=made)
    return made


def submitted(project: Project, **asked: object) -> Submitted:
    order = {"lock_path": project.lock_path, "program": ("python", "-m", "qlock")} | asked
    return submit(project.world, Asked(**order))  # type: ignore[arg-type]  # a test's own table of arguments


def job_of(said: Submitted) -> str:
    (array,) = said.arrays
    return array.job


def script_of(said: Submitted) -> str:
    (array,) = said.arrays
    return array.script


def run_folder(project: Project) -> RunFolder:
    return place_of(project.world, project.lock_path).folder


def element(job: str, index: int, state: str = "RUNNING") -> SlurmTask:
    return SlurmTask(job=job, index=index, state=state, reason="", node="n1", left_s=60)


def test_all_tasks_are_queued_and_the_script_is_kept(project: Project, slurm: ScriptedSlurm) -> None:
    said = submitted(project)
    path = run_folder(project).path
    assert (said.state, job_of(said), said.tasks, said.done, said.under_way) == (
        "submitted",
        "101",
        BOTH,
        (),
        (),
    )
    assert slurm.submitted == [(path / "slurm/1.sbatch", script_of(said))]
    assert submissions(run_folder(project)) == (
        Submission(
            number=1,
            job="101",
            submitted_utc="2026-01-01T12:00:00+00:00",
            tasks={"A@plain": 0, "B@plain": 1},
        ),
    )
    lines = script_of(said).split("\n")
    assert f"#SBATCH --job-name=qlock-{path.name}" in lines
    assert f'#SBATCH --output="{path}/slurm/%A_%a.log"' in lines
    assert lines[-2] == (
        f"exec python -m qlock run {project.lock_path} --runs {project.runs} "
        '--task "${tasks[$SLURM_ARRAY_TASK_ID]}"'
    )


def test_a_dry_run_writes_and_queues_nothing(project: Project, slurm: ScriptedSlurm) -> None:
    said = submitted(project, dry_run=True)
    assert (said.state, said.tasks, slurm.submitted) == ("dry-run", BOTH, [])
    assert not project.runs.exists()
    assert script_of(submitted(project)) == script_of(said)


def test_what_is_done_or_in_the_queue_is_not_queued_again(project: Project, slurm: ScriptedSlurm) -> None:
    submitted(project)
    slurm.queued = [element("101", 1), element("999", 0)]
    second = submitted(project)
    assert (second.tasks, second.under_way, job_of(second)) == (("A@plain",), ("B@plain",), "102")
    assert "#SBATCH --array=0" in script_of(second).split("\n")
    slurm.queued = []
    project.run(task="A@plain")
    third = submitted(project)
    assert (third.tasks, third.done) == (("B@plain",), ("A@plain",))
    project.run(task="B@plain")
    assert submitted(project).state == "nothing-left"
    assert len(slurm.submitted) == 3


def test_long_points_are_queued_as_shards(project: Project, slurm: ScriptedSlurm) -> None:
    project.write_spec(lambda text: f"{text}\n[slurm]\nshard_items = 6\n")
    said = submitted(project, wishes={"shard_items": 4})
    cut = [f"{point}@{number}of3" for point in BOTH for number in (1, 2, 3)]
    assert list(said.tasks) == cut
    assert "#SBATCH --array=0-5" in script_of(said).split("\n")
    assert "  [4]=B@plain@2of3" in script_of(said).split("\n")
    slurm.queued = [element("101", 0), element("101", 4)]
    project.run(task=cut[1])
    again = submitted(project)  # with the spec's 6
    assert again.tasks == (cut[2], cut[3], cut[5])
    assert again.under_way == (cut[0], cut[4])
    assert again.notes == (
        "`A@plain` goes on as it was begun or queued, in 3 shards",
        "`B@plain` goes on as it was begun or queued, in 3 shards",
    )
    assert "#SBATCH --array=2-3,5" in script_of(again).split("\n")


def test_no_array_is_longer_than_the_cluster_allows(project: Project, slurm: ScriptedSlurm) -> None:
    slurm.most_elements = 4
    said = submitted(project, wishes={"shard_items": 2, "at_once": 5})
    assert [(array.job, list(array.tasks.values())) for array in said.arrays] == [
        ("101", [0, 1, 2, 3]),
        ("102", [0, 1, 2, 3]),
        ("103", [0, 1, 2, 3]),
    ]
    assert list(said.tasks) == [f"{point}@{number}of6" for point in BOTH for number in range(1, 7)]
    options = [
        line
        for array in said.arrays
        for line in array.script.split("\n")
        if line.startswith("#SBATCH --array")
    ]
    # What may run at once is shared out.
    assert options == ["#SBATCH --array=0-3%2", "#SBATCH --array=0-3%2", "#SBATCH --array=0-3%1"]
    assert [one.job for one in submissions(run_folder(project))] == ["101", "102", "103"]
    slurm.queued = [element("102", 0), element("103", 3)]
    again = submitted(project)
    assert again.under_way == ("A@plain@5of6", "B@plain@6of6")
    assert [list(array.tasks.values()) for array in again.arrays] == [
        [0, 1, 2, 3],
        [1, 2, 3],
        [0, 1, 2],
    ]


def test_what_slurm_took_before_it_refused_is_not_queued_again(
    project: Project, slurm: ScriptedSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.most_elements = 1
    whole = slurm.submit

    def no_more(script: Path) -> str:
        if slurm.submitted:
            raise AbsentError("sbatch: Job violates accounting/QOS policy")
        return whole(script)

    monkeypatch.setattr(slurm, "submit", no_more)
    with pytest.raises(AbsentError):
        submitted(project)
    monkeypatch.undo()
    slurm.queued = [element("101", 0)]
    assert submitted(project).tasks == ("B@plain",)


@pytest.mark.parametrize("limit", [Missing(why="`scontrol` is not on the PATH"), 1001])
def test_a_cluster_that_tells_no_limit_has_that_of_slurm(
    project: Project, slurm: ScriptedSlurm, limit: int | Missing
) -> None:
    slurm.most_elements = limit
    said = submitted(project, dry_run=True, wishes={"shard_items": 1})
    assert [len(array.tasks) for array in said.arrays] == [22]


def test_what_left_the_queue_without_a_beginning_may_be_cut_anew(
    project: Project, slurm: ScriptedSlurm
) -> None:
    submitted(project, wishes={"shard_items": 4})
    said = submitted(project)
    assert (said.tasks, said.notes) == (BOTH, ())


def test_a_sealed_run_is_not_queued(project: Project, slurm: ScriptedSlurm) -> None:
    project.run()
    assert submitted(project).state == "already-sealed"
    assert slurm.submitted == []


def test_a_queue_that_cannot_be_asked_stops_a_second_submission(
    project: Project, slurm: ScriptedSlurm
) -> None:
    submitted(project)
    slurm.absent = AbsentError("squeue: Unable to contact slurm controller")
    with pytest.raises(AbsentError):
        submitted(project)
    assert len(slurm.submitted) == 1


def test_a_submission_that_slurm_did_not_take_is_not_kept_as_one(
    project: Project, slurm: ScriptedSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no(script: Path) -> str:
        raise UndoneError("sbatch: invalid partition specified: gpu")

    monkeypatch.setattr(slurm, "submit", no)
    with pytest.raises(QlockError):
        submitted(project)
    monkeypatch.undo()
    assert submissions(run_folder(project)) == ()
    assert not (run_folder(project).path / "slurm").exists()
    said = submitted(project)
    assert said.arrays[0].path == run_folder(project).path / "slurm/1.sbatch"


def test_the_table_of_the_spec_is_kept_to_and_the_command_line_comes_first(
    project: Project, slurm: ScriptedSlurm
) -> None:
    project.write_spec(lambda text: f'{text}\n[slurm]\npartition = "gpu"\ncpus = 4\n')
    said = submitted(project, wishes={"partition": "short"}, words=("--models", "/m m"), frozen=False)
    lines = script_of(said).split("\n")
    assert "#SBATCH --partition=short" in lines
    assert "#SBATCH --cpus-per-task=4" in lines
    assert "--models '/m m' --task" in lines[-2]


@pytest.mark.parametrize(
    "wish, value, message",
    [
        ("partition", "gpu --uid=0", "--partition: got `gpu --uid=0`, expected one word of an sbatch option"),
        (
            "time",
            "soon",
            "--time: got `soon`, expected a time such as `30`, `8:00:00` or `1-12:00:00`, as sbatch takes it",
        ),
        ("at_once", 0, "--at-once: got `0`, expected an integer >= 1"),
        ("shard_items", -4, "--shard-items: got `-4`, expected an integer >= 1"),
    ],
)
def test_a_wish_that_sbatch_does_not_take_is_refused_by_its_option(
    project: Project, slurm: ScriptedSlurm, wish: str, value: object, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        submitted(project, wishes={wish: value})
    assert str(caught.value) == message
    assert slurm.submitted == []


def test_a_stale_lock_is_not_queued(project: Project, slurm: ScriptedSlurm) -> None:
    project.write_spec(lambda text: text.replace("answer_tokens = 8", "answer_tokens = 9"))
    said = submitted(project)
    assert (said.state, said.why) == ("stale", "the spec `specs/small.toml` changed since this lock was made")
    frozen = submitted(project, frozen=True)
    assert " --frozen --task " in script_of(frozen)


def test_a_folder_that_a_script_cannot_name_is_refused(
    project: Project, slurm: ScriptedSlurm, tmp_path: Path
) -> None:
    odd = tmp_path / '100%"'
    shutil.copytree(project.path, odd)
    lock = odd / project.lock_path.relative_to(project.path)
    with pytest.raises(InputError) as caught:
        submitted(project, lock_path=lock)
    assert str(caught.value) == f"the path `{lock}` cannot stand in a batch script"


def test_two_submissions_at_once_do_not_both_queue(project: Project, slurm: ScriptedSlurm) -> None:
    run_folder(project).prepare(project.lock_path.read_bytes())
    with folder.hold(run_folder(project).path), pytest.raises(AbsentError):
        submitted(project)
    assert slurm.submitted == []


def test_what_a_killed_task_held_on_another_node_is_let_go(
    project: Project, slurm: ScriptedSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(project)
    for id_, index in (("A@plain", "0"), ("B@plain", "7")):
        path = run_folder(project).path / "tasks" / id_
        path.mkdir(parents=True)
        monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "101")
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", index)
        holder = msgspec.structs.replace(this_process(), boot_id="another", host_name="n9", machine_id="x")
        (path / "held.1.json").write_bytes(msgspec.json.encode(holder))
        monkeypatch.undo()
    submitted(project)
    assert project.run(task="A@plain").state == "sealed"
    with pytest.raises(AbsentError) as caught:  # that one is of no job of this run
        project.run(task="B@plain")
    assert "on host `n9`" in str(caught.value)


def test_what_a_killed_task_held_of_a_kept_file_is_let_go(
    project: Project, slurm: ScriptedSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(project)
    holdings = {}
    for name, index in (("mine", "0"), ("other", "7")):
        holding = project.runs / "references" / f"{name}.held"
        holding.mkdir(parents=True)
        monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "101")
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", index)
        holder = msgspec.structs.replace(this_process(), boot_id="another", host_name="n9", machine_id="x")
        (holding / "held.1.json").write_bytes(msgspec.json.encode(holder))
        monkeypatch.undo()
        holdings[name] = holding
    submitted(project)
    left = {name: [one.name for one in holding.iterdir()] for name, holding in holdings.items()}
    assert left == {"mine": [], "other": ["held.1.json"]}  # the other is of no job of this run
