"""``status`` and ``cancel``: how far the tasks of a run are, by their folders and by Slurm; and ending them.

Does not live here: queueing them (``flows.submit``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from qlock.core.base import Base, Count
from qlock.core.words import listed
from qlock.errors import AbsentError
from qlock.flows.run_folder import RunFolder, is_of_one_lock, run_folders
from qlock.flows.submissions import Submission, by_task, known_tasks, last_words, submissions
from qlock.flows.tasks import TaskSeen, place_of, tasks_seen
from qlock.world.interface import Missing, SlurmTask, World

State = Literal["done", "running", "queued", "failed", "open", "unknown"]
_WAITS = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")


class TaskStatus(Base, frozen=True, kw_only=True):
    """One task."""

    id: str
    index: Count
    state: State
    """``failed``: it was queued, is in the queue no more, and is not done. ``open``: it never was queued.
    ``unknown``: it was queued, and Slurm cannot be asked whether it still is."""
    done: Count
    items: Count
    job: str
    """``JOB_INDEX``; empty where it is not in the queue."""
    left_s: Count | Missing
    """Until its time limit."""
    why: str
    """Why it waits, or what it ended with."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    folder: Path
    is_sealed: bool
    tasks: tuple[TaskStatus, ...]
    notes: tuple[str, ...] = ()
    """Which run is told of where several could be, and what could not be asked."""


def status(world: World, path: Path, runs: Path | None = None) -> Status:
    """How far a run is.

    Raises:
        InputError: The lock or a record is unreadable.
        AbsentError: There is no such lock or run.
    """
    place = place_of(world, world.cwd / path, runs)
    folder = place.folder
    is_sealed = folder.seal() is not None
    submitted = submissions(folder)
    notes = _instead(world.cwd / path, folder)
    waiting: dict[str, SlurmTask] = {}
    was_queued = {id_ for one in submitted for id_ in one.tasks}
    is_known = True
    if submitted and not is_sealed:
        try:
            waiting = by_task(submitted, world.slurm.queue())
        except AbsentError as error:
            is_known = False
            notes.append(f"Slurm's queue is not known: {error.message}")
    rows = []
    gone: list[TaskSeen] = []
    for seen in tasks_seen(world, place, known_tasks(place)):
        if is_sealed or seen.is_sealed:
            rows.append(_row(seen, "done", done=seen.items))
        elif seen.id in waiting:
            rows.append(_in_queue(seen, waiting[seen.id]))
        elif seen.id in was_queued and not is_known:
            rows.append(_row(seen, "unknown"))
        elif seen.id in was_queued:
            gone.append(seen)
        else:
            rows.append(_row(seen, "open"))
    if gone:
        failed, more = _failed(world, folder, submitted, gone)
        rows, notes = sorted([*rows, *failed], key=lambda row: row.index), [*notes, *more]
    return Status(folder=folder.path, is_sealed=is_sealed, tasks=tuple(rows), notes=tuple(notes))


def _instead(path: Path, folder: RunFolder) -> list[str]:
    """Says that a lock has sealed runs beside the open one that is told of."""
    if path.is_dir() or folder.seal() is not None:
        return []
    beside = [one for one in run_folders(folder.path.parent) if is_of_one_lock(one, folder.path)]
    sealed = [one.name for one in beside if (one / "seal.json").exists()]
    if not sealed:
        return []
    are = "is" if len(sealed) == 1 else "are"
    return [
        f"this is `{folder.path.name}`, a repeat that is not done; {listed(sealed, in_backticks=True)} {are} sealed"
    ]


def _failed(
    world: World, folder: RunFolder, submitted: tuple[Submission, ...], gone: list[TaskSeen]
) -> tuple[list[TaskStatus], list[str]]:
    """Tasks that left the queue and are not done, each with why, and what could not be asked."""
    ended: dict[str, SlurmTask] = {}
    notes = []
    match world.slurm.accounts([one.job for one in submitted]):
        case Missing(why=why):
            notes.append(f"Slurm's accounts are not known: {why}")
        case told:
            ended = by_task(submitted, told)
    rows = [
        _row(seen, "failed", why=_why(ended.get(seen.id), last_words(folder, submitted, seen.id)))
        for seen in gone
    ]
    return rows, notes


def _row(seen: TaskSeen, state: State, *, done: int | None = None, why: str = "") -> TaskStatus:
    return TaskStatus(
        id=seen.id,
        index=seen.index,
        state=state,
        done=seen.done if done is None else done,
        items=seen.items,
        job="",
        left_s=Missing(why="it does not run"),
        why=why,
    )


def _in_queue(seen: TaskSeen, element: SlurmTask) -> TaskStatus:
    state: State = "queued" if element.state in _WAITS else "running"
    where = f"on {element.node}" if element.node and state == "running" else ""
    return msgspec.structs.replace(
        _row(seen, state, why=element.reason or where),
        job=f"{element.job}_{element.index}",
        left_s=element.left_s if state == "running" else Missing(why="it does not run"),
    )


def _why(element: SlurmTask | None, words: str) -> str:
    said = "" if element is None else f"{element.state} {element.reason}".strip()
    return ": ".join(part for part in (said, words) if part)


def cancel(world: World, path: Path, runs: Path | None = None) -> tuple[str, ...]:
    """End what Slurm still has of a run; gives the tasks that were in its queue.

    Raises:
        AbsentError: Slurm does not answer, or there is no such run.
    """
    place = place_of(world, world.cwd / path, runs)
    submitted = submissions(place.folder)
    waiting = by_task(submitted, world.slurm.queue()) if submitted else {}
    jobs = sorted({element.job for element in waiting.values()})
    if jobs:
        world.slurm.cancel(jobs)
    return tuple(waiting)
