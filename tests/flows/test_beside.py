from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from qlock.errors import AbsentError, InputError, QlockError
from qlock.flows.beside import build_folder, spec_of
from qlock.flows.locks import read_lock_file
from tests.fakes.project import Project


def with_a_build(project: Project) -> None:
    """Name a build below the project as the engine, and leave another one where the engine's own would be."""
    shutil.copytree(project.script.folder, project.path / "build")
    (project.script.folder / "libllama.so").write_bytes(b"code of another libllama")
    project.write_spec(lambda text: text + '\n[engine]\npath = "build"\n')


def test_the_spec_of_a_lock_lies_where_its_first_line_says(project: Project) -> None:
    lock, data = read_lock_file(project.world, project.lock_path)
    spec = spec_of(project.world, project.lock_path, data)
    assert spec is not None
    assert spec.name == lock.name
    (project.path / "specs/small.toml").unlink()
    assert spec_of(project.world, project.lock_path, data) is None


def test_a_spec_that_is_none_is_an_error(project: Project) -> None:
    _, data = read_lock_file(project.world, project.lock_path)
    project.write("specs/small.toml", "name = ")
    with pytest.raises(InputError) as caught:
        spec_of(project.world, project.lock_path, data)
    assert str(caught.value) == "small.toml: not TOML: Invalid value (at line 1, column 8)"
    assert project.run(frozen=True).state == "sealed"


@pytest.mark.parametrize(
    "put, kind, said",
    [
        (lambda path: path.mkdir(), InputError, "spec `{path}` is a folder, expected a regular file"),
        (os.mkfifo, InputError, "spec `{path}` is a FIFO, expected a regular file"),
        (lambda path: path.symlink_to("nowhere"), AbsentError, "spec `{path}` is not there"),
        (
            lambda path: path.symlink_to(path),
            InputError,
            "spec `{path}` is a symbolic link that leads back to itself",
        ),
    ],
    ids=["folder", "FIFO", "dangling link", "link to itself"],
)
def test_what_is_no_file_is_not_taken_for_no_spec(
    project: Project, put: Callable[[Path], None], kind: type[QlockError], said: str
) -> None:
    path = project.path / "specs/small.toml"
    path.unlink()
    put(path)
    with pytest.raises(kind) as caught:
        project.run()
    assert str(caught.value) == said.format(path=path)
    assert project.run(frozen=True).state == "sealed"


def test_a_name_that_cannot_be_looked_up_is_an_error(project: Project) -> None:
    long = "x" * 300
    label = f"# Written by qlock. Do not edit; renew with: qlock resolve specs/{long}.toml\n"
    path = project.path / f"specs/{long}.toml"
    with pytest.raises(InputError) as caught:
        spec_of(project.world, project.lock_path, label.encode())
    assert str(caught.value) == f"spec `{path}` has too long a name"


def test_a_folder_of_specs_that_is_a_file_holds_none(project: Project) -> None:
    _, data = read_lock_file(project.world, project.lock_path)
    shutil.rmtree(project.path / "specs")
    (project.path / "specs").write_bytes(b"")
    assert spec_of(project.world, project.lock_path, data) is None


def test_a_build_is_looked_up_from_the_project(project: Project) -> None:
    _, data = read_lock_file(project.world, project.lock_path)
    assert build_folder(spec_of(project.world, project.lock_path, data), project.lock_path) is None
    assert build_folder(None, project.lock_path) is None
    with_a_build(project)
    spec = spec_of(project.world, project.lock_path, data)
    assert build_folder(spec, project.lock_path) == project.path / "build"
    assert build_folder(spec, project.path / "specs/small.toml") == project.path / "build"


def test_a_run_takes_the_build_that_the_spec_beside_its_lock_names(tmp_path: Path) -> None:
    project = Project(tmp_path)
    with_a_build(project)
    lock = project.lock().lock
    assert lock.engine[0].file[0].size_bytes == len(b"code of libllama.so")
    assert project.run().state == "sealed"
    (project.path / "specs/small.toml").unlink()
    elsewhere = project.run(repeat_lock=True)
    assert elsewhere.state == "refused"
    (finding,) = elsewhere.findings
    assert finding.places == tuple(
        f"engine.llama-cpp-python.file.libllama.so.{name}" for name in ("size_bytes", "sha256", "blake3")
    )
    assert project.run(engine=project.path / "build").state == "sealed"
