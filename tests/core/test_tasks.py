"""What one process does of a lock, and how the items of a point are cut into shards."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from qlock.core.lock import Lock
from qlock.core.plan import Job, jobs
from qlock.core.record import Part
from qlock.core.tasks import (
    Task,
    cut_of_id,
    cuts_of_length,
    items_of_points,
    lock_of_task,
    task_named,
    tasks,
)
from qlock.errors import InputError
from tests.fakes.documents import a_digest, a_kld_lock, a_lock
from tests.strategies import strategy

POINT = "F16@f16kv"
ITEMS = 46
"""Of a point of that lock: 40 windows and two repeats of three questions."""


def asked(task: Task) -> list[tuple[str, int, int]]:
    """Every job of a task with the places of its first item and of the one behind its last."""
    return [
        (job.name, *((0, job.items) if job.part is UNSET else (job.part.start, job.part.stop)))
        for job in task.jobs
    ]


def test_a_task_is_the_jobs_of_one_point() -> None:
    found = tasks(a_lock())
    assert [job for task in found for job in task.jobs] == list(jobs(a_lock()))
    assert [(task.index, {job.point for job in task.jobs}) for task in found] == [
        (index, {task.id}) for index, task in enumerate(found)
    ]
    assert [(task.point, task.shards) for task in found] == [(task.id, 1) for task in found]
    assert [task.items for task in found] == list(items_of_points(a_lock()).values()) == [ITEMS, ITEMS]


def test_the_digest_of_a_task_is_that_of_its_jobs() -> None:
    first, second = tasks(a_lock())
    model = msgspec.structs.replace(a_lock().model[0], tensors_digest=a_digest("other"))
    changed_first, changed_second = tasks(
        msgspec.structs.replace(a_lock(), model=(model, *a_lock().model[1:]))
    )
    assert changed_first.digest != first.digest
    assert changed_second == second


def test_a_long_point_is_cut_and_its_jobs_with_it() -> None:
    found = tasks(a_lock(), {POINT: 3})
    assert [(task.id, task.index, task.point, task.shards, task.items) for task in found] == [
        (f"{POINT}@1of3", 0, POINT, 3, 15),
        (f"{POINT}@2of3", 1, POINT, 3, 15),
        (f"{POINT}@3of3", 2, POINT, 3, 16),
        ("Q4_K_M@f16kv", 3, "Q4_K_M@f16kv", 1, ITEMS),
    ]
    assert [asked(task) for task in found[:3]] == [
        [(f"wikitext.{POINT}.1", 0, 15)],
        [(f"wikitext.{POINT}.1", 15, 30)],
        [(f"wikitext.{POINT}.1", 30, 40), (f"orders.{POINT}.1", 0, 3), (f"orders.{POINT}.2", 0, 3)],
    ]
    # What a shard has all of is a job like any other.
    assert [job.part for job in found[2].jobs] == [Part(start=30, stop=40), UNSET, UNSET]
    assert len({task.digest for task in found}) == 4


def test_a_part_of_a_job_is_the_same_job() -> None:
    whole, part = jobs(a_lock())[0], tasks(a_lock(), {POINT: 3})[1].jobs[0]
    assert msgspec.structs.replace(part, part=UNSET) == whole
    assert (part.asked, part.places, whole.asked, whole.places) == (15, slice(15, 30), 40, slice(None))


@pytest.mark.parametrize("most, cut", [(1, 46), (15, 4), (16, 3), (23, 2), (45, 2), (46, 1), (9999, 1)])
def test_no_shard_is_longer_than_asked(most: int, cut: int) -> None:
    cuts = cuts_of_length(a_lock(), most)
    assert cuts == {POINT: cut, "Q4_K_M@f16kv": cut}
    assert max(task.items for task in tasks(a_lock(), cuts)) <= most


@pytest.mark.parametrize(
    "id_, cut",
    [
        ("A@s", ("A@s", 1)),
        ("A@s@2of5", ("A@s", 5)),
        ("A@2of5", ("A@2of5", 1)),
        ("A@2of5@1of2", ("A@2of5", 2)),
        ("A@s@0of5", ("A@s@0of5", 1)),
        ("A@s@2of5\n", ("A@s@2of5\n", 1)),
        ("", ("", 1)),
    ],
)
def test_an_id_says_how_its_point_is_cut(id_: str, cut: tuple[str, int]) -> None:
    assert cut_of_id(id_) == cut


@pytest.mark.parametrize(
    "id_",
    [
        "x@y",
        "../../x",
        f"{POINT}@1of47",
        f"{POINT}@3of2",
        f"{POINT}@1of999999999",
        f"{POINT}@1of1",
        "x@y@1of2",
    ],
)
def test_a_task_that_is_not_there_is_said(id_: str) -> None:
    with pytest.raises(InputError) as caught:
        task_named(a_lock(), id_)
    assert str(caught.value) == f"got task `{id_}`, expected one of the lock"
    assert caught.value.hint == "list them with `qlock plan LOCK`"


def test_an_empty_part_is_none() -> None:
    with pytest.raises(ValueError) as caught:
        Part(start=3, stop=3)
    assert str(caught.value) == "stop: got `3`, expected more than start `3`"


def test_the_lock_of_a_task_keeps_what_its_jobs_are_held_against() -> None:
    for task in tasks(a_kld_lock()):
        part = lock_of_task(a_kld_lock(), task)
        assert jobs(part) == task.jobs
        assert {point.name for point in part.point} == {task.id, "F16@f16kv"}
        assert [task.id] == [seen.id for seen in tasks(part)]


# ---------------------------------------------------------------- laws


@given(st.integers(1, ITEMS), st.integers(1, ITEMS))
def test_shards_ask_every_item_once_and_in_order(first: int, second: int) -> None:
    whole = {job.name: job for job in jobs(a_lock())}
    places: dict[str, list[int]] = {name: [] for name in whole}
    found = tasks(a_lock(), {POINT: first, "Q4_K_M@f16kv": second})
    for task in found:
        for job in task.jobs:
            places[job.name] += range(job.items)[job.places]
    assert places == {name: list(range(job.items)) for name, job in whole.items()}
    assert len(found) == first + second
    assert max(task.items for task in found if task.point == POINT) - min(
        task.items for task in found if task.point == POINT
    ) in (0, 1)


@given(st.integers(1, ITEMS))
def test_a_task_is_found_by_its_id(cut: int) -> None:
    for task in tasks(a_lock(), {POINT: cut, "Q4_K_M@f16kv": cut}):
        found = task_named(a_lock(), task.id)
        assert msgspec.structs.replace(found, index=task.index) == task


@given(st.integers(1, ITEMS))
def test_the_lock_of_a_task_has_its_jobs(cut: int) -> None:
    for task in tasks(a_lock(), {POINT: cut}):
        part = lock_of_task(a_lock(), task)
        mine = {job.name: job for job in jobs(part)}
        assert all(mine[job.name].digest == job.digest for job in task.jobs)
        assert [model.name for model in part.model] == [task.point.partition("@")[0]]
        assert {suite.name for suite in part.suite} == {job.suite for job in task.jobs}
        assert {anchor.model for anchor in part.anchor} <= {part.model[0].name}
        assert {anchor.suite for anchor in part.anchor} <= {suite.name for suite in part.suite}
    assert sum(len(lock_of_task(a_lock(), task).anchor) for task in tasks(a_lock())) == len(a_lock().anchor)


@settings(max_examples=25)
@given(strategy(Lock))
def test_the_tasks_of_a_lock_are_its_jobs(lock: Lock) -> None:
    found: list[Job] = [job for task in tasks(lock) for job in task.jobs]
    assert found == list(jobs(lock))
