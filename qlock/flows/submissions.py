"""What was handed to Slurm for a run: kept in the run's folder, and held against the queue.

``slurm/N.sbatch`` is the script of the N-th submission, ``slurm/N.json`` says which job it became, and
``slurm/JOB_INDEX.log`` is what a task said there.

Does not live here: handing anything to Slurm (``flows.submit``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from qlock.core.base import Base, Count, Positive
from qlock.core.canon import from_json, json_bytes
from qlock.core.tasks import Task
from qlock.flows.run_folder import RunFolder
from qlock.flows.tasks import Place, planned
from qlock.world.interface import SlurmTask, UndoneError, World

FOLDER = "slurm"
_LOG_BYTES = 1 << 16


class Submission(Base, frozen=True, kw_only=True):
    """``slurm/N.json``."""

    number: Positive
    job: str
    """Slurm's number of it."""
    submitted_utc: str
    tasks: dict[str, Count]
    """Each task's id and its index in the array."""


def submissions(folder: RunFolder) -> tuple[Submission, ...]:
    """Every submission of a run, first to last."""
    paths = (folder.path / FOLDER).glob("[0-9]*.json")
    found = [
        from_json(folder.read(f"{FOLDER}/{path.name}"), Submission, name=f"{FOLDER}/{path.name}")
        for path in paths
    ]
    return tuple(sorted(found, key=lambda one: one.number))


def known_tasks(place: Place, *, shard_items: int | None = None) -> tuple[Task, ...]:
    """The tasks of a run, cut as they were begun or last queued, else as is asked or the spec beside the lock has it."""
    queued = [id_ for one in submissions(place.folder) for id_ in one.tasks]
    return planned(place, shard_items=shard_items or place.shard_items, queued=queued)


def next_number(scripts: Path) -> int:
    """Of the next script in a folder of them; one without a job (a kill in between) keeps its number."""
    names = [path.stem for path in scripts.glob("[0-9]*.sbatch")]
    return max((int(name) for name in names if name.isdigit()), default=0) + 1


def hand_over(world: World, path: Path, script: str) -> str:
    """Write a script into a folder that is there, and queue it; gives the number of the job.

    A script that surely was not queued leaves nothing behind. One that may have been keeps its place, so that no other
    job is ever told to write beside what that one says.

    Raises:
        AbsentError: Slurm does not take it, or the disk.
    """
    world.files.write_atomic(path, script.encode())
    try:
        return world.slurm.submit(path)
    except UndoneError:
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()  # where nothing else was ever queued
        raise


def write_submission(folder: RunFolder, submission: Submission) -> None:
    """Keep it beside its script."""
    data = msgspec.json.format(json_bytes(submission), indent=1) + b"\n"
    folder.write(f"{FOLDER}/{submission.number}.json", data)


def script_path(folder: RunFolder, number: int) -> Path:
    """Where the script of a submission lies."""
    return folder.path / FOLDER / f"{number}.sbatch"


def by_task(submitted: tuple[Submission, ...], elements: Iterable[SlurmTask]) -> dict[str, SlurmTask]:
    """The element of each task, of several the one submitted last."""
    told = {(element.job, element.index): element for element in elements}
    return {
        id_: told[(one.job, index)]
        for one in submitted
        for id_, index in one.tasks.items()
        if (one.job, index) in told
    }


def last_words(folder: RunFolder, submitted: tuple[Submission, ...], id_: str) -> str:
    """The last error that a task told its newest log; empty when there is none."""
    for one in reversed(submitted):
        if id_ not in one.tasks:
            continue
        path = folder.path / FOLDER / f"{one.job}_{one.tasks[id_]}.log"
        if path.is_file():
            return last_error(_tail(path).decode(errors="replace"))
    return ""


def last_error(text: str) -> str:
    """The last error in what a job said; empty when there is none."""
    marked = [line for line in text.split("\n") if line.startswith(("error:", "slurmstepd:"))]
    return marked[-1].removeprefix("error: ") if marked else ""


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_BYTES))
        return file.read(_LOG_BYTES)
