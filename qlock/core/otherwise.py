"""Whether the same pins gave the same answers, where they must: a net for changes that no check saw.

Two jobs of one digest were asked the same of the same model, engine and device. Where both points repeat bit for bit,
another answer means that something changed which nothing pins, or that a record was changed.

Does not live here: what follows from it (``core.validity``), and points that are known to vary (``core.noise``).
"""

from __future__ import annotations

from collections.abc import Iterator

from qlock.core.differing import Found
from qlock.core.escape import for_message
from qlock.core.plan import job_digest
from qlock.core.record import Row, answers_digest, is_done
from qlock.core.sides import Side, Sitting, point_of, suites_of

OTHERWISE = "the same pins, and yet it computed otherwise"


def otherwise(a: Side, b: Side, *, prefix: str = "") -> Iterator[Found]:
    """One difference for each job that both sides ran under one digest and answered otherwise.

    Items that only one side has, and those that failed, say nothing.

    Args:
        a: A point of a run.
        b: A point of another run.
        prefix: Put before each path.
    """
    if {point_of(side).repeatable for side in (a, b)} != {"bitwise"}:
        return
    mine, theirs = _sittings(a), _sittings(b)
    for digest in [digest for digest in mine if digest in theirs]:
        suite, sitting = mine[digest]
        yield from _job(f"{prefix}suite.{suite}.answers.{sitting.repeat}", sitting, theirs[digest][1])


def _sittings(side: Side) -> dict[str, tuple[str, Sitting]]:
    """Name of the suite and what was measured, by the digest of the job; none where the lock pins no prompts."""
    point, suites = point_of(side), suites_of(side)
    prompts = {pin.suite for pin in point.prompts or ()}
    return {
        job_digest(side.lock, point, suites[name], sitting.repeat): (name, sitting)
        for name, sittings in side.sittings.items()
        if name in suites and name in prompts
        for sitting in sittings
    }


def _job(path: str, a: Sitting, b: Sitting) -> Iterator[Found]:
    theirs = {row.item: row for row in b.rows}
    both = [(row, theirs[row.item]) for row in a.rows if row.item in theirs]
    done = [(mine, other) for mine, other in both if is_done(mine) and is_done(other)]
    apart = [(mine, other) for mine, other in done if _is_other(mine, other)]
    if not apart:
        return
    mine, other = apart[0]
    yield Found(
        path=path,
        topic="answers",
        a=answers_digest((mine,)),
        b=answers_digest((other,)),
        why=f"{OTHERWISE}: {len(apart)} of {len(done)} answers, the first of them `{for_message(mine.item)}`",
    )


def _is_other(a: Row, b: Row) -> bool:
    return (a.item_digest, a.replies) != (b.item_digest, b.replies)
