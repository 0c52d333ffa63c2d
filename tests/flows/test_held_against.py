"""What stands beside a point: once for all jobs that need the same, and another thing for those that need another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.kld import KLD, add_kld
from tests.fakes.project import Project, sealed, undisturbed


@pytest.fixture
def both_ways(tmp_path: Path) -> Project:
    """A project that measures the same distance from the reference beside and from a file."""
    project = Project(tmp_path)
    more = KLD.replace('"distance"', '"stored"') + "stored = true\n"
    more += KLD.replace('"distance"', '"third"')
    add_kld(project, more=more).lock()
    project.script.references.clear()
    return project


def test_what_is_there_is_not_put_there_again(both_ways: Project) -> None:
    ran = sealed(both_ways)
    (file,) = (path.name for path in (both_ways.runs / "references").glob("*.kld"))
    # For A its own bytes serve both ways; B goes from the point to the file and back.
    assert both_ways.script.references == ["a.gguf", "a.gguf", file, "a.gguf"]
    found = {(score.suite, score.point): score.score.value for score in ran.scores if score.distance}
    assert {value for (_, point), value in found.items() if point == "A@plain"} == {0.0}
    assert found["distance", "B@plain"] == found["third", "B@plain"]


def test_a_restart_puts_there_what_the_job_needs(both_ways: Project) -> None:
    expected = undisturbed(both_ways)
    both_ways.script.kills["window-0002"] = 2
    assert both_ways.run(repeat_lock=True).answers_digest == expected


def test_a_suite_without_a_reference_needs_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    sealed(project)
    assert project.script.references == []
