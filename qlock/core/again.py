"""What a new lock leaves of an old one's records: which jobs have to be measured again, which only graded again.

A record answers a job of equal digest, whatever lock it was made for. Grades are apart from records: a suite whose
graders changed asks the same.

Does not live here: taking records over (``flows.sealing``).
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from qlock.core.base import Base, Positive
from qlock.core.effects import what_changes_output
from qlock.core.lock import Lock, PointPin, SuitePin
from qlock.core.plan import job_digest, job_name

_ASKED_APART = ("name", "grade_version", "repeats")


class AgainRow(Base, frozen=True, kw_only=True):
    """Jobs that share a reason."""

    why: str
    """What moved: ``model Q4_K_M``; or ``new``, or ``not proved yet``."""
    jobs: tuple[str, ...]


class Again(Base, frozen=True, kw_only=True):
    """What has to be done for a new lock, where everything of the old one has been."""

    measure: tuple[AgainRow, ...]
    grade: tuple[AgainRow, ...]
    valid: tuple[str, ...]
    """Jobs whose records and grades hold."""


def again(old: Lock, new: Lock) -> Again:
    """Every job of the new lock, in its order."""
    known = {
        digest: suite.grade_version
        for point in old.point
        for suite in old.suite
        for repeat in range(1, suite.repeats + 1)
        if (digest := _digest(old, point, suite, repeat))
    }
    measure: dict[str, list[str]] = {}
    grade: dict[str, list[str]] = {}
    valid = []
    for point in new.point:
        for suite in new.suite:
            if point.name not in suite.points:
                continue
            for repeat in range(1, suite.repeats + 1):
                name = job_name(suite.name, point.name, repeat)
                version = known.get(_digest(new, point, suite, repeat))
                if version is None:
                    measure.setdefault(_why(old, new, point, suite), []).append(name)
                elif version != suite.grade_version:
                    grade.setdefault(f"grader of suite {suite.name}", []).append(name)
                else:
                    valid.append(name)
    return Again(measure=_rows(measure), grade=_rows(grade), valid=tuple(valid))


def _digest(lock: Lock, point: PointPin, suite: SuitePin, repeat: Positive) -> str:
    """The digest of a job; empty where the point is not proved, or does not sit the suite."""
    asked = {prompts.suite for prompts in point.prompts or ()}
    is_proved = point.canary is not UNSET
    return job_digest(lock, point, suite, repeat) if is_proved and suite.name in asked else ""


def _why(old: Lock, new: Lock, point: PointPin, suite: SuitePin) -> str:
    """The first table whose entry is another one than it was."""
    before = _named(old.point, point.name)
    suite_before = _named(old.suite, suite.name)
    if before is None or suite_before is None or point.name not in suite_before.points:
        return "new"
    for table in ("engine", "device", "model", "setting"):
        name = getattr(point, table)
        was = _named(getattr(old, table), getattr(before, table))
        if was is None or _ground(was) != _ground(_named(getattr(new, table), name)):
            return f"{table} {name}"
    moved = _moved_reference(old, new, suite_before, suite)
    if moved:
        return moved
    if _ground(suite_before) != _ground(suite):
        return f"suite {suite.name}"
    if old.frozen_date != new.frozen_date:
        return "frozen_date"
    if UNSET in (point.canary, before.canary):
        return "not proved yet"
    return f"point {point.name}"


def _moved_reference(old: Lock, new: Lock, before: SuitePin, suite: SuitePin) -> str:
    """What moved of the point that the suite is held against; empty where nothing did."""
    if not before.reference or not suite.reference:
        return ""
    was, now = _named(old.point, before.reference), _named(new.point, suite.reference)
    for table in ("model", "setting"):
        then, here = (
            _named(getattr(lock, table), getattr(pin, table)) for lock, pin in ((old, was), (new, now))
        )
        if _ground(then) != _ground(here):
            return f"reference {suite.reference}"
    return ""


def _ground(entry: Base) -> dict[str, Any]:
    return {path: leaf for path, leaf in what_changes_output(entry).items() if path not in _ASKED_APART}


def _named(table: tuple[Any, ...], name: str) -> Any:
    return next((entry for entry in table if entry.name == name), None)


def _rows(found: dict[str, list[str]]) -> tuple[AgainRow, ...]:
    return tuple(AgainRow(why=why, jobs=tuple(jobs)) for why, jobs in found.items())
