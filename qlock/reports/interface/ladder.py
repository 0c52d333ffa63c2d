"""What is said of many points in one view.

Does not live here: which points those are (``core.ladder``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import UNSET

from qlock.core.ladder import Best, Ladder, Mark, Rung
from qlock.core.scores import Measure
from qlock.core.stats import CannotTell, Interval
from qlock.core.units import bytes_text, share_percent
from qlock.reports.interface.part import Part, Row
from qlock.reports.interface.words import MEASURES, VERDICTS, difference, interval_text

READ_OFF = (
    "points are tested against their reference alone, never against one another; the front and the best are read "
    "off the levels"
)


def ladder(found: Ladder) -> Part:
    """Every point in every suite: size, score, endings, agreement, and whether it stands on the front."""
    suites = dict.fromkeys(mark.suite for rung in found.rung for mark in rung.mark)
    return Part(
        heading="Ladder",
        sentences=tuple(_best(found)),
        columns=(
            "suite",
            "point",
            "size",
            "bits per weight",
            "score",
            "interval",
            "to reference",
            "interval",
            "verdict",
            "unfinished",
            "loops",
            "equal",
            "front",
        ),
        rows=tuple(
            _row(rung, mark)
            for suite in suites
            for rung in found.rung
            for mark in rung.mark
            if mark.suite == suite
        ),
        remarks=(READ_OFF,),
    )


def shown_level(measure: Measure, value: float) -> float:
    """A level as it is shown: perplexity for text, otherwise the share."""
    return math.exp(min(value, 700.0)) if measure == "nats-per-token" else value


def level_text(measure: Measure, value: float) -> str:
    """The same in words."""
    shown = shown_level(measure, value)
    return f"{shown:.4g}" if measure == "nats-per-token" else share_percent(min(max(shown, 0.0), 1.0))


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
        mark.suite,
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
            return f"{level_text(mark.measure, low)} to {level_text(mark.measure, high)}"
        case CannotTell():
            return "-"


def _best(found: Ladder) -> Iterator[str]:
    if found.at_most_bytes is UNSET:
        return
    for best in found.best:
        yield f"best at or under {bytes_text(found.at_most_bytes)} in {best.suite}: {_named(best)}"


def _named(best: Best) -> str:
    match best.rung:
        case CannotTell(why=why):
            return why
        case name:
            return f"{name}, of {best.candidates} points"
