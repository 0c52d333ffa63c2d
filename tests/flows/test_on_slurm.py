"""Resolving in a job: one job, waited for, and what it said and came to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qlock.errors import AbsentError, InputError, QlockError
from qlock.flows.on_slurm import (
    Asked,
    Ended,
    Queued,
    cancel_resolve,
    queue_resolve,
    resolve_script,
    wait_for,
)
from qlock.world.interface import Missing, SlurmTask, UndoneError
from tests.fakes.project import Project
from tests.fakes.world import ScriptedSlurm

ENDED = Missing(why="it has ended")
Step = Callable[[], None]


@pytest.fixture
def slurm(project: Project) -> ScriptedSlurm:
    made = ScriptedSlurm()
    project.change_world(slurm=made)
    return made


def order(project: Project, *words: str) -> Asked:
    return Asked(spec_path=project.path / "specs/small.toml", program=("python", "-m", "qlock"), words=words)


def folder(project: Project) -> Path:
    return project.path / "runs/resolve/small"


def element(state: str, reason: str = "", node: str = "") -> SlurmTask:
    return SlurmTask(job="101", index=0, state=state, reason=reason, node=node, left_s=60)


def plays(slurm: ScriptedSlurm, *steps: Step) -> None:
    """One step for each look into the queue."""
    left: Iterator[Step] = iter(steps)

    def look() -> None:
        step = next(left)
        step()

    slurm.on_look = look


def queued_as(slurm: ScriptedSlurm, *elements: SlurmTask) -> Step:
    def step() -> None:
        slurm.absent = None
        slurm.queued = list(elements)

    return step


def silent(slurm: ScriptedSlurm) -> Step:
    def step() -> None:
        slurm.absent = AbsentError("squeue: no answer")

    return step


def waited(project: Project, queued: Queued) -> tuple[Ended, list[SlurmTask | Missing]]:
    told: list[SlurmTask | Missing] = []
    ended = wait_for(project.world, order(project), queued, told.append)
    return ended, told


def refused(call: Callable[[], object], kind: type[QlockError] = AbsentError) -> tuple[str, str]:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value), caught.value.hint


def write(project: Project, **files: str) -> None:
    for suffix, text in files.items():
        (folder(project) / f"1.{suffix}").write_text(text)


def test_a_script_that_slurm_did_not_take_is_not_left_behind(
    project: Project, slurm: ScriptedSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no(script: Path) -> str:
        raise UndoneError(f"sbatch: `{script.name}`: invalid partition")

    monkeypatch.setattr(slurm, "submit", no)
    assert refused(lambda: queue_resolve(project.world, order(project)))[0] == (
        "sbatch: `1.sbatch`: invalid partition"
    )
    assert not folder(project).exists()


def test_the_script_has_the_wishes_of_the_table_and_keeps_how_it_ended(
    project: Project, slurm: ScriptedSlurm
) -> None:
    project.write_spec(lambda text: f'{text}\n[slurm]\ngres = "gpu:1"\nsetup = ["module load cuda"]\n')
    script = resolve_script(project.world, order(project, "--upgrade", "A B"))
    stem = folder(project) / "1"
    assert script.split("\n") == [
        "#!/bin/bash",
        "# Written by qlock to resolve small.toml on a compute node.",
        "#SBATCH --job-name=qlock-resolve-small",
        "#SBATCH --array=0",
        f'#SBATCH --output="{stem}.log"',
        "#SBATCH --gres=gpu:1",
        "#SBATCH --no-requeue",
        "",
        "module load cuda",
        "",
        f"python -m qlock resolve {project.path}/specs/small.toml --upgrade 'A B' \\",
        f'  > "{stem}.out" 2> "{stem}.err"',
        "code=$?",
        "# Whoever waits finds it whole.",
        f'echo "$code" > "{stem}.code.new" && mv "{stem}.code.new" "{stem}.code"',
        'exit "$code"',
        "",
    ]
    assert not folder(project).exists()
    assert slurm.submitted == []


def test_the_job_is_queued_and_kept(project: Project, slurm: ScriptedSlurm) -> None:
    queued, is_old = queue_resolve(project.world, order(project))
    assert (queued.number, queued.job, is_old) == (1, "101", False)
    assert slurm.submitted == [
        (folder(project) / "1.sbatch", resolve_script(project.world, order(project)).replace("/2.", "/1."))
    ]
    assert sorted(path.name for path in folder(project).iterdir()) == ["1.json", "1.sbatch"]


def test_its_states_are_told_and_its_answer_is_brought(project: Project, slurm: ScriptedSlurm) -> None:
    queued, _ = queue_resolve(project.world, order(project))
    waits, runs = element("PENDING", "Resources"), element("RUNNING", node="n1")
    plays(
        slurm,
        queued_as(slurm, waits),
        queued_as(slurm, waits),
        silent(slurm),
        queued_as(slurm, runs),
        queued_as(slurm, runs),
        queued_as(slurm),
    )
    write(project, out="locks/x.toml\n", err="Added model A\n", code="1\n")
    assert waited(project, queued) == (
        Ended(code=1, out="locks/x.toml\n", err="Added model A\n"),
        [waits, Missing(why="squeue: no answer"), runs],
    )


def test_a_file_may_be_late(project: Project, slurm: ScriptedSlurm) -> None:
    queued, _ = queue_resolve(project.world, order(project))
    plays(slurm, queued_as(slurm))
    began_s = project.world.clock.monotonic_s()

    class Late:
        """A clock that has the file appear after a while."""

        now = staticmethod(project.world.clock.now)
        monotonic_s = staticmethod(project.world.clock.monotonic_s)
        sleep = staticmethod(project.world.clock.sleep_s)

        def sleep_s(self, duration_s: float) -> None:
            self.sleep(duration_s)
            if self.monotonic_s() - began_s > 10:
                write(project, code="0\n")

    project.change_world(clock=Late())
    assert waited(project, queued)[0] == Ended(code=0, out="", err="")


@pytest.mark.parametrize(
    "ended, log, why",
    [
        (Missing(why="no accounts"), "", ""),
        (
            Missing(why="no accounts"),
            "note: x\nslurmstepd: error: *** JOB 101 CANCELLED DUE TO TIME LIMIT ***\n",
            ": slurmstepd: error: *** JOB 101 CANCELLED DUE TO TIME LIMIT ***",
        ),
        (
            (SlurmTask(job="101", index=0, state="TIMEOUT", reason="", node="n1", left_s=ENDED),),
            "error: one\n",
            ": TIMEOUT: one",
        ),
    ],
)
def test_a_job_that_ended_before_its_command_says_why(
    project: Project, slurm: ScriptedSlurm, ended: tuple[SlurmTask, ...] | Missing, log: str, why: str
) -> None:
    queued, _ = queue_resolve(project.world, order(project))
    slurm.ended = ended
    write(project, log=log)
    assert refused(lambda: waited(project, queued)) == (
        f"job `101` ended before `qlock resolve` did{why}",
        f"what it said is in `{folder(project)}/1.log`",
    )


def test_a_controller_that_stays_silent_is_not_waited_for(project: Project, slurm: ScriptedSlurm) -> None:
    queued, _ = queue_resolve(project.world, order(project))
    slurm.absent = AbsentError("squeue: no answer")
    assert refused(lambda: waited(project, queued))[0] == "squeue: no answer"
    assert project.world.clock.monotonic_s() > 300


def test_who_asks_again_waits_for_the_same_job(project: Project, slurm: ScriptedSlurm) -> None:
    first, _ = queue_resolve(project.world, order(project, "--check"))
    slurm.queued = [element("RUNNING")]
    assert queue_resolve(project.world, order(project, "--check")) == (first, True)
    assert refused(lambda: queue_resolve(project.world, order(project))) == (
        "job `101` resolves this spec already, with other options",
        "wait for it, or end it with `scancel 101`",
    )
    slurm.queued = []
    second, is_old = queue_resolve(project.world, order(project))
    assert (second.number, second.job, is_old) == (2, "102", False)


def test_the_job_is_cancelled(project: Project, slurm: ScriptedSlurm) -> None:
    queued, _ = queue_resolve(project.world, order(project))
    cancel_resolve(project.world, queued)
    assert slurm.cancelled == ["101"]


def test_a_job_that_slurm_does_not_take(
    project: Project, slurm: ScriptedSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no(script: Path) -> str:
        raise AbsentError("sbatch: invalid partition specified: gpu")

    monkeypatch.setattr(slurm, "submit", no)
    assert refused(lambda: queue_resolve(project.world, order(project)))[0].startswith("sbatch: ")
    assert not list(folder(project).glob("*.json"))


def test_a_spec_that_cannot_stand_in_a_script(project: Project, slurm: ScriptedSlurm) -> None:
    odd = project.path.rename(project.path.with_name("50%"))
    spec = odd / "specs/small.toml"
    message, _ = refused(
        lambda: resolve_script(project.world, Asked(spec_path=spec, program=("qlock",))), InputError
    )
    assert message == f"the path `{spec}` cannot stand in a batch script"
