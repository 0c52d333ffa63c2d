"""What a report is, and what every report says in the same words.

A report is a module ``qlock/reports/<name>.py`` that defines ``SUFFIX`` (of the file it would be written to) and
``render(comparison) -> str``, and ``render_all(ladder) -> str`` for many points in one view. It is found by its name
(``--format <name>``).

Lives here: the parts of a comparison in the order in which people read them. Does not live here: how a part looks on
a terminal or on a page; a report passes every cell and sentence through ``core.escape`` for the place where it shows
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from qlock.core.comparison import Comparison
from qlock.core.ladder import Ladder
from qlock.reports.interface import answers, ground, scores
from qlock.reports.interface.bridge import bridge
from qlock.reports.interface.distance import distances
from qlock.reports.interface.gates import gates
from qlock.reports.interface.ladder import ladder_parts
from qlock.reports.interface.part import Part, Row
from qlock.reports.interface.readings import readings

__all__ = ["Part", "Report", "Row", "headline", "headlines", "ladder_parts", "parts"]


class Report(Protocol):
    """A way to show a comparison."""

    SUFFIX: str

    def render(self, comparison: Comparison) -> str:
        """The whole report, with a final line feed."""

    def render_all(self, found: Ladder) -> str:
        """The same of many."""


def headlines(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    """A line for each."""
    return tuple(
        f"{one.state.upper()}: {b} (B) against {a} (A); meant to differ: {one.treatment}"
        for one, (a, b) in zip(comparisons, sides_named(comparisons), strict=True)
    )


def headline(comparison: Comparison) -> str:
    """Whether the comparison is valid, of what with what, in one line."""
    return headlines([comparison])[0]


def sides_named(comparisons: Sequence[Comparison]) -> tuple[tuple[str, str], ...]:
    """What A and B of each are called: where points of one name were measured in several runs, with the names of the runs."""
    pairs = Counter((one.a.point, one.b.point) for one in comparisons)
    return tuple(
        (one.a.name, one.b.name)
        if one.a.point == one.b.point or pairs[one.a.point, one.b.point] > 1
        else (one.a.point, one.b.point)
        for one in comparisons
    )


def parts(comparison: Comparison) -> Iterator[Part]:
    """Every part that has something to say, in the order of reading."""
    found = (
        ground.sides(comparison),
        bridge(comparison),
        gates(comparison),
        scores.scores(comparison),
        answers.endings(comparison),
        answers.agreement(comparison),
        *(part for suite in comparison.suite for part in distances(suite)),
        *map(answers.slices, comparison.suite),
        *map(readings, comparison.suite),
        *map(answers.flips, comparison.suite),
        ground.recipes(comparison),
        ground.differences(comparison),
    )
    for part in found:
        if part.rows or part.sentences or part.remarks:
            yield part
