"""Temporary folders and their orphans."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from qlock.errors import AbsentError
from qlock.world.scratch import free_bytes, scratch

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


def lacking(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    def fails(self: Path, *rest: object, **more: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, name, fails)


@pytest.mark.parametrize("name", ["write_bytes", "mkdir", "touch"])
def test_no_room_is_said_in_one_line_and_leaves_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with monkeypatch.context() as patched:
        lacking(patched, name, errno.ENOSPC)
        with pytest.raises(AbsentError) as caught:
            scratch(PREFIX, folders=("work",), files=("log",))
    assert str(caught.value) == (
        f"nothing can be put into the temporary folder `{place}`: no space left on device"
    )
    assert caught.value.hint == "free some space there, or set TMPDIR to a folder that has some"
    assert list(place.iterdir()) == []


def test_a_temporary_folder_that_is_not_there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(place / "nowhere"))
    with pytest.raises(AbsentError) as caught:
        scratch(PREFIX)
    assert str(caught.value) == (
        f"nothing can be put into the temporary folder `{place}/nowhere`: no such file or directory"
    )


def test_another_place_is_kept_to(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    folder = scratch(PREFIX, place=other)
    assert (folder.parent, list(place.iterdir())) == (other, [])
    with pytest.raises(AbsentError) as caught:
        scratch(PREFIX, place=other / "nowhere")
    assert (str(caught.value), caught.value.hint) == (
        f"nothing can be put into `{other}/nowhere`: no such file or directory",
        "",
    )


def test_free_bytes_are_those_of_the_disk(place: Path) -> None:
    seen = os.statvfs(place)
    assert abs(free_bytes(place) - seen.f_bavail * seen.f_frsize) < 1 << 30
    with pytest.raises(AbsentError) as caught:
        free_bytes(place / "nowhere")
    assert str(caught.value) == f"nothing can be put into `{place}/nowhere`: no such file or directory"


def test_what_is_asked_for_is_in_it(place: Path) -> None:
    folder = scratch(PREFIX, folders=("work", "home"), files=("log",))
    assert sorted(path.name for path in folder.iterdir()) == ["home", "log", "owner.json", "work"]
    assert (folder / "log").read_bytes() == b""
    assert folder.parent == place
