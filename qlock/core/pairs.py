"""Pairs: the same item in the same repeat on both sides, and everything that is not in one.

An item is the same when its id and its digest are. What cannot be paired, or was answered without being scored, is
listed with its reason and bounded at its worst: it never counts as right or wrong, and it never vanishes.

Does not live here: what is computed from pairs (``core.scores``, ``core.agreement``, ``core.endings``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from qlock.core.base import Base, Count, Finite, Positive
from qlock.core.escape import for_message
from qlock.core.exchange import (
    Completed,
    Divergence,
    Ending,
    Excluded,
    Failed,
    Nats,
    Outcome,
    Partial,
    Reading,
    Right,
    Ungraded,
    Unparsable,
    Wrong,
)
from qlock.core.record import Row
from qlock.core.sides import Sitting

MOST_MISSING_SHARE = 0.05
"""Above this share of unpaired or unscored items no verdict is given."""

_EXAMPLES = 5

Why = Literal["absent", "error", "context", "ungraded", "excluded", "another-item", "another-measure"]
"""Why an item is in no scored pair: no row, a failed reply, no room in the context, no grade, left out of every
figure, another content under the same id, or marks on one side and nats on the other."""


class Half(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a pair."""

    row: Row
    outcome: Outcome
    read: Reading | None = None
    """What the grader read out of the answer; ``None`` where it did not."""

    @property
    def mark(self) -> float | None:
        """Between 0 and 1; ``None`` where there is none to give."""
        return mark_of(self.outcome)


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """An item that both sides have under the same digest, scored or not."""

    item: str
    repeat: Positive
    a: Half
    b: Half


class Loss(Base, frozen=True, kw_only=True):
    """Items that are in no scored pair, for one reason."""

    side: Literal["a", "b", "both"]
    """On which side it lacks."""
    why: Why
    items: Count
    examples: tuple[str, ...]
    """The first ids; empty where the ids are not known, since nobody wrote a row."""


class Bounds(Base, frozen=True, kw_only=True, tag_field="kind", tag="bounds"):
    """Between what the difference of mean marks, B − A, could lie if every lost item went one way or the other."""

    low: Finite
    high: Finite


class Cells(Base, frozen=True, kw_only=True, tag_field="kind", tag="cells"):
    """Pairs by who got them right."""

    both: Count
    only_a: Count
    only_b: Count
    neither: Count


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """One suite of two sides, put side by side."""

    matched: tuple[Pair, ...]
    """Every item of both sides, in the order of side A."""
    scored: tuple[Pair, ...]
    """Those of them that both sides have a mark, or nats, for."""
    losses: tuple[Loss, ...]
    lost: Count
    """Items in no scored pair; those that are excluded on both sides are no loss."""
    loosest: tuple[tuple[float, float], ...]
    """For each lost item the least and the most that B − A could be."""

    @property
    def lost_share(self) -> float:
        """Lost items of all."""
        every = len(self.scored) + self.lost
        return self.lost / every if every else 0.0


class _Lost(msgspec.Struct, frozen=True, kw_only=True):
    item: str
    side: Literal["a", "b", "both"]
    why: Why
    low: float
    high: float


def pair(a: tuple[Sitting, ...], b: tuple[Sitting, ...]) -> Pairing:
    """The pairs of one suite; repeats that only one side has are not looked at."""
    matched: list[Pair] = []
    scored: list[Pair] = []
    lost: list[_Lost] = []
    unnamed = 0
    theirs = {sitting.repeat: sitting for sitting in b}
    for mine in a:
        other = theirs.get(mine.repeat)
        if other is None:
            continue
        named = 0
        for found in _walk(mine, other):
            named += 1
            match found:
                case Pair():
                    matched.append(found)
                    reason = _unscored(found)
                    if reason is None:
                        scored.append(found)
                    else:
                        lost.append(reason)
                case _Lost():
                    lost.append(found)
        unnamed += max(mine.items, other.items, named) - named
    scored, mixed = _of_one_measure(scored)
    lost += mixed
    return Pairing(
        matched=tuple(matched),
        scored=tuple(scored),
        losses=_told(lost, unnamed),
        lost=sum(1 for one in lost if not _is_left_out(one)) + unnamed,
        loosest=(
            *((one.low, one.high) for one in lost if not _is_left_out(one)),
            *[(-1.0, 1.0)] * unnamed,
        ),
    )


def cells_of(pairs: Sequence[Pair]) -> Cells:
    """Who got what right; a part of a mark is not right."""
    counts = {(right_a, right_b): 0 for right_a in (True, False) for right_b in (True, False)}
    for pair in pairs:
        counts[pair.a.mark == 1.0, pair.b.mark == 1.0] += 1
    return Cells(
        both=counts[True, True],
        only_a=counts[True, False],
        only_b=counts[False, True],
        neither=counts[False, False],
    )


def bounds(pairing: Pairing, difference_sum: float) -> Bounds:
    """The difference of mean marks over all items, at its worst and at its best for B.

    Args:
        pairing: With the lost items.
        difference_sum: Sum of B − A over the scored pairs.
    """
    every = max(len(pairing.scored) + pairing.lost, 1)
    low = difference_sum + sum(one for one, _ in pairing.loosest)
    high = difference_sum + sum(one for _, one in pairing.loosest)
    return Bounds(low=low / every, high=high / every)


def mark_of(outcome: Outcome) -> float | None:
    """The mark of an outcome between 0 and 1; ``None`` where there is none to give."""
    match outcome:
        case Right():
            return 1.0
        case Wrong() | Unparsable():
            return 0.0
        case Partial(share=share):
            return share
        case Ungraded() | Excluded() | Nats() | Divergence():
            return None


def cost_of(outcome: Outcome) -> tuple[float, int] | None:
    """The nats of an outcome, of its tokens or from a reference, and how many tokens; ``None`` where it is marked."""
    match outcome:
        case Nats(nats_sum=nats_sum, scored_tokens=scored_tokens):
            return nats_sum, scored_tokens
        case Divergence(kld_nats=kld_nats):
            return math.fsum(kld_nats), len(kld_nats)
        case _:
            return None


def ending_of(row: Row) -> Ending | None:
    """Why the last written reply of a row stopped; ``None`` where nothing was to be written (scored text)."""
    for reply in reversed(row.replies):
        match reply:
            case Completed(ending=ending):
                return ending
            case Failed():
                return "error"
            case _:
                pass
    return None if row.replies else "error"


def _walk(a: Sitting, b: Sitting) -> Iterator[Pair | _Lost]:
    theirs = {row.item: row for row in b.rows}
    for row in a.rows:
        other = theirs.pop(row.item, None)
        mine = _half(a, row)
        if other is None:
            mark = mine.mark
            yield _Lost(item=row.item, side="b", why="absent", **_room(mark, None))
        elif row.item_digest != other.item_digest:
            yield _Lost(item=row.item, side="both", why="another-item", low=-1.0, high=1.0)
        else:
            yield Pair(item=row.item, repeat=a.repeat, a=mine, b=_half(b, other))
    for row in theirs.values():
        yield _Lost(item=row.item, side="a", why="absent", **_room(None, _half(b, row).mark))


def _of_one_measure(scored: list[Pair]) -> tuple[list[Pair], list[_Lost]]:
    """Marks beside nats make no mean: where any pair has nats, those with marks are lost."""
    nats = [pair for pair in scored if cost_of(pair.a.outcome) is not None]
    if len(nats) in (0, len(scored)):
        return scored, []
    return nats, [
        _Lost(item=pair.item, side="both", why="another-measure", low=-1.0, high=1.0)
        for pair in scored
        if cost_of(pair.a.outcome) is None
    ]


def _half(sitting: Sitting, row: Row) -> Half:
    outcome = sitting.outcomes.get(row.item)
    return Half(
        row=row,
        outcome=Ungraded(why="there is no grade") if outcome is None else outcome,
        read=sitting.reads.get(row.item),
    )


def _room(a: float | None, b: float | None) -> dict[str, float]:
    """The least and the most that B − A can be, where a mark that is not known lies between 0 and 1."""
    low = (0.0 if b is None else b) - (1.0 if a is None else a)
    high = (1.0 if b is None else b) - (0.0 if a is None else a)
    return {"low": low, "high": high}


def _unscored(pair: Pair) -> _Lost | None:
    why_a, why_b = _why(pair.a), _why(pair.b)
    match pair.a.outcome, pair.b.outcome:
        case Nats(scored_tokens=tokens), Nats(scored_tokens=others) if tokens == others and tokens:
            return None
        case Divergence(nats=nats), Divergence(nats=others) if len(nats) == len(others) and nats:
            return None
        case (Nats() | Divergence(), _) | (_, Nats() | Divergence()) if why_a is None and why_b is None:
            return _Lost(item=pair.item, side="both", why="another-measure", low=-1.0, high=1.0)
        case _ if why_a is None and why_b is None:
            return None
        case _:
            room = _room(pair.a.mark, pair.b.mark)
            why: Why = why_a or why_b or "ungraded"
            if why_a is not None and why_b is not None:
                why = why_a if why_a == why_b else "ungraded"
            side: Literal["a", "b", "both"] = "both" if why_a and why_b else "a" if why_a else "b"
            return _Lost(item=pair.item, side=side, why=why, **room)


def _why(half: Half) -> Why | None:
    """Why one side has no score; ``None`` where it has."""
    match half.outcome:
        case Excluded():
            return "excluded"
        case Ungraded():
            ending = ending_of(half.row)
            return ending if ending in ("error", "context") else "ungraded"
        case _:
            return None


def _is_left_out(lost: _Lost) -> bool:
    """Excluded on both sides: for a reason that holds for both, so it is no loss."""
    return lost.side == "both" and lost.why == "excluded"


def _told(lost: list[_Lost], unnamed: int) -> tuple[Loss, ...]:
    by_reason: dict[tuple[Literal["a", "b", "both"], Why], list[str]] = {}
    for one in lost:
        by_reason.setdefault((one.side, one.why), []).append(one.item)
    told = [
        Loss(
            side=side,
            why=why,
            items=len(items),
            examples=tuple(for_message(item) for item in items[:_EXAMPLES]),
        )
        for (side, why), items in sorted(by_reason.items())
    ]
    if unnamed:
        told.append(Loss(side="both", why="absent", items=unnamed, examples=()))
    return tuple(told)
