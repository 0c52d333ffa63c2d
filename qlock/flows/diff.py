"""``diff``: open the points that are asked for, check what is read against its seal, and compare.

A run is named by its folder, or by the folder of all runs of a lock where only one of them can be meant; ``RUN:POINT``
names a point of it. With one run, each other point is compared with the reference; with two, points of one name.
Locks are named by their files, and compared in the same way with nothing measured.

Does not live here: the comparison (``core.compare``), showing it (``reports``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
from msgspec import UNSET

from qlock.core.compare import compare, compare_locks
from qlock.core.comparison import Comparison
from qlock.core.digest import blake3_of
from qlock.core.escape import for_message
from qlock.core.exchange import Outcome
from qlock.core.lock import Lock, SuitePin, lock_digest
from qlock.core.plan import Job, jobs
from qlock.core.record import Grade, Record, Seal
from qlock.core.sides import Side, Sitting
from qlock.core.validity import Treatment
from qlock.errors import AbsentError, InputError, UsageError
from qlock.flows.kinds import suite_kind
from qlock.flows.resolve import read_lock_file
from qlock.flows.run_folder import RunFolder, run_folders
from qlock.flows.scores import grades_of
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


class OpenLock(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that is compared without a run."""

    name: str
    lock: Lock

    @property
    def points(self) -> tuple[str, ...]:
        """Names of its points."""
        return tuple(point.name for point in self.lock.point)


class OpenRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose lock has been read."""

    folder: RunFolder
    lock: Lock
    data: bytes
    seal: Seal | None

    @property
    def name(self) -> str:
        """The last two parts of its path: the same in every clone."""
        return f"{self.folder.path.parent.name}/{self.folder.path.name}"

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
    if _is_lock(asked.left) or (asked.right is not None and _is_lock(asked.right)):
        return _locks(world, asked)
    left_path, left_point = _named(asked.left)
    left = open_run(world, left_path)
    if asked.right is None:
        right = left
        chosen = _within(left, left_point, asked.reference)
    else:
        right_path, right_point = _named(asked.right)
        right = open_run(world, right_path)
        chosen = _between((left, left_point), (right, right_point), asked.reference)
    treatment = _treatment(asked, left.lock, right.lock)
    again = [open_run(world, Path(path)) for path in asked.noise]
    again_left, again_right = (_repeats(again, run) for run in (left, right))
    _refuse_strangers(again, (left, right))
    sides: dict[tuple[Path, str], Side] = {}

    def side(run: OpenRun, point: str) -> Side:
        key = (run.folder.path, point)
        if key not in sides:
            sides[key] = open_side(run, point)
        return sides[key]

    return tuple(
        compare(
            side(left, a),
            side(right, b),
            treatment=treatment,
            again_a=None if again_left is None else side(again_left, a),
            again_b=None if again_right is None else side(again_right, b),
        )
        for a, b in chosen
    )


def _is_lock(named: str) -> bool:
    return _named(named)[0].suffix == ".toml"


def _locks(world: World, asked: Asked) -> tuple[Comparison, ...]:
    """Points of one lock or of two."""
    if asked.noise:
        raise UsageError("got --noise with locks, expected runs: a lock has no noise")
    for named in filter(None, (asked.left, asked.right)):
        if not _is_lock(named):
            raise UsageError(
                f"got a lock and `{for_message(named)}`, expected two locks or two runs",
                hint="each run holds its lock as `lock.toml`",
            )
    left_path, left_point = _named(asked.left)
    left = right = _open_lock(world, left_path)
    if asked.right is None:
        chosen = _within(left, left_point, asked.reference)
    else:
        right_path, right_point = _named(asked.right)
        right = _open_lock(world, right_path)
        chosen = _between((left, left_point), (right, right_point), asked.reference)
    treatment = _treatment(asked, left.lock, right.lock)
    return tuple(
        compare_locks(_lock_side(left, a), _lock_side(right, b), treatment=treatment) for a, b in chosen
    )


def _open_lock(world: World, path: Path) -> OpenLock:
    lock, _ = read_lock_file(world, world.cwd / path)
    return OpenLock(name=path.as_posix(), lock=lock)


def _lock_side(opened: OpenLock, point: str) -> Side:
    return Side(
        name=f"{opened.name}:{point}", lock=opened.lock, point=point, sealed=False, forced=(), sittings={}
    )


def open_run(world: World, path: Path) -> OpenRun:
    """A run by its folder, or by the folder of all runs of a lock.

    Raises:
        AbsentError: There is none, or several could be meant.
    """
    whole = world.cwd / path
    if not (whole / "lock.toml").is_file():
        whole = _only_run(whole, str(path))
    folder = RunFolder(world, whole)
    lock, data = folder.lock()
    seal = folder.seal()
    if seal is not None and seal.lock_digest != lock_digest(data):
        raise InputError("the lock is not the one that was sealed").within(f"{whole.name}/lock.toml")
    return OpenRun(folder=folder, lock=lock, data=data, seal=seal)


def _only_run(runs: Path, asked: str) -> Path:
    """The one run in a folder of runs; the one sealed run, where others are open."""
    shown = for_message(asked)
    found = run_folders(runs)
    if not found:
        raise AbsentError(f"there is no run at `{shown}`", hint="give the folder that holds `lock.toml`")
    sealed = [path for path in found if (path / "seal.json").is_file()]
    choice = sealed or list(found)
    if len(choice) > 1:
        names = ", ".join(path.name for path in choice)
        raise AbsentError(
            f"`{shown}` holds several runs: {names}", hint=f"name one: {shown}/{choice[0].name}"
        )
    return choice[0]


def open_side(run: OpenRun, point: str) -> Side:
    """A point of a run with its records and grades.

    Raises:
        InputError: A record or its grades are unreadable, of another job, or were changed after the seal.
    """
    sittings: dict[str, tuple[Sitting, ...]] = {}
    for job in jobs(run.lock):
        if job.point == point:
            sittings[job.suite] = (*sittings.get(job.suite, ()), _sitting(run, job))
    forced = {fact for part in run.folder.facts().segment for fact in part.forced}
    if run.seal is not None:
        forced |= set(run.seal.forced)
    return Side(
        name=f"{run.name}:{point}",
        lock=run.lock,
        point=point,
        sealed=run.seal is not None,
        forced=tuple(sorted(forced)),
        sittings=sittings,
    )


def _sitting(run: OpenRun, job: Job) -> Sitting:
    suite = next(suite for suite in run.lock.suite if suite.name == job.suite)
    _check_sealed(run, f"record/{job.name}.jsonl", f"grades/{job.name}.jsonl")
    record = run.folder.record(job.name)
    if record is None:
        return Sitting(
            repeat=job.repeat, items=job.items, rows=(), outcomes={}, grade_version=suite.grade_version
        )
    if record.header.job_digest != job.digest:
        raise InputError("the record belongs to another lock").within(f"record/{job.name}.jsonl")
    version, grades = _grades(run, job, suite, record)
    outcomes: dict[str, Outcome] = {grade.item: grade.outcome for grade in grades}
    return Sitting(
        repeat=job.repeat, items=job.items, rows=record.rows, outcomes=outcomes, grade_version=version
    )


def _grades(run: OpenRun, job: Job, suite: SuitePin, record: Record) -> tuple[int, tuple[Grade, ...]]:
    """The grades that were written for this very record, or worked out now where there are none yet."""
    name = f"grades/{job.name}.jsonl"
    if record.closing is None or not (run.folder.path / name).is_file():
        return suite_kind(suite.kind).grade_version, grades_of(run.folder, run.lock, record)
    header, grades = run.folder.grades(job.name)
    if header.job_digest != job.digest or header.answers_digest != record.closing.answers_digest:
        raise InputError("the grades are not of this record", hint="grade the run again").within(name)
    return header.grade_version, grades


def _check_sealed(run: OpenRun, *names: str) -> None:
    """What is read is what was sealed.

    Raises:
        InputError: A file is not sealed, or not as it was.
    """
    if run.seal is None:
        return
    digests = {file.path: file.digest for file in run.seal.file}
    for name in names:
        if digests.get(name) != blake3_of(run.folder.read(name)):
            raise InputError(
                "the file was changed after the run was sealed", hint="run the lock again"
            ).within(f"{run.name}/{name}")


def _named(text: str) -> tuple[Path, str | None]:
    """``RUN:POINT`` taken apart; a colon that begins no point belongs to the path."""
    path, colon, point = text.rpartition(":")
    if colon and path and _POINT.fullmatch(point):
        return Path(path), point
    return Path(text), None


def _known(run: OpenRun | OpenLock, point: str) -> str:
    if point not in run.points:
        known = ", ".join(run.points)
        raise UsageError(f"got point `{for_message(point)}`, expected one of `{run.name}`: {known}")
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
            raise UsageError(f"got reference `{for_message(reference)}` and point `{a}` of the first run")
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
        if other.data == run.data and other.folder.path != run.folder.path:
            return other
    return None


def _refuse_strangers(again: list[OpenRun], runs: tuple[OpenRun, OpenRun]) -> None:
    for other in again:
        if all(other.data != run.data or other.folder.path == run.folder.path for run in runs):
            raise UsageError(
                f"`{other.name}` is no further run of a compared lock", hint="run the same lock once more"
            )
