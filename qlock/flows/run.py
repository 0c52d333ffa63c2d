"""``run``: measure what a lock says, on the machine and files that it names, and refuse otherwise.

In order: lock and spec; rules 1 to 3; hold the folder; then point by point: load, rules 4 to 7, trials of the graders,
the jobs; after the last item rule 8; grades; the seal. What was measured before is not measured again.

Does not live here: one point (``flows.run_point``), the files of a run (``flows.run_folder``), printing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from qlock import __version__
from qlock.core.base import Base, Count, Finite
from qlock.core.facts import EngineFile
from qlock.core.lock import Lock, PointPin
from qlock.core.plan import Job, jobs, prompts_of
from qlock.core.record import Record, SealedJob
from qlock.core.spec import spec_digest
from qlock.core.verify import Finding, entries, refuses
from qlock.engines.interface import Engine
from qlock.errors import InputError, RefusedError
from qlock.flows.grading import TrialFailure
from qlock.flows.layout import project_of, runs_folder, spec_beside
from qlock.flows.look import Sight, look, look_again
from qlock.flows.places import Places
from qlock.flows.proving import Opener, engine_facts, pinned
from qlock.flows.refusal import FindingsError, is_allowed
from qlock.flows.resolve import read_lock_file, read_spec_file
from qlock.flows.run_folder import RunFacts, RunFolder, Segment, folder_name, next_repeat, run_folders
from qlock.flows.run_point import Broken, Progress, Stage, TrialsFailedError, run_point
from qlock.flows.scores import JobScore, job_scores, score_of, write_grades
from qlock.flows.seat import Seat
from qlock.world.interface import World
from qlock.world.render import Renderer

State = Literal[
    "sealed", "already-sealed", "incomplete", "refused", "absent", "stale", "trials-failed", "anchor-off"
]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks of ``run``."""

    lock_path: Path
    runs: Path | None = None
    """Folder of all runs of this lock's spec; ``runs/NAME@DEVICE`` in the project when not given."""
    models: tuple[Path, ...] = ()
    frozen: bool = False
    """Trust the lock, whatever the spec beside it says."""
    allow: tuple[str, ...] = ()
    """Facts that may differ; the run carries that mark for ever."""
    rehash: bool = False
    repeat_lock: bool = False
    """Run the same lock once more, into a folder of its own, to see how far two runs differ."""
    engine: Path | None = None
    """Folder of the engine's libraries; the lock says which ones they must be."""


class AnchorCheck(Base, frozen=True, kw_only=True):
    """A published score and what came out here."""

    model: str
    suite: str
    published: Finite
    tolerance: Finite
    found: Finite
    holds: bool


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    state: State
    folder: Path | None = None
    why: str = ""
    findings: tuple[Finding, ...] = ()
    trials: tuple[TrialFailure, ...] = ()
    anchors: tuple[AnchorCheck, ...] = ()
    broken: tuple[Broken, ...] = ()
    scores: tuple[JobScore, ...] = ()
    measured: Count = 0
    taken_over: tuple[str, ...] = ()
    cached_digests: Count = 0
    answers_digest: str = ""


Talk = Callable[[Progress], None]


def run(world: World, asked: Asked, open_engine: Opener, talk: Talk) -> Ran:
    """Run a lock to the end, or as far as it may go.

    Raises:
        InputError: The lock or a record is unreadable, edited, or of another lock.
        RefusedError: The lock still misses pins.
        EngineError: The engine did not start, or died again and again.
        AbsentError: The folder is held by another run, or the disk is full.
    """
    lock, data = read_lock_file(world, asked.lock_path)
    stale = "" if asked.frozen else why_stale(world, asked.lock_path, lock, data)
    if stale:
        return Ran(state="stale", why=stale)
    refuse_missing(lock, asked.lock_path)
    places = Places(world, base=project_of(asked.lock_path), folders=asked.models)
    sight = look(world, lock, places, rehash=asked.rehash)
    stopping = tuple(f for f in sight.findings if refuses(f) and not is_allowed(f, asked.allow))
    if stopping:
        return Ran(state=_refused_state(stopping), findings=sight.findings, cached_digests=sight.cached)
    runs = asked.runs or runs_folder(asked.lock_path, lock)
    path = next_repeat(runs, data) if asked.repeat_lock else _folder(runs, data)
    folder = RunFolder(world, path)
    folder.prepare(data)
    with world.folders.hold(path):
        if folder.seal() is not None:
            return _already(folder, lock)
        scene = _Scene(
            world=world,
            asked=asked,
            lock=lock,
            data=data,
            sight=sight,
            places=places,
            folder=folder,
            open_engine=open_engine,
            talk=talk,
        )
        return _Run(scene).go()


def _refused_state(findings: tuple[Finding, ...]) -> State:
    """``absent`` when nothing is wrong but that files are not here."""
    only_absent = all(
        finding.found == "missing" and finding.rule in ("model-files", "suite-files") for finding in findings
    )
    return "absent" if only_absent else "refused"


def _folder(runs: Path, data: bytes) -> Path:
    """The folder of this lock: an unfinished repeat of it is gone on with first."""
    name = folder_name(data)
    mine = [path for path in run_folders(runs) if path.name.partition(".")[0] == name]
    open_ones = [path for path in mine if not (path / "seal.json").exists()]
    return open_ones[0] if open_ones else runs / name


def why_stale(world: World, lock_path: Path, lock: Lock, data: bytes) -> str:
    """Why the lock does not fit the spec beside it; empty when it does, or when there is no spec beside it."""
    label = data.split(b"\n", 1)[0].decode().rpartition("qlock resolve ")[2]
    spec_path = spec_beside(lock_path, label)
    if not spec_path.is_file():
        return ""
    spec = read_spec_file(world, spec_path)
    if spec_digest(spec) == lock.spec_digest:
        return ""
    return f"the spec `{label}` changed since this lock was made"


def refuse_missing(lock: Lock, lock_path: Path) -> None:
    """Stop when a pin is still missing.

    Raises:
        RefusedError: Naming the pins and the command.
    """
    open_pins = [entry for entry in lock.missing if entry.until != "never"]
    if open_pins:
        raise RefusedError(
            f"the lock still misses {len(open_pins)} pins, first `{open_pins[0].pin}`: {open_pins[0].why}",
            hint=f"run `qlock resolve` on the spec of `{lock_path.name}` on the node",
        )


def _already(folder: RunFolder, lock: Lock) -> Ran:
    seal = folder.seal()
    assert seal is not None
    return Ran(
        state="already-sealed",
        folder=folder.path,
        answers_digest=seal.answers_digest,
        scores=tuple(job_scores(folder, lock)),
    )


class _Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What one stretch of running works with."""

    world: World
    asked: Asked
    lock: Lock
    data: bytes
    sight: Sight
    places: Places
    folder: RunFolder
    open_engine: Opener
    talk: Talk


class _Run:
    """One stretch of running."""

    def __init__(self, scene: _Scene) -> None:
        self._world = scene.world
        self._asked = scene.asked
        self._lock = scene.lock
        self._sight = scene.sight
        self._folder = scene.folder
        self._scene = scene
        self._taken: dict[str, str] = {}
        self._measured = 0
        self._broken: list[Broken] = []
        self._anchors: list[AnchorCheck] = []
        self._engine_files: tuple[EngineFile, ...] = ()

    def go(self) -> Ran:
        if not self._asked.repeat_lock and not self._asked.allow:
            self._take_over()
        segment = self._begin_segment()
        ran = self._measure(segment)
        self._end_segment(segment)
        return ran

    def _measure(self, segment: int) -> Ran:
        try:
            with Renderer() as renderer, Seat(self._start) as seat:
                for point in self._points():
                    self._point(point, seat, renderer, segment)
                    off = [anchor for anchor in self._anchors if not anchor.holds]
                    if off:
                        return self._ran("anchor-off", why=f"{off[0].model} {off[0].suite}")
                again = self._again(seat)
        except FindingsError as refusal:
            return self._ran("refused", findings=(*self._sight.findings, *refusal.findings))
        except TrialsFailedError as failed:
            return self._ran("trials-failed", trials=failed.trials)
        if again:
            return self._ran("refused", findings=(*self._sight.findings, *again))
        if self._open_jobs():
            return self._ran("incomplete")
        return self._seal(segment)

    def _start(self) -> Engine:
        return self._scene.open_engine(lib_folder=self._asked.engine)

    def _points(self) -> list[str]:
        """Points with something left to do; those with an anchor first."""
        todo = {job.point for job in self._open_jobs()}
        anchors = {(anchor.model, anchor.setting) for anchor in self._lock.anchor}
        pins = [pin for pin in self._lock.point if pin.name in todo]
        has_anchor = {pin.name for pin in pins for model, _ in anchors if pin.model == model}
        return sorted((pin.name for pin in pins), key=lambda name: (name not in has_anchor, name))

    def _point(self, name: str, seat: Seat, renderer: Renderer, segment: int) -> None:
        stage = Stage(
            world=self._world,
            lock=self._lock,
            folder=self._folder,
            weights=self._sight.weights,
            exams=self._sight.exams,
            seat=seat,
            renderer=renderer,
            segment=segment,
            allow=self._asked.allow,
            talk=self._scene.talk,
        )
        for event in run_point(stage, name, [job for job in self._open_jobs() if job.point == name]):
            match event:
                case Broken():
                    self._broken.append(event)
                case Record():
                    self._measured += len(event.rows)
                    self._check_anchor(event)

    def _check_anchor(self, record: Record) -> None:
        pin = next(pin for pin in self._lock.point if pin.name == record.header.point)
        for anchor in self._lock.anchor:
            if anchor.model != pin.model or anchor.suite != record.header.suite:
                continue
            if isinstance(anchor.setting, str) and anchor.setting != pin.setting:
                continue
            found = score_of(self._folder, self._lock, record)
            if found is None:
                raise InputError("the anchor has no score").within(record.header.job)
            self._anchors.append(
                AnchorCheck(
                    model=anchor.model,
                    suite=anchor.suite,
                    published=anchor.published,
                    tolerance=anchor.tolerance,
                    found=found.value,
                    holds=abs(found.value - anchor.published) <= anchor.tolerance,
                )
            )

    def _again(self, seat: Seat) -> list[Finding]:
        """Rule 8: the files, and the libraries of the engine that is still running."""
        found = look_again(self._world, self._lock, self._sight.weights, self._scene.places)
        if seat.is_up:
            engine = self._lock.engine[0]
            seen = engine_facts(self._world, seat, name=engine.name, kind=engine.kind)
            self._engine_files = seen.file
            locked = pinned(seen).file
            found += entries("after-the-run", f"engine.{engine.name}.file", engine.file, locked)
        return [finding for finding in found if not is_allowed(finding, self._asked.allow)]

    def _open_jobs(self) -> list[Job]:
        """Jobs whose record has no closing line yet."""
        open_ones = []
        for job in jobs(self._lock):
            record = self._folder.record(job.name)
            if record is not None and record.header.job_digest != job.digest:
                raise InputError(
                    f"the record of `{job.name}` belongs to another lock",
                    hint="give another folder with --runs",
                )
            if record is None or record.closing is None:
                open_ones.append(job)
        return open_ones

    def _take_over(self) -> None:
        """Copy closed records of equal jobs out of sealed runs beside this one."""
        wanted = {job.digest: job for job in self._open_jobs() if self._folder.record(job.name) is None}
        for path in run_folders(self._folder.path.parent):
            other = RunFolder(self._world, path)
            seal = other.seal() if path != self._folder.path else None
            if seal is None or seal.forced:
                continue
            for sealed_job in seal.job:
                job = wanted.pop(sealed_job.job_digest, None)
                if job is None:
                    continue
                record = other.record(sealed_job.job)
                if record is None or record.closing is None:
                    raise InputError(f"the sealed run `{path.name}` misses the record of `{sealed_job.job}`")
                if record.closing.answers_digest != sealed_job.answers_digest:
                    raise InputError(
                        f"the record of `{sealed_job.job}` in `{path.name}` does not fit its seal"
                    )
                digest = prompts_of(self._pin(job.point), job.suite).items_digest
                self._folder.write_items(digest, other.items(digest))
                self._folder.take_over(record, job)
                self._taken[job.name] = path.name

    def _pin(self, point: str) -> PointPin:
        return next(pin for pin in self._lock.point if pin.name == point)

    def _begin_segment(self) -> int:
        before = self._folder.facts()
        here = self._world.host.surroundings()
        segment = Segment(
            started_utc=self._world.clock.now().isoformat(timespec="seconds"),
            ended_utc="",
            host_name=here.host_name,
            boot_id=here.boot_id,
            kernel=here.kernel,
            python=here.python,
            qlock=__version__,
            engine_label=self._lock.engine[0].label,
            engine_file=(),
            device=self._lock.device[0],
            forced=tuple(sorted(self._asked.allow)),
        )
        self._folder.write_facts(RunFacts(facts_version=1, segment=(*before.segment, segment)))
        return len(before.segment)

    def _end_segment(self, number: int) -> None:
        """Note when it ended; a sealed run's facts are already sealed with their end."""
        if self._folder.seal() is not None:
            return
        before = self._folder.facts()
        ended = msgspec.structs.replace(
            before.segment[number],
            ended_utc=self._world.clock.now().isoformat(timespec="seconds"),
            engine_file=self._engine_files,
        )
        segments = (*before.segment[:number], ended, *before.segment[number + 1 :])
        self._folder.write_facts(RunFacts(facts_version=1, segment=segments))

    def _seal(self, segment: int) -> Ran:
        sealed_jobs = []
        for job in jobs(self._lock):
            record = self._folder.record(job.name)
            assert record is not None
            assert record.closing is not None
            write_grades(self._folder, self._lock, record)
            sealed_jobs.append(
                SealedJob(
                    job=job.name,
                    job_digest=job.digest,
                    answers_digest=record.closing.answers_digest,
                    items=record.closing.items,
                    taken_from=self._taken.get(job.name, ""),
                )
            )
        self._end_segment(segment)
        forced = {fact for part in self._folder.facts().segment for fact in part.forced}
        seal = self._folder.write_seal(
            tuple(sealed_jobs), forced=tuple(sorted(forced)), lock_bytes=self._scene.data
        )
        return self._ran("sealed", answers_digest=seal.answers_digest)

    def _ran(self, state: State, **more: Any) -> Ran:
        ran = Ran(
            state=state,
            folder=self._folder.path,
            findings=self._sight.findings,
            anchors=tuple(self._anchors),
            broken=tuple(self._broken),
            measured=self._measured,
            taken_over=tuple(sorted(self._taken)),
            cached_digests=self._sight.cached,
            scores=tuple(job_scores(self._folder, self._lock)) if state == "sealed" else (),
        )
        return msgspec.structs.replace(ran, **more)
