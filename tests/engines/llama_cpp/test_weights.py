"""Files of a model as llama.cpp's programs want them."""

from __future__ import annotations

from pathlib import Path

import pytest

from qlock.engines.interface import Load
from qlock.engines.llama_cpp.weights import identity, refuse_scattered
from qlock.errors import AbsentError, EngineError
from tests.engines.llama_cpp.conftest import Opener, changed


def shards(*folders: Path) -> tuple[str, ...]:
    """One shard in each folder."""
    paths = []
    for number, folder in enumerate(folders, start=1):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"m-{number:05}-of-{len(folders):05}.gguf"
        path.write_bytes(b"weights")
        paths.append(str(path))
    return tuple(paths)


def test_shards_in_two_folders_are_refused_before_a_server_starts(
    played: Opener, tmp_path: Path, temporary: Path
) -> None:
    engine = played()
    with pytest.raises(EngineError) as caught:
        engine.load(Load(weights=shards(tmp_path / "a", tmp_path / "b"), setting=changed()))
    assert caught.value.message == (
        f"got the shards of one model in `{tmp_path}/a` and `{tmp_path}/b`, expected one folder:"
        " llama-server looks for them beside the first"
    )
    assert caught.value.hint == "put the shards, or links to them, into one folder"
    assert engine.pids == ()


def test_links_into_a_cache_are_one_folder(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for shard in shards(tmp_path / "blob1", tmp_path / "blob2"):
        (snapshot / Path(shard).name).symlink_to(shard)
    refuse_scattered(sorted(map(str, snapshot.iterdir())))
    refuse_scattered(shards(tmp_path / "whole"))


def test_a_file_that_changes_is_another_one(tmp_path: Path) -> None:
    (path,) = shards(tmp_path)
    before = identity(path)
    assert identity(path) == before
    Path(path).write_bytes(b"other weights")
    assert identity(path) != before
    with pytest.raises(AbsentError) as caught:
        identity(str(tmp_path / "none"))
    assert caught.value.message == f"cannot read `{tmp_path}/none`: No such file or directory"
