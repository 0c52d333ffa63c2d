"""``diff``: find the points that are asked for, open them, and compare.

A run is named by its folder, or by the folder of all runs of a lock where only one of them can be meant; ``RUN:POINT``
names a point of it. With one run, each other point is compared with the reference; with two, points of one name.
With a bridge, a point that both runs have, each other point of the second run is described against the first's reference.
Locks are named by their files, and compared in the same way with nothing measured.

Does not live here: reading runs (``flows.opened``), the comparison (``core.compare``), showing it (``reports``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import msgspec
from msgspec import UNSET

from qlock.core.bridge import needs_bridge
from qlock.core.compare import compare, compare_locks
from qlock.core.comparison import Comparison
from qlock.core.escape import for_message
from qlock.core.lock import Lock
from qlock.core.sides import Side
from qlock.core.validity import Treatment
from qlock.core.words import did_you_mean
from qlock.errors import UsageError
from qlock.flows.locks import read_lock_file
from qlock.flows.opened import OpenRun, is_one_run, open_run, open_side
from qlock.world.interface import World

TREATMENTS: tuple[Treatment, ...] = get_args(Treatment)
_POINT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*@[A-Za-z0-9][A-Za-z0-9._+-]*")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks of ``diff``."""

    left: str
    """``RUN`` or ``RUN:POINT``, or ``LOCK.toml``: the reference where there are two."""
    right: str | None = None
    reference: str | None = None
    """The point that others are compared with; the lock's own when not given."""
    treatment: str | None = None
    """What is meant to differ; as the locks declare when not given."""
    noise: tuple[str, ...] = ()
    """Further runs of the same locks."""
    bridge: str | None = None
    """A point that was run on both devices, where A and B were measured on two."""


class OpenLock(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that is compared without a run."""

    name: str
    lock: Lock

    @property
    def points(self) -> tuple[str, ...]:
        """Names of its points."""
        return tuple(point.name for point in self.lock.point)


def diff(world: World, asked: Asked) -> tuple[Comparison, ...]:
    """Every comparison that is asked for, in the order of the lock's points.

    Raises:
        UsageError: A point, reference or treatment does not exist, or several could be meant.
        AbsentError: There is no such run, or several.
        InputError: A lock, record or grade is unreadable, or was changed after the seal.
    """
    if _is_lock(world, asked.left) or (asked.right is not None and _is_lock(world, asked.right)):
        return _locks(world, asked)
    left_path, left_point = _named(world, asked.left)
    left = right = open_run(world, left_path)
    right_point = None
    if asked.right is not None:
        right_path, right_point = _named(world, asked.right)
        right = open_run(world, right_path)
    chosen = _chosen(asked, (left, left_point), (right, right_point))
    if asked.right is not None and asked.bridge is None:
        chosen = _without_themselves(chosen, left, right)
    treatment = _treatment(asked, left.lock, right.lock)
    again = [open_run(world, Path(path)) for path in asked.noise]
    again_left, again_right = (_repeats(again, run) for run in (left, right))
    _refuse_strangers(again, (left, right))
    sides = _Sides()
    found = []
    for number, (a, b) in enumerate(chosen, start=1):
        mine, other = sides.of(left, a), sides.of(right, b)
        found.append(
            compare(
                mine,
                other,
                treatment=treatment,
                again_a=None if again_left is None else sides.of(again_left, a),
                again_b=None if again_right is None else sides.of(again_right, b),
                through=_through(
                    asked, mine, other, lambda point: (sides.of(left, point), sides.of(right, point))
                ),
            )
        )
        sides.keep({name for both in chosen[number:] for name in both})
    return tuple(found)


class _Sides:
    """Sides in memory, as long as they are needed."""

    def __init__(self) -> None:
        self._open: dict[tuple[Path, str], Side] = {}

    def of(self, run: OpenRun, point: str) -> Side:
        """A side, read where it is not here."""
        key = (run.folder.path, point)
        if key not in self._open:
            like = next(iter(self._open.values()), None)
            self._open[key] = open_side(run, point, like=like)
        return self._open[key]

    def keep(self, points: set[str]) -> None:
        """Forget all others; they are read again should they be needed after all."""
        self._open = {key: side for key, side in self._open.items() if key[1] in points}


def _chosen(
    asked: Asked, left: tuple[OpenRun | OpenLock, str | None], right: tuple[OpenRun | OpenLock, str | None]
) -> list[tuple[str, str]]:
    """The points that are compared, A first."""
    if asked.bridge is not None:
        return _across(asked, left, right)
    if asked.right is None:
        return _within(*left, asked.reference)
    return _between(left, right, asked.reference)


def _through(
    asked: Asked, a: Side, b: Side, sides: Callable[[str], tuple[Side, Side]]
) -> tuple[Side, Side] | None:
    """The bridge on both devices.

    Raises:
        UsageError: A and B are on one device.
    """
    if asked.bridge is None:
        return None
    if not needs_bridge(a, b):
        raise UsageError(
            f"`{a.name}` and `{b.name}` have one engine and device, which needs no bridge",
            hint="leave out --bridge",
        )
    return sides(asked.bridge)


def _is_lock(world: World, named: str) -> bool:
    return _named(world, named)[0].suffix == ".toml"


def _locks(world: World, asked: Asked) -> tuple[Comparison, ...]:
    """Points of one lock or of two."""
    if asked.noise:
        raise UsageError("got --noise with locks, expected runs: a lock has no noise")
    for named in filter(None, (asked.left, asked.right)):
        if not _is_lock(world, named):
            raise UsageError(
                f"got a lock and `{for_message(named)}`, expected two locks or two runs",
                hint="each run holds its lock as `lock.toml`",
            )
    left_path, left_point = _named(world, asked.left)
    left = right = _open_lock(world, left_path)
    right_point = None
    if asked.right is not None:
        right_path, right_point = _named(world, asked.right)
        right = _open_lock(world, right_path)
    treatment = _treatment(asked, left.lock, right.lock)
    found = []
    for one, other in _chosen(asked, (left, left_point), (right, right_point)):
        a, b = _lock_side(left, one), _lock_side(right, other)
        through = _through(asked, a, b, lambda point: (_lock_side(left, point), _lock_side(right, point)))
        found.append(compare_locks(a, b, treatment=treatment, through=through))
    return tuple(found)


def _open_lock(world: World, path: Path) -> OpenLock:
    lock, _ = read_lock_file(world, world.cwd / path)
    return OpenLock(name=path.as_posix(), lock=lock)


def _lock_side(opened: OpenLock, point: str) -> Side:
    return Side(
        name=f"{opened.name}:{point}", lock=opened.lock, point=point, sealed=False, forced=(), sittings={}
    )


def _named(world: World, text: str) -> tuple[Path, str | None]:
    """``RUN:POINT`` taken apart; a colon that begins no point belongs to the path.

    What stands behind the colon is meant as a point where it looks like one, or where only the path before it is there.
    """
    path, colon, point = text.rpartition(":")
    if colon and path and (_POINT.fullmatch(point) or _is_alone(world.cwd / path, world.cwd / text)):
        return Path(path), point
    return Path(text), None


def _is_alone(path: Path, other: Path) -> bool:
    return path.exists() and not other.exists()


def _known(run: OpenRun | OpenLock, point: str) -> str:
    if point not in run.points:
        raise UsageError(
            f"got point `{for_message(point)}`, expected one of `{run.name}`: {', '.join(run.points)}",
            hint=did_you_mean(point, run.points),
        )
    return point


def _within(run: OpenRun | OpenLock, point: str | None, reference: str | None) -> list[tuple[str, str]]:
    """Points of one run, each with the reference."""
    if reference is None:
        if run.lock.compare is UNSET:
            raise UsageError("nothing says which point is the reference", hint="give --reference POINT")
        reference = run.lock.compare.reference
    _known(run, reference)
    others = [name for name in run.points if name != reference]
    if point is not None:
        others = [_known(run, point)]
    if not others or others == [reference]:
        raise UsageError(f"there is nothing to compare `{reference}` with", hint="name a second run or point")
    return [(reference, other) for other in others]


def _across(
    asked: Asked, left: tuple[OpenRun | OpenLock, str | None], right: tuple[OpenRun | OpenLock, str | None]
) -> list[tuple[str, str]]:
    """The reference of the first run with each point of the second one, or the one named, but the bridge."""
    (run_a, a), (run_b, b) = left, right
    if asked.right is None:
        raise UsageError(f"got --bridge and `{run_a.name}` alone, expected a second one of another device")
    assert asked.bridge is not None
    for run in (run_a, run_b):
        _known(run, asked.bridge)
    if a is None:
        a = asked.reference or _reference_but(run_a, asked.bridge)
    elif asked.reference not in (None, a):
        raise _two_references(asked.reference or "", a)
    _known(run_a, a)
    others = [point for point in run_b.points if point != asked.bridge] if b is None else [_known(run_b, b)]
    if not others or asked.bridge in (a, *others):
        raise UsageError(f"the bridge `{asked.bridge}` is what would be compared", hint="name another point")
    return [(a, other) for other in others]


def _reference_but(run: OpenRun | OpenLock, bridge: str) -> str:
    """The reference that a lock declares, or its only point but the bridge."""
    if run.lock.compare is not UNSET:
        return run.lock.compare.reference
    others = [point for point in run.points if point != bridge]
    return others[0] if len(others) == 1 else _only(run, None, None)


def _two_references(reference: str, point: str) -> UsageError:
    return UsageError(f"got reference `{for_message(reference)}` and point `{point}` of the first run")


def _between(
    left: tuple[OpenRun | OpenLock, str | None],
    right: tuple[OpenRun | OpenLock, str | None],
    reference: str | None,
) -> list[tuple[str, str]]:
    """Points of two runs: those named, else those of one name, else the only ones."""
    (run_a, a), (run_b, b) = left, right
    for run, point in (left, right):
        if point is not None:
            _known(run, point)
    if reference is not None:
        if a is not None and a != reference:
            raise _two_references(reference, a)
        a = _known(run_a, reference)
        if b is None:
            return [(a, other) for other in run_b.points]
    if a is not None and b is not None:
        return [(a, b)]
    if a is None and b is None:
        both = [point for point in run_a.points if point in run_b.points]
        if both:
            return [(point, point) for point in both]
    return [(_only(run_a, a, b), _only(run_b, b, a))]


def _only(run: OpenRun | OpenLock, point: str | None, other: str | None) -> str:
    """The point that must be meant: the one named, the one of the other side's name, or the only one."""
    if point is not None:
        return point
    if other in run.points:
        assert other is not None
        return other
    if len(run.points) == 1:
        return run.points[0]
    raise UsageError(
        f"`{run.name}` has several points: {', '.join(run.points)}", hint=f"name one: RUN:{run.points[0]}"
    )


def _treatment(asked: Asked, left: Lock, right: Lock) -> Treatment:
    if asked.treatment is not None:
        for treatment in TREATMENTS:
            if asked.treatment == treatment:
                return treatment
        known = ", ".join(TREATMENTS)
        raise UsageError(f"got treatment `{for_message(asked.treatment)}`, expected one of: {known}")
    declared = {lock.compare.treatment for lock in (left, right) if lock.compare is not UNSET}
    if len(declared) > 1:
        words = " and ".join(sorted(declared))
        raise UsageError(f"the locks declare two treatments: {words}", hint="give --treatment")
    return declared.pop() if declared else "weights"


def _repeats(again: list[OpenRun], run: OpenRun) -> OpenRun | None:
    """A further run of the same lock."""
    for other in again:
        if other.data == run.data and not is_one_run(other, run):
            return other
    return None


def _refuse_strangers(again: list[OpenRun], runs: tuple[OpenRun, OpenRun]) -> None:
    for other in again:
        if all(other.data != run.data for run in runs):
            raise UsageError(
                f"`{other.name}` is no further run of a compared lock", hint="run the same lock once more"
            )
        if all(is_one_run(other, run) for run in runs if other.data == run.data):
            raise UsageError(
                f"`{other.name}` is the compared run itself or a copy of it, which shows no noise",
                hint="run the same lock once more",
            )


def _without_themselves(
    chosen: list[tuple[str, str]], left: OpenRun, right: OpenRun
) -> list[tuple[str, str]]:
    """The pairs of which neither is the other.

    Raises:
        UsageError: There are none.
    """
    if not is_one_run(left, right):
        return chosen
    others = [(a, b) for a, b in chosen if a != b]
    if not others:
        same = left.folder.path.resolve() == right.folder.path.resolve()
        raise UsageError(
            f"`{left.name}` would be compared with {'itself' if same else f'a copy of itself, `{right.name}`'}",
            hint="name a second run or point",
        )
    return others
