"""What is said of many points in one view.

Does not live here: which points those are (``core.ladder``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from msgspec import UNSET

from qlock.core.ladder import Best, Ladder, Mark, MarkDistance, Rung, mark_in
from qlock.core.scores import Measure
from qlock.core.stats import CannotTell, Interval
from qlock.core.units import bytes_text, count_text, share_percent
from qlock.reports.interface.distance import LOWER_BOUNDS, nats_text
from qlock.reports.interface.part import Part
from qlock.reports.interface.words import MEASURES, VERDICTS, difference, interval_text, level, share_text

READ_OFF = (
    "in brackets: 95 % intervals; change is to the reference, bits are per weight; points are tested against their "
    "reference alone, never against one another; the front and the best are read off the levels"
)
FASTER = "tokens/s: of the time in which the engine was there to answer, prompts included; each run as it was measured"

_Column = tuple[str, list[str]]
_FIGURES = 4
"""Digits of a perplexity or a speed."""
_MOST_DIGITS = 6
"""After the point."""
_MOST_PLAIN = 1e6
"""Numbers from here on are written with a power of ten."""
_OPTIONAL_FROM = 4
"""Columns behind the score stand only where a point has something in them."""


def ladder_parts(found: Ladder) -> Iterator[Part]:
    """Suite by suite every point: size, score, endings, agreement, distance, speed, and whether it is on the front."""
    suites = tuple(dict.fromkeys(mark.suite for rung in found.rung for mark in rung.mark))
    best = {one.suite: _best(found, one) for one in found.best}
    has_speed = False
    for suite in suites:
        marks = [(rung, mark) for rung in found.rung for mark in rung.mark if mark.suite == suite]
        columns = [*_scores(marks), *_answers(marks), *_distances(found, suite, marks), *_costs(marks)]
        shown = [
            (name, cells)
            for index, (name, cells) in enumerate(columns)
            if index < _OPTIONAL_FROM or not set(cells) <= {"", "-"}
        ]
        has_speed |= any(name == "tokens/s" for name, _ in shown)
        yield Part(
            heading=f"Ladder of {suite}",
            sentences=tuple(filter(None, (best.get(suite),))),
            columns=tuple(name for name, _ in shown),
            rows=tuple(zip(*(cells for _, cells in shown), strict=True)),
            remarks=tuple(_remarks(found, has_speed=has_speed)) if suite == suites[-1] else (),
        )


def _remarks(found: Ladder, *, has_speed: bool) -> Iterator[str]:
    if has_speed:
        yield FASTER
    far = [mark.distance for rung in found.rung for mark in rung.mark]
    if any(isinstance(one, MarkDistance) and one.kld_slack_nats is not UNSET for one in far):
        yield LOWER_BOUNDS
    yield READ_OFF


def shown_level(measure: Measure, value: float) -> float:
    """A level as it is shown: perplexity for text, otherwise the share."""
    return math.exp(min(value, 700.0)) if measure == "nats-per-token" else value


def level_text(measure: Measure, value: float, *, digits: int | None = None) -> str:
    """The same in words; of a perplexity with ``digits`` after the point, else with four digits in all."""
    if measure != "nats-per-token":
        return level(measure, value)
    shown = shown_level(measure, value)
    return _number(shown, digits_of([shown]) if digits is None else digits)


def digits_of(values: Iterable[float]) -> int:
    """How many digits after the point show four of the smallest number above 0, so that a column has as many in each row."""
    smallest = min((value for value in values if value > 0), default=1.0)
    return min(max(_FIGURES - 1 - math.floor(math.log10(smallest)), 0), _MOST_DIGITS)


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if value < _MOST_PLAIN else f"{value:.{_FIGURES}g}"


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


_Marks = list[tuple[Rung, Mark]]


def _scores(marks: _Marks) -> Iterator[_Column]:
    yield "point", [rung.name for rung, _ in marks]
    yield "size", [bytes_text(rung.file_bytes) for rung, _ in marks]
    yield "bits", [_known(rung.bits_per_weight, "{:.2f}", "unknown") for rung, _ in marks]
    levels = [shown_level(mark.measure, mark.level) for _, mark in marks if isinstance(mark.level, float)]
    yield "score", [_level(mark, digits_of(levels)) for _, mark in marks]
    yield "change", [_change(mark) for _, mark in marks]
    yield "verdict", [verdict_text(rung, mark) for rung, mark in marks]


def _level(mark: Mark, digits: int) -> str:
    match mark.level, mark.interval:
        case CannotTell(), _:
            return "-"
        case level, Interval(low=low, high=high):
            said, *ends = (level_text(mark.measure, value, digits=digits) for value in (level, low, high))
            return f"{said} ({ends[0].removesuffix(' %')} to {ends[1]})"
        case level, _:
            return level_text(mark.measure, level, digits=digits)


def _change(mark: Mark) -> str:
    match mark.change, mark.difference:
        case CannotTell(), _:
            return "-"
        case change, Interval():
            ends = interval_text(mark.measure, mark.difference).rpartition(" ")[0]
            return f"{difference(mark.measure, change)} ({ends})"
        case change, _:
            return difference(mark.measure, change)


def _answers(marks: _Marks) -> Iterator[_Column]:
    yield "unfinished", [share_text(mark.unfinished_share) for _, mark in marks]
    yield "loops", [share_text(mark.loop_share) for _, mark in marks]
    yield "equal", [share_text(mark.equal_share) for _, mark in marks]


def _distances(found: Ladder, suite: str, marks: _Marks) -> Iterator[_Column]:
    """Of a suite about a reference, what its score does not say; of any other, the divergence in the only such suite."""
    about = dict.fromkeys(m.suite for rung in found.rung for m in rung.mark if m.distance is not UNSET)
    if suite in about:
        far = [mark.distance for _, mark in marks]
        yield "99.9 % below", [nats_text(d.at_999_nats) if isinstance(d, MarkDistance) else "-" for d in far]
        yield (
            "same likeliest",
            [share_percent(d.same_top_share) if isinstance(d, MarkDistance) else "-" for d in far],
        )
    elif len(about) == 1:
        (other,) = about
        found_there = [mark_in(rung, other) for rung, _ in marks]
        far = [UNSET if mark is None else mark.distance for mark in found_there]
        yield f"KL in {other}", [nats_text(d.kld_nats) if isinstance(d, MarkDistance) else "-" for d in far]


def _costs(marks: _Marks) -> Iterator[_Column]:
    speeds = [mark.tokens_per_s for _, mark in marks]
    digits = digits_of(speed for speed in speeds if isinstance(speed, float))
    yield "tokens/s", [_number(speed, digits) if isinstance(speed, float) else "-" for speed in speeds]
    yield (
        "memory",
        [
            "-" if isinstance(rung.memory_bytes, CannotTell) else bytes_text(rung.memory_bytes)
            for rung, _ in marks
        ],
    )
    yield "front", ["front" if mark.is_on_front else "" for _, mark in marks]


def _known(value: float | CannotTell, shape: str, otherwise: str) -> str:
    return otherwise if isinstance(value, CannotTell) else shape.format(value)


def _best(found: Ladder, best: Best) -> str:
    assert found.at_most_bytes is not UNSET  # else there is no best
    words = f"best at or under {bytes_text(found.at_most_bytes)}: "
    match best.rung:
        case CannotTell(why=why):
            return words + why
        case name:
            return f"{words}{name}, of {count_text(best.candidates, 'point')}"
