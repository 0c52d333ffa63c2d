"""Why replies stopped, by side, and loops: so that a gap of scores that is a gap of endings is seen as one.

A reply that reached its token budget or the end of the context is unfinished: its score says how far the model came,
not what it knows. A loop is a property of the tokens beside the ending.

Does not live here: finding a loop in one reply (``core.loops``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import get_args

from qlock.core import stats
from qlock.core.base import Base, Count, Finite
from qlock.core.exchange import Completed, Ending
from qlock.core.loops import DEFAULT_RULE, loop_in_tokens
from qlock.core.pairs import Pair, ending_of
from qlock.core.record import Row
from qlock.core.sides import Sitting
from qlock.core.stats import CannotTell, Interval, PairedTest

ENDINGS: tuple[Ending, ...] = get_args(Ending)
UNFINISHED: frozenset[Ending] = frozenset({"budget", "context", "error"})
ALPHA = 0.05

_GRAM = 8


class EndingRow(Base, frozen=True, kw_only=True):
    """How often replies ended in one way."""

    ending: Ending
    items_a: Count
    items_b: Count
    share_a: Interval | CannotTell
    share_b: Interval | CannotTell


class LoopRow(Base, frozen=True, kw_only=True):
    """How often a reply runs in circles."""

    items_a: Count
    items_b: Count
    share_a: Interval | CannotTell
    share_b: Interval | CannotTell


class EndingGap(Base, frozen=True, kw_only=True):
    """Whether one side leaves more replies unfinished, on scored pairs."""

    only_a: Count
    """Pairs that only A left unfinished."""
    only_b: Count
    test: PairedTest | CannotTell
    differs: bool
    """Whether the test says so at 5 %."""
    from_unfinished: Finite
    """How much of the difference of mean marks, B − A, comes from pairs that either side left unfinished."""
    among_finished: Finite | CannotTell
    """The difference of mean marks among pairs that both sides finished."""
    finished: Count
    """Pairs that both sides finished."""


class Endings(Base, frozen=True, kw_only=True, tag_field="kind", tag="endings"):
    """Endings and loops of one suite."""

    replies_a: Count
    replies_b: Count
    row: tuple[EndingRow, ...]
    """Those that occur."""
    loops: LoopRow
    gap: EndingGap


def endings(
    a: tuple[Sitting, ...], b: tuple[Sitting, ...], scored: Sequence[Pair], *, describe_only: str = ""
) -> Endings | CannotTell:
    """Endings of every reply of both sides, paired or not; the gap is taken over scored pairs.

    Args:
        a: Jobs of the reference.
        b: Jobs of what is judged.
        scored: Scored pairs.
        describe_only: Why no test may be made; empty where it may.
    """
    rows_a, rows_b = ([row for sitting in side for row in sitting.rows] for side in (a, b))
    ends_a, ends_b = _count(rows_a), _count(rows_b)
    replies_a, replies_b = ends_a.total(), ends_b.total()
    if not replies_a and not replies_b:
        return CannotTell(why="nothing was written in this suite")
    loops_a, loops_b = (sum(1 for row in rows if loops(row)) for rows in (rows_a, rows_b))
    return Endings(
        replies_a=replies_a,
        replies_b=replies_b,
        row=tuple(
            EndingRow(
                ending=ending,
                items_a=ends_a[ending],
                items_b=ends_b[ending],
                share_a=stats.wilson(ends_a[ending], replies_a),
                share_b=stats.wilson(ends_b[ending], replies_b),
            )
            for ending in ENDINGS
            if ends_a[ending] or ends_b[ending]
        ),
        loops=LoopRow(
            items_a=loops_a,
            items_b=loops_b,
            share_a=stats.wilson(loops_a, replies_a),
            share_b=stats.wilson(loops_b, replies_b),
        ),
        gap=ending_gap(scored, describe_only=describe_only),
    )


def _count(rows: Iterable[Row]) -> Counter[Ending]:
    return Counter(ending for ending in map(ending_of, rows) if ending is not None)


def ending_gap(scored: Sequence[Pair], *, describe_only: str = "") -> EndingGap:
    """Whether unfinished replies lean to one side, and what of the score comes from them."""
    only_a = only_b = finished = 0
    from_unfinished = among_finished = 0.0
    for pair in scored:
        open_a, open_b = ending_of(pair.a.row) in UNFINISHED, ending_of(pair.b.row) in UNFINISHED
        only_a += open_a and not open_b
        only_b += open_b and not open_a
        difference = (pair.b.mark or 0.0) - (pair.a.mark or 0.0)
        if open_a or open_b:
            from_unfinished += difference
        else:
            finished += 1
            among_finished += difference
    test = stats.mcnemar_exact(only_a, only_b)
    return EndingGap(
        only_a=only_a,
        only_b=only_b,
        test=CannotTell(why=describe_only) if describe_only else test,
        differs=not describe_only and test.p_value < ALPHA,
        from_unfinished=from_unfinished / max(len(scored), 1),
        among_finished=among_finished / finished
        if finished
        else CannotTell(why="no pair was finished by both"),
        finished=finished,
    )


def loops(row: Row) -> bool:
    """Whether any reply of a row holds a degenerate loop."""
    for reply in row.replies:
        match reply:
            case Completed(tokens=tokens):
                if may_loop(tokens) and loop_in_tokens(tokens) is not None:
                    return True
            case _:
                pass
    return False


def may_loop(tokens: Sequence[int]) -> bool:
    """A cheap look that passes over most outputs that hold no loop, and over none that holds one.

    A loop of k ≥ 3 copies covers L ≥ 48 tokens with a period of at most L/k, so at least L − L/k of them, and at
    least L − L/k − 7 of the pieces of eight tokens that begin there, were there before.
    """
    copied = DEFAULT_RULE.least_covered_tokens
    copied -= copied // DEFAULT_RULE.least_copies
    if len(tokens) - len(set(tokens)) < copied:
        return False
    grams = zip(*(tokens[start:] for start in range(_GRAM)), strict=False)
    return len(tokens) - _GRAM + 1 - len(set(grams)) >= copied - _GRAM + 1
