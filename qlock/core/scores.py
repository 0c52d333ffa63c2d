"""The score of a suite on both sides, their difference, and what may be said about it.

Four measures, told apart by the outcomes: the share of right answers (every outcome right or not, each item once); the
mean mark (shares of a mark, or several repeats, then clustered by item); nats per token (text in windows); and KL
divergence from a reference, nats per token. Of the last two a lower number is better, and every token counts the same;
otherwise every item does. Slices never weigh.

A verdict is given only where it can be borne out: enough pairs, little missing, no ending gap, more than the noise
floor, and a sign that the missing items could not turn.

Does not live here: the formulas (``core.stats``), what one side costs (``core.costs``), pairs (``core.pairs``), gates (``core.gates``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from qlock.core import stats
from qlock.core.base import Base, Count, Finite
from qlock.core.costs import mean_cost, turned
from qlock.core.endings import ALPHA, SEED
from qlock.core.exchange import Divergence, Nats, Outcome
from qlock.core.pairs import MOST_MISSING_SHARE, Bounds, Cells, Pair, Pairing, bounds, cells_of, cost_of
from qlock.core.perplexity import Perplexities, perplexities
from qlock.core.stats import (
    FEWEST_PAIRS,
    CannotTell,
    Detectable,
    DetectableMean,
    Interval,
    LargeSample,
    PairedMarks,
    PairedTest,
)

MANY_CLUSTERS = 2_000
"""From so many clusters on, means are as good as normal, and resampling would only take long."""


_NOTHING_TO_TEST = CannotTell(
    why="one side is the reference itself: the distance is the figure, and no test says more"
)
_SAID = frozenset({"b-better", "b-worse", "no-difference-seen"})

Measure = Literal["right-share", "mean-mark", "nats-per-token", "kld"]
_COSTS: dict[type[Outcome], Measure] = {Nats: "nats-per-token", Divergence: "kld"}
Verdict = Literal["b-better", "b-worse", "no-difference-seen", "within-noise", "cannot-tell", "withheld"]


Test = PairedTest | LargeSample | CannotTell
Smallest = Detectable | DetectableMean | CannotTell


class Levels(Base, frozen=True, kw_only=True, tag_field="kind", tag="levels"):
    """Plain means over pairs, which are known even where their spread is not."""

    a: Finite
    b: Finite
    change: Finite
    """B − A."""


class PairedScores(msgspec.Struct, frozen=True, kw_only=True):
    """A difference, B − A, with its test."""

    measure: Measure
    levels: Levels | CannotTell
    a: Interval | CannotTell
    b: Interval | CannotTell
    difference: Interval | CannotTell
    cells: Cells | CannotTell
    test: Test
    marks: PairedMarks | CannotTell
    """The pairs as a table; cannot tell for text."""


class Score(Base, frozen=True, kw_only=True):
    """A suite's score on scored pairs."""

    measure: Measure
    pairs: Count
    levels: Levels | CannotTell
    a: Interval | CannotTell
    b: Interval | CannotTell
    difference: Interval | CannotTell
    """B − A."""
    cells: Cells | CannotTell
    test: Test
    smallest_detectable: Smallest
    bounds: Bounds | CannotTell
    """Where the difference could lie if every lost item went one way."""
    perplexities: Perplexities | CannotTell
    verdict: Verdict
    why: str
    """What the verdict rests on, or why there is none."""


def paired_scores(pairs: Sequence[Pair], *, exact: bool = True) -> PairedScores:
    """Both levels, the difference and its test.

    Args:
        pairs: Scored ones.
        exact: Whether to resample where the numbers are few; a slice is content with a t interval.
    """
    match measure_of(pairs):
        case "right-share":
            return _right_share(pairs)
        case "mean-mark":
            return _mean_mark(pairs)
        case "nats-per-token" | "kld" as measure:
            return _mean_cost(measure, pairs, exact=exact)


def measure_of(pairs: Sequence[Pair]) -> Measure:
    """Which measure the outcomes of these pairs call for."""
    for pair in pairs:
        if type(pair.a.outcome) in _COSTS:
            return _COSTS[type(pair.a.outcome)]
    repeated = len({pair.item for pair in pairs}) < len(pairs)
    whole = all(pair.a.mark in (0.0, 1.0) and pair.b.mark in (0.0, 1.0) for pair in pairs)
    return "right-share" if whole and not repeated else "mean-mark"


def levels_of(pairs: Sequence[Pair]) -> Levels | CannotTell:
    """Both levels alone, in the measure of these pairs."""
    return _levels(_values(pairs))


def is_cost(measure: Measure) -> bool:
    """Whether it is in nats, and the lower the better."""
    return measure in _COSTS.values()


def score(pairing: Pairing) -> Score:
    """The score of one suite, with no verdict yet but those that the pairs alone forbid."""
    pairs = pairing.scored
    found = paired_scores(pairs)
    total = math.fsum(b - a for a, b in _values(pairs))
    verdict, why = _verdict(found, pairing, len(pairs))
    return Score(
        measure=found.measure,
        pairs=len(pairs),
        levels=found.levels,
        a=found.a,
        b=found.b,
        difference=found.difference,
        cells=found.cells,
        test=found.test,
        smallest_detectable=_smallest(found, pairs),
        bounds=CannotTell(why="a cost in nats has no upper bound")
        if is_cost(found.measure)
        else bounds(pairing, total),
        perplexities=_perplexities(found),
        verdict=verdict,
        why=why,
    )


def _perplexities(found: PairedScores) -> Perplexities | CannotTell:
    match found.levels:
        case Levels(a=a, b=b, change=change) if found.measure == "nats-per-token":
            return perplexities(a, b, change=change, difference=found.difference)
        case _:
            return CannotTell(why="no text was scored")


def described(found: Score, why: str) -> Score:
    """The same levels as a description: no test, no interval of the difference, no verdict."""
    unknown = CannotTell(why=why)
    text = found.perplexities
    if isinstance(text, Perplexities):
        text = msgspec.structs.replace(text, ratio_low=unknown, ratio_high=unknown)
    return msgspec.structs.replace(
        found,
        difference=unknown,
        test=unknown,
        smallest_detectable=unknown,
        perplexities=text,
        verdict="withheld",
        why=why,
    )


def withheld(found: Score, why: str) -> Score:
    """The same numbers and test without a verdict."""
    return msgspec.structs.replace(found, verdict="withheld", why=why)


def against_noise(
    found: Score, floor: float, *, why: str = "two runs of one point differ by as much"
) -> Score:
    """A difference that two runs of one point show as well is none, nor one that the way of measuring makes.

    Args:
        found: The score.
        floor: Share of items whose outcome flips between two runs of one point, or how far its nats move.
        why: What makes such differences.
    """
    match found.levels:
        case Levels(change=change) if found.verdict in _SAID and floor > 0 and abs(change) <= floor:
            return msgspec.structs.replace(found, verdict="within-noise", why=why)
    return found


def p_of(test: Test) -> float | None:
    """The p-value; ``None`` where there is none."""
    match test:
        case PairedTest(p_value=p_value) | LargeSample(p_value=p_value):
            return p_value
        case CannotTell():
            return None


def _right_share(pairs: Sequence[Pair]) -> PairedScores:
    cells = cells_of(pairs)
    marks = stats.marks_of_counts(
        both=cells.both, only_a=cells.only_a, only_b=cells.only_b, neither=cells.neither
    )
    n = len(pairs)
    return PairedScores(
        measure="right-share",
        levels=_levels(_values(pairs)),
        a=stats.wilson(cells.both + cells.only_a, n),
        b=stats.wilson(cells.both + cells.only_b, n),
        difference=stats.paired_interval(marks),
        cells=cells,
        test=stats.mcnemar_exact(cells.only_a, cells.only_b) if n else CannotTell(why="there are no pairs"),
        marks=marks,
    )


def _values(pairs: Sequence[Pair]) -> list[tuple[float, float]]:
    """One number per pair and side: its mark, or its nats.

    Nats of a window are divided by the mean number of scored tokens of all, so that the mean of these numbers is
    nats per token exactly, however long each window is.
    """
    costs = [
        (a, b)
        for a, b in ((cost_of(pair.a.outcome), cost_of(pair.b.outcome)) for pair in pairs)
        if a is not None and b is not None
    ]
    if not costs:
        return [(pair.a.mark or 0.0, pair.b.mark or 0.0) for pair in pairs]
    tokens = sum(scored for (_, scored), _ in costs) / len(costs)
    return [(a / tokens, b / tokens) for (a, _), (b, _) in costs]


def _levels(values: Sequence[tuple[float, float]]) -> Levels | CannotTell:
    n = len(values)
    if not n:
        return CannotTell(why="there are no pairs")
    return Levels(
        a=math.fsum(a for a, _ in values) / n,
        b=math.fsum(b for _, b in values) / n,
        change=math.fsum(b - a for a, b in values) / n,
    )


def _mean_mark(pairs: Sequence[Pair]) -> PairedScores:
    """Marks in part, or in repeats, which are one cluster an item."""
    a, b = [pair.a.mark or 0.0 for pair in pairs], [pair.b.mark or 0.0 for pair in pairs]
    items = [pair.item for pair in pairs]
    marks = stats.paired_marks(a, b, items)
    return PairedScores(
        measure="mean-mark",
        levels=_levels(_values(pairs)),
        a=stats.share_interval(a, items),
        b=stats.share_interval(b, items),
        difference=stats.paired_interval(marks),
        cells=CannotTell(why="items have marks other than right and wrong, or repeats"),
        test=_test([mine - theirs for theirs, mine in zip(a, b, strict=True)], items),
        marks=marks,
    )


def _mean_cost(measure: Measure, pairs: Sequence[Pair], *, exact: bool) -> PairedScores:
    values, items = _values(pairs), [pair.item for pair in pairs]
    differences = [b - a for a, b in values]
    level_a, level_b = mean_cost(pair.a for pair in pairs), mean_cost(pair.b for pair in pairs)
    test: Test = _NOTHING_TO_TEST
    if measure == "kld" and not any(a for a, _ in values):
        difference = level_b
    elif measure == "kld" and not any(b for _, b in values):
        difference = turned(level_a)
    else:
        test = _test(differences, items)
        difference = (
            stats.bootstrap_paired(differences, seed=SEED, clusters=_clusters(items))
            if exact and len(set(items)) <= MANY_CLUSTERS
            else _mean(differences, items)
        )
    unknown = CannotTell(why="text has no marks")
    return PairedScores(
        measure=measure,
        levels=_levels(values),
        a=level_a,
        b=level_b,
        difference=difference,
        cells=unknown,
        test=test,
        marks=unknown,
    )


def _test(differences: Sequence[float], items: Sequence[str]) -> Test:
    """Sign flips, item by item; the normal test where very many items differ."""
    by_item = _by_item(differences, items)
    if sum(1 for each in by_item if each) <= MANY_CLUSTERS:
        return stats.permutation_paired(by_item, SEED)
    return stats.large_sample_test(_mean(differences, items))


def _mean(values: Sequence[float], items: Sequence[str]) -> Interval | CannotTell:
    """The mean with its t interval; repeats of one item are one cluster."""
    clusters = _clusters(items)
    return stats.paired_mean_interval(values) if clusters is None else stats.cluster_mean(values, clusters)


def _clusters(items: Sequence[str]) -> Sequence[str] | None:
    return items if len(set(items)) < len(items) else None


def _by_item(differences: Sequence[float], items: Sequence[str]) -> list[float]:
    sums: dict[str, list[float]] = {}
    for item, difference in zip(items, differences, strict=True):
        sums.setdefault(item, []).append(difference)
    return [math.fsum(each) for each in sums.values()]


def _smallest(found: PairedScores, pairs: Sequence[Pair]) -> Smallest:
    match found.marks:
        case PairedMarks():
            return _smallest_share(found.marks)
        case CannotTell():
            pass
    return stats.detectable_mean(_mean([b - a for a, b in _values(pairs)], [pair.item for pair in pairs]))


def _smallest_share(marks: PairedMarks) -> Smallest:
    """Of the pairs that count; where none differs, the share of those that could have is Wilson's upper limit of none."""
    n = round(sum(marks.cells))
    differing = (marks.only_a + marks.only_b) / max(marks.pairs, 1)
    if not differing:
        match stats.wilson(0, n):
            case Interval(high=high):
                differing = high
            case CannotTell() as unknown:
                return unknown
    match stats.smallest_detectable_difference(n, differing):
        case Detectable() as found:
            return msgspec.structs.replace(found, n=marks.pairs)
        case CannotTell() as unknown:
            return unknown


def _verdict(found: PairedScores, pairing: Pairing, pairs: int) -> tuple[Verdict, str]:
    if pairing.lost_share > MOST_MISSING_SHARE:
        return "withheld", (
            f"more than {MOST_MISSING_SHARE:.0%} of the items, {pairing.lost} of {pairs + pairing.lost}, "
            "are in no scored pair"
        )
    clusters = len({pair.item for pair in pairing.scored})
    if clusters < FEWEST_PAIRS:
        return "cannot-tell", f"a verdict needs {FEWEST_PAIRS} independent pairs, got {clusters}"
    if found.test == _NOTHING_TO_TEST:
        return "withheld", _NOTHING_TO_TEST.why
    p_value = p_of(found.test)
    if p_value is None:
        assert isinstance(found.test, CannotTell)
        return "cannot-tell", found.test.why
    if p_value >= ALPHA:
        return "no-difference-seen", "this is no proof that there is none"
    assert isinstance(found.levels, Levels)
    gain = found.levels.change
    if is_cost(found.measure):
        gain = -gain
    else:
        room = bounds(pairing, gain * pairs)
        if room.low <= 0 <= room.high:
            return "withheld", "the items that are in no scored pair could turn it"
    return ("b-better" if gain > 0 else "b-worse"), f"the paired test gives p below {ALPHA:g}"
