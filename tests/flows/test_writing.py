"""Documents are put in place with their folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from qlock.errors import AbsentError
from qlock.flows.writing import write_file
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
    assert str(caught.value) == f"cannot make the folder `{tmp_path}/locks`: File exists"
