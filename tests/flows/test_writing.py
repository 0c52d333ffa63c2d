"""Documents are put in place with their folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qlock.errors import AbsentError, UsageError
from qlock.flows.writing import check_output, write_file
from tests.fakes.world import fake_world


def test_folders_are_made_and_old_bytes_replaced(tmp_path: Path) -> None:
    world = fake_world(tmp_path)
    path = tmp_path / "a" / "b" / "lock.toml"
    write_file(world, path, b"one")
    write_file(world, path, b"two")
    assert path.read_bytes() == b"two"
    assert [entry.name for entry in path.parent.iterdir()] == ["lock.toml"]


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "locks").write_bytes(b"")
    with pytest.raises(AbsentError) as caught:
        write_file(fake_world(tmp_path), tmp_path / "locks" / "x.toml", b"")
    assert str(caught.value) == f"cannot make the folder `{tmp_path}/locks`: `{tmp_path}/locks` is no folder"


OURS = re.compile(rb"ours:")


def why_not(tmp_path: Path, name: str) -> str:
    with pytest.raises(UsageError) as caught:
        check_output(fake_world(tmp_path), tmp_path / name, OURS)
    return str(caught.value)


def test_what_was_written_before_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"ours: old")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "other").write_bytes(b"not ours: x")
    for name in ("old", "empty", "new", "folder/new"):
        check_output(fake_world(tmp_path), tmp_path / name, OURS)
    assert (
        why_not(tmp_path, "other")
        == f"`{tmp_path}/other` is already there, and this command did not write it"
    )


def test_a_link_that_leads_back_to_itself_is_none_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    check_output(fake_world(tmp_path), tmp_path / "loop", OURS)


def test_nothing_is_written_in_the_folder_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "run/record").mkdir(parents=True)
    (tmp_path / "run/lock.toml").write_bytes(b"")
    (tmp_path / "run/record/a.jsonl").write_bytes(b"ours: a")
    for name in ("run/new", "run/record/a.jsonl", "run/deep/er/new"):
        assert why_not(tmp_path, name) == f"`{tmp_path}/{name}` lies in the folder of a run"
