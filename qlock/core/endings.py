"""Why replies stopped, by side, and loops: so that a gap of scores that is a gap of endings is seen as one.

A reply that reached its token budget or the end of the context is unfinished: its score says how far the model came,
not what it knows. A loop is a property of the tokens beside the ending.

Does not live here: finding a loop in one reply (``core.loops``).
"""

from __future__ import annotations

from collections.abc import Sequence
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
SEED = 0
"""Of every bootstrap and sign flip: the same pairs always give the same report."""

_GRAM = 8
_MOST_LOOKED_AT = 4_000  # tokens; beyond, looking for the loop itself is quicker


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
    of_a, of_b = (_Replies([row for sitting in side for row in sitting.rows]) for side in (a, b))
    if not of_a.items and not of_b.items:
        return CannotTell(why="nothing was written in this suite")
    occurring = {*of_a.endings, *of_b.endings}
    return Endings(
        replies_a=len(of_a.items),
        replies_b=len(of_b.items),
        row=tuple(
            EndingRow(
                ending=ending,
                items_a=of_a.endings.count(ending),
                items_b=of_b.endings.count(ending),
                share_a=of_a.share([one == ending for one in of_a.endings]),
                share_b=of_b.share([one == ending for one in of_b.endings]),
            )
            for ending in ENDINGS
            if ending in occurring
        ),
        loops=LoopRow(
            items_a=sum(of_a.loops),
            items_b=sum(of_b.loops),
            share_a=of_a.share(of_a.loops),
            share_b=of_b.share(of_b.loops),
        ),
        gap=ending_gap(scored, describe_only=describe_only),
    )


class _Replies:
    """How the replies of one side ended, reply by reply.

    Args:
        rows: Of every repeat; rows in which nothing was to be written do not count.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        written = [(row, ending) for row in rows if (ending := ending_of(row)) is not None]
        self.items = [row.item for row, _ in written]
        self.endings = [ending for _, ending in written]
        self.loops = [loops(row) for row, _ in written]

    def share(self, flags: Sequence[bool]) -> Interval | CannotTell:
        """Share of the replies of which something is true; those to one item are not independent."""
        return stats.share_interval([float(flag) for flag in flags], self.items)


def ending_gap(scored: Sequence[Pair], *, describe_only: str = "") -> EndingGap:
    """Whether unfinished replies lean to one side, and what of the score comes from them."""
    only_a = only_b = finished = 0
    leaning: dict[str, int] = {}
    from_unfinished = among_finished = 0.0
    for pair in scored:
        open_a, open_b = ending_of(pair.a.row) in UNFINISHED, ending_of(pair.b.row) in UNFINISHED
        only_a += open_a and not open_b
        only_b += open_b and not open_a
        leaning[pair.item] = leaning.get(pair.item, 0) + open_b - open_a
        difference = (pair.b.mark or 0.0) - (pair.a.mark or 0.0)
        if open_a or open_b:
            from_unfinished += difference
        else:
            finished += 1
            among_finished += difference
    test: PairedTest | CannotTell = stats.mcnemar_exact(only_a, only_b)
    if len(leaning) < len(scored):
        test = stats.permutation_paired([float(count) for count in leaning.values()], SEED)
    p_value = test.p_value if isinstance(test, PairedTest) else 1.0
    return EndingGap(
        only_a=only_a,
        only_b=only_b,
        test=CannotTell(why=describe_only) if describe_only else test,
        differs=not describe_only and p_value < ALPHA,
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
    if len(tokens) > _MOST_LOOKED_AT:
        return True
    grams = zip(*(tokens[start:] for start in range(_GRAM)), strict=False)
    return len(tokens) - _GRAM + 1 - len(set(grams)) >= copied - _GRAM + 1
