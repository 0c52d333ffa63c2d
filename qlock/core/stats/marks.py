"""Marks of items, in pairs and alone: right, wrong or in part, once or in repeats.

Lives here: turning marks into the four cells of a table together with how much they say, and the intervals that
follow. Does not live here: the formulas over counts of independent pairs (``shares``), and costs without bounds
(``means``).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from typing import Annotated, Literal

import msgspec

from qlock.core.base import Base, Count
from qlock.core.stats.interface import (
    CannotTell,
    Interval,
    NonInferiority,
    check_counts,
    quantile_of_level,
)
from qlock.core.stats.shares import (
    Cells,
    newcombe_limits,
    tango_limits,
    tango_z,
    verdict_of,
    wilson_limits,
)
from qlock.errors import InputError

Amount = Annotated[float, msgspec.Meta(ge=0.0)]


class PairedMarks(Base, frozen=True, kw_only=True):
    """Pairs of marks as a table of four cells, and how much they say.

    A mark in part is shared out: of a pair with the marks a and b, min(a, b) goes to ``both``, what one side has beyond
    it to that side's cell, and the rest up to 1 to ``neither``. Means, and their difference, are those of the marks.
    """

    both: Amount
    only_a: Amount
    only_b: Amount
    neither: Amount
    items: Count
    """Independent ones; each may be there in several pairs."""
    design_effect: Amount
    """So many pairs say as much as one pair of an item of its own that is right or wrong: 1 where that is what they
    are, up to the number of repeats where these are alike, and below 1 for small parts of a mark."""

    @property
    def pairs(self) -> int:
        """Pairs in all."""
        return round(self.both + self.only_a + self.only_b + self.neither)

    @property
    def difference(self) -> float:
        """Mean mark of B − mean mark of A; at least one pair."""
        return (self.only_b - self.only_a) / self.pairs

    @property
    def cells(self) -> Cells:
        """The table that independent pairs of right and wrong would have, saying as much."""
        both, only_a, only_b, neither = (
            cell / self.design_effect for cell in (self.both, self.only_a, self.only_b, self.neither)
        )
        return both, only_a, only_b, neither

    def with_lost(self, *, only_a: int = 0, only_b: int = 0) -> PairedMarks:
        """The same with further pairs that one side alone got right."""
        return msgspec.structs.replace(
            self,
            only_a=self.only_a + only_a,
            only_b=self.only_b + only_b,
            items=self.items + only_a + only_b,
        )


def marks_of_counts(*, both: int, only_a: int, only_b: int, neither: int) -> PairedMarks:
    """The table of items that are right or wrong, each once.

    Raises:
        InputError: A count lies below 0.
    """
    check_counts(both=both, only_a=only_a, only_b=only_b, neither=neither)
    return PairedMarks(
        both=both,
        only_a=only_a,
        only_b=only_b,
        neither=neither,
        items=both + only_a + only_b + neither,
        design_effect=1.0,
    )


def paired_marks(
    a: Sequence[float], b: Sequence[float], items: Sequence[Hashable] | None = None
) -> PairedMarks:
    """The table of these pairs.

    The design effect is the variance of the mean difference, CR1 by item, over the one that independent pairs of
    right and wrong with these cells would have. Both sums of squares start from one imagined item whose pairs all
    differ, so that no differing pair means that repeats say nothing new, and few of them do not pass for exact.

    Args:
        a: Marks of the reference, each between 0 and 1.
        b: Marks of what is judged, in the same order.
        items: The item of each pair; ``None`` where each is its own.

    Raises:
        InputError: The numbers of marks differ, or a mark is not between 0 and 1.

    Source: design effect: Kish 1965; effective sizes in tables of clustered pairs: Yang, Sun & Hardin 2012,
    doi 10.1002/sim.4341, whose estimate differs; CR1 as in ``cluster_mean``.
    """
    if len(a) != len(b):
        raise InputError(f"marks come in pairs: got `{len(a)}` and `{len(b)}`")
    _check_marks(a)
    _check_marks(b)
    both = math.fsum(map(min, a, b))
    only_a, only_b = math.fsum(a) - both, math.fsum(b) - both
    differences = [mine - theirs for theirs, mine in zip(a, b, strict=True)]
    known = range(len(a)) if items is None else items
    return PairedMarks(
        both=both,
        only_a=max(only_a, 0.0),
        only_b=max(only_b, 0.0),
        neither=max(math.fsum((len(a), -both, -only_a, -only_b)), 0.0),
        items=len(set(known)),
        design_effect=_design_effect(differences, known),
    )


def paired_interval(marks: PairedMarks, *, level: float = 0.95) -> Interval | CannotTell:
    """Interval of the difference of mean marks, B − A: at each end the farther one of Newcombe's and Tango's.

    Where nearly all differing pairs go one way, Newcombe's interval misses too often on the side of no difference and
    Tango's on the other (up to 9 % and 5 % instead of 2.5 % with four differing pairs expected among 200). Together
    they keep to their level on either side, and elsewhere they are nearly the same. Both are taken of the cells that
    count. Assumes independent items; without pairs it cannot tell.

    Source: those of ``newcombe_paired`` and ``tango_paired``.
    """
    z = quantile_of_level(level)
    if not marks.pairs:
        return CannotTell(why="there are no pairs")
    point = marks.difference
    (low, high), (other_low, other_high) = newcombe_limits(marks.cells, z), tango_limits(marks.cells, z)
    return Interval(
        point=point,
        low=min(low, other_low, point),
        high=max(high, other_high, point),
        level=level,
        n=marks.pairs,
        clusters=marks.items,
        method="newcombe-tango",
    )


def decided(cells: Cells, margin_share: float, z: float) -> Literal["pass", "fail"] | None:
    """What ``paired_interval`` of these cells says about a margin; None where it holds −margin."""
    _, only_a, only_b, _ = cells
    low, high = newcombe_limits(cells, z)
    distance = tango_z(only_a, only_b, math.fsum(cells), -margin_share)
    if low > -margin_share and distance > z:
        return "pass"
    return "fail" if high < -margin_share and distance < -z else None


def non_inferior(marks: PairedMarks, *, margin_share: float, level: float = 0.95) -> NonInferiority:
    """Whether B is no worse than A by as much as the margin, by ``verdict_of`` the ``paired_interval``."""
    return verdict_of(paired_interval(marks, level=level), margin_share)


def share_interval(
    marks: Sequence[float], items: Sequence[Hashable] | None = None, *, level: float = 0.95
) -> Interval | CannotTell:
    """Mean mark with its Wilson interval, taken of as many marks as say as much: see ``paired_marks``.

    Plain Wilson where each item is there once, right or wrong. Assumes independent items; without any it cannot tell.

    Args:
        marks: Each between 0 and 1.
        items: The item of each mark; ``None`` where each is its own.
        level: Confidence, as a share.

    Raises:
        InputError: A mark is not between 0 and 1.
    """
    z = quantile_of_level(level)
    if not marks:
        return CannotTell(why="there are no items")
    _check_marks(marks)
    known, total = range(len(marks)) if items is None else items, math.fsum(marks)
    design_effect = _design_effect(marks, known)
    low, high = wilson_limits(total / design_effect, len(marks) / design_effect, z)
    return Interval(
        point=total / len(marks),
        low=low,
        high=high,
        level=level,
        n=len(marks),
        clusters=len(set(known)),
        method="wilson",
    )


def _check_marks(marks: Sequence[float]) -> None:
    for mark in marks:
        if not 0 <= mark <= 1:
            raise InputError(f"a mark lies between 0 and 1: got `{mark}`")


def _design_effect(values: Sequence[float], items: Sequence[Hashable]) -> float:
    """How many of these values say as much as one of its own that is −1, 0 or 1."""
    n, groups = len(values), len(set(items))
    if groups == n and all(abs(value) in (0.0, 1.0) for value in values):
        return 1.0
    if groups < 2:
        return float(max(n, 1))
    members: dict[Hashable, list[float]] = {}
    for item, value in zip(items, values, strict=True):
        members.setdefault(item, []).append(value)
    mean = math.fsum(values) / n
    size = math.fsum(len(group) ** 2 for group in members.values()) / n
    between = math.fsum(_squared_excesses(list(members.values()), mean)) * groups / (groups - 1)
    within = math.fsum((value - mean) ** 2 for value in values) * n / (n - 1)
    whole = (math.fsum(map(abs, values)) - n * mean * mean) * n / (n - 1)
    return (max(between, within) + size * size) / (max(whole, 0.0) + size)


def _squared_excesses(groups: Sequence[Sequence[float]], mean: float) -> Iterator[float]:
    """For each item, the square of how far the sum of its values lies from what the mean of all would give."""
    for group in groups:
        yield (math.fsum(group) - len(group) * mean) ** 2
