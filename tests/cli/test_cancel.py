"""`qlock cancel`: what is said and the exit code."""

from __future__ import annotations

import json

from qlock.world.interface import SlurmTask
from tests.cli.conftest import Type
from tests.fakes.project import Project
from tests.fakes.world import ScriptedSlurm

LOCK = "locks/small@cpu-amd-1a-02.toml"


def test_what_slurm_has_is_ended(locked: Project, typed: Type) -> None:
    slurm = ScriptedSlurm()
    locked.change_world(slurm=slurm)
    assert typed("cancel", LOCK).talk == ["ok: nothing of this run is in the queue"]
    typed("submit", LOCK)
    slurm.queued = [SlurmTask(job="101", index=1, state="RUNNING", reason="", node="n1", left_s=5)]
    assert typed("cancel", LOCK).talk == ["ok: cancelled 1 task"]
    assert slurm.cancelled == ["101"]
    assert json.loads(typed("cancel", LOCK, "--json").out)["tasks"] == ["B@plain"]
