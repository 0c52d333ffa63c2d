"""Temporary folders and their orphans."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from qlock.world.scratch import scratch

PREFIX = "qlock-test-"
ONE = f"from qlock.world.scratch import scratch; print(scratch({PREFIX!r}), flush=True); input()"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def other_process(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process with a folder of its own, and the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", ONE],
        env={"TMPDIR": str(place), "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_only_this_user_can_enter(place: Path) -> None:
    folder = scratch(PREFIX)
    assert folder.parent == place
    assert folder.name.startswith(PREFIX)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_stays(place: Path) -> None:
    dead, orphan = other_process(place)
    living, kept = other_process(place)
    (orphan / "work").mkdir()
    (orphan / "work" / "log").write_text("last words")
    mine = scratch(PREFIX)
    assert orphan.exists()
    end(dead)
    try:
        again = scratch(PREFIX)
        assert sorted(place.iterdir()) == sorted([kept, mine, again])
    finally:
        end(living)


@pytest.mark.parametrize("owner", [None, b"", b"{", b"{}"])
def test_a_folder_that_names_no_process_stays(place: Path, owner: bytes | None) -> None:
    strange = place / f"{PREFIX}strange"
    strange.mkdir()
    if owner is not None:
        (strange / "owner.json").write_bytes(owner)
    scratch(PREFIX)
    assert strange.exists()


def test_links_files_and_other_names_are_left_alone(
    place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    process, orphan = other_process(place)
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "folder"
    orphan.rename(elsewhere)
    end(process)
    link, other = place / f"{PREFIX}link", place / "another-name"
    link.symlink_to(elsewhere)
    (place / f"{PREFIX}file").write_bytes(b"")
    other.mkdir()
    (other / "owner.json").write_bytes((elsewhere / "owner.json").read_bytes())
    scratch(PREFIX)
    assert link.is_symlink()
    assert (elsewhere / "owner.json").exists()
    assert other.exists()
    assert (place / f"{PREFIX}file").exists()


def test_the_folder_of_another_user_stays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process, orphan = other_process(place)
    end(process)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    scratch(PREFIX)
    assert orphan.exists()
