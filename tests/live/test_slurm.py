"""Real Slurm, real arrays, a real tiny model: whatever Slurm does to the tasks, the merged run has the same answers."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.fakes.tiny_models import DENSE, write_tiny
from tests.live.disturbances import stop_tasks
from tests.live.slurm_cluster import Cluster, cluster
from tests.live.tiny_project import answers_digest, lock_of, make, qlock, run_of, start

pytestmark = [pytest.mark.live, pytest.mark.slurm]

LONG = 80
"""Items of the longer exam: enough that a task can be met in the midst of its work."""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture(scope="module")
def resolved(tmp_path_factory: pytest.TempPathFactory, llama_bin: Path) -> Path:
    """A project of three models, resolved."""
    folder = tmp_path_factory.mktemp("project") / "p"
    spec = make(folder, items=LONG, answer_tokens=120)
    tables = ""
    for seed in (2, 3):
        write_tiny(folder / "models" / f"tiny{seed}.gguf", msgspec.structs.replace(DENSE, seed=seed))
        tables += (
            f'[[model]]\nname = "tiny{seed}"\nsource = "file:models/tiny{seed}.gguf"\ntrained = false\n\n'
        )
    slurm = '\n[slurm]\ntime = "10"\ncpus = 1\nsetup = ["echo restarts=${SLURM_RESTART_COUNT:-0}"]\n'
    spec.write_text(spec.read_text().replace("[[setting]]", f"{tables}[[setting]]", 1) + slurm)
    made = qlock("resolve", spec)
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture(scope="module")
def undisturbed(resolved: Path) -> str:
    ran = qlock("run", lock_of(resolved))
    assert ran.returncode == 0, ran.stderr
    digest = answers_digest(run_of(resolved))
    shutil.rmtree(resolved / "runs")
    return digest


@pytest.fixture
def project(resolved: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    shutil.copytree(resolved, folder)
    return folder


def ask(slurm: Cluster, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """The command line, where Slurm's tools find the cluster."""
    return qlock(*words, SLURM_CONF=slurm.environment["SLURM_CONF"])


def submit(slurm: Cluster, project: Path, *words: str) -> str:
    done = ask(slurm, "submit", lock_of(project), *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def status(slurm: Cluster, project: Path) -> dict[str, tuple[str, str]]:
    """State and reason of each task."""
    told = json.loads(ask(slurm, "status", lock_of(project), "--json").stdout)
    return {task["id"]: (task["state"], task["why"]) for task in told["tasks"]}


def merged(project: Path) -> str:
    done = qlock("merge", lock_of(project))
    assert done.returncode == 0, done.stderr + logs(project)
    run = run_of(project)
    assert qlock("verify", run).returncode == 0
    return answers_digest(run)


def logs(project: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(project.glob("runs/*/*/slurm/*.log")))


def wait_rows(project: Path, at_most_s: float = 240.0) -> None:
    """Wait until some task has answers."""
    until = time.monotonic() + at_most_s
    while not any(path.read_bytes().count(b"\n") > 5 for path in project.glob("runs/*/*/tasks/*/record/*")):
        assert time.monotonic() < until, logs(project)
        time.sleep(0.02)


def rows_are_unique(project: Path) -> bool:
    for path in run_of(project).glob("record/*.jsonl"):
        items = [json.loads(line).get("item") for line in path.read_text().split("\n")[1:-2]]
        if len(items) != len(set(items)):
            return False
    return True


def test_an_array_on_two_nodes_has_the_answers_of_one_run(
    slurm: Cluster, project: Path, undisturbed: str
) -> None:
    job = submit(slurm, project)
    slurm.wait_running()
    assert submit(slurm, project) == ""  # everything is in the queue
    slurm.wait_empty()
    assert {state for state, _ in status(slurm, project).values()} == {"done"}, logs(project)
    names = sorted(path.name for path in (run_of(project) / "slurm").iterdir())
    assert names == sorted(["1.json", "1.sbatch", *(f"{job}_{index}.log" for index in range(3))])
    assert merged(project) == undisturbed
    assert rows_are_unique(project)


def test_shards_on_two_nodes_have_the_answers_of_one_run(
    slurm: Cluster, project: Path, undisturbed: str
) -> None:
    # Of each point 168 items: 8 windows, and two repeats of 80 questions.
    job = submit(slurm, project, "--shard-items", "100")
    wait_rows(project)
    for index in [index for index, state in slurm.queue() if state == "RUNNING"][:1]:
        slurm.try_call("scontrol", "requeue", f"{job}_{index}")
    slurm.let_go()
    slurm.wait_empty()
    assert status(slurm, project) == {
        f"{model}@s@{number}of2": ("done", "") for model in ("tiny", "tiny2", "tiny3") for number in (1, 2)
    }, logs(project)
    assert merged(project) == undisturbed
    assert rows_are_unique(project)


def test_an_array_that_is_too_long_for_the_cluster_becomes_several(
    project: Path, undisturbed: str, tmp_path: Path
) -> None:
    with cluster(tmp_path / "small", 2, "MaxArraySize=3") as small:
        jobs = submit(small, project, "--shard-items", "100").split("\n")
        assert len(jobs) == 2
        small.wait_empty()
        assert {state for state, _ in status(small, project).values()} == {"done"}, logs(project)
    names = {path.name for path in (run_of(project) / "slurm").glob("*.log")}
    assert names == {f"{job}_{index}.log" for job in jobs for index in range(3)}
    assert merged(project) == undisturbed


def test_what_was_cancelled_is_queued_again_and_goes_on(
    slurm: Cluster, project: Path, undisturbed: str
) -> None:
    submit(slurm, project)
    wait_rows(project)
    done = ask(slurm, "cancel", lock_of(project))
    assert done.returncode == 0, done.stderr
    slurm.wait_empty()
    states = {state for state, _ in status(slurm, project).values()}
    assert "failed" in states
    submit(slurm, project)
    slurm.wait_empty()
    assert merged(project) == undisturbed
    assert rows_are_unique(project)


def test_a_requeued_task_goes_on_where_it_was_ended(slurm: Cluster, project: Path, undisturbed: str) -> None:
    job = submit(slurm, project)
    wait_rows(project)
    running = [index for index, state in slurm.queue() if state == "RUNNING"]
    for index in running:
        slurm.call("scontrol", "requeue", f"{job}_{index}")
    slurm.let_go()
    slurm.wait_empty()
    assert running
    assert "restarts=1\n" in logs(project)
    assert merged(project) == undisturbed
    assert rows_are_unique(project)


@pytest.mark.slow
def test_a_task_that_others_preempt_goes_on(project: Path, undisturbed: str, tmp_path: Path) -> None:
    more = (
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "PartitionName=urgent Nodes=n[1-2] PriorityTier=9 MaxTime=INFINITE State=UP",
    )
    urgent = tmp_path / "urgent.sbatch"
    urgent.write_text(
        "#!/bin/bash\n#SBATCH --partition=urgent --exclusive --nodes=2 --output=/dev/null\nsleep 1\n"
    )
    with cluster(tmp_path / "preempting", 2, *more) as preempting:
        submit(preempting, project)
        wait_rows(project)
        # Else the tasks, of a tiny model, may be done before they are preempted. Slurm wakes whom it ends.
        stop_tasks(str(lock_of(project)))
        preempting.call("sbatch", str(urgent))
        until = time.monotonic() + 60
        while "DUE TO PREEMPTION" not in logs(project):
            assert time.monotonic() < until, (preempting.queue(), logs(project))
            time.sleep(0.1)
        preempting.let_go()
        preempting.wait_empty()
    assert "ended by SIGTERM" in logs(project)
    assert "restarts=1\n" in logs(project)
    assert merged(project) == undisturbed
    assert rows_are_unique(project)


@pytest.mark.slow
def test_a_task_that_hangs_until_its_time_limit_goes_on(
    slurm: Cluster, project: Path, undisturbed: str
) -> None:
    job = submit(slurm, project)
    wait_rows(project)
    stop_tasks(str(lock_of(project)))
    # The shortest limit that Slurm takes is a minute; of a job that runs, it can be moved.
    for index, _ in slurm.queue():
        slurm.try_call("scontrol", "update", f"JobId={job}_{index}", "EndTime=now+1second")
    slurm.wait_empty(120.0)
    assert "DUE TO TIME LIMIT" in logs(project)
    told = json.loads(ask(slurm, "status", lock_of(project), "--json").stdout)
    assert "ended by SIGTERM" in [task["why"] for task in told["tasks"] if task["state"] == "failed"]
    # This cluster keeps none; what sacct says is said, and it knows all our options.
    assert told["notes"] == ["Slurm's accounts are not known: sacct: Slurm accounting storage is disabled"]
    submit(slurm, project)
    slurm.wait_empty()
    assert merged(project) == undisturbed
    assert rows_are_unique(project)


def test_a_task_ends_by_itself_before_its_time_limit(slurm: Cluster, project: Path, undisturbed: str) -> None:
    job = submit(slurm, project)
    wait_rows(project)
    # The shortest limit that Slurm knows is a minute; our own tool is told a shorter one.
    slurm.call("scancel", job)
    slurm.wait_empty()
    script = next(project.glob("runs/*/*/slurm/1.sbatch"))
    text = script.read_text()
    assert '--task "${tasks[$SLURM_ARRAY_TASK_ID]}"' in text
    script.write_text(text.rstrip("\n") + " --max-time 2s\n")
    slurm.call("sbatch", str(script))
    slurm.wait_empty()
    assert "the time is up" in logs(project)
    submit(slurm, project)
    slurm.wait_empty()
    assert merged(project) == undisturbed


def test_a_task_whose_lock_was_made_anew_is_refused(slurm: Cluster, project: Path) -> None:
    slurm.call("scontrol", "update", "partitionname=all", "state=down")
    try:
        submit(slurm, project)
        spec = project / "specs/tiny.toml"
        spec.write_text(spec.read_text().replace("answer_tokens = 120", "answer_tokens = 90"))
        made = qlock("resolve", spec)
        assert made.returncode == 0, made.stderr
    finally:
        slurm.call("scontrol", "update", "partitionname=all", "state=up")
    slurm.wait_empty()
    seen = ask(slurm, "status", run_of(project))
    assert seen.returncode == 5
    assert seen.stderr.count("refused: the lock changed since this task was queued") == 3


def test_a_spec_resolved_by_a_job_has_the_lock_of_one_resolved_here(slurm: Cluster, project: Path) -> None:
    wanted = lock_of(project).read_bytes()
    lock_of(project).unlink()
    spec = project / "specs" / "tiny.toml"
    done = ask(slurm, "resolve", spec, "--on-slurm")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{lock_of(project)}\n"
    assert lock_of(project).read_bytes() == wanted
    assert "Added model tiny2" in done.stderr
    lock_of(project).write_bytes(wanted.replace(b"tiny", b"tina"))
    done = ask(slurm, "resolve", spec, "--on-slurm", "--check")
    assert done.returncode == 6
    assert "the lock was edited by hand" in done.stderr


def test_a_job_that_resolves_ends_with_its_waiting(slurm: Cluster, project: Path) -> None:
    spec = project / "specs" / "tiny.toml"
    spec.write_text(spec.read_text().replace("echo restarts", "sleep 60; echo restarts"))
    waiting = start("resolve", spec, "--on-slurm", SLURM_CONF=slurm.environment["SLURM_CONF"])
    slurm.wait_running()
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(60) == 130
    slurm.wait_empty(30.0)


def test_the_node_says_when_the_time_ends(slurm: Cluster, project: Path, tmp_path: Path) -> None:
    dry = ask(slurm, "submit", lock_of(project), "--dry-run")
    assert dry.returncode == 0, dry.stderr
    script = tmp_path / "end.sbatch"
    text, _, _ = dry.stdout.rpartition("exec ")
    log = tmp_path / "%a.log"
    script.write_text(
        "\n".join(
            f'#SBATCH --output="{log}"' if line.startswith("#SBATCH --output") else line
            for line in text.split("\n")
        )
        + 'echo "$SLURM_JOB_END_TIME"\n'
    )
    before = time.time()
    slurm.call("sbatch", str(script))
    slurm.wait_empty()
    for index in range(3):
        end_s = int((tmp_path / f"{index}.log").read_text().split()[-1])
        assert before + 590 < end_s < time.time() + 600
