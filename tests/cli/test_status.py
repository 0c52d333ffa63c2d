"""`qlock status`: what is said and the exit code."""

from __future__ import annotations

import json

import pytest

from qlock.flows.run_folder import folder_name
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


def test_a_row_for_each_task(locked: Project, slurm: ScriptedSlurm, typed: Type) -> None:
    typed("submit", LOCK)
    locked.run(task="A@plain")
    slurm.queued = [SlurmTask(job="101", index=1, state="RUNNING", reason="", node="n1", left_s=5025)]
    run = f"{locked.runs.relative_to(locked.path)}/{folder_name(locked.lock_path.read_bytes())}"
    said = typed("status", LOCK)
    assert (said.code, said.out) == (5, "")
    assert said.talk == [
        "task     state    items     left  job    why",
        "A@plain  done     11/11",
        "B@plain  running   0/11  1:23:45  101_1  on n1",
        f"note: {run}: 1 done, 1 running",
    ]
    told = json.loads(typed("status", LOCK, "--json").out)
    assert [(task["state"], task["left_s"]) for task in told["tasks"]] == [
        ("done", {"why": "it does not run"}),
        ("running", 5025),
    ]


def test_all_done(locked: Project, typed: Type) -> None:
    for task in ("A@plain", "B@plain"):
        locked.run(task=task)
    said = typed("status", LOCK)
    assert said.code == 0
    run = f"{locked.runs.relative_to(locked.path)}/{folder_name(locked.lock_path.read_bytes())}"
    assert said.talk[-2:] == [
        f"ok: {run}: 2 done",
        f"hint: bring the tasks together with `qlock merge {LOCK}`",
    ]
