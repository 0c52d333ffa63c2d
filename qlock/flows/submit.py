"""``submit``: the tasks of a lock that are neither done nor under way, queued as a Slurm array.

Where the cluster allows no array so long, there are several. Scripts and the numbers of jobs are kept in the run's folder.
Each task writes into a folder of its own; where one is queued twice (after a kill in the midst of submitting), the second
start meets the first and refuses.

Does not live here: the script (``core.sbatch``), Slurm's tools (``world.slurm``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET

from qlock.core.canon import to_struct
from qlock.core.escape import for_shell
from qlock.core.lock import renew_path
from qlock.core.sbatch import Array, SlurmSpec, refuse_odd_path, script
from qlock.core.tasks import Task, cuts_of_length
from qlock.errors import InputError, UsageError
from qlock.flows.beside import spec_of, why_stale
from qlock.flows.kept_base import holdings
from qlock.flows.refusal import refuse_missing
from qlock.flows.run_folder import RunFolder
from qlock.flows.submissions import (
    FOLDER,
    Submission,
    by_task,
    hand_over,
    next_number,
    script_path,
    submissions,
    write_submission,
)
from qlock.flows.tasks import Place, in_shards, place_of, planned, task_folder, tasks_seen
from qlock.world.files import make_folder
from qlock.world.interface import Missing, World

SLURM_DEFAULT_LIMIT = 1001
"""``MaxArraySize`` where nobody set it."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks of ``submit``."""

    lock_path: Path
    program: tuple[str, ...]
    """How qlock is called on a node, unless the spec says otherwise."""
    words: tuple[str, ...] = ()
    """Further words for each ``qlock run``: ``--models DIR``."""
    runs: Path | None = None
    frozen: bool = False
    dry_run: bool = False
    wishes: dict[str, object] = {}
    """Keys of the ``[slurm]`` table that the command line gives otherwise."""


class QueuedArray(msgspec.Struct, frozen=True, kw_only=True):
    """One batch script and what it runs."""

    script: str
    path: Path
    job: str = ""
    """Slurm's number of it; empty as long as it is not queued."""
    tasks: dict[str, int]
    """Each task's id and its index in the array."""


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it."""

    state: Literal["submitted", "dry-run", "already-sealed", "nothing-left", "stale"]
    folder: Path
    why: str = ""
    arrays: tuple[QueuedArray, ...] = ()
    """Queued now, or to be queued."""
    done: tuple[str, ...] = ()
    under_way: tuple[str, ...] = ()
    """In the queue already."""
    notes: tuple[str, ...] = ()

    @property
    def tasks(self) -> tuple[str, ...]:
        """Ids of all tasks that are queued now, or to be queued."""
        return tuple(id_ for array in self.arrays for id_ in array.tasks)


def submit(world: World, asked: Asked) -> Submitted:
    """Queue what is missing.

    Raises:
        UsageError: The command line gives a value that sbatch does not take.
        InputError: The lock is unreadable, or a path cannot stand in a batch script.
        RefusedError: The lock still misses pins.
        AbsentError: Slurm does not answer, or the folder is held by another run.
    """
    lock_path = world.cwd / asked.lock_path
    place = place_of(world, lock_path, asked.runs)
    folder = place.folder
    stale = "" if asked.frozen else why_stale(world, lock_path, place.lock, place.data)
    if stale:
        return Submitted(state="stale", folder=folder.path, why=stale)
    refuse_missing(place.lock, lock_path, renew=renew_path(place.data.decode()))
    if folder.seal() is not None:
        return Submitted(state="already-sealed", folder=folder.path)
    if asked.dry_run:
        return _queue(world, asked, place, lock_path)
    folder.prepare(place.data)
    with world.folders.hold(folder.path):
        return _queue(world, asked, place, lock_path)


def _queue(world: World, asked: Asked, place: Place, lock_path: Path) -> Submitted:
    folder = place.folder
    before = submissions(folder)
    waiting = by_task(before, world.slurm.queue()) if before else {}
    slurm = _slurm(world, asked, place, lock_path)
    every = planned(place, shard_items=slurm.shard_items, queued=waiting)
    done = tuple(seen.id for seen in tasks_seen(world, place, every) if seen.is_sealed)
    todo = tuple(task for task in every if task.id not in done and task.id not in waiting)
    arrays = _arrays(world, asked, place, slurm, lock_path=lock_path, todo=todo)
    said = Submitted(
        state="dry-run" if arrays else "nothing-left",
        folder=folder.path,
        arrays=arrays,
        done=done,
        under_way=tuple(waiting),
        notes=_kept_cuts(place, slurm, every),
    )
    if asked.dry_run or not arrays:
        return said
    _let_go(world, folder, before, todo)
    make_folder(folder.path / FOLDER)
    return msgspec.structs.replace(
        said, state="submitted", arrays=tuple(_submitted(world, folder, array) for array in arrays)
    )


def _let_go(world: World, folder: RunFolder, before: tuple[Submission, ...], todo: tuple[Task, ...]) -> None:
    """Free what tasks held that were queued before and are in the queue no more: they have ended, on whichever node."""
    every: set[str] = set()
    for task in todo:
        ended = {f"{one.job}_{one.tasks[task.id]}" for one in before if task.id in one.tasks}
        world.folders.release(task_folder(world, folder, task.id).path, ended)
        every |= ended
    for holding in holdings(folder.path.parent):
        world.folders.release(holding, every)


def _submitted(world: World, folder: RunFolder, array: QueuedArray) -> QueuedArray:
    """Hand one array over, and keep that it was."""
    job = hand_over(world, array.path, array.script)
    write_submission(
        folder,
        Submission(
            number=int(array.path.stem),
            job=job,
            submitted_utc=world.clock.now().isoformat(timespec="seconds"),
            tasks=array.tasks,
        ),
    )
    return msgspec.structs.replace(array, job=job)


def _kept_cuts(place: Place, slurm: SlurmSpec, every: tuple[Task, ...]) -> tuple[str, ...]:
    """A note for each point that goes on in other shards than are asked for."""
    asked = {} if slurm.shard_items is UNSET else cuts_of_length(place.lock, slurm.shard_items)
    begun = {task.point: task.shards for task in every}
    return tuple(
        f"`{point}` goes on as it was begun or queued, {in_shards(cut)}"
        for point, cut in begun.items()
        if cut != asked.get(point, 1)
    )


def _slurm(world: World, asked: Asked, place: Place, lock_path: Path) -> SlurmSpec:
    """The ``[slurm]`` table of the spec beside the lock, with what the command line says otherwise.

    Raises:
        UsageError: The command line gives a value that sbatch does not take.
    """
    for name, value in asked.wishes.items():
        try:
            to_struct({name: value}, SlurmSpec)
        except InputError as error:
            raise UsageError(f"--{name.replace('_', '-')}: {error.message}", hint=error.hint) from None
    spec = spec_of(world, lock_path, place.data)
    table = {} if spec is None else msgspec.to_builtins(spec.slurm)
    return to_struct(table | asked.wishes, SlurmSpec)


def _arrays(
    world: World, asked: Asked, place: Place, slurm: SlurmSpec, *, lock_path: Path, todo: tuple[Task, ...]
) -> tuple[QueuedArray, ...]:
    """The tasks in as many arrays as the cluster asks for; what may run at once is shared out among them."""
    refuse_odd_path(str(lock_path), str(place.folder.path))
    limit = _limit(world)
    # Whatever is left to do, a task has the same place in the same array each time.
    cut: dict[int, dict[str, int]] = {}
    for task in todo:
        cut.setdefault(task.index // limit, {})[task.id] = task.index % limit
    first = next_number(place.folder.path / FOLDER)
    found = []
    for number, tasks in enumerate(cut.values()):
        wishes = slurm
        if slurm.at_once is not UNSET:
            share = (slurm.at_once + len(cut) - 1 - number) // len(cut)
            wishes = msgspec.structs.replace(slurm, at_once=max(1, share))
        array = _array(asked, place, lock_path, tasks)
        found.append(
            QueuedArray(
                script=script(wishes, array), path=script_path(place.folder, first + number), tasks=tasks
            )
        )
    return tuple(found)


def _limit(world: World) -> int:
    match world.slurm.array_limit():
        case Missing():
            return SLURM_DEFAULT_LIMIT
        case limit:
            return max(1, limit)


def _array(asked: Asked, place: Place, lock_path: Path, tasks: dict[str, int]) -> Array:
    folder = place.folder
    frozen = ("--frozen",) if asked.frozen else ()
    return Array(
        name=f"qlock-{folder.path.name}",
        title=f"Written by qlock for {lock_path.name}, run {folder.path.name}. Do not edit; queue what is missing with:\n"
        f"qlock submit {for_shell(str(lock_path))}",
        log=f"{folder.path}/{FOLDER}/%A_%a.log",
        tasks={index: id_ for id_, index in tasks.items()},
        command=("run", str(lock_path), "--runs", str(folder.path.parent), *frozen, *asked.words),
        program=asked.program,
        lock=str(lock_path),
        kept_lock=f"{folder.path}/lock.toml",
    )
