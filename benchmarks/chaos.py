"""Chaos: tasks that are killed, ended, cut off and requeued at random, and are still measured once and the same.

Each seed takes a fresh copy of a small project of two real, tiny models, as two tasks or, every second seed, as four
shards. It disturbs them some times, lets them end, merges them, and holds the run against an undisturbed one. "Struck"
counts the events that met something at work. Good is a table whose last four columns are 0: answers lost, answers twice,
other digests, processes left behind.

Events that need Slurm are drawn where Slurm can be started (root, and Debian's slurm-wlm), and a disk is really full where
a small file system in memory can be mounted (root); without, they are left out, which the first lines say. Slurm looks at
time limits twice a minute, so that event is drawn more seldom than the others.

    python benchmarks/chaos.py [--seeds N] [--first N] [--event NAME …]
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402 - after the path

from tests.fakes.tiny_models import DENSE, write_tiny  # noqa: E402 - after the path
from tests.live.disturbances import (  # noqa: E402 - after the path
    DISK,
    LOCAL,
    POINTS,
    SLURM,
    Trial,
    why_no_disk,
)
from tests.live.slurm_cluster import Cluster, cluster, why_none  # noqa: E402 - after the path
from tests.live.tiny_project import answers_digest, lock_of, make, qlock, run_of  # noqa: E402 - after the path

EVENTS_OF_A_SEED = 3
_SELDOM = {"slurm: time limit": 0.35}
"""Weights of events that take long; of others 1."""


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
    elapsed_s = (time.monotonic() - begun) / len(POINTS)
    digest = answers_digest(run_of(folder))
    items = sum(len(rows) for rows in _rows(folder).values())
    shutil.rmtree(folder / "runs")
    return Ground(folder=folder, digest=digest, items=items, elapsed_s=elapsed_s)


def tried(
    seed: int, start: Ground, folder: Path, slurm: Cluster | None, events: dict[str, Callable[[Trial], None]]
) -> Found:
    """One seed, from its first disturbance to its seal."""
    shutil.copytree(start.folder, folder)
    trial = Trial(
        folder=folder,
        chance=random.Random(seed),
        elapsed_s=start.elapsed_s * (0.7 if seed % 2 == 1 else 1.0),
        slurm=slurm,
        is_cut=seed % 2 == 1,
    )
    weights = [_SELDOM.get(name, 1.0) for name in events]
    with trial.disk:
        for name in trial.chance.choices(list(events), weights, k=EVENTS_OF_A_SEED):
            trial.events.append(name)
            events[name](trial)
        trial.finish()
        return _found(trial, start)


def _found(trial: Trial, start: Ground) -> Found:
    """Merge the tasks and hold the run against the undisturbed one."""
    folder = trial.folder
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
    parser.add_argument("--event", action="append", help="draw from these events alone")
    asked = parser.parse_args()
    found: dict[int, Found] = {}
    with tempfile.TemporaryDirectory(prefix="chaos-") as place, ExitStack() as stack:
        why, no_disk = why_none(), why_no_disk()
        print(f"Slurm: {'left out: ' + why if why else 'a controller and two nodes of our own'}")
        print(f"full disk: {'left out: ' + no_disk if no_disk else 'a file system of a few pages'}")
        slurm = None if why else stack.enter_context(cluster(Path(place) / "slurm"))
        events = LOCAL | ({} if no_disk else DISK) | ({} if why else SLURM)
        if asked.event:
            events = {name: events[name] for name in asked.event}
        start = ground(Path(place) / "ground")
        print(f"{start.items} items; a task takes {start.elapsed_s:.1f} s")
        for seed in range(asked.first, asked.first + asked.seeds):
            folder = Path(place) / str(seed)
            found[seed] = tried(seed, start, folder, slurm, events)
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
