"""Grades and scores of the jobs in a run folder.

Does not live here: grading one row (``flows.grading``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import UNSET, UnsetType

from qlock.core.base import Base
from qlock.core.distance import Distance, distance_of
from qlock.core.kld_tokens import Measured
from qlock.core.lock import Lock, named
from qlock.core.plan import Job, jobs, prompts_of
from qlock.core.record import Grade, Record, item_digest
from qlock.core.stats import CannotTell
from qlock.errors import AbsentError, InputError
from qlock.flows.grading import Score, grade, score
from qlock.flows.kinds import params_of, suite_kind
from qlock.flows.run_folder import RunFolder, items_name


class JobScore(Base, frozen=True, kw_only=True):
    """One job and its score."""

    job: str
    suite: str
    point: str
    repeat: int
    score: Score
    distance: Distance | UnsetType = UNSET
    """From the reference, where the suite is about that."""


def grades_of(folder: RunFolder, lock: Lock, record: Record) -> tuple[Grade, ...]:
    """The outcomes of a record, worked out anew by this qlock's graders.

    Raises:
        InputError: The items that lie there are not those that the rows are answers to.
    """
    suite = named(lock.suite, record.header.suite)
    pin = named(lock.point, record.header.point)
    items = {item.id: item for item in folder.items(prompts_of(pin, suite.name).items_digest)}
    for row in record.rows:
        item = items.get(row.item)
        if item is not None and item_digest(item.id, item.slices, item.body) != row.item_digest:
            raise InputError(
                f"the item `{item.id}` is not the one that `{record.header.job}` answers"
            ).in_document(items_name(prompts_of(pin, suite.name).items_digest))
    kind = suite_kind(suite.kind)
    return grade(record, items, kind, params_of(kind, suite, where=f"suite.{suite.name}"))


def write_grades(folder: RunFolder, lock: Lock, record: Record) -> None:
    """Work out the outcomes of a closed record and write them."""
    suite = named(lock.suite, record.header.suite)
    folder.write_grades(
        record, grades_of(folder, lock, record), grade_version=suite_kind(suite.kind).grade_version
    )


def score_of(folder: RunFolder, lock: Lock, record: Record) -> Score | None:
    """The score of a record; ``None`` when not one of its items can be scored."""
    return score(tuple(grade.outcome for grade in grades_of(folder, lock, record)))


def job_scores(folder: RunFolder, lock: Lock) -> Iterator[JobScore]:
    """The score of every graded job."""
    for job in jobs(lock):
        try:
            _, grades = folder.grades(job.name)
        except AbsentError:
            continue
        found = score(tuple(grade.outcome for grade in grades))
        if found is not None:
            yield JobScore(
                job=job.name,
                suite=job.suite,
                point=job.point,
                repeat=job.repeat,
                score=found,
                distance=_distance(folder, lock, job, grades),
            )


def without_score(todo: Iterable[Job], scores: Iterable[JobScore]) -> tuple[str, ...]:
    """Names of the jobs that have none; a shard of a job has no score of its own."""
    scored = {score.job for score in scores}
    return tuple(job.name for job in todo if job.name not in scored and job.part is UNSET)


def _distance(folder: RunFolder, lock: Lock, job: Job, grades: tuple[Grade, ...]) -> Distance | UnsetType:
    suite = named(lock.suite, job.suite)
    if not suite.reference:
        return UNSET
    pin = named(lock.point, job.point)
    slices = {item.id: item.slices for item in folder.items(prompts_of(pin, suite.name).items_digest)}
    items = [Measured(grade.item, slices.get(grade.item, {}), grade.outcome) for grade in grades]
    match distance_of(lock, suite, job.point, items):
        case Distance() as found:
            return found
        case CannotTell():
            return UNSET
