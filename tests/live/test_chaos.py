"""A few seeds of `benchmarks/chaos.py`, and each rare moment once; `make chaos` tries them all."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from benchmarks.chaos import Ground, ground, tried
from tests.live.disturbances import DISK, LOCAL, Trial, why_no_disk
from tests.live.tiny_project import answers_digest, lock_of, qlock, run_of

pytestmark = pytest.mark.live

SEEDS = int(os.environ.get("QLOCK_CHAOS", "2"))


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, llama_bin: Path) -> Ground:
    return ground(tmp_path_factory.mktemp("chaos") / "ground")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_or_measured_twice(start: Ground, tmp_path: Path, seed: int) -> None:
    found = tried(seed, start, tmp_path / "project", None, LOCAL)
    assert found.is_good, found


@pytest.mark.parametrize(
    ("event", "attempts"),
    [
        # These moments last some milliseconds and are seen from outside: a busy machine can look away for so long.
        ("kill in the seal", 5),
        ("kill in the merge", 5),
        ("file size limit", 1),
        ("disk full", 1),
    ],
)
def test_the_rare_moments(start: Ground, tmp_path: Path, event: str, attempts: int) -> None:
    if event in DISK and (why := why_no_disk()):
        pytest.skip(why)
    assert any(has_struck(event, start, tmp_path / str(seed), seed) for seed in range(1, attempts + 1))


def has_struck(event: str, start: Ground, folder: Path, seed: int) -> bool:
    """Whether an event met its moment; whatever it met, the run is the same in the end."""
    shutil.copytree(start.folder, folder)
    trial = Trial(folder=folder, chance=random.Random(seed), elapsed_s=start.elapsed_s, slurm=None)
    trial.events.append(event)
    with trial.disk:
        (LOCAL | DISK)[event](trial)
        trial.finish()
        assert qlock("merge", lock_of(folder)).returncode == 0
        assert answers_digest(run_of(folder)) == start.digest
    return trial.struck == [event]
