"""``merge``: the records of a run's tasks brought together, and sealed as if one process had measured them.

In order: hold the run's folder; read every task's seal and hold its files against it; refuse what was measured by
another engine, on another device, or for another lock; say which tasks are not done; then facts, items, records, those
of shards joined; anchors that no task alone could hold; and the seal last. Every file is put in place whole and all of
it can be done again, so that a kill at any moment costs nothing: the next merge writes the same bytes.

Does not live here: measuring a task (``flows.run``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from qlock.core.canon import json_bytes
from qlock.core.lock import lock_digest
from qlock.core.plan import Job, jobs
from qlock.core.record import Record, Row, Seal
from qlock.core.tasks import Task
from qlock.core.verify import Finding, differences, entries, refuses
from qlock.errors import InputError
from qlock.flows.anchors import AnchorCheck, Anchors
from qlock.flows.run_folder import RunFolder
from qlock.flows.scores import JobScore, job_scores
from qlock.flows.sealing import seal_run
from qlock.flows.segments import FACTS_VERSION, RunFacts, Segment
from qlock.flows.submissions import known_tasks
from qlock.flows.taking_over import joined
from qlock.flows.tasks import Place, place_of, task_folder
from qlock.world.interface import World

MARK = "merging.json"
"""Names the tasks whose records are being brought together; tells such a run from one that was begun without tasks."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks of ``merge``."""

    path: Path
    """A lock, or the folder of a run."""
    runs: Path | None = None


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """How a merge ended."""

    state: Literal["sealed", "already-sealed", "incomplete", "refused", "anchor-off"]
    folder: Path
    tasks: int
    missing: tuple[str, ...] = ()
    """Tasks that are not done."""
    findings: tuple[Finding, ...] = ()
    anchors: tuple[AnchorCheck, ...] = ()
    answers_digest: str = ""
    scores: tuple[JobScore, ...] = ()


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A task that is done."""

    task: Task
    folder: RunFolder
    seal: Seal
    segments: tuple[Segment, ...]


def merge(world: World, asked: Asked) -> Merged:
    """Bring the tasks of a run together and seal it.

    Raises:
        InputError: A task belongs to another lock, or is not as sealed.
        AbsentError: The folder is held by another run.
    """
    place = place_of(world, world.cwd / asked.path, asked.runs)
    folder = place.folder
    every = known_tasks(place)
    if not folder.path.is_dir():
        names = tuple(task.id for task in every)
        return Merged(state="incomplete", folder=folder.path, tasks=len(every), missing=names)
    folder.prepare(place.data)
    with world.folders.hold(folder.path):
        merged = Merged(state="already-sealed", folder=folder.path, tasks=len(every))
        seal = folder.seal()
        if seal is not None:
            return _with_scores(merged, place, seal)
        parts = [part for task in every if (part := _part(world, place, task)) is not None]
        findings = tuple(finding for part in parts[1:] for finding in _mixed(parts[0], part))
        if findings:
            return msgspec.structs.replace(merged, state="refused", findings=findings)
        there = {part.task.id for part in parts}
        missing = tuple(task.id for task in every if task.id not in there)
        if missing:
            return msgspec.structs.replace(merged, state="incomplete", missing=missing)
        _bring_together(place, parts)
        anchors = _anchors(place)
        if anchors.off():
            return msgspec.structs.replace(merged, state="anchor-off", anchors=tuple(anchors.checks))
        seal = seal_run(folder, place.lock, jobs(place.lock), place.data)
        merged = msgspec.structs.replace(merged, state="sealed", anchors=tuple(anchors.checks))
        return _with_scores(merged, place, seal)


def _with_scores(merged: Merged, place: Place, seal: Seal) -> Merged:
    scores = tuple(job_scores(place.folder, place.lock))
    return msgspec.structs.replace(merged, answers_digest=seal.answers_digest, scores=scores)


def _anchors(place: Place) -> Anchors:
    """What the whole is held against: the score of a job that shards did is known only now."""
    anchors = Anchors(place.folder, place.lock)
    for job in jobs(place.lock):
        anchors.check(job)
    return anchors


def _part(world: World, place: Place, task: Task) -> _Part | None:
    """A task as it lies in its folder; ``None`` while it is not done."""
    folder = task_folder(world, place.folder, task.id)
    seal = folder.seal()
    if seal is None:
        return None
    where = f"tasks/{task.id}"
    if seal.lock_digest != lock_digest(place.data) or folder.read("lock.toml") != place.data:
        raise InputError("the task was done for another lock", hint="remove it and run it again").within(
            where
        )
    sealed = {job.job: (job.job_digest, job.part) for job in seal.job}
    if sealed != {job.name: (job.digest, job.part) for job in task.jobs}:
        raise InputError("the seal names other jobs than the task has").within(where)
    if tuple(folder.sealed_files()) != seal.file:
        raise InputError("the files are not as sealed", hint="remove it and run it again").within(where)
    return _Part(task=task, folder=folder, seal=seal, segments=folder.facts().segment)


def _mixed(first: _Part, other: _Part) -> list[Finding]:
    """What two tasks saw of engine and device, as far as it can change answers."""
    ours = first.segments[-1]
    found: list[Finding] = []
    for segment in (*first.segments, *other.segments):
        where = f"task.{other.task.id}"
        found += differences("device", f"{where}.device", ours.device, segment.device)
        # A stretch that was killed could not note its engine's files; they were held against the lock all the same.
        if segment.engine_file and ours.engine_file:
            found += entries("engine-files", f"{where}.engine", ours.engine_file, segment.engine_file)
    return [finding for finding in found if refuses(finding)]


def _bring_together(place: Place, parts: list[_Part]) -> None:
    """Write facts, items and records of the whole.

    Raises:
        InputError: The run was begun without tasks, and what it has must not be lost.
    """
    folder = place.folder
    if (folder.path / "facts.json").exists() and not (folder.path / MARK).exists():
        raise InputError(
            f"the run in `{folder.path}` was begun without tasks", hint="go on with `qlock run` on its lock"
        )
    folder.write(MARK, json_bytes({part.task.id: part.task.digest for part in parts}) + b"\n")
    segments = tuple(segment for part in parts for segment in part.segments)
    folder.write_facts(RunFacts(facts_version=FACTS_VERSION, segment=segments))
    for part in parts:
        for path in sorted((part.folder.path / "items").glob("[0-9a-f]*.jsonl")):
            folder.write(f"items/{path.name}", part.folder.read(f"items/{path.name}"))
    for job in jobs(place.lock):
        folder.write_closed(job, _rows(parts, job))


def _rows(parts: list[_Part], job: Job) -> tuple[Row, ...]:
    """The rows of a job out of all tasks that did some of it, their segments counted as the whole run counts them."""
    records: list[Record] = []
    before = 0
    for part in parts:
        if any(mine.name == job.name for mine in part.task.jobs):
            record = part.folder.record(job.name)
            if record is None or record.closing is None:
                raise InputError(f"the record of `{job.name}` is not whole").within(f"tasks/{part.task.id}")
            rows = tuple(msgspec.structs.replace(row, segment=row.segment + before) for row in record.rows)
            records.append(msgspec.structs.replace(record, rows=rows))
        before += len(part.segments)
    return joined(records)
