"""Runs that are compared: opening them, and reading a point of one, each file checked against the seal.

Does not live here: which runs and points are meant (``flows.diff``), the files themselves (``flows.run_folder``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import UNSET

from qlock.core.agreement import without_long_texts
from qlock.core.exchange import Outcome
from qlock.core.lock import Lock, SuitePin, lock_digest, named
from qlock.core.plan import Job, jobs
from qlock.core.record import Grade, Record, Seal, Shared
from qlock.core.sides import Side, Sitting
from qlock.errors import AbsentError, InputError
from qlock.flows.conditions import conditions_of
from qlock.flows.fitting import locked_items
from qlock.flows.kinds import suite_kind
from qlock.flows.places import own_place
from qlock.flows.run_folder import RunFolder, items_name, run_folders
from qlock.flows.scores import grades_of
from qlock.suites.interface import Item
from qlock.world.files import shown
from qlock.world.interface import World


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


def open_run(world: World, path: Path) -> OpenRun:
    """A run by its folder, or by the folder of all runs of a lock.

    Raises:
        AbsentError: There is none, or several could be meant.
        InputError: Its lock or seal is unreadable, or they do not belong together.
    """
    whole = own_place(world.cwd / path)
    if not (whole / "lock.toml").is_file():
        whole = _only_run(whole, str(path))
    folder = RunFolder(world, whole)
    lock, data = folder.lock()
    seal = folder.seal()
    if seal is not None and seal.lock_digest != lock_digest(data):
        raise InputError("the lock is not the one that was sealed").in_document(f"{folder.place}/lock.toml")
    return OpenRun(folder=folder, lock=lock, data=data, seal=seal)


@contextlib.contextmanager
def _in_folder(run: OpenRun) -> Iterator[None]:
    """Puts the folder of a run in front of what its files are called in errors: there may be two runs."""
    try:
        yield
    except InputError as error:
        raise error.in_folder(run.folder.place) from None


def _only_run(runs: Path, asked: str) -> Path:
    """The one run in a folder of runs; the one sealed run, where others are open."""
    place = shown(asked)
    found = run_folders(runs)
    if not found:
        raise AbsentError(f"there is no run at `{place}`", hint="give the folder that holds `lock.toml`")
    sealed = [path for path in found if (path / "seal.json").is_file()]
    choice = sealed or list(found)
    if len(choice) > 1:
        names = ", ".join(path.name for path in choice)
        raise AbsentError(
            f"`{place}` holds several runs: {names}", hint=f"name one: {place}/{choice[0].name}"
        )
    return choice[0]


def open_side(run: OpenRun, point: str, *, like: Side | None = None) -> Side:
    """A point of a run with its records and grades.

    Args:
        run: The run.
        point: Its name.
        like: A side that is in memory, many of whose answers may be the same; those are not kept twice.

    Raises:
        InputError: A record or its grades are unreadable, of another job, or were changed after the seal.
    """
    sittings: dict[str, tuple[Sitting, ...]] = {}
    segments: dict[str, frozenset[int]] = {}
    for job in jobs(run.lock):
        if job.point == point:
            near = () if like is None else like.sittings.get(job.suite, ())
            shared = Shared(row for one in near for row in one.rows)
            sitting = _brief(sitting_of(run, job, shared=shared))
            sittings[job.suite] = (*sittings.get(job.suite, ()), sitting)
            segments[job.name] = frozenset(row.segment for row in sitting.rows)
    with _in_folder(run):
        conditions = conditions_of(run.folder, point, segments)
    return Side(
        name=f"{run.name}:{point}",
        lock=run.lock,
        point=point,
        sealed=run.seal is not None,
        forced=forced_facts(run),
        sittings=sittings,
        devices=conditions.device,
        memory=conditions.memory,
        other_timing=conditions.other_timing,
    )


def _brief(sitting: Sitting) -> Sitting:
    return msgspec.structs.replace(sitting, rows=tuple(map(without_long_texts, sitting.rows)))


def forced_facts(run: OpenRun) -> tuple[str, ...]:
    """Facts that were allowed to differ, as the segments and the seal say."""
    with _in_folder(run):
        forced = {fact for part in run.folder.facts().segment for fact in part.forced}
    return tuple(sorted(forced | set(() if run.seal is None else run.seal.forced)))


def sitting_of(run: OpenRun, job: Job, *, shared: Shared | None = None) -> Sitting:
    """One job of a run, as far as it goes; without rows where it has not begun.

    Raises:
        InputError: As ``open_side``.
    """
    with _in_folder(run):
        return _sitting_of(run, job, shared)


def _sitting_of(run: OpenRun, job: Job, shared: Shared | None) -> Sitting:
    suite = named(run.lock.suite, job.suite)
    name = f"record/{job.name}.jsonl"
    _check_sealed(run, name, *([] if job.part is not UNSET else [f"grades/{job.name}.jsonl"]))
    record = run.folder.record(job.name, shared=shared)
    if record is None:
        return Sitting(
            repeat=job.repeat, items=job.asked, rows=(), outcomes={}, grade_version=suite.grade_version
        )
    if record.header.job_digest != job.digest:
        raise InputError("the record belongs to another lock").in_document(name)
    if record.header.part != job.part:
        raise InputError(
            "the record is one of a shard", hint="bring the tasks together with `qlock merge`"
        ).in_document(name)
    version, grades = _grades(run, job, suite, record)
    outcomes: dict[str, Outcome] = {grade.item: grade.outcome for grade in grades}
    reads = {grade.item: grade.read for grade in grades if grade.read is not UNSET}
    return Sitting(
        repeat=job.repeat,
        items=job.asked,
        rows=record.rows,
        outcomes=outcomes,
        grade_version=version,
        reads=reads,
    )


def _grades(run: OpenRun, job: Job, suite: SuitePin, record: Record) -> tuple[int, tuple[Grade, ...]]:
    """The grades that were written for this very record, or worked out now where there are none yet."""
    name = f"grades/{job.name}.jsonl"
    if record.closing is None or not (run.folder.path / name).is_file():
        return suite_kind(suite.kind).grade_version, grades_of(run.folder, run.lock, record)
    header, grades = run.folder.grades(job.name)
    if header.job_digest != job.digest or header.answers_digest != record.closing.answers_digest:
        raise InputError("the grades are not of this record", hint="put the file back as it was").in_document(
            name
        )
    return header.grade_version, grades


def items_of(run: OpenRun, job: Job) -> tuple[Item, ...]:
    """What the job asks here, in order; nothing where no job that asks it has begun.

    Raises:
        InputError: The file is unreadable, or was changed after the seal.
    """
    digest = locked_items(run.lock, job)
    name = items_name(digest)
    if not (run.folder.path / name).is_file():
        return ()
    is_forced = bool(forced_facts(run))
    with _in_folder(run):
        _check_sealed(run, name)
        items = run.folder.items(digest)
        if run.seal is None and not is_forced:
            run.folder.refuse_other_items(digest, items)
    return items[job.places]


def _check_sealed(run: OpenRun, *names: str) -> None:
    """What is read is what was sealed.

    Raises:
        InputError: A file is not sealed, or not as it was.
    """
    if run.seal is None:
        return
    digests = {file.path: file.digest for file in run.seal.file}
    for name in names:
        if digests.get(name) != run.folder.digest(name):
            raise InputError(
                "the file was changed after the run was sealed",
                hint="get it again from whoever measured it, or measure again",
            ).in_document(name)


def is_one_run(a: OpenRun, b: OpenRun) -> bool:
    """Whether two folders hold one run: they are the same folder, or one was copied from the other.

    A copy has the same lock, began in the same second on the same machine, and an answer in it took just as long. Two
    runs that are started at once share the beginning, but not the times of their answers.
    """
    if a.folder.path.resolve() == b.folder.path.resolve():
        return True
    begun = [
        [(part.started_utc, part.host_name, part.boot_id) for part in run.folder.facts().segment[:1]]
        for run in (a, b)
    ]
    if a.data != b.data or begun[0] != begun[1]:
        return False
    for job in jobs(a.lock):
        mine, theirs = (run.folder.record(job.name) for run in (a, b))
        if mine is not None and theirs is not None:
            times = {row.item: row.times for row in mine.rows}
            shared = [row for row in theirs.rows if row.item in times]
            if shared:
                return any(times[row.item] == row.times for row in shared)
    return False
