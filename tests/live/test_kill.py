"""kill -9 at any moment, also inside the seal: the resumed run ends with the answers of an undisturbed one."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.live.tiny_project import answers_digest, lock_of, make, qlock, run_of, start

pytestmark = pytest.mark.live

KILLS = int(os.environ.get("QLOCK_KILLS", "4"))
"""How many runs are killed; the full table is made with more."""


@pytest.fixture(scope="module")
def resolved(tmp_path_factory: pytest.TempPathFactory, llama_bin: Path) -> Path:
    folder = tmp_path_factory.mktemp("kill")
    spec = make(folder)
    made = qlock("resolve", spec)
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture(scope="module")
def undisturbed(resolved: Path) -> tuple[str, float]:
    began = time.monotonic()
    ran = qlock("run", lock_of(resolved))
    elapsed_s = time.monotonic() - began
    assert ran.returncode == 0, ran.stderr
    digest = answers_digest(run_of(resolved))
    shutil.rmtree(resolved / "runs")
    return digest, elapsed_s


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_killed_run_ends_with_the_same_answers(
    resolved: Path, undisturbed: tuple[str, float], seed: int, tmp_path: Path
) -> None:
    digest, elapsed_s = undisturbed
    folder = tmp_path / "project"
    shutil.copytree(resolved, folder)
    chance = random.Random(seed)
    left_behind: set[int] = set()
    for _ in range(3):
        process = start("run", lock_of(folder))
        time.sleep(chance.uniform(0.0, elapsed_s))
        left_behind |= _family(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
    ran = qlock("run", lock_of(folder))
    assert ran.returncode == 0, ran.stderr
    run = run_of(folder)
    assert answers_digest(run) == digest
    assert qlock("verify", run).returncode == 0
    _wait_gone(left_behind)


def _family(pid: int) -> set[int]:
    try:
        return {child.pid for child in psutil.Process(pid).children(recursive=True)}
    except psutil.NoSuchProcess:
        return set()


def _wait_gone(pids: set[int]) -> None:
    deadline = time.monotonic() + 30
    while (alive := {pid for pid in pids if _runs(pid)}) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive, "processes were left behind"


def _runs(pid: int) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and any("qlock" in part for part in process.cmdline())
    except psutil.NoSuchProcess:
        return False


def test_sigterm_ends_a_run_cleanly_and_says_so(
    resolved: Path, undisturbed: tuple[str, float], tmp_path: Path
) -> None:
    digest, elapsed_s = undisturbed
    folder = tmp_path / "project"
    shutil.copytree(resolved, folder)
    process = start("run", lock_of(folder))
    time.sleep(elapsed_s * 0.6)
    family = _family(process.pid)
    process.terminate()
    assert process.wait(60) in (143, 0)  # 0: it was done before the signal came
    _wait_gone(family)
    assert qlock("run", lock_of(folder)).returncode == 0
    assert answers_digest(run_of(folder)) == digest
