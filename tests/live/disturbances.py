"""What is done to the tasks of a small project to disturb them: kills, signals, full disks, and what Slurm does to jobs.

`benchmarks/chaos.py` draws from these events at random, `test_chaos.py` takes some of them.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.live.slurm_cluster import Cluster
from tests.live.tiny_project import lock_of, qlock

ROOT = Path(__file__).resolve().parents[2]

POINTS = ("tiny@s", "tiny2@s")
SHARD_ITEMS = 70
"""Of the 128 items of a point, in seeds whose points are cut."""
_PAGE_BYTES = 4096
_FULL_BYTES = 24_000
"""The longest file where files are limited: records are longer, locks and headers are not."""


@dataclass
class Trial:
    """One seed's project, and what is drawn for it."""

    folder: Path
    chance: random.Random
    elapsed_s: float
    """Of one undisturbed task."""
    slurm: Cluster | None
    is_cut: bool = False
    """Whether its points are done as shards."""
    events: list[str] = field(default_factory=list)
    struck: list[str] = field(default_factory=list)
    """Those of the events that met something at work."""
    family: set[tuple[int, float]] = field(default_factory=set)
    """Every process that was seen, by its number and the moment of its start."""
    disk: ExitStack = field(default_factory=ExitStack)
    """What has to be unmounted."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Ids of all tasks."""
        if not self.is_cut:
            return POINTS
        return tuple(f"{point}@{number}of2" for point in POINTS for number in (1, 2))

    def start(self, *words: str, file_bytes: int | None = None) -> subprocess.Popen[bytes]:
        """The command line, left running."""
        process = subprocess.Popen(
            [sys.executable, "-m", "qlock", *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if file_bytes is not None:
            psutil.Process(process.pid).rlimit(psutil.RLIMIT_FSIZE, (file_bytes, file_bytes))
        return process

    def task(self, *words: str, file_bytes: int | None = None) -> subprocess.Popen[bytes]:
        """One of the tasks, left running."""
        return self.task_named(self.chance.choice(self.tasks), *words, file_bytes=file_bytes)

    def task_named(self, id_: str, *words: str, file_bytes: int | None = None) -> subprocess.Popen[bytes]:
        """This task, left running."""
        return self.start("run", str(lock_of(self.folder)), "--task", id_, *words, file_bytes=file_bytes)

    def wait_a_while(self, process: subprocess.Popen[bytes]) -> list[psutil.Process]:
        """Some time within that of a task; gives the children that there are then."""
        time.sleep(self.chance.uniform(0.0, self.elapsed_s))
        self.strike(did=process.poll() is None)
        return self.children(process)

    def strike(self, *, did: bool) -> None:
        """Note whether the event met something at work."""
        if did:
            self.struck.append(self.events[-1])

    def children(self, process: subprocess.Popen[bytes]) -> list[psutil.Process]:
        """What a process has started so far."""
        try:
            found = psutil.Process(process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        for child in found:
            try:
                self.family.add((child.pid, child.create_time()))
            except psutil.NoSuchProcess:
                continue
        return found

    def finish(self) -> None:
        """Every task to its end, whatever it takes."""
        for id_ in self.tasks:
            done = qlock("run", lock_of(self.folder), "--task", id_)
            assert done.returncode == 0, (id_, done.returncode, done.stderr)


def kill_qlock(trial: Trial) -> None:
    process = trial.task()
    trial.wait_a_while(process)
    process.kill()
    process.wait()


def kill_engine(trial: Trial) -> None:
    process = trial.task()
    for child in trial.wait_a_while(process):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait(120)


def signalled(number: signal.Signals) -> Callable[[Trial], None]:
    def event(trial: Trial) -> None:
        process = trial.task()
        trial.wait_a_while(process)
        process.send_signal(number)
        process.wait(120)

    return event


def time_limit(trial: Trial) -> None:
    process = trial.task("--max-time", "1s")
    trial.strike(did=process.wait(120) == 5)


def file_limit(trial: Trial) -> None:
    process = trial.task(file_bytes=_FULL_BYTES)
    trial.strike(did=process.wait(120) == 8)


def disk_full(trial: Trial) -> None:
    """The runs lie on a file system with a few pages left; then it is given room again."""
    runs = trial.folder / "runs"
    if not runs.is_mount():
        aside = trial.folder / "runs.aside"
        runs.mkdir(exist_ok=True)
        runs.rename(aside)
        runs.mkdir()
        _mount("-t", "tmpfs", "-o", "size=64m", "chaos", str(runs))
        trial.disk.callback(subprocess.run, ["umount", str(runs)], check=True)
        shutil.copytree(aside, runs, dirs_exist_ok=True)
        shutil.rmtree(aside)
    seen = os.statvfs(runs)
    used = (seen.f_blocks - seen.f_bfree) * seen.f_frsize
    _mount("-o", f"remount,size={used + _PAGE_BYTES * trial.chance.randrange(2, 40)}", str(runs))
    process = trial.task()
    trial.strike(did=process.wait(120) == 8)
    _mount("-o", "remount,size=64m", str(runs))


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


def why_no_disk() -> str:
    """Why no small file system can be mounted; empty when one can."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return "only root can mount a small file system"
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "chaos", place],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            return done.stderr.strip() or "mount failed"
        subprocess.run(["umount", place], check=True)
    return ""


def two_at_once(trial: Trial) -> None:
    id_ = trial.chance.choice(trial.tasks)
    processes = [trial.task_named(id_), trial.task_named(id_)]
    # The second finds the folder held (8), or everything done.
    trial.strike(did=8 in [process.wait(120) for process in processes])


def kill_in_seal(trial: Trial) -> None:
    process = trial.task()
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        grades = list(trial.folder.glob("runs/*/*/tasks/*/grades/*"))
        if grades and not list(trial.folder.glob("runs/*/*/tasks/*/seal.json")):
            break
        time.sleep(0.0005)
    time.sleep(trial.chance.uniform(0.0, 0.01))
    trial.strike(did=process.poll() is None)
    trial.children(process)
    process.kill()
    process.wait()


def kill_in_merge(trial: Trial) -> None:
    trial.finish()
    process = trial.start("merge", str(lock_of(trial.folder)))
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        if list(trial.folder.glob("runs/*/*/merging.json")):
            break
        time.sleep(0.0005)
    time.sleep(trial.chance.uniform(0.0, 0.03))
    trial.strike(did=process.poll() is None)
    process.kill()
    process.wait()


def in_slurm(disturb: Callable[[Trial, Cluster, str], None]) -> Callable[[Trial], None]:
    """Queue the tasks, wait until one runs, disturb it, and wait until the queue is empty."""

    def event(trial: Trial) -> None:
        assert trial.slurm is not None
        cut = ("--shard-items", str(SHARD_ITEMS)) if trial.is_cut else ()
        said = qlock("submit", lock_of(trial.folder), *cut, SLURM_CONF=trial.slurm.environment["SLURM_CONF"])
        assert said.returncode == 0, said.stderr
        job = said.stdout.strip()
        if not job:  # everything was done before
            return
        trial.slurm.wait_running()
        time.sleep(trial.chance.uniform(0.0, trial.elapsed_s))
        trial.strike(did=any(state == "RUNNING" for _, state in trial.slurm.queue()))
        disturb(trial, trial.slurm, job)
        trial.slurm.let_go()
        trial.slurm.wait_empty(180.0)

    return event


def scancel(trial: Trial, slurm: Cluster, job: str) -> None:
    slurm.call("scancel", f"{job}_{trial.chance.randrange(len(trial.tasks))}")


def requeue(_: Trial, slurm: Cluster, job: str) -> None:
    for index, state in slurm.queue():
        if state == "RUNNING":
            slurm.try_call("scontrol", "requeue", f"{job}_{index}")


def drain(trial: Trial, slurm: Cluster, _: str) -> None:
    slurm.call("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=chaos")
    time.sleep(trial.chance.uniform(0.0, 1.0))
    slurm.call("scontrol", "update", "NodeName=n1", "State=RESUME")


def stop_tasks(lock: str) -> set[tuple[int, float]]:
    """Stop every task of a lock in whatever it does (SIGSTOP); gives their numbers and the moments of their starts."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if lock in words and "--task" in words:
            for one in (process, *process.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    found.add((one.pid, one.create_time()))
                    one.suspend()
    return found


def limit_reached(trial: Trial, slurm: Cluster, job: str) -> None:
    """What runs hangs, stopped in whatever it does, until Slurm ends it at its time limit."""
    running = [index for index, state in slurm.queue() if state == "RUNNING"]
    trial.family |= stop_tasks(str(lock_of(trial.folder)))
    for index in running:
        slurm.try_call("scontrol", "update", f"JobId={job}_{index}", "EndTime=now+1second")


LOCAL: dict[str, Callable[[Trial], None]] = {
    "kill -9 qlock": kill_qlock,
    "kill -9 engine": kill_engine,
    "SIGTERM": signalled(signal.SIGTERM),
    "SIGUSR1": signalled(signal.SIGUSR1),
    "time limit": time_limit,
    "file size limit": file_limit,
    "two at once": two_at_once,
    "kill in the seal": kill_in_seal,
    "kill in the merge": kill_in_merge,
}
DISK: dict[str, Callable[[Trial], None]] = {"disk full": disk_full}
SLURM: dict[str, Callable[[Trial], None]] = {
    "slurm: scancel": in_slurm(scancel),
    "slurm: requeue": in_slurm(requeue),
    "slurm: drain, resume": in_slurm(drain),
    "slurm: time limit": in_slurm(limit_reached),
}
