"""From a lock to its jobs: what runs, under which digest, with which seeds.

Tasks too: the jobs of one point, which one process does.

Does not live here: running them (``flows.run``), spreading tasks over a cluster (``core.sbatch``).
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec import UNSET

from qlock.core.base import Base, Count, Positive
from qlock.core.digest import Digest, digest_of
from qlock.core.effects import what_changes_output
from qlock.core.lock import Lock, PointPin, PromptsPin, SuitePin
from qlock.errors import InputError


class Job(Base, frozen=True, kw_only=True):
    """A point × a suite × a repeat: the unit of records and of resume."""

    name: str
    """``SUITE.POINT.REPEAT``; also the stem of its files."""
    digest: Digest
    point: str
    suite: str
    repeat: Positive
    items: Count


def jobs(lock: Lock) -> tuple[Job, ...]:
    """Every job of a lock, point by point, so that each model is loaded once."""
    found = []
    for point in lock.point:
        for suite in lock.suite:
            if point.name not in suite.points:
                continue
            prompts = prompts_of(point, suite.name)
            found += [
                Job(
                    name=f"{suite.name}.{point.name}.{repeat}",
                    digest=job_digest(lock, point, suite, repeat),
                    point=point.name,
                    suite=suite.name,
                    repeat=repeat,
                    items=prompts.items,
                )
                for repeat in range(1, suite.repeats + 1)
            ]
    return tuple(found)


def prompts_of(point: PointPin, suite: str) -> PromptsPin:
    """What a point is asked in a suite.

    Raises:
        InputError: The lock does not say (not proved yet).
    """
    for prompts in point.prompts or ():
        if prompts.suite == suite:
            return prompts
    raise InputError(f"the lock pins no prompts of suite `{suite}`", hint="run `qlock resolve`").within(
        f"point.{point.name}"
    )


def job_digest(lock: Lock, point: PointPin, suite: SuitePin, repeat: int) -> str:
    """Digest of all that can change the replies of one job.

    It covers engine, device, model, setting, the asking part of the suite, prompts, canaries and the frozen date;
    not the other models of the lock, the names people gave, where data files lie, nor the graders' version.
    """
    prompts = prompts_of(point, suite.name)
    ground: dict[str, Any] = {
        "engine": _without(_named(lock.engine, point.engine), "name"),
        "device": _without(_named(lock.device, point.device), "name"),
        "model": _without(_named(lock.model, point.model)),
        "setting": _without(_named(lock.setting, point.setting), "name"),
        "suite": _without(suite, "grade_version", "repeats", *(f"params.{file.key}" for file in suite.file)),
        "point": _without(msgspec.structs.replace(point, prompts=UNSET)),
        "prompts": _without(prompts, "suite"),
        "frozen_date": lock.frozen_date,
        "repeat": repeat,
    }
    return digest_of("job", ground)


def _without(value: Base, *names: str) -> dict[str, Any]:
    """What can change the replies, but for the fields named."""
    return {path: leaf for path, leaf in what_changes_output(value).items() if path not in names}


def _named(table: tuple[Any, ...], name: str) -> Any:
    return next(entry for entry in table if entry.name == name)


def item_seed(seed: int, item: str, repeat: int) -> int:
    """The seed of one item in one repeat: 63 bits of SHA-256, never drawn from the order of work."""
    data = f"qlock seed 1\n{seed}\n{repeat}\n{item}".encode()
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big") >> 1


class Task(Base, frozen=True, kw_only=True):
    """What one process does: the jobs of one point, which share its load; the unit of Slurm."""

    id: str
    """The point's name, ``MODEL@SETTING``; also the name of the task's folder."""
    index: Count
    """Its place among the tasks of the lock, counted from 0: the index in an array of jobs."""
    digest: Digest
    jobs: tuple[Job, ...]
    items: Count
    """Of all its jobs."""


def tasks(lock: Lock) -> tuple[Task, ...]:
    """Every task of a lock, in the order of its points; points that sit no suite give none."""
    by_point: dict[str, list[Job]] = {}
    for job in jobs(lock):
        by_point.setdefault(job.point, []).append(job)
    return tuple(
        Task(
            id=point,
            index=index,
            digest=digest_of("task", {job.name: job.digest for job in mine}),
            jobs=tuple(mine),
            items=sum(job.items for job in mine),
        )
        for index, (point, mine) in enumerate(by_point.items())
    )


def task_named(lock: Lock, id_: str) -> Task:
    """The task of this id.

    Raises:
        InputError: The lock has none.
    """
    for task in tasks(lock):
        if task.id == id_:
            return task
    raise InputError(f"got task `{id_}`, expected one of the lock", hint="list them with `qlock plan LOCK`")


def lock_of_task(lock: Lock, id_: str) -> Lock:
    """The part of a lock that a task is about: its point, model, suites and anchors.

    The digests of its jobs are those of the whole lock.

    Raises:
        InputError: The lock has no such task.
    """
    task = task_named(lock, id_)
    point = _named(lock.point, task.id)
    return msgspec.structs.replace(
        lock,
        point=(point,),
        model=(_named(lock.model, point.model),),
        suite=tuple(suite for suite in lock.suite if point.name in suite.points),
        anchor=tuple(
            anchor
            for anchor in lock.anchor
            if anchor.model == point.model and anchor.setting in (UNSET, point.setting)
        ),
    )
