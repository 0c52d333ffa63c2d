"""Running the open jobs of one point: load it, hold it against the lock, try the graders, ask.

Rule 6 of ``core.verify`` is checked here. Nothing is measured before rules 4 to 7 hold and every grader has passed its
trials.

Does not live here: loading a point (``flows.preparing``), which points run, rule 8, the seal (``flows.run``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from msgspec import UNSET

from qlock.core.base import Base
from qlock.core.exchange import Completed, Failed
from qlock.core.lock import PointPin, named
from qlock.core.plan import Job, prompts_of
from qlock.core.record import Record, Row, is_done, tokens_of
from qlock.errors import InputError, QlockError
from qlock.flows.driver import Driver
from qlock.flows.fitting import refuse_misfit
from qlock.flows.grading import TrialFailure
from qlock.flows.held_against import HeldAgainst
from qlock.flows.laps import Laps
from qlock.flows.papers import Paper
from qlock.flows.preparing import Progress, Stage, papers, rows_of, take_point
from qlock.flows.refusal import refuse
from qlock.flows.run_folder import header_of, row_bytes


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


def run_point(stage: Stage, name: str, jobs: list[Job]) -> Iterator[Record | Broken]:
    """Do the open jobs of a point in their order; gives each closed record, and each item that could not be answered.

    Raises:
        FindingsError: Rules 4 to 7 found something.
        TrialsFailedError: A grader failed its trials.
        EngineError: The engine does not come up again.
    """
    pin = named(stage.lock.point, name)
    laps = Laps(stage.world.clock)
    take_point(stage, pin, laps)
    asked = papers(stage, pin, {job.suite for job in jobs})
    _check_prompts(stage, pin, asked.values())
    _try_graders(asked.values())
    against = HeldAgainst(stage, pin, laps)
    for job in jobs:
        if stage.is_over():
            return
        against.need(asked[job.suite].asker.suite)
        yield from _job(stage, job, asked[job.suite], laps)


def _check_prompts(stage: Stage, pin: PointPin, asked: Collection[Paper]) -> None:
    """Rule 6: what is asked now is what was locked, in every suite."""
    refuse([finding for paper in asked for finding in paper.held(pin)], allow=stage.allow)
    for paper in asked:
        digest = prompts_of(pin, paper.asker.suite.name).items_digest
        stage.folder.write_items(digest, paper.items)


def _try_graders(asked: Collection[Paper]) -> None:
    failures = tuple(failure for paper in asked for failure in paper.trials())
    if failures:
        raise TrialsFailedError(failures)


def _job(stage: Stage, job: Job, paper: Paper, laps: Laps) -> Iterator[Record | Broken]:
    every = paper.questions
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
            paper.asker,
            repeat=job.repeat,
            segment=stage.segment,
            on_row=on_row,
            is_over=stage.is_over,
        )
        left = tuple(question for question in questions if question.item.id not in done)
        laps.begin()
        driver.ask(left, slots=rows_of(stage, job.point))
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
