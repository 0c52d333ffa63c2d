"""How fast a point answered a suite: tokens over the time in which an engine was there to answer.

Rows share the engine, so no row has a speed of its own; the whole job has. Tokens are those that were generated, or
scored where nothing is written. Prompts are read in the same time, so the figure belongs to these very items
and slots: it compares points that were asked the same, and is no other tool's tokens per second. Where a point is held
against a reference, what it takes to ask that one, or to read what it said, is in the same laps: there is no speed then.

Does not live here: measuring the time (``flows.laps``), judging by a speed (``core.gates.speed``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from qlock.core import stats
from qlock.core.base import Base, Positive, Seconds
from qlock.core.exchange import Diverged
from qlock.core.record import Row, tokens_of
from qlock.core.sides import Sitting
from qlock.core.stats import CannotTell, Interval

MOST_BLOCKS = 40
FEWEST_BLOCKS = 10


class Speed(Base, frozen=True, kw_only=True, tag_field="kind", tag="speed"):
    """Of one point in one suite, all repeats together."""

    tokens: Positive
    answering_s: Seconds
    """Seconds of an engine: shards that ran side by side are added up."""

    @property
    def tokens_per_s(self) -> float:
        """Both together."""
        return self.tokens / self.answering_s


def speed_of(sittings: Iterable[Sitting]) -> Speed | CannotTell:
    """How fast a suite was answered; cannot tell where a row has no lap or holds a reference's share, or nothing was said."""
    rows = [row for sitting in sittings for row in sitting.rows]
    if any(isinstance(reply, Diverged) for row in rows for reply in row.replies):
        return CannotTell(why="the reference was asked in the same time")
    tokens = sum(map(tokens_of, rows))
    untimed = sum(1 for row in rows if not isinstance(row.times.lap_s, float))
    if untimed:
        return CannotTell(why=f"rows that do not say how long they took: {untimed} of {len(rows)}")
    answering_s = math.fsum(map(_lap_s, rows))
    if not tokens or answering_s <= 0:
        return CannotTell(why="nothing was answered")
    return Speed(tokens=tokens, answering_s=answering_s)


def speed_ratio(a: Sequence[Sitting], b: Sequence[Sitting], *, at_once: int) -> Interval | CannotTell:
    """Speed of B over that of A, with an interval that says how steady it was within the runs.

    Items are asked in their order, so the rows of consecutive items are a stretch of time. They are cut into K blocks of
    at least ``at_once`` items, the same ones on both sides. With tokens T and seconds W of a side, ln(T/W) moves by
    K·(T_k/T − W_k/W) where block k is as it is; what both sides have in common (a long prompt) cancels in the difference
    of the two. The t interval of these K differences around ln of the ratio is that of the ratio.

    Args:
        a: The reference's jobs of the suite.
        b: Those of B.
        at_once: How many items are answered at once.

    Source: batch means and the delta method, Law, Simulation Modeling and Analysis, 5th edition, 9.5.3.
    """
    for side in (a, b):
        match speed_of(side):
            case CannotTell() as unknown:
                return unknown
            case Speed():
                pass
    mine, theirs = _rows(a), _rows(b)
    if mine.keys() != theirs.keys():
        return CannotTell(why="not every item is on both sides")
    count = min(len(mine) // at_once, MOST_BLOCKS)
    if count < FEWEST_BLOCKS:
        return CannotTell(why=too_few_answers(len(mine), at_once=at_once))
    keys = list(mine)
    blocks = [keys[len(keys) * k // count : len(keys) * (k + 1) // count] for k in range(count)]
    (ratio_a, moves_a), (ratio_b, moves_b) = (
        _moves([[rows[key] for key in block] for block in blocks]) for rows in (mine, theirs)
    )
    ratio = math.log(ratio_b) - math.log(ratio_a)
    found = stats.paired_mean_interval([ratio + y - x for x, y in zip(moves_a, moves_b, strict=True)])
    match found:
        case Interval(low=low, high=high):
            return msgspec.structs.replace(
                found,
                point=math.exp(ratio),
                low=math.exp(low),
                high=math.exp(high),
                standard_error=msgspec.UNSET,
            )
        case CannotTell():
            return found


def too_few_answers(answers: int, *, at_once: int) -> str:
    """Why the ratio of two speeds has no interval on so many answers, repeats counted; empty where they are enough."""
    if answers >= FEWEST_BLOCKS * at_once:
        return ""
    return f"to see how steady a speed is, {FEWEST_BLOCKS * at_once} answers are needed with {at_once} at once, got {answers}"


def _rows(sittings: Sequence[Sitting]) -> dict[tuple[int, str], Row]:
    return {(sitting.repeat, row.item): row for sitting in sittings for row in sitting.rows}


def _moves(blocks: Sequence[Sequence[Row]]) -> tuple[float, list[float]]:
    """Tokens per second, and by how much each block moves its logarithm, times the number of blocks."""
    tokens = [sum(map(tokens_of, block)) for block in blocks]
    seconds = [math.fsum(map(_lap_s, block)) for block in blocks]
    whole, time = sum(tokens), math.fsum(seconds)
    moves = [len(blocks) * (t / whole - s / time) for t, s in zip(tokens, seconds, strict=True)]
    return whole / time, moves


def _lap_s(row: Row) -> float:
    lap_s = row.times.lap_s
    return lap_s if isinstance(lap_s, float) else 0.0
