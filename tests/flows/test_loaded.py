from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from qlock.errors import AbsentError
from qlock.flows.loaded import is_untouched, loaded_file, model_places
from tests.fakes.documents import a_lock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "a.gguf"
    made.write_bytes(b"first")
    os.utime(made, ns=(10**18, 10**18))
    return made


def test_a_file_is_known_by_what_the_file_system_says_of_it(path: Path) -> None:
    seen = path.stat()
    found = loaded_file("model.A.file.a.gguf", path)
    assert msgspec.structs.astuple(found) == (
        "model.A.file.a.gguf",
        seen.st_dev,
        seen.st_ino,
        5,
        10**18,
        seen.st_ctime_ns,
        1,
    )
    assert is_untouched(found, loaded_file("elsewhere", path))


def replaced(path: Path) -> None:
    new = path.with_name("new")
    new.write_bytes(path.read_bytes())
    os.utime(new, ns=(10**18, 10**18))
    new.replace(path)


def overwritten(path: Path) -> None:
    data = path.read_bytes()
    for bytes_ in (b"other", data):
        with path.open("r+b") as file:
            file.write(bytes_)
    os.utime(path, ns=(10**18, 10**18))


@pytest.mark.parametrize("touch", [replaced, overwritten], ids=["replaced", "overwritten"])
def test_a_file_that_has_its_bytes_and_times_again_was_touched(
    path: Path, touch: Callable[[Path], None]
) -> None:
    before = loaded_file("x", path)
    data = path.read_bytes()
    touch(path)
    after = loaded_file("x", path)
    assert (path.read_bytes(), after.mtime_ns, after.size_bytes) == (
        data,
        before.mtime_ns,
        before.size_bytes,
    )
    assert not is_untouched(before, after)


def test_another_number_of_the_device_is_the_same_file(path: Path) -> None:
    before = loaded_file("x", path)
    assert is_untouched(before, msgspec.structs.replace(before, device=before.device + 1))
    for name in ("inode", "size_bytes", "mtime_ns", "ctime_ns"):
        other = msgspec.structs.replace(before, **{name: getattr(before, name) + 1})
        assert not is_untouched(before, other)


def test_a_file_that_got_another_name_is_untouched_unless_it_was_written_to(path: Path) -> None:
    before = loaded_file("x", path)
    path.with_name("link").hardlink_to(path)
    linked = loaded_file("x", path)
    assert (linked.links, linked.ctime_ns == before.ctime_ns) == (2, False)
    assert is_untouched(before, linked)
    overwritten(path)
    assert not is_untouched(linked, loaded_file("x", path))
    path.write_bytes(b"other")
    assert not is_untouched(before, loaded_file("x", path))


def test_a_file_that_is_not_there_is_absent(tmp_path: Path) -> None:
    with pytest.raises(AbsentError) as caught:
        loaded_file("x", tmp_path / "none")
    assert str(caught.value) == f"file `{tmp_path}/none` is not there"


def test_places_are_those_of_findings() -> None:
    model = a_lock().model[0]
    assert model_places(model) == tuple(f"model.{model.name}.file.{file.name}" for file in model.file)
