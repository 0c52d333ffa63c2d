"""Answers that need not be measured: those of equal jobs in sealed runs beside this one, and of this run's own tasks.

Does not live here: measuring (``flows.run``), bringing all tasks of a run together (``flows.merge``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.lock import Lock, named
from qlock.core.plan import Job, prompts_of
from qlock.core.record import Part, Record, Row, SealedJob
from qlock.errors import InputError
from qlock.flows.conditions import keep_conditions
from qlock.flows.run_folder import TASKS, RunFolder, digest_of_items, run_folders
from qlock.world.interface import World


def taken_over(world: World, folder: RunFolder, wanted: dict[str, Job]) -> dict[str, str]:
    """Name of each wanted job that was done elsewhere, to where that is.

    That is ``LOCK8``, a run beside this one; ``LOCK8/tasks/ID``, a task of this run; or ``LOCK8/tasks``, several shards
    of it. A repeat (``LOCK8.2``) takes nothing over from other runs: it is there to be measured once more. Neither is
    anything taken of what was forced.
    """
    done: dict[str, list[tuple[str, SealedJob]]] = {}
    for other in _others(world, folder):
        name = other.path.relative_to(folder.whole.parent).as_posix()
        for sealed_job in _sealed_jobs(other):
            done.setdefault(sealed_job.job_digest, []).append((name, sealed_job))
    found = {}
    for job in wanted.values():
        if folder.record(job.name) is None:
            there = done.get(job.digest, [])
            whole = [name for name, sealed_job in there if sealed_job.part is UNSET]
            if whole:
                found[job.name] = whole[0]
            elif is_covered(job, (sealed_job.part for _, sealed_job in there)):
                found[job.name] = f"{folder.path.name}/{TASKS}"
    return found


def take_over(world: World, folder: RunFolder, lock: Lock, job: Job, *, source: str, segment: int) -> None:
    """Copy what lies at ``source``, as ``taken_over`` has it, as this job's own closed record.

    Raises:
        InputError: What lies there does not fit its seal.
    """
    place = folder.whole.parent / source
    others = _tasks(world, folder) if place.name == TASKS else [RunFolder(world, place)]
    point = named(lock.point, job.point)
    digest = prompts_of(point, job.suite).items_digest
    found: list[tuple[RunFolder, Record]] = []
    for other in others:
        for sealed_job in _sealed_jobs(other):
            if sealed_job.job_digest == job.digest:
                found.append((other, _record(other, sealed_job, source=source)))
                _take_items(folder, other, digest, job=sealed_job.job, source=source)
                break
    rows = joined(record for _, record in found)
    if len(rows) != job.items:
        raise InputError(f"the sealed run `{source}` was changed while it was read")
    keep_conditions(folder, lock, segment, job, found)
    folder.write_closed(job, tuple(msgspec.structs.replace(row, segment=segment) for row in rows[job.places]))


def is_covered(job: Job, parts: Iterable[Part | UnsetType]) -> bool:
    """Whether parts of a whole job are all of it, each item once."""
    if job.part is not UNSET:
        return False
    stop = 0
    for start, behind in sorted((part.start, part.stop) for part in parts if part is not UNSET):
        if start != stop:
            return False
        stop = behind
    return stop == job.items


def joined(records: Iterable[Record]) -> tuple[Row, ...]:
    """The rows of closed records of one job in the order of its items, whichever shards they are of."""

    def place(record: Record) -> int:
        part = record.header.part
        return 0 if part is UNSET else part.start

    return tuple(row for record in sorted(records, key=place) for row in record.rows)


def _others(world: World, folder: RunFolder) -> Iterator[RunFolder]:
    """Where answers may lie that this folder wants."""
    yield from _tasks(world, folder)
    if "." not in folder.whole.name:
        yield from (
            RunFolder(world, path) for path in run_folders(folder.whole.parent) if path != folder.whole
        )


def _tasks(world: World, folder: RunFolder) -> list[RunFolder]:
    """The tasks of the run in this folder; those that are done or begun."""
    place = folder.path / TASKS
    return [RunFolder(world, path) for path in sorted(place.iterdir())] if place.is_dir() else []


def _sealed_jobs(folder: RunFolder) -> tuple[SealedJob, ...]:
    seal = folder.seal()
    return () if seal is None or seal.forced else seal.job


def _record(other: RunFolder, sealed_job: SealedJob, *, source: str) -> Record:
    try:
        record = other.record(sealed_job.job)
    except InputError as error:
        raise error.in_folder(other.place) from None
    if record is None or record.closing is None:
        raise InputError(f"the sealed run `{source}` misses the record of `{sealed_job.job}`")
    if (record.closing.answers_digest, record.header.part) != (sealed_job.answers_digest, sealed_job.part):
        raise InputError(f"the record of `{sealed_job.job}` in `{source}` does not fit its seal")
    return record


def _take_items(folder: RunFolder, other: RunFolder, digest: str, *, job: str, source: str) -> None:
    """Keep the items that were asked there."""
    items = other.items(digest)
    if digest_of_items(items) != digest:
        raise InputError(f"the items of `{job}` in `{source}` are not those that were asked")
    folder.write_items(digest, items)
