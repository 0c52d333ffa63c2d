"""A bridge: one point that was run on two devices, between a reference on the one and a point on the other.

Where the original does not fit the card that a quant runs on, no two points differ in the weights alone. Through a
bridge the way from A to B is three steps:

1. from A to the bridge, on A's device: what is meant to differ;
2. from the bridge there to the bridge on B's device: what engine and device do by themselves;
3. from the bridge to B, on B's device: what is meant to differ.

Every level is taken over the items that all four have a score for, so the three changes add up to B − A. They are a
description: nothing is tested, and no verdict and no gate rests on them.

Does not live here: which point is the bridge (``flows.diff``), the comparison itself (``core.compare``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from qlock.core.agreement import is_equal, wrote
from qlock.core.base import Base, Count, Finite, Share
from qlock.core.differing import Topic, quoted
from qlock.core.endings import UNFINISHED
from qlock.core.escape import for_message
from qlock.core.pairs import Half, Pair, ending_of, pair
from qlock.core.scores import Levels, Measure, levels_of, measure_of
from qlock.core.sides import Side, device_of, same_tokenizer, suites_of
from qlock.core.stats import CannotTell
from qlock.core.validity import Difference, Treatment, differences

_ELSEWHERE: frozenset[Topic] = frozenset({"engine", "device", "behaviour"})
"""What the second step is there to show."""
_MOST_WHY = 5


class Stop(Base, frozen=True, kw_only=True):
    """One of the four points in a suite."""

    point: str
    device: str
    level: Finite
    unfinished_share: Share | CannotTell
    """Replies that ended without being finished."""
    change: Finite | CannotTell
    """From the stop before; cannot tell for the first."""
    equal_share: Share | CannotTell
    """Answers that are those of the stop before."""


class Span(Base, frozen=True, kw_only=True):
    """A suite that all four sat."""

    suite: str
    measure: Measure
    items: Count
    """With a score on all four, repeats counted."""
    left_out: Count
    """With a score on both sides of one step at least, but not on all four."""
    stop: tuple[Stop, ...]
    """A, the bridge on A's device, the bridge on B's, and B; empty without items."""


class Bridge(Base, frozen=True, kw_only=True):
    """The way from A to B through a point that was run on both devices."""

    point: str
    unfit: tuple[str, ...]
    """What else differs in a step than it is there to show, one sentence each."""
    span: tuple[Span, ...]


def bridge(a: Side, b: Side, through: tuple[Side, Side], *, treatment: Treatment) -> Bridge:
    """The three steps from A to B.

    Args:
        a: The reference.
        b: What is judged.
        through: The bridge on A's device, and on B's.
        treatment: The one thing that is meant to differ between A and B.
    """
    way = (a, *through, b)
    suites = [name for name in suites_of(a) if all(name in suites_of(side) for side in way[1:])]
    return Bridge(
        point=through[0].point,
        unfit=tuple(_unfit(way, treatment)),
        span=tuple(_span(name, way) for name in suites if all(side.sittings.get(name) for side in way)),
    )


def needs_bridge(a: Side, b: Side) -> bool:
    """Whether engine or device differ between two points."""
    return any(one.topic in ("engine", "device") for one in differences(a, b, treatment="weights"))


def _unfit(way: Sequence[Side], treatment: Treatment) -> Iterator[str]:
    steps = (
        ("from A to the bridge", frozenset[Topic]()),
        ("from one device to the other", _ELSEWHERE),
        ("from the bridge to B", frozenset[Topic]()),
    )
    for (what, meant), (one, other) in zip(steps, pairwise(way), strict=True):
        yield from _told(what, _beyond(differences(one, other, treatment=treatment), meant))


def _beyond(found: Iterable[Difference], meant: frozenset[Topic]) -> list[Difference]:
    """What differs beyond what is meant to."""
    return [one for one in found if one.standing in ("fatal", "confound") and one.topic not in meant]


def _told(what: str, found: list[Difference]) -> Iterator[str]:
    for one in found[:_MOST_WHY]:
        yield f"in the step {what}, {one.path} differs too: {quoted(one.a)} and {quoted(one.b)}"
    if len(found) > _MOST_WHY:
        yield f"in the step {what}, {len(found) - _MOST_WHY} more differ"


def _span(suite: str, way: Sequence[Side]) -> Span:
    steps = [
        {
            (found.item, found.repeat): found
            for found in pair(one.sittings.get(suite, ()), other.sittings.get(suite, ())).scored
        }
        for one, other in pairwise(way)
    ]
    shared = [key for key in steps[0] if all(key in step for step in steps)]
    pairs = [[step[key] for key in shared] for step in steps]
    every = {key for step in steps for key in step}
    measures = {measure_of(step) for step in pairs}
    return Span(
        suite=suite,
        measure=measures.pop() if len(measures) == 1 else "mean-mark",
        items=len(shared),
        left_out=len(every) - len(shared),
        stop=tuple(_stops(way, pairs)) if shared else (),
    )


def _stops(way: Sequence[Side], steps: list[list[Pair]]) -> Iterator[Stop]:
    first = CannotTell(why="it is where the way begins")
    levels = [_levels(step) for step in steps]
    yield _stop(way[0], levels[0].a, [found.a for found in steps[0]], first, first)
    for (one, side), step, level in zip(pairwise(way), steps, levels, strict=True):
        equal = _equal_share(step, by_tokens=same_tokenizer(one, side))
        yield _stop(side, level.b, [found.b for found in step], level.change, equal)


def _stop(
    side: Side,
    level: float,
    halves: list[Half],
    change: float | CannotTell,
    equal_share: float | CannotTell,
) -> Stop:
    endings = [ending for half in halves if (ending := ending_of(half.row)) is not None]
    return Stop(
        point=side.point,
        device=for_message(device_of(side).name),
        level=level,
        unfinished_share=sum(ending in UNFINISHED for ending in endings) / len(endings)
        if endings
        else CannotTell(why="nothing is written in this suite"),
        change=change,
        equal_share=equal_share,
    )


def _levels(step: Sequence[Pair]) -> Levels:
    found = levels_of(step)
    assert isinstance(found, Levels)  # no step is without pairs
    return found


def _equal_share(step: Sequence[Pair], *, by_tokens: bool) -> float | CannotTell:
    written = [found for found in step if wrote(found)]
    if not written:
        return CannotTell(why="no pair has a written answer on both sides")
    return sum(is_equal(found, same_tokenizer=by_tokens) for found in written) / len(written)
