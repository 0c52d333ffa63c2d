"""Running the open jobs of one point: load it, hold it against the lock, try the graders, ask.

Rules 4 to 7 of ``core.verify`` are checked here, again after every restart of the engine. Nothing is measured before
all of them hold and every grader has passed its trials.

Does not live here: which points run, rule 8, the seal (``flows.run``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import UNSET

from qlock.core import facts
from qlock.core.base import Base, Count
from qlock.core.exchange import Completed, Failed
from qlock.core.gguf import describe
from qlock.core.lock import Lock, PointPin
from qlock.core.plan import Job, prompts_of
from qlock.core.record import Record, Row, is_done, tokens_of
from qlock.core.verify import Finding, differences, entries
from qlock.engines.interface import Engine, Load
from qlock.errors import InputError, QlockError
from qlock.flows import proving
from qlock.flows.asking import Asker, Question, respondent
from qlock.flows.conditions import note_memory
from qlock.flows.driver import Driver
from qlock.flows.fitting import refuse_misfit
from qlock.flows.grading import TrialFailure, try_grader
from qlock.flows.headers import header_of as gguf_header_of
from qlock.flows.laps import Laps
from qlock.flows.obedience import said_findings
from qlock.flows.proving import Exam
from qlock.flows.references import is_beside, load_beside
from qlock.flows.refusal import refuse
from qlock.flows.room import check_room
from qlock.flows.run_folder import RunFolder, header_of, row_bytes
from qlock.flows.seat import Seat
from qlock.world.interface import World
from qlock.world.render import Renderer


class Progress(Base, frozen=True, kw_only=True):
    """How far a job is."""

    job: str
    done: Count
    items: Count
    tokens: Count
    """Generated or scored since this stretch of running began."""


class Broken(Base, frozen=True, kw_only=True):
    """An item that could not be answered; it is asked again on the next run."""

    job: str
    item: str
    why: str


class TrialsFailedError(QlockError):
    """A grader does not do what its items say it must."""

    def __init__(self, trials: tuple[TrialFailure, ...]) -> None:
        super().__init__(f"{len(trials)} trials of the graders failed")
        self.trials = trials


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the points of one stretch of running share."""

    world: World
    lock: Lock
    folder: RunFolder
    weights: dict[str, tuple[str, ...]]
    pci_bus_id: tuple[str, ...]
    """Where the cards sit that the engine is given."""
    exams: tuple[Exam, ...]
    seat: Seat
    renderer: Renderer
    segment: int
    allow: tuple[str, ...]
    talk: Callable[[Progress], None]
    on_row: Callable[[Row], None]
    """Told of each row that was stored."""
    on_ready: Callable[[Engine], None]
    """Told of each engine that has loaded a point and is as locked."""
    is_over: Callable[[], bool] = lambda: False
    """Whether the time is up: then nothing more is asked."""


class Sitting(msgspec.Struct, frozen=True, kw_only=True):
    """One suite at the loaded point, with its questions."""

    asker: Asker
    questions: tuple[Question, ...]


def run_point(stage: Stage, name: str, jobs: list[Job]) -> Iterator[Record | Broken]:
    """Do the open jobs of a point in their order; gives each closed record, and each item that could not be answered.

    Raises:
        FindingsError: Rules 4 to 7 found something.
        TrialsFailedError: A grader failed its trials.
        EngineError: The engine does not come up again.
    """
    pin = next(pin for pin in stage.lock.point if pin.name == name)
    weights = stage.weights[pin.model]
    laps = Laps(stage.world.clock)
    stage.seat.point(lambda engine: _prepare(stage, pin, engine, laps))
    assert isinstance(pin.read_back, facts.ReadBack)
    template = _model_template(stage.world, weights)
    asked: dict[str, Sitting] = {}
    for exam in stage.exams:
        if any(job.suite == exam.pin.name for job in jobs):
            asker = proving.asker(
                respondent(stage.seat, pin.read_back),
                stage.renderer,
                exam,
                model_template=template,
                frozen_date=stage.lock.frozen_date,
            )
            asked[exam.pin.name] = Sitting(asker=asker, questions=proving.questions_of(asker, exam))
    _check_prompts(stage, pin, asked)
    _try_graders(asked)
    slots = load_of(stage.lock, pin, weights).setting.slots
    beside = ""
    for job in jobs:
        if stage.is_over():
            return
        suite = asked[job.suite].asker.suite
        if is_beside(suite) and suite.reference != beside:
            beside = suite.reference
            _put_beside(stage, pin, beside, laps=laps)
        yield from _job(stage, job, asked[job.suite], laps, slots=slots)


def prepare_point(
    world: World,
    lock: Lock,
    pin: PointPin,
    engine: Engine,
    weights: tuple[str, ...],
    *,
    pci_bus_id: tuple[str, ...],
) -> list[Finding]:
    """Rules 4, 5 and 7: load a point and give what is not as locked.

    Args:
        world: This machine.
        lock: Of the run.
        pin: The point.
        engine: One that is given the cards alone.
        weights: Paths of the point's files.
        pci_bus_id: Where those cards sit.
    """
    load = load_of(lock, pin, weights)
    where = f"point.{pin.name}"
    check_room(world, load)
    read_back = engine.load(load)
    found = proving.hold_read_back(where, pin.read_back, load.setting, read_back)
    found += said_findings(engine, where, load.setting, given=pci_bus_id)
    behaviour = proving.behave(engine, read_back)
    found += entries("canaries", f"{where}.canary", pin.canary or (), behaviour.canary)
    found += proving.hold_nats(where, pin.plain_text_nats, behaviour.plain_text_nats)
    engine_pin = next(entry for entry in lock.engine if entry.name == pin.engine)
    return found + proving.see_engine(world, engine, engine_pin, rule="engine-files")[1]


def load_of(lock: Lock, pin: PointPin, weights: tuple[str, ...]) -> Load:
    """What is loaded for a point."""
    return Load(
        weights=weights, setting=next(setting for setting in lock.setting if setting.name == pin.setting)
    )


def _prepare(stage: Stage, pin: PointPin, engine: Engine, laps: Laps) -> None:
    weights = stage.weights[pin.model]
    found = prepare_point(stage.world, stage.lock, pin, engine, weights, pci_bus_id=stage.pci_bus_id)
    refuse(found, allow=stage.allow)
    note_memory(stage.folder, stage.segment, pin.name, engine.memory())
    stage.on_ready(engine)
    laps.begin()


def _put_beside(stage: Stage, pin: PointPin, name: str, *, laps: Laps) -> None:
    """Have the reference beside the point from now on."""
    reference = next(point for point in stage.lock.point if point.name == name)
    own, other = (load_of(stage.lock, point, stage.weights[point.model]) for point in (pin, reference))

    def prepare(engine: Engine) -> None:
        refuse(load_beside(stage.world, engine, own, other, reference), allow=stage.allow)
        laps.begin()

    stage.seat.beside(prepare)


def _model_template(world: World, weights: tuple[str, ...]) -> str | None:
    template = describe(gguf_header_of(world, Path(weights[0]))).template
    return None if template is UNSET else template


def _check_prompts(stage: Stage, pin: PointPin, asked: dict[str, Sitting]) -> None:
    """Rule 6: what is asked now is what was locked, in every suite."""
    found: list[Finding] = []
    for suite, sitting in asked.items():
        where = f"point.{pin.name}.prompts.{suite}"
        now = sitting.asker.pin(sitting.questions)
        found += differences("prompts", where, prompts_of(pin, suite), now)
    refuse(found, allow=stage.allow)
    for suite, sitting in asked.items():
        items = tuple(question.item for question in sitting.questions)
        stage.folder.write_items(prompts_of(pin, suite).items_digest, items)


def _try_graders(asked: dict[str, Sitting]) -> None:
    failures: list[TrialFailure] = []
    for suite, sitting in asked.items():
        items = tuple(question.item for question in sitting.questions)
        failures += try_grader(sitting.asker.kind, items, sitting.asker.params, suite=suite)
    if failures:
        raise TrialsFailedError(tuple(failures))


def _job(stage: Stage, job: Job, sitting: Sitting, laps: Laps, *, slots: int) -> Iterator[Record | Broken]:
    every = sitting.questions
    if job.part is not UNSET and len(every) != job.items:
        raise InputError(
            f"got {len(every)} items, expected {job.items}: a shard of other items than those that are locked is none"
        ).within(job.suite)
    questions = every[job.places]
    path = stage.folder.record_path(job.name)
    with stage.world.journals.open_journal(path) as journal:
        if not any(True for _ in journal.rows()):
            journal.append(row_bytes(header_of(job, items=len(every))))
        before = stage.folder.present_record(job.name)
        refuse_misfit(stage.folder, stage.lock, job, before, forced=bool(stage.allow))
        done = {row.item for row in before.rows if is_done(row)}
        count = _Count(stage.talk, job, len(done))

        def on_row(row: Row) -> None:
            row = laps.timed(row)
            stage.folder.still_here()
            journal.append(row_bytes(row))
            stage.on_row(row)
            count.row(row)

        driver = Driver(
            stage.seat,
            sitting.asker,
            repeat=job.repeat,
            segment=stage.segment,
            on_row=on_row,
            is_over=stage.is_over,
        )
        left = tuple(question for question in questions if question.item.id not in done)
        laps.begin()
        driver.ask(left, slots=slots)
    record = stage.folder.present_record(job.name)
    broken = [row for row in record.rows if not is_done(row)]
    for row in broken:
        yield Broken(job=job.name, item=row.item, why=_why_broken(row))
    if not broken and len(record.rows) == len(questions):
        yield stage.folder.close_record(record, tuple(question.item.id for question in questions))


def _why_broken(row: Row) -> str:
    match row.replies[-1:]:
        case (Completed(why=why) | Failed(why=why),) if why:
            return why
        case _:
            return "no reply"


class _Count:
    """Counts rows and tokens of one job and says so."""

    def __init__(self, talk: Callable[[Progress], None], job: Job, done: int) -> None:
        self._talk = talk
        self._job = job
        self._done = done
        self._tokens = 0
        self._say()

    def row(self, row: Row) -> None:
        self._done += is_done(row)
        self._tokens += tokens_of(row)
        self._say()

    def _say(self) -> None:
        self._talk(Progress(job=self._job.name, done=self._done, items=self._job.asked, tokens=self._tokens))
