"""``verify``: whether a run is what its seal says, with no engine and none of the models.

In order:

1. the seal is there;
2. every sealed file has its digest, and no other file lies among the record, items and grades;
3. the lock is the sealed one, and its jobs are the sealed jobs, digest by digest;
4. every record can be read, is closed, its answers have the sealed digest, and its items are the locked ones;
5. the ``answers_digest`` of the run follows from those of its jobs;
6. the grades are what today's graders make of the record;
7. the marks of ``--allow`` in the seal are those of the segments.

What is read is only what has its sealed digest: a file that does not is a fault by itself, and says nothing else.

Does not live here: measuring again (``flows.run``), and comparing two runs (``flows.diff``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from qlock.core.base import Base, Count
from qlock.core.lock import Lock, lock_digest, named
from qlock.core.plan import Job, jobs
from qlock.core.record import Grade, Record, Seal, SealedJob, run_answers_digest
from qlock.core.tasks import task_named
from qlock.errors import AbsentError, InputError
from qlock.flows.fitting import locked_items, misfits
from qlock.flows.grading import told
from qlock.flows.kinds import suite_kind
from qlock.flows.run_folder import RunFolder, digest_of_items, items_name, run_folders
from qlock.flows.scores import JobScore, grades_of, job_scores
from qlock.world.interface import World

_MOST_NAMED = 5

State = Literal["verified", "broken", "unsealed"]


class Fault(Base, frozen=True, kw_only=True):
    """One thing that is not as sealed."""

    what: str
    """``record/small.F16@f16kv.1.jsonl``, or a fact of the seal."""
    expected: str
    found: str


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a run."""

    state: State
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be held against anything, and why."""
    forced: tuple[str, ...] = ()
    files: Count = 0
    jobs: Count = 0
    answers_digest: str = ""
    scores: tuple[JobScore, ...] = ()


def verify_run(world: World, path: Path) -> Verified:
    """Hold a run folder against its seal.

    Raises:
        AbsentError: There is no run.
        InputError: The seal, or a file that is as sealed, cannot be read.
    """
    folder = RunFolder(world, path)
    if not (path / "lock.toml").exists() and not (path / "seal.json").exists():
        runs = ", ".join(run.name for run in run_folders(path)[:_MOST_NAMED])
        raise AbsentError(
            f"no run in `{path}`: no `lock.toml` and no `seal.json`",
            hint=f"give one of the runs in it: {runs}" if runs else "give the folder that `qlock run` named",
        )
    seal = folder.seal()  # 1.
    if seal is None:
        return Verified(state="unsealed")
    look = _Look(folder, seal)
    look.all()
    return Verified(
        state="broken" if look.faults else "verified",
        faults=tuple(look.faults),
        notes=tuple(look.notes),
        forced=seal.forced,
        files=len(seal.file),
        jobs=len(seal.job),
        answers_digest=seal.answers_digest,
        scores=tuple(look.scores),
    )


class _Look:
    """One look at a sealed run; faults are collected, none stops the others."""

    def __init__(self, folder: RunFolder, seal: Seal) -> None:
        self._folder = folder
        self._seal = seal
        self._intact: set[str] = set()
        self._unfit: set[str] = set()
        """Jobs whose record does not fit what was asked; grading it again would say nothing more."""
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        self.scores: list[JobScore] = []

    def all(self) -> None:
        """Steps 2 to 7."""
        self._files()
        lock = self._lock()
        if lock is not None:
            self._jobs(lock)
        self._equal("answers_digest", self._seal.answers_digest, run_answers_digest(self._seal.job))
        if lock is not None:
            self._grades(lock)
        self._forced()

    def _equal(self, what: str, expected: str, found: str) -> bool:
        if expected != found:
            self.faults.append(Fault(what=what, expected=expected, found=found))
        return expected == found

    def _files(self) -> None:
        """2. NOTE: only names found in the folder are opened, never one that the seal alone names."""
        sealed = {file.path: file.digest for file in self._seal.file}
        for file in self._folder.sealed_files():
            if self._equal(file.path, sealed.pop(file.path, "no such file"), file.digest):
                self._intact.add(file.path)
        for path, digest in sealed.items():
            self.faults.append(Fault(what=path, expected=digest, found="missing"))

    def _lock(self) -> Lock | None:
        """3."""
        if "lock.toml" not in self._intact:
            return None
        lock, data = self._folder.lock()
        self._equal("lock_digest", self._seal.lock_digest, lock_digest(data))
        return lock

    def _jobs(self, lock: Lock) -> None:
        """3 and 4."""
        planned = {job.name: job for job in self._planned(lock)}
        for sealed in self._seal.job:
            job = planned.pop(sealed.job, None)
            if job is None:
                self.faults.append(Fault(what=f"job.{sealed.job}", expected="no such job", found="sealed"))
            elif self._equal(f"job.{job.name}.job_digest", job.digest, sealed.job_digest):
                self._equal(f"job.{job.name}.part", str(job.part), str(sealed.part))
                self._record(lock, job, sealed)
                self._items(lock, job)
        for name in planned:
            self.faults.append(Fault(what=f"job.{name}", expected="sealed", found="missing"))

    def _planned(self, lock: Lock) -> tuple[Job, ...]:
        """The jobs of the run, or of the task whose folder this is."""
        is_task = self._folder.whole != self._folder.path
        return task_named(lock, self._folder.path.name).jobs if is_task else jobs(lock)

    def _record(self, lock: Lock, job: Job, sealed: SealedJob) -> None:
        """4. Reading holds the closing line against the rows; here it is held against its job and the items."""
        record = self._intact_record(job.name)
        if record is None:
            return
        where = f"record/{job.name}.jsonl"
        digest = locked_items(lock, job)
        items = self._folder.items(digest) if items_name(digest) in self._intact else None
        for misfit in misfits(lock, job, record, items):
            self._unfit.add(job.name)
            self.faults.append(
                Fault(what=f"{where}: {misfit.what}", expected=misfit.expected, found=misfit.found)
            )
        if record.closing is None:
            self.faults.append(Fault(what=where, expected="a closing line", found="none"))
            return
        self._equal(f"{where}: answers_digest", sealed.answers_digest, record.closing.answers_digest)
        self._equal(f"{where}: items", str(sealed.items), str(record.closing.items))

    def _items(self, lock: Lock, job: Job) -> None:
        """4. What was asked is what the lock says, item by item."""
        locked = locked_items(lock, job)
        name = items_name(locked)
        if name in self._intact:
            self._equal(f"{name}: items_digest", locked, digest_of_items(self._folder.items(locked)))
        elif not any(fault.what == name for fault in self.faults):
            self.faults.append(Fault(what=name, expected=f"the items of {job.name}", found="missing"))

    def _intact_record(self, job: str) -> Record | None:
        return self._folder.record(job) if f"record/{job}.jsonl" in self._intact else None

    def _grades(self, lock: Lock) -> None:
        """6."""
        for job in self._planned(lock):
            record = self._intact_record(job.name)
            name = f"grades/{job.name}.jsonl"
            asked = items_name(locked_items(lock, job))
            if (
                record is None
                or job.name in self._unfit
                or record.closing is None
                or not {name, asked} <= self._intact
            ):
                continue
            header, grades = self._folder.grades(job.name)
            self._equal(f"{name}: job_digest", job.digest, header.job_digest)
            self._equal(f"{name}: answers_digest", record.closing.answers_digest, header.answers_digest)
            kind = named(lock.suite, job.suite).kind
            try:
                version = suite_kind(kind).grade_version
            except InputError as error:
                self.notes.append(f"{name}: not graded again: {error}")
                continue
            if header.grade_version != version:
                self.notes.append(
                    f"{name}: graded by version {header.grade_version} of `{kind}`, this qlock has {version}; "
                    "not compared"
                )
                continue
            self.faults += _grade_faults(name, grades, grades_of(self._folder, lock, record))
        if not self.faults:
            self.scores += job_scores(self._folder, lock)

    def _forced(self) -> None:
        """7."""
        if "facts.json" not in self._intact:
            return
        forced = {fact for segment in self._folder.facts().segment for fact in segment.forced}
        self._equal("forced", ", ".join(sorted(forced)), ", ".join(sorted(self._seal.forced)))


def _grade_faults(name: str, sealed: tuple[Grade, ...], now: tuple[Grade, ...]) -> Iterator[Fault]:
    """Every item whose outcome is another one today."""
    before = {grade.item: grade.outcome for grade in sealed}
    for grade in now:
        outcome = before.pop(grade.item, None)
        if outcome != grade.outcome:
            yield Fault(
                what=f"{name}: {grade.item}",
                expected=told(grade.outcome),
                found="no grade" if outcome is None else told(outcome),
            )
    for item, outcome in before.items():
        yield Fault(what=f"{name}: {item}", expected="no grade", found=told(outcome))
