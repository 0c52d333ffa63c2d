"""Chaos: tasks that are killed, ended, cut off and requeued at random, and are still measured once and the same.

Each seed takes a fresh copy of a small project of two real, tiny models, disturbs its tasks some times, lets them end,
merges them, and holds the run against an undisturbed one. "Struck" counts the events that met something at work. Good is a table whose last four columns are 0: answers
lost, answers twice, other digests, processes left behind. A full disk is stood for by a limit on the size of files.
Events that need Slurm are drawn where Slurm can be started (root, and Debian's slurm-wlm); without it they are left out,
which the first line says.

    python benchmarks/chaos.py [--seeds N] [--first N]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402 - after the path

from tests.fakes.tiny_models import DENSE, write_tiny  # noqa: E402 - after the path
from tests.live.slurm_cluster import Cluster, cluster, why_none  # noqa: E402 - after the path
from tests.live.tiny_project import answers_digest, lock_of, make, qlock, run_of  # noqa: E402 - after the path

TASKS = ("tiny@s", "tiny2@s")
EVENTS_OF_A_SEED = 3
_FULL_BYTES = 24_000
"""The longest file while the disk is full: records are longer, locks and headers are not."""


@dataclass
class Trial:
    """One seed's project, and what is drawn for it."""

    folder: Path
    chance: random.Random
    elapsed_s: float
    """Of one undisturbed task."""
    slurm: Cluster | None
    events: list[str] = field(default_factory=list)
    struck: list[str] = field(default_factory=list)
    """Those of the events that met something at work."""
    family: set[tuple[int, float]] = field(default_factory=set)
    """Every process that was seen, by its number and the moment of its start."""

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
        return self.task_named(self.chance.choice(TASKS), *words, file_bytes=file_bytes)

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
        for id_ in TASKS:
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


def disk_full(trial: Trial) -> None:
    process = trial.task(file_bytes=_FULL_BYTES)
    trial.strike(did=process.wait(120) == 8)


def two_at_once(trial: Trial) -> None:
    id_ = trial.chance.choice(TASKS)
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
        said = qlock("submit", lock_of(trial.folder), SLURM_CONF=trial.slurm.environment["SLURM_CONF"])
        assert said.returncode == 0, said.stderr
        job = said.stdout.strip()
        if not job:  # everything was done before
            return
        trial.slurm.wait_running()
        time.sleep(trial.chance.uniform(0.0, trial.elapsed_s))
        trial.strike(did=any(state == "RUNNING" for _, state in trial.slurm.queue()))
        disturb(trial, trial.slurm, job)
        trial.slurm.let_go()
        trial.slurm.wait_empty()

    return event


def scancel(trial: Trial, slurm: Cluster, job: str) -> None:
    slurm.call("scancel", f"{job}_{trial.chance.randrange(len(TASKS))}")


def requeue(_: Trial, slurm: Cluster, job: str) -> None:
    for index, state in slurm.queue():
        if state == "RUNNING":
            slurm.try_call("scontrol", "requeue", f"{job}_{index}")


def drain(trial: Trial, slurm: Cluster, _: str) -> None:
    slurm.call("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=chaos")
    time.sleep(trial.chance.uniform(0.0, 1.0))
    slurm.call("scontrol", "update", "NodeName=n1", "State=RESUME")


LOCAL: dict[str, Callable[[Trial], None]] = {
    "kill -9 qlock": kill_qlock,
    "kill -9 engine": kill_engine,
    "SIGTERM": signalled(signal.SIGTERM),
    "SIGUSR1": signalled(signal.SIGUSR1),
    "time limit": time_limit,
    "disk full": disk_full,
    "two at once": two_at_once,
    "kill in the seal": kill_in_seal,
    "kill in the merge": kill_in_merge,
}
SLURM: dict[str, Callable[[Trial], None]] = {
    "slurm: scancel": in_slurm(scancel),
    "slurm: requeue": in_slurm(requeue),
    "slurm: drain, resume": in_slurm(drain),
}


@dataclass(frozen=True)
class Found:
    """What one seed came to."""

    events: tuple[str, ...]
    struck: tuple[str, ...]
    lost: int
    twice: int
    other_digest: bool
    left_behind: int

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.twice or self.other_digest or self.left_behind)


@dataclass(frozen=True)
class Ground:
    """What all seeds begin with."""

    folder: Path
    """A project, resolved and not run."""
    digest: str
    items: int
    elapsed_s: float


def ground(folder: Path) -> Ground:
    """The project, and what an undisturbed run of it gives."""
    spec = make(folder, items=60, answer_tokens=100)
    write_tiny(folder / "models" / "tiny2.gguf", msgspec.structs.replace(DENSE, seed=2))
    second = '[[model]]\nname = "tiny2"\nsource = "file:models/tiny2.gguf"\ntrained = false\n\n'
    spec.write_text(spec.read_text().replace("[[setting]]", f"{second}[[setting]]", 1))
    made = qlock("resolve", spec)
    assert made.returncode == 0, made.stderr
    begun = time.monotonic()
    ran = qlock("run", lock_of(folder))
    assert ran.returncode == 0, ran.stderr
    elapsed_s = (time.monotonic() - begun) / len(TASKS)
    digest = answers_digest(run_of(folder))
    items = sum(len(rows) for rows in _rows(folder).values())
    shutil.rmtree(folder / "runs")
    return Ground(folder=folder, digest=digest, items=items, elapsed_s=elapsed_s)


def tried(seed: int, start: Ground, folder: Path, slurm: Cluster | None) -> Found:
    """One seed, from its first disturbance to its seal."""
    shutil.copytree(start.folder, folder)
    trial = Trial(folder=folder, chance=random.Random(seed), elapsed_s=start.elapsed_s, slurm=slurm)
    events = LOCAL | (SLURM if slurm is not None else {})
    for name in trial.chance.choices(list(events), k=EVENTS_OF_A_SEED):
        trial.events.append(name)
        events[name](trial)
    trial.finish()
    done = qlock("merge", lock_of(folder))
    assert done.returncode == 0, done.stderr
    run = run_of(folder)
    verified = qlock("verify", run)
    assert verified.returncode == 0, verified.stderr
    rows = _rows(folder)
    names = sum(len(set(items)) for items in rows.values())
    return Found(
        events=tuple(trial.events),
        struck=tuple(trial.struck),
        lost=start.items - names,
        twice=sum(len(items) for items in rows.values()) - names,
        other_digest=answers_digest(run) != start.digest,
        left_behind=_left(trial.family),
    )


def _rows(folder: Path) -> dict[str, list[str]]:
    """Items of each record of the whole run."""
    found = {}
    for path in run_of(folder).glob("record/*.jsonl"):
        lines = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
        found[path.name] = [line["item"] for line in lines if line["kind"] == "row"]
    return found


def _left(family: set[tuple[int, float]]) -> int:
    until = time.monotonic() + 30
    while True:
        alive = 0
        for pid, began in family:
            try:
                process = psutil.Process(pid)
                alive += process.create_time() == began and process.status() != psutil.STATUS_ZOMBIE
            except psutil.NoSuchProcess:
                continue
        if not alive or time.monotonic() > until:
            return alive
        time.sleep(0.05)


def main() -> int:
    """Try the seeds and print the table; 1 unless every seed is good."""
    # Whoever ends this ends the cluster with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    found: dict[int, Found] = {}
    with tempfile.TemporaryDirectory(prefix="chaos-") as place, ExitStack() as stack:
        why = why_none()
        print(f"Slurm: {'left out: ' + why if why else 'a controller and two nodes of our own'}")
        slurm = None if why else stack.enter_context(cluster(Path(place) / "slurm"))
        start = ground(Path(place) / "ground")
        print(f"{start.items} items; a task takes {start.elapsed_s:.1f} s")
        for seed in range(asked.first, asked.first + asked.seeds):
            folder = Path(place) / str(seed)
            found[seed] = tried(seed, start, folder, slurm)
            if not found[seed].is_good:
                print(f"seed {seed}: {found[seed]}")
            shutil.rmtree(folder)
    _print(found)
    return 0 if all(one.is_good for one in found.values()) else 1


def _print(found: dict[int, Found]) -> None:
    head = (
        f"{'event':<22}{'times':>6}{'struck':>8}{'seeds':>7}{'lost':>6}{'twice':>7}{'digest':>8}{'left':>6}"
    )
    print(head)
    times = Counter(name for one in found.values() for name in one.events)
    struck = Counter(name for one in found.values() for name in one.struck)
    for name in (*sorted(times), "all"):
        with_it = [one for one in found.values() if name == "all" or name in one.events]
        count, met = (times.total(), struck.total()) if name == "all" else (times[name], struck[name])
        lost, twice = sum(one.lost for one in with_it), sum(one.twice for one in with_it)
        digests, left = sum(one.other_digest for one in with_it), sum(one.left_behind for one in with_it)
        print(f"{name:<22}{count:>6}{met:>8}{len(with_it):>7}{lost:>6}{twice:>7}{digests:>8}{left:>6}")


if __name__ == "__main__":
    sys.exit(main())
