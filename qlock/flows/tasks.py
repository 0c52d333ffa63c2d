"""The tasks of a run: which run a path means, into which tasks it is cut, and what each task has done.

A task's folder is ``tasks/ID/`` in the folder of the run. It has a lock, records, facts and a seal of its own, so that
no two processes ever write to one file. How a point is cut into shards is settled by the first task of it that begins:
from then on its folder says so.

Does not live here: doing a task (``flows.run``), bringing tasks together (``flows.merge``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Count
from qlock.core.lock import Lock
from qlock.core.plan import Job
from qlock.core.record import is_done
from qlock.core.tasks import Task, cut_of_id, cuts_of_length, items_of_points, tasks
from qlock.errors import AbsentError, InputError, QlockError
from qlock.flows.beside import spec_of
from qlock.flows.fitting import locked_items
from qlock.flows.layout import lock_of_run, runs_folder
from qlock.flows.locks import read_lock_file
from qlock.flows.run_folder import TASKS, RunFolder, folder_of_lock, items_name
from qlock.world.interface import World


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A run that may be spread over tasks."""

    folder: RunFolder
    """Of the whole; it need not be there yet."""
    lock: Lock
    data: bytes
    """The lock's bytes."""
    shard_items: int | UnsetType = UNSET
    """Most items of a task, as the spec beside the lock has it."""


class TaskSeen(Base, frozen=True, kw_only=True):
    """How far a task is, by what lies in its folder."""

    id: str
    index: Count
    done: Count
    """Items with an answer, in the task's own folder or in the records of the whole run."""
    items: Count
    is_sealed: bool
    """All of them, checked after the last."""


def place_of(world: World, path: Path, runs: Path | None = None) -> Place:
    """The run that a path means: of a lock, or the folder of a run itself.

    Raises:
        InputError: The lock is unreadable or edited.
        AbsentError: There is no such file, or the folder is none of a run.
    """
    if path.is_dir():
        folder = RunFolder(world, path)
        if not (path / "lock.toml").exists():
            raise AbsentError(f"`{path}` is no folder of a run: it has no `lock.toml`")
        lock, data = folder.lock()
        shard_items = _shard_items(world, lock_of_run(path, lock), data)
        return Place(folder=folder, lock=lock, data=data, shard_items=shard_items)
    lock, data = read_lock_file(world, path)
    folder = RunFolder(world, folder_of_lock(runs or runs_folder(path, lock), data))
    return Place(folder=folder, lock=lock, data=data, shard_items=_shard_items(world, path, data))


def _shard_items(world: World, lock_path: Path | None, data: bytes) -> int | UnsetType:
    """Of a spec that cannot be read nothing is known; it says no more than how what is open would be cut."""
    if lock_path is None:
        return UNSET
    with contextlib.suppress(QlockError):
        spec = spec_of(world, lock_path, data)
        return UNSET if spec is None else spec.slurm.shard_items
    return UNSET


def task_folder(world: World, whole: RunFolder, id_: str) -> RunFolder:
    """The folder of a task; it need not be there yet."""
    return RunFolder(world, whole.path / TASKS / id_)


def prepared(world: World, path: Path, data: bytes, *, task: Task | None) -> RunFolder:
    """The folder of a run, or of a task in it, made and with the lock in it.

    Raises:
        InputError: Another lock lies there, or the task's point was begun in other shards.
        AbsentError: It cannot be written.
    """
    folder = RunFolder(world, path)
    folder.prepare(data)
    if task is None:
        return folder
    begun = _cuts_begun(folder).get(task.point, task.shards)
    if begun != task.shards:
        raise InputError(
            f"got the task `{task.id}`, and `{task.point}` was begun {in_shards(begun)}",
            hint=f"list its tasks with `qlock plan`, or remove their folders in `{path / TASKS}` to begin anew",
        )
    folder = task_folder(world, folder, task.id)
    folder.prepare(data)
    return folder


def _cuts_begun(folder: RunFolder) -> dict[str, int]:
    """Point to the number of its shards, of those of which a task was begun.

    Raises:
        InputError: One was begun in two ways.
    """
    place = folder.path / TASKS
    found: dict[str, int] = {}
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        point, count = cut_of_id(path.name)
        if found.setdefault(point, count) != count:
            raise InputError(
                f"`{point}` was begun {in_shards(found[point])} and {in_shards(count)}",
                hint=f"remove the folders of one of them in `{place}`",
            )
    return found


def unfinished(world: World, place: Place) -> tuple[str, ...]:
    """The tasks of a run that were begun and are not done."""
    folders = place.folder.path / TASKS
    return tuple(
        path.name
        for path in (sorted(folders.iterdir()) if folders.is_dir() else ())
        if cut_of_id(path.name)[0] in {point.name for point in place.lock.point}
        and RunFolder(world, path).seal() is None
    )


def in_shards(count: int) -> str:
    """``as one task``, ``in 5 shards``."""
    return "as one task" if count == 1 else f"in {count} shards"


def planned(place: Place, *, shard_items: int | UnsetType, queued: Iterable[str] = ()) -> tuple[Task, ...]:
    """The tasks of a run: each point cut as it was begun, else as it was queued, else as it is asked.

    Args:
        place: The run.
        shard_items: Most items of a task; unset: a point is one task.
        queued: Tasks that were handed to a scheduler.

    Raises:
        InputError: A point was begun in two ways.
    """
    asked = {} if shard_items is UNSET else cuts_of_length(place.lock, shard_items)
    cuts = asked | dict(map(cut_of_id, queued)) | _cuts_begun(place.folder)
    items = items_of_points(place.lock)
    return tasks(place.lock, {point: cut for point, cut in cuts.items() if cut <= items.get(point, 0)})


def tasks_seen(world: World, place: Place, every: Iterable[Task]) -> tuple[TaskSeen, ...]:
    """How far tasks are.

    Raises:
        InputError: A record is damaged.
    """
    return tuple(_seen(place.folder, task_folder(world, place.folder, task.id), task) for task in every)


def _seen(whole: RunFolder, folder: RunFolder, task: Task) -> TaskSeen:
    is_sealed = folder.seal() is not None
    done = task.items if is_sealed else sum(_done(whole, folder, job) for job in task.jobs)
    return TaskSeen(id=task.id, index=task.index, done=done, items=task.items, is_sealed=is_sealed)


def _done(whole: RunFolder, folder: RunFolder, job: Job) -> int:
    """How many items of a task's job have an answer: the whole run may have been begun without tasks."""
    of_all = _answered(whole, job)
    if of_all and job.part is not UNSET:
        of_all &= _asked(whole, job)
    return len(_answered(folder, job) | of_all)


def _answered(folder: RunFolder, job: Job) -> set[str]:
    record = folder.record(job.name)
    return set() if record is None else {row.item for row in record.rows if is_done(row)}


def _asked(whole: RunFolder, job: Job) -> set[str]:
    """The items of a shard's part of a job; none where the file of what was asked is gone."""
    digest = locked_items(whole.lock()[0], job)
    if not (whole.path / items_name(digest)).is_file():
        return set()
    return {item.id for item in whole.items(digest)[job.places]}
