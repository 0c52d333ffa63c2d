"""`qlock run --task` and `qlock merge`: what is said and the exit codes."""

from __future__ import annotations

import json

import msgspec

from qlock.flows.run_folder import RunFolder
from tests.cli.conftest import Type
from tests.fakes.project import Project
from tests.fakes.world import CPU, FixedHost

LOCK = "locks/small@cpu-amd-1a-02.toml"


def test_tasks_are_run_apart_and_brought_together(locked: Project, typed: Type) -> None:
    said = typed("run", LOCK, "--task", "A@plain")
    assert said.code == 0
    assert said.out.endswith("/tasks/A@plain\n")
    assert said.talk[-2:] == [
        "ok: task `A@plain` is done, 11 items measured",
        f"hint: when all tasks are done, bring them together with `qlock merge {LOCK}`",
    ]
    said = typed("merge", LOCK)
    assert (said.code, said.out) == (5, "")
    assert said.talk == [
        "error: task `B@plain` is not done",
        "error: incomplete: 1 of 2 tasks are not done",
        "hint: queue them with `qlock submit`, or run them with `qlock run LOCK --task ID`",
    ]
    assert typed("run", LOCK, "--task", "B@plain").code == 0
    said = typed("merge", LOCK)
    folder = said.out.strip()
    seal = RunFolder(locked.world, locked.path / folder).seal()
    assert seal is not None
    assert said.talk == [f"ok: sealed out of 2 tasks; answers_digest {seal.answers_digest}"]
    assert typed("merge", folder).talk == [f"ok: this run is sealed; answers_digest {seal.answers_digest}"]
    told = json.loads(typed("merge", folder, "--json").out)
    assert (told["state"], told["folder"], told["tasks"]) == ("already-sealed", folder, 2)


def test_tasks_of_two_machines(locked: Project, typed: Type) -> None:
    typed("run", LOCK, "--task", "A@plain")
    locked.change_world(host=FixedHost(cpu=msgspec.structs.replace(CPU, cpu_model_number=9)))
    typed("run", LOCK, "--task", "B@plain", "--allow", f"device.{CPU.name}")
    said = typed("merge", LOCK)
    assert said.code == 3
    assert said.talk[0] == "error: task.B@plain.device.cpu_model_number is not as locked (device)"
    assert said.talk[-1] == "error: refused: the tasks were not measured on the same engine and device"


def test_a_task_and_a_repeat_do_not_go_together(locked: Project, typed: Type) -> None:
    said = typed("run", LOCK, "--task", "A@plain", "--repeat-lock")
    assert (said.code, said.talk[0]) == (2, "error: --task and --repeat-lock do not go together")


def test_a_task_that_is_not_there(locked: Project, typed: Type) -> None:
    said = typed("run", LOCK, "--task", "C@plain")
    assert (said.code, said.talk[0]) == (6, "error: got task `C@plain`, expected one of the lock")
