"""From a lock to its jobs: what runs, under which digest, with which seeds.

Does not live here: what one process does of them (``core.tasks``), running them (``flows.run``).
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Count, Positive
from qlock.core.digest import Digest, digest_of
from qlock.core.effects import what_changes_output
from qlock.core.lock import Lock, PointPin, PromptsPin, SuitePin, named
from qlock.core.record import Part
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
    part: Part | UnsetType = UNSET
    """Which of the items are asked, where this is a shard's part of the job; all of them otherwise."""

    @property
    def asked(self) -> int:
        """How many items are asked."""
        return self.items if self.part is UNSET else self.part.stop - self.part.start

    @property
    def places(self) -> slice:
        """Where the asked ones are among all of them."""
        return slice(None) if self.part is UNSET else slice(self.part.start, self.part.stop)


def job_name(suite: str, point: str, repeat: int) -> str:
    """What the job of a suite at a point is called in a repeat, counted from 1."""
    return f"{suite}.{point}.{repeat}"


def jobs(lock: Lock) -> tuple[Job, ...]:
    """Every job of a lock, point by point, so that each model is loaded once."""
    found = []
    for point in lock.point:
        for suite in lock.suite:
            if point.name not in suite.points:
                continue
            prompts, ground = prompts_of(point, suite.name), _ground(lock, point, suite)
            found += [
                Job(
                    name=job_name(suite.name, point.name, repeat),
                    digest=_digest(ground, repeat),
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
    of a suite that is held against a reference, that point's model, setting and canaries too. It does not cover the
    other models of the lock, the names people gave, where data files lie, nor the graders' version.

    Raises:
        InputError: The lock pins no prompts of the suite, or the point, or what it is held against, is not proved yet.
    """
    return _digest(_ground(lock, point, suite), repeat)


def _digest(ground: dict[str, Any], repeat: int) -> str:
    return digest_of("job", {**ground, "repeat": repeat})


def _ground(lock: Lock, point: PointPin, suite: SuitePin) -> dict[str, Any]:
    """What the repeats of a job share."""
    prompts = prompts_of(point, suite.name)
    ground: dict[str, Any] = {
        "engine": _without(named(lock.engine, point.engine), "name"),
        "device": _without(named(lock.device, point.device), "name"),
        **_ground_of_point(lock, point),
        "suite": _without(suite, "grade_version", "repeats", *(f"params.{file.key}" for file in suite.file)),
        "prompts": _without(prompts, "suite"),
        "frozen_date": lock.frozen_date,
    }
    if suite.reference:
        ground["reference"] = _ground_of_point(lock, named(lock.point, suite.reference))
    return ground


def _ground_of_point(lock: Lock, point: PointPin) -> dict[str, Any]:
    """Model, setting and what the point does."""
    if point.canary is UNSET:
        raise InputError(
            "the point is not proved yet", hint="run `qlock resolve` where its weights are"
        ).within(f"point.{point.name}")
    return {
        "model": _without(named(lock.model, point.model)),
        "setting": _without(named(lock.setting, point.setting), "name"),
        "point": _without(msgspec.structs.replace(point, prompts=UNSET)),
    }


def models_of(lock: Lock, job: Job) -> tuple[str, ...]:
    """Names of the models that answer a job: the point's own, and the one that it is held against."""
    reference = named(lock.suite, job.suite).reference
    names = (job.point, reference) if reference else (job.point,)
    return tuple(dict.fromkeys(named(lock.point, name).model for name in names))


def _without(value: Base, *names: str) -> dict[str, Any]:
    """What can change the replies, but for the fields named."""
    return {path: leaf for path, leaf in what_changes_output(value).items() if path not in names}


def item_seed(seed: int, item: str, repeat: int) -> int:
    """The seed of one item in one repeat: 63 bits of SHA-256, never drawn from the order of work."""
    data = f"qlock seed 1\n{seed}\n{repeat}\n{item}".encode()
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big") >> 1
