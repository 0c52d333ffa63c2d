"""`qlock submit`: what is said, what is printed, and the exit code."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from qlock.errors import AbsentError
from qlock.world.interface import SlurmTask
from tests.cli.conftest import Type
from tests.fakes.project import Project
from tests.fakes.world import ScriptedSlurm

LOCK = "locks/small@cpu-amd-1a-02.toml"


@pytest.fixture
def slurm(locked: Project) -> ScriptedSlurm:
    made = ScriptedSlurm()
    locked.change_world(slurm=made)
    return made


def test_the_number_of_the_job_goes_to_stdout(locked: Project, slurm: ScriptedSlurm, typed: Type) -> None:
    said = typed("submit", LOCK)
    ((script, _),) = slurm.submitted
    assert (said.code, said.out) == (0, "101\n")
    assert said.talk == [
        f"ok: queued 2 tasks as job 101 (0 done, 0 in the queue); script `{script.relative_to(locked.path)}`",
        f"hint: see how far they are with `qlock status {LOCK}`",
    ]
    slurm.queued = [
        SlurmTask(job="101", index=index, state="PENDING", reason="", node="", left_s=60) for index in (0, 1)
    ]
    assert typed("submit", LOCK).talk == ["ok: nothing to queue: 0 done, 2 in the queue"]


def test_a_dry_run_prints_the_script(locked: Project, slurm: ScriptedSlurm, typed: Type) -> None:
    said = typed(
        "submit",
        LOCK,
        "--dry-run",
        "--partition",
        "gpu",
        "--cpus",
        "4",
        "--scratch",
        "$TMPDIR",
        "--models",
        "models",
    )
    assert said.code == 0
    assert said.talk == ["note: would queue 2 tasks (0 done, 0 in the queue)"]
    lines = said.out.split("\n")
    assert lines[0] == "#!/bin/bash"
    assert "#SBATCH --partition=gpu" in lines
    assert "#SBATCH --cpus-per-task=4" in lines
    assert lines[-2].startswith(f"exec {shlex.quote(sys.executable)} -m qlock run {locked.path / LOCK} ")
    assert f' --models {locked.path / "models"} --scratch "$TMPDIR" --task ' in lines[-2]
    assert slurm.submitted == []


def test_json(locked: Project, slurm: ScriptedSlurm, typed: Type) -> None:
    told = json.loads(typed("submit", LOCK, "--json").out)
    assert told["state"] == "submitted"
    ((path, script),) = slurm.submitted
    assert told["arrays"] == [
        {"script": script, "path": str(path), "job": "101", "tasks": {"A@plain": 0, "B@plain": 1}}
    ]


def test_several_arrays(locked: Project, slurm: ScriptedSlurm, typed: Type) -> None:
    slurm.most_elements = 1
    said = typed("submit", LOCK, "--dry-run")
    assert said.out.count("#!/bin/bash\n") == 2
    assert said.talk == ["note: would queue 2 tasks as 2 arrays (0 done, 0 in the queue)"]
    said = typed("submit", LOCK)
    paths = [path.relative_to(locked.path) for path, _ in slurm.submitted]
    assert (said.code, said.out) == (0, "101\n102\n")
    assert said.talk[0] == (
        f"ok: queued 2 tasks as jobs 101, 102 (0 done, 0 in the queue); scripts `{paths[0]}`, `{paths[1]}`"
    )


def test_all_that_is_done_is_to_be_merged(locked: Project, slurm: ScriptedSlurm, typed: Type) -> None:
    for task in ("A@plain", "B@plain"):
        locked.run(task=task)
    assert typed("submit", LOCK).talk == [
        "ok: nothing to queue: 2 done, 0 in the queue",
        f"hint: bring the tasks together with `qlock merge {LOCK}`",
    ]
    typed("merge", LOCK)
    assert typed("submit", LOCK).talk == ["ok: this lock was run before, and its run is sealed"]


def test_a_stale_lock(locked: Project, slurm: ScriptedSlurm, typed: Type) -> None:
    locked.write_spec(lambda text: text.replace("answer_tokens = 8", "answer_tokens = 9"))
    said = typed("submit", LOCK)
    assert (said.code, said.talk[0]) == (
        1,
        "error: the lock is stale: the spec `specs/small.toml` changed since this lock was made",
    )


def test_no_slurm(
    locked: Project, slurm: ScriptedSlurm, typed: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no(_: object) -> str:
        raise AbsentError("`sbatch` is not on the PATH")

    monkeypatch.setattr(slurm, "submit", no)
    said = typed("submit", LOCK)
    assert (said.code, said.talk) == (8, ["error: `sbatch` is not on the PATH"])


def test_a_wish_that_is_none(locked: Project, slurm: ScriptedSlurm, typed: Type) -> None:
    said = typed("submit", LOCK, "--time", "soon")
    assert said.code == 2
    assert said.talk[0].startswith("error: --time: got `soon`, expected a time ")
