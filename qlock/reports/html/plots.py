"""Drawings of one comparison: differences with their intervals and the noise, endings by side, where answers diverge.

Does not live here: many points in one view (``rungs``), tables (``tables``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from qlock.core.agreement import Agreement, Bucket
from qlock.core.base import Base, Finite
from qlock.core.comparison import Comparison, Suite
from qlock.core.endings import EndingRow, Endings
from qlock.core.exchange import Ending
from qlock.core.rules import NonInferior
from qlock.core.scores import Levels, Measure, is_cost
from qlock.core.stats import CannotTell, Interval
from qlock.core.units import share_percent
from qlock.reports.html.drawing import WIDTH, axis_below, box, drawing, figure, line, number, shortened, word
from qlock.reports.html.markup import Markup, element
from qlock.reports.html.scale import Scale, spanning, ticks
from qlock.reports.interface.words import difference, interval_text

MOST_ROWS = 24
"""Differences in one drawing; the tables have them all."""

_ROW = 34.0
_LEFT, _RIGHT = 10.0, WIDTH - 10.0


class Difference(Base, frozen=True, kw_only=True):
    """One row of the drawing of differences, in points or nats."""

    name: str
    change: Finite
    ends: tuple[Finite, Finite] | None
    noise: Finite | None
    """Between two runs of one point, where it was measured."""
    margin: Finite | None
    """Of a gate on this row."""
    told: str


def comparison_plots(comparison: Comparison) -> Iterator[Markup]:
    """Every drawing that has something to show."""
    rows = [(suite.score.measure, row) for suite in comparison.suite for row in _rows(comparison, suite)]
    for unit, in_nats in (("points", False), ("nats a token", True)):
        shown = [row for measure, row in rows if is_cost(measure) == in_nats]
        if shown:
            yield _differences(shown, unit)
    for suite in comparison.suite:
        match suite.endings:
            case Endings() as found:
                yield _endings(suite.suite, found)
            case CannotTell():
                pass
        match suite.agreement:
            case Agreement(bucket=buckets) if buckets:
                yield _positions(suite.suite, buckets)
            case _:
                pass


def _rows(comparison: Comparison, suite: Suite) -> Iterator[Difference]:
    """The suite as a whole, then its slices."""
    score = suite.score
    match score.levels:
        case Levels() as levels:
            whole = _row(suite.suite, score.measure, levels, score.difference)
        case CannotTell():
            return
    times = _times(score.measure)
    noise = max((times * floor.value for floor in suite.noise), default=None)
    yield msgspec.structs.replace(whole, noise=noise, margin=_margin(comparison, suite, ""))
    for row in suite.slices.row:
        found = _row(f"{suite.suite} {row.slice}", score.measure, row.levels, row.difference)
        yield msgspec.structs.replace(found, margin=_margin(comparison, suite, row.slice))


def _row(name: str, measure: Measure, levels: Levels, found: Interval | CannotTell) -> Difference:
    ends = None
    told = difference(measure, levels.change)
    match found:
        case Interval(low=low, high=high):
            ends = (_times(measure) * low, _times(measure) * high)
            told = f"{told} ({interval_text(measure, found)})"
        case CannotTell():
            pass
    change = _times(measure) * levels.change
    return Difference(name=name, change=change, ends=ends, noise=None, margin=None, told=told)


def _times(measure: Measure) -> float:
    """From a measure to the unit that it is drawn in."""
    return 1.0 if is_cost(measure) else 100.0


def _margin(comparison: Comparison, suite: Suite, slice_: str) -> float | None:
    """Of the strictest gate that looks at just this difference, in points."""
    return max(
        (
            -100.0 * gate.asked.margin_share
            for gate in comparison.gate
            if isinstance(gate.asked, NonInferior)
            and gate.asked.suite == suite.suite
            and gate.asked.slice in {slice_, slice_.partition("=")[2]}
        ),
        default=None,
    )


def _differences(rows: Sequence[Difference], unit: str) -> Markup:
    shown = rows[:MOST_ROWS]
    values = [0.0]
    for row in shown:
        values += [row.change, *(row.ends or ()), *([] if row.margin is None else [row.margin])]
        values += [] if row.noise is None else [-row.noise, row.noise]
    scale = spanning(values, _LEFT, _RIGHT)
    bottom = _ROW * len(shown) + 4
    parts = [axis_below(scale, ticks(scale, 4), y=bottom, top=bottom - 4, name=f"B - A, {unit}")]
    parts += [_difference(row, scale, _ROW * index) for index, row in enumerate(shown)]
    caption = "Dot: difference."
    if any(row.ends is not None for row in shown):
        caption += " Bar: 95 % interval."
    if any(row.noise is not None for row in shown):
        caption += " Band around 0: as much differs between two runs of one point."
    if any(row.margin is not None for row in shown):
        caption += " Dashed: margin of a gate."
    if len(rows) > len(shown):
        caption += f" {len(rows) - len(shown)} more in the tables."
    title = f"Differences in {unit}"
    label = "; ".join([title, *(f"{row.name}: {row.told}" for row in shown)])
    return figure(title, drawing(bottom + 32, label, *parts), caption)


def _difference(row: Difference, scale: Scale, top: float) -> Markup:
    y = top + 24
    zero = scale.place(0.0)
    parts = [line((zero, top + 15), (zero, top + 33), "zero")]
    if row.noise is not None:
        start, end = scale.place(-row.noise), scale.place(row.noise)
        parts.append(box((start, top + 15), (max(end - start, 1.0), 18), "noise"))
    if row.margin is not None:
        parts.append(line((scale.place(row.margin), top + 15), (scale.place(row.margin), top + 33), "margin"))
    if row.ends is not None:
        parts.append(line((scale.place(row.ends[0]), y), (scale.place(row.ends[1]), y), "bar"))
    parts.append(element("circle", cx=scale.place(row.change), cy=y, r=4.0, class_="dot"))
    parts.append(word(_LEFT, top + 12, shortened(row.name, 30)))
    parts.append(word(_RIGHT, top + 12, row.told.partition(" (")[0], anchor="end", kind="strong"))
    return element("g", *parts)


def _endings(name: str, found: Endings) -> Markup:
    """Two bars, A above B, each whole."""
    parts: list[Markup] = []
    told: list[str] = []
    sides = (
        ("A", found.replies_a, [(row.ending, row.items_a) for row in found.row]),
        ("B", found.replies_b, [(row.ending, row.items_b) for row in found.row]),
    )
    for index, (side, replies, counts) in enumerate(sides):
        top = 4 + 34.0 * index
        x = 26.0
        parts.append(word(4, top + 17, side, kind="strong"))
        for ending, items in counts:
            share = items / max(replies, 1)
            width = share * (_RIGHT - 26.0)
            words = f"{side} {ending}: {items} of {replies} ({share_percent(share)})"
            told.append(words)
            if width:
                parts.append(box((x, top), (width, 24), f"ending {ending}", told=words))
            x += width
    parts += _legend(found.row, 86.0)
    height = 86.0 + 18 * ((len(found.row) + 2) // 3)
    loops = found.loops
    caption = f"Replies with a loop: A {loops.items_a}, B {loops.items_b}."
    if found.gap.differs:
        caption += (
            " Unfinished replies lean to one side: the score says how far each came, not which is better."
        )
    title = f"Endings in {name}"
    return figure(title, drawing(height, "; ".join([title, *told]), *parts), caption)


def _legend(rows: Sequence[EndingRow], top: float) -> Iterator[Markup]:
    for index, row in enumerate(rows):
        x, y = 26.0 + 110 * (index % 3), top + 18 * (index // 3)
        yield box((x, y - 10), (12, 12), f"ending {row.ending}")
        yield word(x + 17, y, _ENDINGS[row.ending])


_ENDINGS: dict[Ending, str] = {
    "eos": "end of text",
    "stop": "stop word",
    "budget": "token budget",
    "context": "context full",
    "error": "error",
}


def _positions(name: str, buckets: Sequence[Bucket]) -> Markup:
    """How many answers diverge where."""
    most = max(bucket.answers for bucket in buckets)
    step = min((_RIGHT - _LEFT) / len(buckets), 56.0)
    every = -(-len(buckets) // 8)  # so many words fit side by side
    parts, told = [], []
    for index, bucket in enumerate(buckets):
        height = 110 * bucket.answers / most
        x = _LEFT + step * index
        where = number(bucket.first) if bucket.first == bucket.last else f"{bucket.first}–{bucket.last}"
        words = f"token {where}: {bucket.answers}"
        told.append(words)
        parts.append(box((x + 1, 126 - height), (step - 2, height), "column", told=words))
        parts.append(word(x + step / 2, 122 - height, str(bucket.answers), anchor="middle"))
        if index % every == 0:
            parts.append(word(x + step / 2, 140, _from(bucket), anchor="middle", kind="muted"))
    parts.append(word(_RIGHT, 154, "first token that differs", anchor="end", kind="muted"))
    parts.append(line((_LEFT, 126), (_RIGHT, 126), "zero"))
    title = f"Where answers diverge in {name}"
    caption = "Answers that are not equal, by the position of the first token that differs."
    return figure(title, drawing(158, "; ".join([title, *told]), *parts), caption)


def _from(bucket: Bucket) -> str:
    return str(bucket.first) if bucket.first == bucket.last else f"{bucket.first}+"
