"""From a lock to its tasks: what one process does, and how the items of a point are cut into shards.

A task is the jobs of one point, which share its load. Where that is too long for one process, its items are cut: those
of all its jobs, one after the other, into so many shards of equal length. A shard is a task too, and may hold the end
of one job and the beginning of the next. How many shards there are is no part of the lock: a record is bound to its
job's digest and its rows go by item, so that what shards measured is put together whatever the cut was.

Does not live here: jobs (``core.plan``), spreading tasks over a cluster (``core.sbatch``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import UNSET

from qlock.core.base import Base, Count, Positive
from qlock.core.digest import Digest, digest_of
from qlock.core.lock import Lock, named
from qlock.core.plan import Job, jobs, prompts_of
from qlock.core.record import Part
from qlock.errors import InputError

_SHARD = re.compile(r"(.+@.+)@([1-9][0-9]{0,8})of([1-9][0-9]{0,8})\Z")


class Task(Base, frozen=True, kw_only=True):
    """What one process does; the unit of Slurm."""

    id: str
    """The point's name, ``MODEL@SETTING``, and of a shard ``MODEL@SETTING@2of5``; also the name of the task's folder."""
    point: str
    shards: Positive
    """Into how many its point is cut; 1: it is not."""
    index: Count
    """Its place among the tasks of the lock, counted from 0."""
    digest: Digest
    jobs: tuple[Job, ...]
    items: Count
    """That it asks."""


def tasks(lock: Lock, cuts: Mapping[str, int] | None = None) -> tuple[Task, ...]:
    """Every task of a lock, in the order of its points; points that sit no suite give none.

    Args:
        lock: What is to be measured.
        cuts: Point to the number of its shards, at most one for each item; 1 where none is given.
    """
    found: list[Task] = []
    for point, mine in _by_point(lock).items():
        count = (cuts or {}).get(point, 1)
        found += [
            Task(
                id=point if count == 1 else f"{point}@{number}of{count}",
                point=point,
                shards=count,
                index=len(found) + number - 1,
                digest=digest_of("task", {job.name: [job.digest, *_ends(job)] for job in some}),
                jobs=some,
                items=sum(job.asked for job in some),
            )
            for number, some in enumerate(_cut(mine, count), start=1)
        ]
    return tuple(found)


def _by_point(lock: Lock) -> dict[str, list[Job]]:
    found: dict[str, list[Job]] = {}
    for job in jobs(lock):
        found.setdefault(job.point, []).append(job)
    return found


def _ends(job: Job) -> tuple[int, ...]:
    return () if job.part is UNSET else (job.part.start, job.part.stop)


def _cut(mine: list[Job], count: int) -> Iterator[tuple[Job, ...]]:
    """The jobs of a point in ``count`` shards, whose lengths differ by one item at most."""
    items = sum(job.items for job in mine)
    for number in range(count):
        low, high = items * number // count, items * (number + 1) // count
        some, first = [], 0
        for job in mine:
            start, stop = max(low - first, 0), min(high - first, job.items)
            if (start, stop) == (0, job.items):
                some.append(job)
            elif start < stop:
                some.append(msgspec.structs.replace(job, part=Part(start=start, stop=stop)))
            first += job.items
        yield tuple(some)


def items_of_points(lock: Lock) -> dict[str, int]:
    """How many items each point is asked, in all its jobs."""
    return {
        point.name: sum(
            prompts_of(point, suite.name).items * suite.repeats
            for suite in lock.suite
            if point.name in suite.points
        )
        for point in lock.point
    }


def cuts_of_length(lock: Lock, most_items: int) -> dict[str, int]:
    """Point to the number of shards in which none asks more than so many items."""
    return {point: max(1, -(-items // most_items)) for point, items in items_of_points(lock).items()}


def cut_of_id(id_: str) -> tuple[str, int]:
    """The point that the id of a task names, and into how many shards it is cut; a lock need not have them."""
    match = _SHARD.fullmatch(id_)
    return (id_, 1) if match is None else (match[1], int(match[3]))


def task_named(lock: Lock, id_: str) -> Task:
    """The task of this id.

    Raises:
        InputError: The lock has none.
    """
    point, count = cut_of_id(id_)
    for task in tasks(lock, {point: count}) if count <= items_of_points(lock).get(point, 0) else ():
        if task.id == id_:
            return task
    raise InputError(f"got task `{id_}`, expected one of the lock", hint="list them with `qlock plan LOCK`")


def lock_of_task(lock: Lock, task: Task) -> Lock:
    """The part of a lock that a task is about: its point, model, suites and their anchors.

    The digests of its jobs are those of the whole lock. What its suites are held against is there too, and sits none.
    """
    point = named(lock.point, task.point)
    suites = {job.suite for job in task.jobs}
    sat = tuple(
        msgspec.structs.replace(suite, points=(point.name,)) for suite in lock.suite if suite.name in suites
    )
    needed = {point.name, *(suite.reference for suite in sat)}
    points = tuple(pin for pin in lock.point if pin.name in needed)
    models = {pin.model for pin in points}
    return msgspec.structs.replace(
        lock,
        point=points,
        model=tuple(pin for pin in lock.model if pin.name in models),
        suite=sat,
        anchor=tuple(
            anchor
            for anchor in lock.anchor
            if anchor.model == point.model
            and anchor.setting in (UNSET, point.setting)
            and anchor.suite in suites
        ),
    )
