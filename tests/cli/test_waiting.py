"""`qlock resolve --on-slurm`: what is said while the job is waited for, what is answered, and what a signal does."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qlock.cli.signals import TerminatedExit
from qlock.world.interface import SlurmTask
from tests.cli.conftest import Type
from tests.fakes.project import Project
from tests.fakes.world import ScriptedSlurm

SPEC = "specs/small.toml"


def element(state: str, reason: str = "", node: str = "") -> SlurmTask:
    return SlurmTask(job="101", index=0, state=state, reason=reason, node=node, left_s=60)


@pytest.fixture
def slurm(project: Project) -> ScriptedSlurm:
    made = ScriptedSlurm()
    project.change_world(slurm=made)
    return made


@pytest.fixture
def ends(project: Project, slurm: ScriptedSlurm) -> Callable[..., None]:
    """Has the job wait, run, and end as is said."""

    def script(code: str, out: str = "", err: str = "") -> None:
        looks = iter(([element("PENDING", "Resources")], [element("RUNNING", node="n1")], []))

        def look() -> None:
            slurm.queued = next(looks)
            for suffix, text in (("out", out), ("err", err), ("code", code)):
                (project.path / f"runs/resolve/small/1.{suffix}").write_text(text)

        slurm.on_look = look

    return script


def test_a_dry_run_prints_the_script(project: Project, slurm: ScriptedSlurm, typed: Type) -> None:
    (project.path / "more").mkdir()
    said = typed(
        "resolve", SPEC, "--on-slurm", "--dry-run", "--offline", "--upgrade", "A", "--models", "more"
    )
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("#!/bin/bash\n")
    assert (
        f"{shlex.quote(sys.executable)} -m qlock resolve {project.path}/{SPEC} --offline --upgrade A "
        f"--models {project.path}/more \\\n  > "
    ) in said.out
    assert slurm.submitted == []


def test_what_the_job_said_and_came_to_is_what_is_said_here(
    project: Project, ends: Callable[..., None], typed: Type
) -> None:
    ends("1", out="the lock\n", err="Added model A\nerror: \x1b[31mred\n")
    said = typed("resolve", SPEC, "--on-slurm", "--check")
    assert (said.code, said.out) == (1, "the lock\n")
    assert said.talk == [
        "note: queued as job 101",
        "job 101: pending (Resources)",
        "job 101: running on n1",
        "Added model A",
        "error: \\x1b[31mred",
    ]


def test_a_qlock_that_is_not_there(project: Project, ends: Callable[..., None], typed: Type) -> None:
    ends("127", err="bash: qlock: command not found\n")
    said = typed("resolve", SPEC, "--on-slurm")
    assert said.code == 8
    assert said.talk[-3:] == [
        "bash: qlock: command not found",
        "error: qlock could not be run by job `101`: got the exit code `127`",
        "hint: say in the [slurm] table how it is called on a node: `qlock`, `setup`, `container`",
    ]


def stopping(slurm: ScriptedSlurm, stop: BaseException) -> None:
    def look() -> None:
        raise stop

    slurm.on_look = look


@pytest.mark.parametrize(
    "stop, code, words",
    [
        (KeyboardInterrupt(), 130, "error: interrupted"),
        (TerminatedExit("SIGTERM"), 143, "error: ended by SIGTERM"),
    ],
)
def test_who_ends_the_waiting_ends_the_job(
    slurm: ScriptedSlurm, typed: Type, stop: BaseException, code: int, words: str
) -> None:
    stopping(slurm, stop)
    said = typed("resolve", SPEC, "--on-slurm")
    assert (said.code, said.talk) == (code, ["note: queued as job 101", "note: cancelled job 101", words])
    assert slurm.cancelled == ["101"]


def test_a_terminal_that_was_closed_ends_no_job(
    project: Project, slurm: ScriptedSlurm, ends: Callable[..., None], typed: Type
) -> None:
    stopping(slurm, TerminatedExit("SIGHUP"))
    said = typed("resolve", SPEC, "--on-slurm")
    assert (said.code, slurm.cancelled) == (143, [])
    assert said.talk[1] == "note: job 101 goes on; the same command waits for it again"
    ends("0", out="the lock\n")
    said = typed("resolve", SPEC, "--on-slurm")
    assert (said.code, said.out) == (0, "the lock\n")
    assert said.talk[0] == "note: job 101 of an earlier call goes on"


def test_no_slurm(
    project: Project, slurm: ScriptedSlurm, typed: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qlock.errors import AbsentError

    def no(script: Path) -> str:
        raise AbsentError("`sbatch` is not on the PATH")

    monkeypatch.setattr(slurm, "submit", no)
    said = typed("resolve", SPEC, "--on-slurm")
    assert (said.code, said.talk) == (8, ["error: `sbatch` is not on the PATH"])
