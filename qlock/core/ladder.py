"""The ladder: many points in one view, each with its size, its scores, how its replies ended and how far it agrees.

The Pareto front of a suite holds the points that no other point beats, being at most as large and at least as good,
and better in one of both. It and the best point under a size are read off the levels: points are tested against their
reference alone, never against one another. Points of a comparison that is not valid are shown, and stand on no front.

Does not live here: comparing two points (``core.compare``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.agreement import Agreement
from qlock.core.base import Base, Count, Finite, Share
from qlock.core.comparison import Comparison, Distances, State, Suite
from qlock.core.distance import Distance
from qlock.core.endings import UNFINISHED, Endings
from qlock.core.scores import Levels, Measure, Verdict, is_cost
from qlock.core.speed import Speed
from qlock.core.stats import CannotTell, Interval

LADDER_VERSION = 1


class MarkDistance(Base, frozen=True, kw_only=True, tag_field="kind", tag="distance"):
    """How far a point lies from the reference that a suite names."""

    kld_nats: Finite
    """Mean KL divergence of a token."""
    interval: Interval | CannotTell
    at_999_nats: Finite
    """Below it lie 99.9 % of the tokens."""
    same_top_share: Share
    """Tokens for which both find the same one likeliest."""
    kld_slack_nats: Finite | UnsetType = UNSET
    """How much more the mean may be at most, where the divergences are lower bounds."""


class Mark(Base, frozen=True, kw_only=True):
    """What a point came to in one suite."""

    suite: str
    measure: Measure
    level: Finite | CannotTell
    interval: Interval | CannotTell
    """Of the level."""
    change: Finite | CannotTell
    """From the reference; cannot tell for a reference."""
    difference: Interval | CannotTell
    verdict: Verdict | Literal["reference"]
    unfinished_share: Share | CannotTell
    """Replies that ended without being finished."""
    loop_share: Share | CannotTell
    equal_share: Share | CannotTell
    """Answers that are those of the reference."""
    tokens_per_s: Finite | CannotTell
    """Over the time in which an engine was there to answer."""
    is_on_front: bool
    distance: MarkDistance | CannotTell | UnsetType = UNSET
    """Unset where the suite is not about a reference."""


class Rung(Base, frozen=True, kw_only=True):
    """One point."""

    name: str
    """Its point, or run and point where two runs have points of one name."""
    is_reference: bool
    state: State
    """Of its comparison; ``valid`` for a reference."""
    file_bytes: Count
    bits_per_weight: Finite | CannotTell
    memory_bytes: Count | CannotTell
    mark: tuple[Mark, ...]


class Best(Base, frozen=True, kw_only=True):
    """The best point of a suite at or under a size."""

    suite: str
    rung: str | CannotTell
    candidates: Count


class Ladder(Base, frozen=True, kw_only=True):
    """Comparisons, and their points side by side."""

    ladder_version: int
    comparison: tuple[Comparison, ...]
    rung: tuple[Rung, ...]
    """The largest first."""
    at_most_bytes: Count | UnsetType = UNSET
    """The size that was asked for."""
    best: tuple[Best, ...]
    """One a suite; none where no size was asked for."""


def ladder(comparisons: Sequence[Comparison], *, at_most_bytes: int | UnsetType = UNSET) -> Ladder:
    """The points of all comparisons, each once.

    Args:
        comparisons: At least one.
        at_most_bytes: Size of the weight files that the best point may have.
    """
    rungs = sorted(_rungs(comparisons), key=lambda rung: (-rung.file_bytes, not rung.is_reference, rung.name))
    suites = tuple(dict.fromkeys(mark.suite for rung in rungs for mark in rung.mark))
    fronts = {suite: _front(rungs, suite) for suite in suites}
    return Ladder(
        ladder_version=LADDER_VERSION,
        comparison=tuple(comparisons),
        rung=tuple(_on_fronts(rung, fronts) for rung in rungs),
        at_most_bytes=at_most_bytes,
        best=() if at_most_bytes is UNSET else tuple(_best(rungs, suite, at_most_bytes) for suite in suites),
    )


def value_of(mark: Mark) -> float | None:
    """The level as a number that is higher where a point is better; ``None`` where there is none."""
    match mark.level:
        case CannotTell():
            return None
        case level:
            return -level if is_cost(mark.measure) else level


def mark_in(rung: Rung, suite: str) -> Mark | None:
    """What a point came to in a suite; ``None`` where it did not sit it."""
    return next((mark for mark in rung.mark if mark.suite == suite), None)


def _rungs(comparisons: Sequence[Comparison]) -> Iterable[Rung]:
    names = {side.name: side.point for one in comparisons for side in (one.a, one.b)}
    points = list(names.values())
    labels = {name: name if points.count(point) > 1 else point for name, point in names.items()}
    judged = {one.b.name: one for one in comparisons}
    for one in judged.values():
        recipes = one.recipes
        yield Rung(
            name=labels[one.b.name],
            is_reference=False,
            state=one.state,
            file_bytes=recipes.file_bytes_b,
            bits_per_weight=recipes.bits_per_weight_b,
            memory_bytes=one.b.memory_bytes,
            mark=tuple(map(_judged, one.suite)),
        )
    for name in names:
        of_it = [one for one in comparisons if one.a.name == name]
        if name not in judged:
            yield Rung(
                name=labels[name],
                is_reference=True,
                state="valid",
                file_bytes=of_it[0].recipes.file_bytes_a,
                bits_per_weight=of_it[0].recipes.bits_per_weight_a,
                memory_bytes=of_it[0].a.memory_bytes,
                mark=tuple(map(_reference, _fullest(of_it))),
            )


def _fullest(comparisons: Sequence[Comparison]) -> Iterable[Suite]:
    """Each suite of a reference from the comparison with the most pairs: the others lost some of them."""
    suites: dict[str, Suite] = {}
    for one in comparisons:
        for suite in one.suite:
            if suite.suite not in suites or suites[suite.suite].score.pairs < suite.score.pairs:
                suites[suite.suite] = suite
    return suites.values()


def _judged(suite: Suite) -> Mark:
    score = suite.score
    level: float | CannotTell
    change: float | CannotTell
    match score.levels:
        case Levels(b=level, change=change):
            pass
        case CannotTell() as unknown:
            level = change = unknown
    match suite.agreement:
        case Agreement(equal=equal, answers=answers):
            equal_share: float | CannotTell = equal / answers
        case CannotTell() as unknown:
            equal_share = unknown
    unfinished, loops = _ends(suite, "b")
    return Mark(
        suite=suite.suite,
        measure=score.measure,
        level=level,
        interval=score.b,
        change=change,
        difference=score.difference,
        verdict=score.verdict,
        unfinished_share=unfinished,
        loop_share=loops,
        equal_share=equal_share,
        tokens_per_s=_tokens_per_s(suite.speeds.b),
        is_on_front=False,
        distance=_distance(suite, "b"),
    )


def _reference(suite: Suite) -> Mark:
    unknown = CannotTell(why="it is the reference")
    level: float | CannotTell
    match suite.score.levels:
        case Levels(a=level):
            pass
        case CannotTell() as why:
            level = why
    unfinished, loops = _ends(suite, "a")
    return Mark(
        suite=suite.suite,
        measure=suite.score.measure,
        level=level,
        interval=suite.score.a,
        change=unknown,
        difference=unknown,
        verdict="reference",
        unfinished_share=unfinished,
        loop_share=loops,
        equal_share=unknown,
        tokens_per_s=_tokens_per_s(suite.speeds.a),
        is_on_front=False,
        distance=_distance(suite, "a"),
    )


def _tokens_per_s(speed: Speed | CannotTell) -> float | CannotTell:
    return speed if isinstance(speed, CannotTell) else speed.tokens_per_s


def _distance(suite: Suite, side: Literal["a", "b"]) -> MarkDistance | CannotTell | UnsetType:
    match suite.distances:
        case UnsetType():
            return UNSET
        case Distances() as both:
            pass
    match both.a if side == "a" else both.b:
        case CannotTell() as unknown:
            return unknown
        case Distance(figures=figures):
            return MarkDistance(
                kld_nats=figures.kld_nats.value,
                interval=figures.kld_nats.interval,
                at_999_nats=figures.quantiles.at_999,
                same_top_share=figures.same_top_share.value,
                kld_slack_nats=figures.kld_slack_nats,
            )


def _ends(suite: Suite, side: Literal["a", "b"]) -> tuple[float | CannotTell, float | CannotTell]:
    """The shares of unfinished replies and of loops of one side."""
    match suite.endings:
        case CannotTell() as unknown:
            return unknown, unknown
        case Endings() as found:
            replies = found.replies_a if side == "a" else found.replies_b
            loops = found.loops.items_a if side == "a" else found.loops.items_b
            cut = sum(
                row.items_a if side == "a" else row.items_b for row in found.row if row.ending in UNFINISHED
            )
    if not replies:
        unknown = CannotTell(why="nothing was written on this side")
        return unknown, unknown
    return cut / replies, loops / replies


def _standing(rungs: Sequence[Rung], suite: str) -> list[tuple[Rung, float]]:
    """Points of valid comparisons that have a level in the suite, with how good it is."""
    found = []
    for rung in rungs:
        mark = mark_in(rung, suite)
        value = None if mark is None else value_of(mark)
        if rung.state == "valid" and value is not None:
            found.append((rung, value))
    return found


def _front(rungs: Sequence[Rung], suite: str) -> frozenset[str]:
    standing = _standing(rungs, suite)
    return frozenset(
        rung.name
        for rung, value in standing
        if not any(
            other.file_bytes <= rung.file_bytes
            and better >= value
            and (other.file_bytes < rung.file_bytes or better > value)
            for other, better in standing
        )
    )


def _on_fronts(rung: Rung, fronts: dict[str, frozenset[str]]) -> Rung:
    marks = tuple(
        msgspec.structs.replace(mark, is_on_front=rung.name in fronts[mark.suite]) for mark in rung.mark
    )
    return msgspec.structs.replace(rung, mark=marks)


def _best(rungs: Sequence[Rung], suite: str, at_most_bytes: int) -> Best:
    """The highest level; of two alike the smaller one."""
    small = [found for found in _standing(rungs, suite) if found[0].file_bytes <= at_most_bytes]
    if not small:
        return Best(suite=suite, rung=CannotTell(why="no valid point with a score is so small"), candidates=0)
    first, _ = max(small, key=lambda found: (found[1], -found[0].file_bytes))
    return Best(suite=suite, rung=first.name, candidates=len(small))
