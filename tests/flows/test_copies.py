"""Scratch copies: loaded instead of what they were copied of, held against the lock, and gone when the run is."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qlock.errors import AbsentError
from qlock.flows import copies
from qlock.flows.copies import PREFIX
from qlock.flows.refusal import FindingsError
from qlock.world import digests
from tests.fakes.project import Killed, Project, folder_of, kill_after, tiny_gguf, undisturbed, wheres


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "scratch"
    made.mkdir()
    return made


def refused(project: Project, place: Path, kind: type[Exception] = AbsentError) -> Any:
    with pytest.raises(kind) as caught:
        project.run(scratch=place)
    return caught.value


def test_the_engine_loads_the_copies_and_the_answers_are_the_same(project: Project, place: Path) -> None:
    wanted = undisturbed(project)
    shutil.rmtree(project.runs)
    seen: list[tuple[str, int]] = []

    def look(_: str) -> None:
        seen.extend(
            (path.relative_to(path.parents[1]).as_posix(), stat.S_IMODE(path.stat().st_mode))
            for path in place.glob(f"{PREFIX}*/*/*.gguf")
        )

    project.script.before_item = look
    project.script.loaded_paths.clear()
    ran = project.run(scratch=place)
    assert (ran.state, ran.answers_digest) == ("sealed", wanted)
    assert set(seen) == {("A/a.gguf", 0o400), ("B/b.gguf", 0o400)}
    assert {path.parents[2] for path in project.script.loaded_paths} == {place}
    assert list(place.iterdir()) == []


def test_a_task_copies_its_own_model_alone(project: Project, place: Path) -> None:
    project.script.loaded_paths.clear()
    assert project.run(task="B@plain", scratch=place).state == "sealed"
    assert {path.name for path in project.script.loaded_paths} == {"b.gguf"}
    assert {path.parents[2] for path in project.script.loaded_paths} == {place}


def test_what_is_not_as_locked_is_not_copied(project: Project, place: Path) -> None:
    project.write("models/a.gguf", tiny_gguf(9))
    ran = project.run(scratch=place)
    assert ran.state == "refused"
    assert list(place.iterdir()) == []


def test_what_is_allowed_to_differ_is_copied_as_it_is(project: Project, place: Path) -> None:
    project.write("models/a.gguf", tiny_gguf(9))
    project.script.loaded_paths.clear()
    ran = project.run(scratch=place, allow=("model.A", "point.A@plain"))
    assert ran.state == "sealed"
    assert {path.parents[2] for path in project.script.loaded_paths} == {place}


def test_bytes_that_changed_on_the_way_are_a_finding(
    project: Project, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = digests.copy_file

    def swap(path: Path, target: Path) -> object:
        project.write("models/a.gguf", tiny_gguf(9))
        return whole(path, target)

    monkeypatch.setattr(digests, "copy_file", swap)
    error = refused(project, place, FindingsError)
    (finding,) = error.findings
    assert (finding.where, finding.why) == (
        "model.A.file.a.gguf.blake3",
        "the file changed before or while it was copied to the scratch folder",
    )
    assert list(place.iterdir()) == []
    assert not list(project.runs.glob("*/facts.json"))


def test_room_is_looked_for_first(project: Project, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "free_bytes", lambda _: 100)
    error = refused(project, place)
    assert (project.path / "models/a.gguf").stat().st_size == 576
    assert str(error) == f"the models need 1.2 kB, and `{place}` has 100 B left"
    assert error.hint == (
        "free some space there, give another folder with --scratch, or run one task at a time with --task"
    )
    assert list(place.iterdir()) == []


def test_a_folder_that_is_not_there(project: Project, place: Path) -> None:
    error = refused(project, place / "nowhere")
    assert str(error) == f"nothing can be put into `{place}/nowhere`: no such file or directory"


def test_a_copy_that_was_touched_is_a_finding(project: Project, place: Path) -> None:
    def touch(_: str) -> None:
        for path in place.glob(f"{PREFIX}*/A/a.gguf"):
            path.chmod(0o600)
            path.write_bytes(path.read_bytes())

    project.script.before_item = touch
    ran = project.run(scratch=place)
    assert (ran.state, wheres(ran)) == ("refused", [("after-the-run", "model.A.file.a.gguf.touched")])
    project.script.before_item = lambda _: None
    assert project.run(scratch=place).measured == 11


def test_an_origin_may_change_once_it_was_copied(project: Project, place: Path) -> None:
    def swap(_: str) -> None:
        project.write("models/a.gguf", tiny_gguf(9))

    project.script.before_item = swap
    assert project.run(scratch=place).state == "sealed"


def test_what_a_killed_run_measured_is_kept_and_its_copies_go(project: Project, place: Path) -> None:
    wanted = undisturbed(project)
    shutil.rmtree(project.runs)
    kill_after(project, 4, scratch=place)
    project.script.asked.clear()
    ran = project.run(scratch=place)
    assert (ran.state, ran.measured, ran.answers_digest) == ("sealed", 17, wanted)
    assert len(folder_of(project, ran).facts().segment) == 2


def test_a_killed_run_whose_origin_changed_since_measures_again(project: Project, place: Path) -> None:
    kill_after(project, 4, scratch=place)
    project.write("models/a.gguf", tiny_gguf(1))
    assert project.run(scratch=place).measured == 22


def test_copies_of_a_process_that_is_gone_are_removed(project: Project, place: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from qlock.world.scratch import scratch\n"
        f"print(scratch({PREFIX!r}, place=Path({str(place)!r})), flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    orphan = Path(process.stdout.readline().strip())
    (orphan / "A").mkdir()
    (orphan / "A" / "a.gguf").write_bytes(b"x")
    # As long as it lives, they do not meet.
    assert project.run(task="A@plain", scratch=place).state == "sealed"
    assert orphan.exists()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert project.run(task="B@plain", scratch=place).state == "sealed"
    assert list(place.iterdir()) == []


def test_a_run_that_is_killed_in_the_midst_of_copying_leaves_no_half_file(
    project: Project, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(digests, "write_all", kill)
    refused(project, place, Killed)  # type: ignore[arg-type]  # stands for a kill
    assert list(place.iterdir()) == []
