from __future__ import annotations

from pathlib import Path

import pytest

from qlock.flows.layout import (
    lock_label,
    lock_of_run,
    lock_path,
    project_of,
    project_of_run,
    resolving_folder,
    runs_folder,
    spec_beside,
    spec_label,
)
from tests.fakes.documents import a_lock, a_spec


@pytest.mark.parametrize(
    "path, project, label",
    [
        ("/p/specs/x.toml", "/p", "specs/x.toml"),
        ("/p/locks/x@cpu.toml", "/p", "x@cpu.toml"),
        ("/p/x.toml", "/p", "x.toml"),
        ("/p/specs/deep/x.toml", "/p/specs/deep", "x.toml"),
    ],
)
def test_a_project_is_the_folder_above_specs_and_locks(path: str, project: str, label: str) -> None:
    assert (project_of(Path(path)), spec_label(Path(path))) == (Path(project), label)


def test_a_lock_lies_beside_its_specs_and_leads_back() -> None:
    spec_path = Path("/p/specs/ladder.toml")
    path = lock_path(spec_path, a_spec(), "cpu-amd-1a-02")
    assert path == Path("/p/locks/ladder@cpu-amd-1a-02.toml")
    assert spec_beside(path, spec_label(spec_path)) == spec_path


def test_a_spec_outside_of_specs_has_its_lock_below_its_own_folder() -> None:
    spec_path = Path("/home/x.toml")
    path = lock_path(spec_path, a_spec(), "cpu")
    assert path == Path("/home/locks/ladder@cpu.toml")
    assert spec_beside(path, spec_label(spec_path)) == spec_path


def test_runs_of_a_lock_lie_in_a_folder_of_its_name_and_device() -> None:
    lock = a_lock()
    assert runs_folder(Path("/p/locks/l.toml"), lock) == Path(f"/p/runs/{lock.name}@{lock.device[0].name}")


def test_a_run_leads_back_to_its_project() -> None:
    lock = a_lock()
    run = runs_folder(Path("/p/locks/l.toml"), lock) / "5d9a31c9"
    assert project_of_run(run, lock) == Path("/p")
    assert lock_of_run(run, lock) == Path(f"/p/locks/{lock.name}@{lock.device[0].name}.toml")


@pytest.mark.parametrize("path", ["/runs/5d9a31c9", "/5d9a31c9", "/p/runs/other@cpu/5d9a31c9"])
def test_a_run_elsewhere_has_no_project(path: str) -> None:
    assert project_of_run(Path(path), a_lock()) is None
    assert lock_of_run(Path(path), a_lock()) is None


def test_how_a_spec_was_resolved_lies_beside_its_runs() -> None:
    assert resolving_folder(Path("/p/specs/l.toml"), a_spec()) == Path("/p/runs/resolve/ladder")


def test_a_lock_is_called_as_people_type_it_in_the_project() -> None:
    assert lock_label(Path("/p/locks/x@cpu.toml")) == "locks/x@cpu.toml"
    assert lock_label(Path("/p/x@cpu.toml")) == "x@cpu.toml"
