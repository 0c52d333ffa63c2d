"""``run``: measure what a lock says, on the machine and files that it names, and refuse otherwise.

In order: lock and spec; rules 1 to 3; hold the folder; then point by point: load, rules 4 to 7, trials of the graders,
the jobs; after the last item rule 8; grades; the seal. What was measured before is not measured again.

Does not live here: one point (``flows.run_point``), taking over (``flows.taking_over``), sealing (``flows.sealing``),
the files of a run (``flows.run_folder``) and of its tasks (``flows.tasks``), printing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from qlock.core.base import Count
from qlock.core.lock import Lock, renew_path
from qlock.core.plan import Job, jobs, models_of
from qlock.core.record import Record
from qlock.core.tasks import lock_of_task, task_named
from qlock.core.verify import Finding, refuses
from qlock.engines.interface import Engine
from qlock.errors import EngineError, QlockError
from qlock.flows.anchors import AnchorCheck, Anchors
from qlock.flows.beside import build_folder, spec_of, why_stale
from qlock.flows.copies import copied
from qlock.flows.foreseen import foreseen
from qlock.flows.grading import TrialFailure
from qlock.flows.held_against import check_disk, kept_again, write_bases
from qlock.flows.layout import project_of, runs_folder
from qlock.flows.libraries import Libraries
from qlock.flows.locks import read_lock_file
from qlock.flows.look import Sight, is_as_loaded, look, look_again, stopping_findings
from qlock.flows.places import Places
from qlock.flows.preparing import Progress, Stage
from qlock.flows.proving import Opener
from qlock.flows.refusal import FindingsError, is_allowed, only_absent, refuse_missing, refuse_unknown
from qlock.flows.run_folder import RunFolder, folder_of_lock, next_repeat
from qlock.flows.run_point import Broken, TrialsFailedError, run_point
from qlock.flows.scores import JobScore, job_scores, without_score
from qlock.flows.sealing import (
    begin_segment,
    end_segment,
    open_jobs,
    refuse_broken,
    seal_run,
    set_doubtful_aside,
)
from qlock.flows.seat import Seat
from qlock.flows.stretch import Stretch
from qlock.flows.taking_over import take_over, taken_over
from qlock.flows.tasks import prepared
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
    task: str = ""
    """Only the jobs of this task, into a folder of its own in the run's; empty: all of them."""
    ask_until_s: float | None = None
    """From then on, by the world's monotonic clock, no item is begun."""
    engine: Path | None = None
    """Folder of the engine's libraries, where it is not as the spec beside the lock says; the lock pins the files."""
    scratch: Path | None = None
    """Folder of a disk of this machine's own that models are copied to before they are loaded."""
    tell: Callable[[str], None] = lambda _: None
    """Told of what is known before anything is measured."""


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
    unscored: tuple[str, ...] = ()
    """Jobs that are done and have no score to give, such as a text of which a window has no cost."""
    measured: Count = 0
    taken_over: tuple[str, ...] = ()
    cached_digests: Count = 0
    answers_digest: str = ""


Talk = Callable[[Progress], None]


def run(world: World, asked: Asked, open_engine: Opener, talk: Talk) -> Ran:
    """Run a lock to the end, or as far as it may go.

    Raises:
        UsageError: What is to be allowed is no fact of the lock.
        InputError: The lock or a record is unreadable, edited, or of another lock.
        RefusedError: The lock still misses pins.
        EngineError: The engine did not start, or died again and again.
        AbsentError: The folder is held by another run, or the disk is full.
    """
    lock_path = world.cwd / asked.lock_path
    lock, data = read_lock_file(world, lock_path)
    refuse_unknown(lock, asked.allow)
    stale = "" if asked.frozen else why_stale(world, lock_path, lock, data)
    if stale:
        return Ran(state="stale", why=stale)
    refuse_missing(lock, lock_path, renew=renew_path(data.decode()))
    task = task_named(lock, asked.task) if asked.task else None
    lock = lock if task is None else lock_of_task(lock, task)
    places = Places(world, base=project_of(lock_path), folders=asked.models)
    sight = look(world, lock, places, rehash=asked.rehash)
    stopping = stopping_findings(lock, sight, asked.allow)
    if stopping:
        state: State = "absent" if only_absent(stopping) else "refused"
        return Ran(state=state, findings=sight.findings, cached_digests=sight.cached)
    todo = jobs(lock) if task is None else task.jobs
    runs = asked.runs or runs_folder(lock_path, lock)
    path = next_repeat(runs, data) if asked.repeat_lock else folder_of_lock(runs, data)
    folder = prepared(world, path, data, task=task)
    with world.folders.hold(folder.path):
        before = _done_before(world, folder, lock, todo)
        if before is not None:
            return before
        for told in foreseen(world, lock, sight.exams, runs):
            asked.tell(told)
        with copied(world, lock, sight, asked.scratch) as sight:
            scene = _Scene(
                world=world,
                asked=asked,
                lock=lock,
                jobs=todo,
                data=data,
                sight=sight,
                places=places,
                folder=folder,
                build=asked.engine or _build(world, asked, lock_path, data),
                open_engine=sight.opener(open_engine),
                talk=talk,
            )
            return _Run(scene).go()


def _done_before(world: World, folder: RunFolder, lock: Lock, todo: tuple[Job, ...]) -> Ran | None:
    """The run that lies there whole, or that the task was merged into; ``None`` where something is left to do."""
    for done in (folder, RunFolder(world, folder.whole)):
        seal = done.seal()
        if seal is not None:
            refuse_broken(done, seal)
            ran = Ran(state="already-sealed", folder=done.path, answers_digest=seal.answers_digest)
            return _with_scores(ran, done, lock, todo)
    return None


def _build(world: World, asked: Asked, lock_path: Path, data: bytes) -> Path | None:
    """Where the spec beside the lock says that the engine lies; a spec that is not trusted says nothing."""
    return None if asked.frozen else build_folder(spec_of(world, lock_path, data), lock_path)


def _with_scores(ran: Ran, folder: RunFolder, lock: Lock, todo: tuple[Job, ...]) -> Ran:
    """What a sealed run is worth."""
    scores = tuple(job_scores(folder, lock))
    return msgspec.structs.replace(ran, scores=scores, unscored=without_score(todo, scores))


class _Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What one stretch of running works with."""

    world: World
    asked: Asked
    lock: Lock
    jobs: tuple[Job, ...]
    """All that is to be done in the folder."""
    data: bytes
    sight: Sight
    places: Places
    folder: RunFolder
    build: Path | None
    """Folder of the engine's libraries."""
    open_engine: Opener
    talk: Talk


class _Run:
    """One stretch of running."""

    def __init__(self, scene: _Scene) -> None:
        self._world = scene.world
        self._asked = scene.asked
        self._lock = scene.lock
        self._jobs = scene.jobs
        self._sight = scene.sight
        self._folder = scene.folder
        self._scene = scene
        self._now = Stretch()
        self._anchors = Anchors(scene.folder, scene.lock)
        self._libraries = Libraries(scene.world, scene.lock.engine[0])

    def go(self) -> Ran:
        self._now.open = open_jobs(self._folder, self._lock, self._jobs)
        if set_doubtful_aside(self._folder, self._lock, self._jobs, self._sight.origins):
            self._now.open = open_jobs(self._folder, self._lock, self._jobs)
        if not self._asked.repeat_lock and not self._asked.allow:
            self._now.taken = taken_over(self._world, self._folder, self._now.open)
        self._now.segment = begin_segment(
            self._world,
            self._folder,
            self._lock,
            forced=self._asked.allow,
            taken=self._now.taken,
            loaded=self._sight.origins,
        )
        for name, source in self._now.taken.items():
            job = self._now.open.pop(name)
            take_over(self._world, self._folder, self._lock, job, source=source, segment=self._now.segment)
        try:
            ran = self._measure()
        except (QlockError, KeyboardInterrupt, SystemExit):
            with contextlib.suppress(QlockError):
                self._now.looked_again = self._now.looked_again or is_as_loaded(
                    self._lock, self._sight, self._now.kept
                )
                self._end_segment()
            raise
        self._end_segment()
        return ran

    def _measure(self) -> Ran:
        for job in self._jobs:
            if job.name not in self._now.open:
                self._anchors.check(job)
        try:
            with Renderer() as renderer, Seat(self._start) as seat:
                self._ask(seat, renderer)
        except FindingsError as refusal:
            return self._refused(refusal.findings)
        except TrialsFailedError as failed:
            return (
                self._refused(trials=failed.trials)
                if self._now.late
                else self._ran("trials-failed", trials=failed.trials)
            )
        except EngineError as error:
            if not self._now.late:
                raise
            return self._refused(why=str(error))
        if self._now.late:
            return self._refused()
        if self._anchors.off():
            return self._ran("anchor-off", why=self._anchors.off())
        if self._now.open:
            return self._ran("incomplete", why="the time is up" if self._is_over() else "")
        return self._seal()

    def _ask(self, seat: Seat, renderer: Renderer) -> None:
        """Every point with something left to do, then rule 8, also when the asking ends in an error."""
        stage = self._stage(seat, renderer)
        try:
            check_disk(stage, self._now.open.values())
            for point in self._points():
                if not self._anchors.off() and not self._is_over():
                    self._point(point, stage)
        except QlockError:
            # The error is what is told; an engine that is gone cannot be looked at again.
            with contextlib.suppress(QlockError):
                self._again(stage)
            raise
        finally:
            self._libraries.log = seat.failure_log
        self._again(stage)

    def _is_over(self) -> bool:
        until_s = self._asked.ask_until_s
        return until_s is not None and self._world.clock.monotonic_s() >= until_s

    def _refused(
        self, findings: tuple[Finding, ...] = (), *, why: str = "", trials: tuple[TrialFailure, ...] = ()
    ) -> Ran:
        """The end of a run with these findings and those of rule 8, each place once."""
        return self._ran("refused", why=why, trials=trials, findings=self._now.beside_late(findings))

    def _start(self) -> Engine:
        return self._scene.open_engine(lib_folder=self._scene.build)

    def _points(self) -> list[str]:
        """Points with something left to do; those with an anchor first, then what others are held against."""
        todo = {job.point for job in self._now.open.values()}
        references = {suite.reference for suite in self._lock.suite}
        return sorted(todo, key=lambda name: (not self._anchors.of(name), name not in references, name))

    def _stage(self, seat: Seat, renderer: Renderer) -> Stage:
        return Stage(
            world=self._world,
            lock=self._lock,
            folder=self._folder,
            weights={**self._sight.other_weights, **self._sight.weights},
            pci_bus_id=self._sight.pci_bus_id,
            exams=(*self._sight.exams, *self._sight.other_exams),
            seat=seat,
            renderer=renderer,
            segment=self._now.segment,
            allow=self._asked.allow,
            talk=self._scene.talk,
            on_row=self._now.count,
            on_ready=self._libraries.note,
            kept=self._now.kept,
            is_over=self._is_over,
        )

    def _point(self, name: str, stage: Stage) -> None:
        anchored = {anchor.suite for anchor in self._anchors.of(name)}
        mine = [job for job in self._now.open.values() if job.point == name]
        if not write_bases(stage, mine):
            return
        for event in run_point(stage, name, sorted(mine, key=lambda job: job.suite not in anchored)):
            match event:
                case Broken():
                    self._now.broken.append(event)
                case Record():
                    self._anchors.check(self._now.open.pop(event.header.job))
                    if self._anchors.off():
                        return

    def _again(self, stage: Stage) -> None:
        """Rule 8: the files, and the libraries of the engine that is still running.

        What was measured with something that changed is set aside, and measured again by the next run.
        """
        self._doubt(look_again(self._world, self._lock, self._sight, self._scene.places))
        self._doubt(kept_again(stage))
        self._doubt(self._libraries.again(stage.seat) if stage.seat.is_up else [])
        self._now.looked_again = True

    def _doubt(self, found: list[Finding]) -> None:
        stopping = self._stops(found)
        self._now.late += stopping
        for job in self._jobs:
            models = (f"model.{name}." for name in models_of(self._lock, job))
            doubts = ("engine.", f"suite.{job.suite}.reference.", *models)
            if job.name not in self._now.taken and any(one.where.startswith(doubts) for one in stopping):
                self._folder.set_aside(job.name, self._now.segment)

    def _stops(self, found: list[Finding]) -> list[Finding]:
        return [f for f in found if refuses(f) and not is_allowed(f, self._asked.allow)]

    def _end_segment(self) -> None:
        engine, looked_again = self._libraries.end(), self._now.looked_again
        end_segment(self._world, self._folder, self._now.segment, engine=engine, looked_again=looked_again)

    def _seal(self) -> Ran:
        self._end_segment()
        seal = seal_run(self._folder, self._lock, self._jobs, self._scene.data)
        ran = msgspec.structs.replace(self._ran("sealed"), answers_digest=seal.answers_digest)
        return _with_scores(ran, self._folder, self._lock, self._jobs)

    def _ran(
        self,
        state: State,
        *,
        why: str = "",
        findings: tuple[Finding, ...] = (),
        trials: tuple[TrialFailure, ...] = (),
    ) -> Ran:
        """The end of a run, with these findings beside those from before the start."""
        return Ran(
            state=state,
            folder=self._folder.path,
            why=why,
            findings=(*self._sight.findings, *findings),
            trials=trials,
            anchors=tuple(self._anchors.checks),
            broken=tuple(self._now.broken),
            measured=self._now.measured,
            taken_over=tuple(sorted(self._now.taken)),
            cached_digests=self._sight.cached,
        )
