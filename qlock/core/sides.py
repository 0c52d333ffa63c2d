"""One side of a comparison: a point of a run, with what it was asked and what came of it.

Lives here: the struct and the look-ups in its lock. Does not live here: reading it out of a folder
(``flows.opened``), and putting two of them side by side (``core.compare``).
"""

from __future__ import annotations

from qlock.core import facts
from qlock.core.base import Base, Count, Positive
from qlock.core.exchange import Outcome, Reading
from qlock.core.lock import Lock, ModelPin, PointPin, SuitePin, named
from qlock.core.record import Row
from qlock.errors import InputError


class Sitting(Base, frozen=True, kw_only=True):
    """One job of a side: a suite in one repeat, as far as it was measured."""

    repeat: Positive
    items: Count
    """How many the lock asks."""
    rows: tuple[Row, ...]
    outcomes: dict[str, Outcome]
    """By item; a row without one counts as not graded."""
    grade_version: Positive
    reads: dict[str, Reading] = {}
    """By item, where the grader read the answer part by part."""


class Side(Base, frozen=True, kw_only=True):
    """A point of a run."""

    name: str
    """``RUN:POINT`` as it is shown."""
    lock: Lock
    point: str
    sealed: bool
    """Whether every item is there and the run carries its seal."""
    forced: tuple[str, ...]
    """Facts that were allowed to differ from the lock."""
    sittings: dict[str, tuple[Sitting, ...]]
    """By suite, in the order of their repeats."""
    devices: tuple[facts.Device, ...] = ()
    """As the device was seen while it answered, once for each way in which it was."""
    memory: tuple[facts.Buffer, ...] = ()
    """What the point took, by the engine's own account; empty where it told nothing."""
    other_timing: tuple[str, ...] = ()
    """What can change its speed and was otherwise where some of its answers were taken over from."""


def point_of(side: Side) -> PointPin:
    """The point.

    Raises:
        InputError: The lock has none of this name.
    """
    for point in side.lock.point:
        if point.name == side.point:
            return point
    known = ", ".join(point.name for point in side.lock.point)
    raise InputError(f"got `{side.point}`, expected a point of this lock: {known}")


def engine_of(side: Side) -> facts.Engine:
    """The engine that the point ran on."""
    return named(side.lock.engine, point_of(side).engine)


def device_of(side: Side) -> facts.Device:
    """The device that the point ran on."""
    return named(side.lock.device, point_of(side).device)


def model_of(side: Side) -> ModelPin:
    """The point's model."""
    return named(side.lock.model, point_of(side).model)


def setting_of(side: Side) -> facts.Setting:
    """The point's setting."""
    return named(side.lock.setting, point_of(side).setting)


def same_tokenizer(a: Side, b: Side) -> bool:
    """Whether a token id means the same on both sides."""
    return model_of(a).tokenizer_digest == model_of(b).tokenizer_digest


def suites_of(side: Side) -> dict[str, SuitePin]:
    """The suites that the point sits, by name, in the lock's order."""
    return {suite.name: suite for suite in side.lock.suite if side.point in suite.points}
