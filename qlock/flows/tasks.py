"""The tasks of a run: which run a path means, and what each task has done.

A task's folder is ``tasks/ID/`` in the folder of the run. It has a lock, records, facts and a seal of its own, so that
no two processes ever write to one file.

Does not live here: doing a task (``flows.run``), bringing tasks together (``flows.merge``).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from qlock.core.base import Base, Count
from qlock.core.lock import Lock
from qlock.core.plan import Task, tasks
from qlock.core.record import is_done
from qlock.errors import AbsentError
from qlock.flows.layout import runs_folder
from qlock.flows.resolve import read_lock_file
from qlock.flows.run_folder import TASKS, RunFolder, folder_of_lock
from qlock.world.interface import World


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A run that may be spread over tasks."""

    folder: RunFolder
    """Of the whole; it need not be there yet."""
    lock: Lock
    data: bytes
    """The lock's bytes."""


class TaskSeen(Base, frozen=True, kw_only=True):
    """How far a task is, by what lies in its folder."""

    id: str
    index: Count
    done: Count
    """Items with an answer."""
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
        return Place(folder=folder, lock=lock, data=data)
    lock, data = read_lock_file(world, path)
    folder = RunFolder(world, folder_of_lock(runs or runs_folder(path, lock), data))
    return Place(folder=folder, lock=lock, data=data)


def task_folder(world: World, whole: RunFolder, id_: str) -> RunFolder:
    """The folder of a task; it need not be there yet."""
    return RunFolder(world, whole.path / TASKS / id_)


def tasks_seen(world: World, place: Place) -> tuple[TaskSeen, ...]:
    """How far every task is.

    Raises:
        InputError: A record is damaged.
    """
    return tuple(_seen(task_folder(world, place.folder, task.id), task) for task in tasks(place.lock))


def _seen(folder: RunFolder, task: Task) -> TaskSeen:
    is_sealed = folder.seal() is not None
    done = task.items if is_sealed else sum(_done(folder, job.name) for job in task.jobs)
    return TaskSeen(id=task.id, index=task.index, done=done, items=task.items, is_sealed=is_sealed)


def _done(folder: RunFolder, job: str) -> int:
    record = folder.record(job)
    return 0 if record is None else sum(is_done(row) for row in record.rows)
