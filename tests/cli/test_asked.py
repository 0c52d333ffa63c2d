"""A spec given for a lock, or a lock for a spec, is said by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qlock.cli import asked
from qlock.cli.asked import Duration, folder_asked, lock_asked, run_asked, runs_asked, spec_asked
from qlock.errors import AbsentError, InputError
from qlock.flows.locks import read_lock_file
from qlock.world.interface import World
from tests.fakes.project import Project

SPEC = Path("specs/small.toml")
LOCK = Path("locks/small@cpu-amd-1a-02.toml")


def test_both_are_found_from_the_folder_that_one_is_in(locked: Project) -> None:
    assert spec_asked(locked.world, SPEC) == (locked.path / SPEC, "llama-cpp-python")
    lock, _ = read_lock_file(locked.world, locked.path / LOCK)
    assert lock_asked(locked.world, LOCK) == (locked.path / LOCK, lock)


@pytest.mark.parametrize("asked, file", [(spec_asked, SPEC), (lock_asked, LOCK)])
def test_what_a_link_leads_to_lies_in_its_own_project(
    locked: Project, tmp_path: Path, *, asked: Callable[[World, Path], tuple[Path, object]], file: Path
) -> None:
    whole = locked.path / file
    (tmp_path / "absolute.toml").symlink_to(whole)
    (tmp_path / "relative.toml").symlink_to(Path("work") / file)
    (tmp_path / "folder").symlink_to(whole.parent)
    for link in ("absolute.toml", "relative.toml", f"folder/{file.name}"):
        assert asked(locked.world, tmp_path / link)[0] == whole


def test_a_run_behind_a_link_lies_in_its_own_project(locked: Project, tmp_path: Path) -> None:
    (tmp_path / "last").symlink_to("work/runs/small/0123")
    assert run_asked(locked.world, tmp_path / "last") == locked.path / "runs" / "small" / "0123"


def test_a_folder_of_runs_is_found_from_the_folder_that_one_is_in(locked: Project) -> None:
    assert runs_asked(locked.world, Path("elsewhere")) == locked.path / "elsewhere"
    assert runs_asked(locked.world, None) is None


def test_a_spec_for_a_lock(locked: Project) -> None:
    with pytest.raises(InputError) as caught:
        lock_asked(locked.world, SPEC)
    assert str(caught.value) == "`specs/small.toml` is a spec, expected a lock"
    assert caught.value.hint == "make a lock of it with `qlock resolve specs/small.toml`"


def test_a_lock_for_a_spec(locked: Project) -> None:
    with pytest.raises(InputError) as caught:
        spec_asked(locked.world, LOCK)
    assert str(caught.value) == f"`{LOCK}` is a lock, expected the spec that it was made from"
    assert caught.value.hint == "its first line names the spec"


def test_a_folder_for_a_lock(locked: Project) -> None:
    with pytest.raises(InputError) as caught:
        lock_asked(locked.world, Path("locks"))
    assert str(caught.value) == "`locks` is a folder, expected a lock"


@pytest.mark.parametrize("asked", [spec_asked, lock_asked])
def test_nothing_there(locked: Project, asked: Callable[[World, Path], object]) -> None:
    with pytest.raises(AbsentError, match=r"^(spec|lock) `.*/none\.toml` is not there$"):
        asked(locked.world, Path("none.toml"))


def test_something_else_is_left_to_whoever_reads_it(locked: Project) -> None:
    locked.write("other.toml", "a = 1\n")
    with pytest.raises(InputError, match=r"^other\.toml: the key `spec_version` is missing$"):
        spec_asked(locked.world, Path("other.toml"))
    with pytest.raises(InputError, match=r"^other\.toml: the key `lock_version` is missing$"):
        lock_asked(locked.world, Path("other.toml"))


def test_a_folder_that_is_not_there_is_named_with_its_option(locked: Project) -> None:
    assert folder_asked(locked.world, Path("models"), "--models") == locked.path / "models"
    for path in (Path("nowhere"), SPEC):
        with pytest.raises(AbsentError) as caught:
            folder_asked(locked.world, path, "--models")
        assert str(caught.value) == f"--models: there is no folder `{path}`"


def test_the_folder_of_runs_is_asked_for_in_one_place() -> None:
    sources = Path(asked.__file__).parent.glob("*.py")
    assert [path.name for path in sources if '"--runs"' in path.read_text(encoding="utf-8")] == ["asked.py"]


@pytest.mark.parametrize(
    "text, duration_s", [("90s", 90.0), ("45m", 2_700.0), ("8h", 28_800.0), ("2d", 172_800.0)]
)
def test_a_duration_is_read_in_its_unit(text: str, duration_s: float) -> None:
    assert Duration().convert(text, None, None) == duration_s
