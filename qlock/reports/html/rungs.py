"""The drawing of many points: their score over their size, and over bits per weight.

Does not live here: which points stand on the front (``core.ladder``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from qlock.core.base import Base, Finite
from qlock.core.ladder import Ladder, Rung, mark_in
from qlock.core.scores import Measure, is_cost
from qlock.core.stats import CannotTell, Interval
from qlock.core.units import gb_of_bytes
from qlock.reports.html.drawing import WIDTH, axis_below, axis_left, drawing, figure, line, shortened, word
from qlock.reports.html.markup import Markup, element, text
from qlock.reports.html.scale import Scale, by_ratio, rounds, spanning, steps
from qlock.reports.interface.ladder import level_text, measure_text, shown_level

BITS = "bits per weight"
_TOP, _BOTTOM, _LEFT, _RIGHT = 20.0, 210.0, 44.0, WIDTH - 8.0
_LINE, _LETTER = 13.0, 7.0
"""Height of a word and width of a letter, so that words do not cover one another."""
_STEP = 4.0
"""From one place of a line that is looked at to the next."""

Kind = Literal["reference", "judged", "described"]
_Box = tuple[float, float, float, float]


class Dot(Base, frozen=True, kw_only=True):
    """A point of the drawing."""

    name: str
    kind: Kind
    across: Finite
    level: Finite
    ends: tuple[Finite, Finite] | None
    is_on_front: bool
    told: str


def ladder_plots(found: Ladder) -> Iterator[Markup]:
    """Drawings for each suite that has a score, over size, bits and speed; none where all points have the same."""
    suites = dict.fromkeys((mark.suite, mark.measure) for rung in found.rung for mark in rung.mark)
    for suite, measure in suites:
        by_size = [
            dot for rung in found.rung for dot in _dot(rung, suite, measure, gb_of_bytes(rung.file_bytes))
        ]
        if _differ(by_size):
            yield _plot(suite, measure, by_size, "GB of weights")
        by_bits = [
            dot
            for rung in found.rung
            if isinstance(rung.bits_per_weight, float)
            for dot in _dot(rung, suite, measure, rung.bits_per_weight)
        ]
        if _differ(by_bits):
            yield _plot(suite, measure, by_bits, BITS)
        by_speed = [
            msgspec.structs.replace(dot, is_on_front=False)
            for rung in found.rung
            for dot in _dot(rung, suite, measure, _speed(rung, suite))
        ]
        if _differ(by_speed):
            yield _plot(suite, measure, by_speed, "tokens/s")


def _speed(rung: Rung, suite: str) -> float | None:
    """Tokens per second; ``None`` where they are not known."""
    mark = mark_in(rung, suite)
    return None if mark is None or isinstance(mark.tokens_per_s, CannotTell) else mark.tokens_per_s


def _differ(dots: Sequence[Dot]) -> bool:
    return len({dot.across for dot in dots}) > 1


def _dot(rung: Rung, suite: str, measure: Measure, across: float | None) -> Iterator[Dot]:
    """The point where it has a score in this measure and a place on the axis, which is by ratio."""
    mark = mark_in(rung, suite)
    if mark is None or mark.measure != measure or across is None or across <= 0:
        return
    times = 1.0 if is_cost(measure) else 100.0
    match mark.level, mark.interval:
        case CannotTell(), _:
            return
        case level, Interval(low=low, high=high):
            ends: tuple[float, float] | None = (
                times * shown_level(measure, low),
                times * shown_level(measure, high),
            )
        case level, _:
            ends = None
    kind: Kind = "reference" if rung.is_reference else "judged" if rung.state == "valid" else "described"
    yield Dot(
        name=rung.name,
        kind=kind,
        across=across,
        level=times * shown_level(measure, level),
        ends=ends,
        is_on_front=mark.is_on_front,
        told=f"{rung.name}: {level_text(measure, level)}",
    )


def _plot(suite: str, measure: Measure, dots: Sequence[Dot], across: str) -> Markup:
    levels = [value for dot in dots for value in (dot.level, *(dot.ends or ()))]
    x = by_ratio([dot.across for dot in dots], _LEFT, _RIGHT)
    y = spanning(levels, _BOTTOM, _TOP)
    name = measure_text(measure)
    name = f"{name}, lower is better" if is_cost(measure) else f"{name}, %"
    front = sorted((dot for dot in dots if dot.is_on_front), key=lambda dot: dot.across)
    parts = [
        axis_below(x, (steps if across == BITS else rounds)(x), y=_BOTTOM, top=_TOP, name=across),
        axis_left(y, _LEFT, _RIGHT, name),
    ]
    legs = [(_place(one, x, y), _place(other, x, y)) for one, other in pairwise(front)]
    parts += [line(one, other, "front") for one, other in legs]
    parts += [_drawn(dot, x, y) for dot in dots]
    parts += _words(dots, x, y, [box for leg in legs for box in _along(*leg)])
    title = f"{suite}: score over {across}"
    caption = "Bar: 95 % interval of the level. Square: reference."
    if legs:
        caption += " Line: Pareto front."
    if any(dot.kind == "described" for dot in dots):
        caption += " Cross: not valid, a description only."
    label = "; ".join([title, *(dot.told for dot in dots)])
    return figure(title, drawing(_BOTTOM + 32, label, *parts), caption)


def _place(dot: Dot, x: Scale, y: Scale) -> tuple[float, float]:
    return x.place(dot.across), y.place(dot.level)


def _drawn(dot: Dot, x: Scale, y: Scale) -> Markup:
    across, up = _place(dot, x, y)
    parts = [element("title", text(dot.told))]
    if dot.ends is not None:
        parts.append(line((across, y.place(dot.ends[0])), (across, y.place(dot.ends[1])), "bar"))
    match dot.kind:
        case "reference":
            parts.append(element("rect", x=across - 5, y=up - 5, width=10, height=10, class_="dot"))
        case "judged":
            parts.append(element("circle", cx=across, cy=up, r=4.5, class_="dot"))
        case "described":
            parts.append(line((across - 5, up - 5), (across + 5, up + 5), "cross"))
            parts.append(line((across - 5, up + 5), (across + 5, up - 5), "cross"))
    return element("g", *parts)


def _along(one: tuple[float, float], other: tuple[float, float]) -> Iterator[_Box]:
    """Small boxes that a line runs through, without its ends, where the dots are."""
    across, up = other[0] - one[0], other[1] - one[1]
    count = int(max(abs(across), abs(up)) / _STEP)
    for number in range(1, count):
        x, y = one[0] + across * number / count, one[1] + up * number / count
        yield x - 1, y - 1, x + 1, y + 1


def _words(dots: Sequence[Dot], x: Scale, y: Scale, lines: Sequence[_Box]) -> Iterator[Markup]:
    """The names, each beside its dot where it covers nothing; a crowded dot shows its name to a pointer alone.

    A name stands on the line of the front only where there is no room beside it.
    """
    taken: list[_Box] = []
    for dot in dots:
        across, up = _place(dot, x, y)
        taken.append((across - 5, up - 5, across + 5, up + 5))
        if dot.ends is not None:
            taken.append((across - 1, y.place(dot.ends[1]), across + 1, y.place(dot.ends[0])))
    names = _without_common_setting([dot.name for dot in dots])
    for dot, name in zip(dots, names, strict=True):
        shown = shortened(name, 22)
        free = [
            (not any(_overlap(room, other) for other in lines), at, base, anchor, room)
            for at, base, anchor in _beside(dot, x, y)
            if (room := _room(shown, at, base, anchor)) and not any(_overlap(room, other) for other in taken)
        ]
        # Of those that cover as little, the first.
        for _, at, base, anchor, room in sorted(free, key=lambda place: not place[0])[:1]:
            taken.append(room)
            yield word(at, base, shown, anchor=anchor)


def _room(shown: str, at: float, base: float, anchor: str) -> _Box | None:
    """What a name covers there; ``None`` where it would stand outside."""
    left = at - _LETTER * len(shown) * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
    right = left + _LETTER * len(shown)
    return (left, base - _LINE + 3, right, base + 3) if left >= _LEFT and right <= WIDTH else None


def _beside(dot: Dot, x: Scale, y: Scale) -> Iterator[tuple[float, float, str]]:
    """Where a name may stand, the best place first."""
    across, up = _place(dot, x, y)
    ends = [y.place(end) for end in dot.ends or (dot.level, dot.level)]
    yield across + 9, up + 4, "start"
    yield across - 9, up + 4, "end"
    yield across, min(*ends, up - 5) - 4, "middle"
    yield across, max(*ends, up + 5) + 12, "middle"


def _without_common_setting(names: Sequence[str]) -> list[str]:
    """Names of points without their setting, where all have the same."""
    settings = {name.rpartition("@")[2] for name in names}
    return [name.rpartition("@")[0] or name for name in names] if len(settings) == 1 else list(names)


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
