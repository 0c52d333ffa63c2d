"""Two clones in two folders, under other locales, zones and hash seeds, resolve to the same lock bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.tiny_project import lock_of, make, qlock

pytestmark = pytest.mark.live


def test_two_clones_give_the_same_lock(tmp_path: Path, llama_bin: Path) -> None:
    locks = []
    surroundings = (
        {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C"},
        {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8"},
    )
    for name, environment in zip(("one", "an other/ünï folder"), surroundings, strict=True):
        folder = tmp_path / name
        spec = make(folder)
        made = qlock("resolve", spec, cwd=tmp_path, **environment)
        assert made.returncode == 0, made.stderr
        locks.append(lock_of(folder))
    assert locks[0].name == locks[1].name
    assert locks[0].read_bytes() == locks[1].read_bytes()
    again = qlock("resolve", "--check", tmp_path / "one" / "specs" / "tiny.toml")
    assert (again.returncode, again.stdout) == (0, "")


def test_a_lock_moved_to_another_folder_runs_unchanged(tmp_path: Path, llama_bin: Path) -> None:
    spec = make(tmp_path / "made")
    assert qlock("resolve", spec).returncode == 0
    moved = tmp_path / "elsewhere" / "lock.toml"
    moved.parent.mkdir()
    moved.write_bytes(lock_of(tmp_path / "made").read_bytes())
    alone = qlock("run", moved)
    assert alone.returncode == 8, alone.stderr
    with_files = qlock("run", moved, "--models", tmp_path / "made")
    assert with_files.returncode == 0, with_files.stderr
