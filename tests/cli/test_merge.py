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


def test_shards_are_run_apart_and_the_missing_one_is_named(locked: Project, typed: Type) -> None:
    for task in ("A@plain@1of2", "A@plain@2of2"):
        said = typed("run", LOCK, "--task", task)
        assert said.code == 0
        assert said.out.endswith(f"/tasks/{task}\n")
    assert said.talk[0:2] == ["digits.A@plain.1: 0/3 items", "digits.A@plain.1: 3/3 items"]
    typed("run", LOCK, "--task", "B@plain@2of2")
    assert typed("merge", LOCK).talk[0] == "error: task `B@plain@1of2` is not done"
    typed("run", LOCK, "--task", "B@plain@1of2")
    assert typed("merge", LOCK).talk[-1].startswith("ok: sealed out of 4 tasks; answers_digest blake3:")


def test_a_plain_run_names_tasks_that_are_not_done_and_takes_the_others_over(
    locked: Project, typed: Type
) -> None:
    typed("run", LOCK, "--task", "A@plain")
    locked.script.kills["q03"] = 4
    assert typed("run", LOCK, "--task", "B@plain").code == 5
    said = typed("run", LOCK)
    assert said.code == 0
    assert said.talk[:2] == [
        "note: 1 task of this run, first `B@plain`, not done: what it answered is asked again here",
        f"hint: rather finish tasks with `qlock run {LOCK} --task ID` or `qlock submit`, then `qlock merge {LOCK}`",
    ]
    assert "note: taken over from earlier runs: digits.A@plain.1, text.A@plain.1" in said.talk


def test_an_anchor_that_is_off(locked: Project, typed: Type) -> None:
    anchor = """
[[anchor]]
model = "A"
suite = "digits"
published = 2.0
source = "https://example.org"
tolerance = 0.01
"""
    locked.write_spec(lambda text: text + anchor)
    locked.lock()
    for task in ("A@plain@1of2", "A@plain@2of2", "B@plain"):
        assert typed("run", LOCK, "--task", task).code == 0
    said = typed("merge", LOCK)
    assert (said.code, said.out) == (1, "")
    assert said.talk == [
        "error: anchor A digits: got `0.1250`, expected `2.0` ± 0.01",
        "error: a published score did not come out again, so the run is not sealed",
        "hint: look at the anchor's source, its setting and its suite",
    ]
    told = json.loads(typed("merge", LOCK, "--json").out)
    assert (told["state"], told["anchors"][0]["holds"]) == ("anchor-off", False)


def test_a_task_and_a_repeat_do_not_go_together(locked: Project, typed: Type) -> None:
    said = typed("run", LOCK, "--task", "A@plain", "--repeat-lock")
    assert (said.code, said.talk[0]) == (2, "error: --task and --repeat-lock do not go together")


def test_a_task_that_is_not_there(locked: Project, typed: Type) -> None:
    said = typed("run", LOCK, "--task", "C@plain")
    assert (said.code, said.talk[0]) == (6, "error: got task `C@plain`, expected one of the lock")
