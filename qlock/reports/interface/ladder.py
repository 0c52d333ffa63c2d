"""What is said of many points in one view.

Does not live here: which points those are (``core.ladder``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import UNSET

from qlock.core.ladder import Best, Ladder, Mark, Rung
from qlock.core.scores import Measure, is_cost
from qlock.core.stats import CannotTell, Interval
from qlock.core.units import bytes_text, share_percent
from qlock.reports.interface.part import Part, Row
from qlock.reports.interface.words import MEASURES, VERDICTS, difference, interval_text

READ_OFF = (
    "change is to the reference, bits are per weight; points are tested against their reference alone, never against one another; the front and the best are read "
    "off the levels"
)


def ladder_parts(found: Ladder) -> Iterator[Part]:
    """Suite by suite every point: size, score, endings, agreement, and whether it stands on the front."""
    suites = tuple(dict.fromkeys(mark.suite for rung in found.rung for mark in rung.mark))
    best = {one.suite: _best(found, one) for one in found.best}
    for suite in suites:
        yield Part(
            heading=f"Ladder of {suite}",
            sentences=tuple(filter(None, (best.get(suite),))),
            columns=(
                "point",
                "size",
                "bits",
                "score",
                "interval",
                "change",
                "interval",
                "verdict",
                "unfinished",
                "loops",
                "equal",
                "front",
            ),
            rows=tuple(_row(rung, mark) for rung in found.rung for mark in rung.mark if mark.suite == suite),
            remarks=(READ_OFF,) if suite == suites[-1] else (),
        )


def shown_level(measure: Measure, value: float) -> float:
    """A level as it is shown: perplexity for text, otherwise the share."""
    return math.exp(min(value, 700.0)) if measure == "nats-per-token" else value


def level_text(measure: Measure, value: float) -> str:
    """The same in words."""
    shown = shown_level(measure, value)
    return f"{shown:.4g}" if is_cost(measure) else share_percent(min(max(shown, 0.0), 1.0))


def measure_text(measure: Measure) -> str:
    """What is measured, in words."""
    return "perplexity" if measure == "nats-per-token" else MEASURES[measure]


def verdict_text(rung: Rung, mark: Mark) -> str:
    """What is said of a point, from its reference's side."""
    if mark.verdict == "reference":
        return "reference"
    if rung.state != "valid":
        return f"{rung.state}: no verdict"
    return VERDICTS[mark.verdict].removeprefix("B is ")


def _row(rung: Rung, mark: Mark) -> Row:
    bits = rung.bits_per_weight
    return (
        rung.name,
        bytes_text(rung.file_bytes),
        f"{bits:.2f}" if isinstance(bits, float) else "unknown",
        "-" if isinstance(mark.level, CannotTell) else level_text(mark.measure, mark.level),
        _interval(mark),
        "-" if isinstance(mark.change, CannotTell) else difference(mark.measure, mark.change),
        interval_text(mark.measure, mark.difference) if isinstance(mark.difference, Interval) else "-",
        verdict_text(rung, mark),
        *(
            "-" if isinstance(share, CannotTell) else share_percent(share)
            for share in (mark.unfinished_share, mark.loop_share, mark.equal_share)
        ),
        "front" if mark.is_on_front else "",
    )


def _interval(mark: Mark) -> str:
    match mark.interval:
        case Interval(low=low, high=high):
            ends = level_text(mark.measure, low), level_text(mark.measure, high)
            return f"{ends[0].removesuffix(' %')} to {ends[1]}"
        case CannotTell():
            return "-"


def _best(found: Ladder, best: Best) -> str:
    assert found.at_most_bytes is not UNSET  # else there is no best
    words = f"best at or under {bytes_text(found.at_most_bytes)}: "
    match best.rung:
        case CannotTell(why=why):
            return words + why
        case name:
            return f"{words}{name}, of {best.candidates} points"
