"""Runs that were opened: a point as it lies in the folder, and whether two folders hold one run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from qlock.core.exchange import Right, Unparsable, Wrong
from qlock.core.record import line_bytes
from qlock.flows.opened import is_one_run, open_run, open_side
from qlock.flows.run_folder import RunFolder
from tests.fakes.project import Project, sealed

replace = msgspec.structs.replace


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path, items=12)
    project.lock()
    return project


def one_run(project: Project, a: Path, b: Path) -> bool:
    found = is_one_run(open_run(project.world, a), open_run(project.world, b))
    assert found == is_one_run(open_run(project.world, b), open_run(project.world, a))
    return found


def ran(project: Project) -> Path:
    """A run's folder; none begins in the second of another."""
    project.world.clock.sleep_s(60)
    folder = project.run(repeat_lock=True).folder
    assert folder is not None
    return folder


def test_a_side_is_what_lies_in_the_folder(project: Project) -> None:
    sealed(project)
    side = open_side(open_run(project.world, project.runs), "B@plain")
    assert (side.sealed, side.forced, side.point) == (True, (), "B@plain")
    assert [(name, len(sittings), sittings[0].items) for name, sittings in side.sittings.items()] == [
        ("digits", 1, 12),
        ("text", 1, 3),
    ]
    assert side.sittings["digits"][0].outcomes.keys() == {f"q{number:02d}" for number in range(12)}


def test_a_folder_a_link_to_it_and_a_copy_of_it_are_one_run(project: Project, tmp_path: Path) -> None:
    run = ran(project)
    (tmp_path / "link").symlink_to(run)
    shutil.copytree(run, tmp_path / "copy")
    for other in (run, tmp_path / "link", tmp_path / "copy"):
        assert one_run(project, run, other)


def test_a_copy_that_went_on_elsewhere_is_one_run_still(project: Project, tmp_path: Path) -> None:
    run = ran(project)
    shutil.copytree(run, tmp_path / "copy")
    folder = RunFolder(project.world, tmp_path / "copy")
    (folder.path / "seal.json").unlink()
    seen = folder.facts()
    later = replace(seen.segment[0], started_utc="2026-03-01T00:00:00+00:00", host_name="elsewhere")
    folder.write_facts(replace(seen, segment=(*seen.segment, later)))
    assert one_run(project, run, folder.path)


def test_a_repeat_is_another_run(project: Project) -> None:
    assert not one_run(project, ran(project), ran(project))


def test_runs_that_were_started_at_once_are_told_apart_by_their_times(
    project: Project, tmp_path: Path
) -> None:
    run = ran(project)
    shutil.copytree(run, tmp_path / "twin")
    twin = RunFolder(project.world, tmp_path / "twin")
    (twin.path / "seal.json").unlink()
    shutil.rmtree(twin.path / "grades")
    for path in (twin.path / "record").iterdir():
        record = twin.record(path.stem)
        assert record is not None
        assert record.closing is not None
        rows = [
            replace(row, times=replace(row.times, decode_s=row.times.decode_s + 1)) for row in record.rows
        ]
        path.write_bytes(b"".join(line_bytes(line) for line in (record.header, *rows, record.closing)))
    assert not one_run(project, run, twin.path)


def test_folders_without_an_answer_in_common_are_not_said_to_be_one(project: Project, tmp_path: Path) -> None:
    run = ran(project)
    shutil.copytree(run, tmp_path / "begun")
    (tmp_path / "begun/seal.json").unlink()
    shutil.rmtree(tmp_path / "begun/record")
    shutil.rmtree(tmp_path / "begun/grades")
    assert not one_run(project, run, tmp_path / "begun")


def test_what_graders_read_out_of_answers_is_there_too(tmp_path: Path) -> None:
    project = Project(tmp_path)
    call = {"name": "add", "arguments": {"n": 1}}
    rows = [
        {"id": f"q{n}", "prompt": f"{n}?", "expected": [call], "grader": {"kind": "tool_call"}}
        for n in range(3)
    ]
    project.write("tasks/digits.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    project.script.replies = {"q0": "add(n=1)", "q1": "add(n=2)", "q2": "add(n="}
    project.lock()
    folder = sealed(project).folder
    assert folder is not None
    (sitting,) = open_side(open_run(project.world, folder), "A@plain").sittings["digits"]
    assert sitting.reads == {"q0": {"add": {"n": "1"}}, "q1": {"add": {"n": "2"}}}
    assert [type(outcome) for outcome in sitting.outcomes.values()] == [Right, Wrong, Unparsable]
