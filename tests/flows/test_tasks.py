"""Which run a path means, and how far each of its tasks is."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import UNSET, UnsetType

from qlock.errors import AbsentError, InputError
from qlock.flows.tasks import TaskSeen, place_of, planned, prepared, task_folder, tasks_seen
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
    assert [
        (seen.id, seen.done, seen.items)
        for seen in tasks_seen(project.world, place, planned(place, shard_items=UNSET))
    ] == [
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
    first, second = tasks_seen(project.world, place, planned(place, shard_items=UNSET))
    assert (first.is_sealed, first.done) == (False, 10)
    assert second == TaskSeen(id="B@plain", index=1, done=10, items=11, is_sealed=False)
    assert task_folder(project.world, place.folder, "A@plain").record("digits.A@plain.1") is not None


# Shards


def ids(project: Project, *, shard_items: int | UnsetType = UNSET, queued: tuple[str, ...] = ()) -> list[str]:
    place = place_of(project.world, project.lock_path)
    return [task.id for task in planned(place, shard_items=shard_items, queued=queued)]


A3 = ["A@plain@1of3", "A@plain@2of3", "A@plain@3of3"]


def test_points_are_cut_as_asked_until_they_are_queued_or_begun(project: Project) -> None:
    assert ids(project) == ["A@plain", "B@plain"]
    assert ids(project, shard_items=11) == ["A@plain", "B@plain"]
    assert ids(project, shard_items=6) == ["A@plain@1of2", "A@plain@2of2", "B@plain@1of2", "B@plain@2of2"]
    assert ids(project, shard_items=6, queued=("A@plain@1of3", "B@plain")) == [*A3, "B@plain"]
    project.run(task="A@plain@2of3")
    assert ids(project, queued=("A@plain@1of4",)) == [*A3, "B@plain"]


def test_the_spec_beside_the_lock_says_how_long_a_task_is(project: Project) -> None:
    assert place_of(project.world, project.lock_path).shard_items is UNSET
    project.write_spec(lambda text: f"{text}\n[slurm]\nshard_items = 4\n")
    assert place_of(project.world, project.lock_path).shard_items == 4
    project.write_spec(lambda text: f"{text}\n[slurm]\nshard_items = 0\n")
    assert place_of(project.world, project.lock_path).shard_items is UNSET


def test_what_is_no_task_of_the_lock_is_passed_over(project: Project) -> None:
    whole = project.run(task="B@plain").folder
    assert whole is not None
    for name in ("C@plain", "A@plain@1of12", "A@plain@1of999999999", "notes"):
        (whole.parent / name).mkdir()
        assert ids(project) == ["A@plain", "B@plain"]
        (whole.parent / name).rmdir()


def test_a_point_is_not_begun_in_two_ways(project: Project) -> None:
    project.run(task="A@plain@1of3")
    place = place_of(project.world, project.lock_path)
    tasks = place.folder.path / "tasks"
    for id_, cut in (("A@plain", "in 3 shards"), ("A@plain@1of2", "in 3 shards")):
        with pytest.raises(InputError) as caught:
            project.run(task=id_)
        assert str(caught.value) == f"got the task `{id_}`, and `A@plain` was begun {cut}"
        assert caught.value.hint == (
            f"list its tasks with `qlock plan`, or remove their folders in `{tasks}` to begin anew"
        )
    assert [path.name for path in tasks.iterdir()] == ["A@plain@1of3"]
    (tasks / "A@plain").mkdir()
    with pytest.raises(InputError) as caught:
        ids(project)
    assert str(caught.value) == "`A@plain` was begun as one task and in 3 shards"
    assert caught.value.hint == f"remove the folders of one of them in `{tasks}`"


def test_the_folder_of_a_run_and_of_a_task_in_it(project: Project) -> None:
    data = project.lock_path.read_bytes()
    path = place_of(project.world, project.lock_path).folder.path
    assert prepared(project.world, path, data, task=None).path == path
    task = planned(place_of(project.world, path), shard_items=6)[1]
    assert prepared(project.world, path, data, task=task).path == path / "tasks/A@plain@2of2"
    assert (path / "tasks/A@plain@2of2/lock.toml").read_bytes() == data


def test_a_shard_counts_its_own_items(project: Project) -> None:
    project.script.kills["q05"] = 8
    project.run(task="A@plain@2of3")
    project.run(task="A@plain@3of3")
    place = place_of(project.world, project.lock_path)
    seen = tasks_seen(project.world, place, planned(place, shard_items=UNSET))
    assert [(task.id, task.done, task.items, task.is_sealed) for task in seen] == [
        ("A@plain@1of3", 0, 3, False),
        ("A@plain@2of3", 3, 4, False),
        ("A@plain@3of3", 4, 4, True),
        ("B@plain", 0, 11, False),
    ]
