"""The noise floor: how far two runs of one point differ.

Lives here: what a repeat of the same lock shows, and the sentence where there is none. Does not live here: whether the
other run is a repeat (``flows.diff``).
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET

from qlock.core import stats
from qlock.core.base import Base, Count, Finite
from qlock.core.pairs import pair
from qlock.core.scores import Levels, Measure, is_cost, paired_scores
from qlock.core.sides import Side, Sitting, point_of
from qlock.core.stats import CannotTell, Interval


class Floor(Base, frozen=True, kw_only=True):
    """What two runs of one point show in a suite."""

    side: Literal["a", "b"]
    measure: Measure
    pairs: Count
    value: Finite
    """Share of pairs whose mark is not the same in both runs; for text, how far nats per token moved, and likewise for divergences."""
    flips: Interval | CannotTell
    """The share with its interval; cannot tell for text."""


def floor(
    side: Literal["a", "b"], one: tuple[Sitting, ...], again: tuple[Sitting, ...]
) -> Floor | CannotTell:
    """How far a suite of one point moves between two runs."""
    pairs = pair(one, again).scored
    found = paired_scores(pairs, exact=False)
    match found.levels, found.measure:
        case CannotTell() as unknown, _:
            return unknown
        case Levels(change=change), measure if is_cost(measure):
            return Floor(
                side=side,
                measure=measure,
                pairs=len(pairs),
                value=abs(change),
                flips=CannotTell(why="text has no marks"),
            )
        case _, measure:
            flips = [float(both.a.mark != both.b.mark) for both in pairs]
            return Floor(
                side=side,
                measure=measure,
                pairs=len(pairs),
                value=sum(flips) / len(pairs),
                flips=stats.share_interval(flips, [both.item for both in pairs]),
            )


def unmeasured(a: Side, b: Side) -> str:
    """What is known of the noise where no run was repeated."""
    kinds = {point_of(side).repeatable for side in (a, b)}
    if kinds == {"bitwise"}:
        return (
            "not measured; both points repeat bit for bit on their machine, "
            "so a second run there gives the same answers"
        )
    words = {UNSET: "unknown", "no": "not repeatable", "tokens": "repeatable in tokens only"}
    told = ", ".join(sorted(words[kind] for kind in kinds if kind != "bitwise"))
    return (
        f"not measured, and a second run may differ ({told}); run the lock again and give that run as noise"
    )
