"""Which run a path means, and how far each of its tasks is."""

from __future__ import annotations

from pathlib import Path

import pytest

from qlock.errors import AbsentError
from qlock.flows.tasks import TaskSeen, place_of, task_folder, tasks_seen
from tests.fakes.project import Project


def test_a_lock_means_its_run_and_so_does_the_folder(project: Project) -> None:
    project.run(task="A@plain")
    by_lock = place_of(project.world, project.lock_path)
    by_folder = place_of(project.world, by_lock.folder.path)
    assert by_folder.folder.path == by_lock.folder.path
    assert (by_folder.lock, by_folder.data) == (by_lock.lock, by_lock.data)


def test_a_lock_that_never_ran_has_a_place_too(project: Project) -> None:
    place = place_of(project.world, project.lock_path)
    assert not place.folder.path.exists()
    assert [(seen.id, seen.done, seen.items) for seen in tasks_seen(project.world, place)] == [
        ("A@plain", 0, 11),
        ("B@plain", 0, 11),
    ]


def test_other_folders_are_no_runs(project: Project, tmp_path: Path) -> None:
    with pytest.raises(AbsentError) as caught:
        place_of(project.world, tmp_path)
    assert str(caught.value) == f"`{tmp_path}` is no folder of a run: it has no `lock.toml`"


def test_a_task_that_was_stopped_counts_its_items(project: Project) -> None:
    project.script.kills["q05"] = 8
    project.run(task="A@plain")
    project.run(task="B@plain")
    place = place_of(project.world, project.lock_path)
    first, second = tasks_seen(project.world, place)
    assert (first.is_sealed, first.done) == (False, 10)
    assert second == TaskSeen(id="B@plain", index=1, done=10, items=11, is_sealed=False)
    assert task_folder(project.world, place.folder, "A@plain").record("digits.A@plain.1") is not None
