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


@pytest.mark.parametrize("event", ["kill in the seal", "kill in the merge", "file size limit", "disk full"])
def test_the_rare_moments(start: Ground, tmp_path: Path, event: str) -> None:
    if event in DISK and (why := why_no_disk()):
        pytest.skip(why)
    folder = tmp_path / "project"
    shutil.copytree(start.folder, folder)
    trial = Trial(folder=folder, chance=random.Random(1), elapsed_s=start.elapsed_s, slurm=None)
    trial.events.append(event)
    with trial.disk:
        (LOCAL | DISK)[event](trial)
        assert trial.struck == [event] or event.startswith("kill in the")
        trial.finish()
        assert qlock("merge", lock_of(folder)).returncode == 0
        assert answers_digest(run_of(folder)) == start.digest
