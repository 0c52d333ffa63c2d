"""A drawing of the way from A to B through a point that was run on both devices.

Does not live here: the words and numbers (``reports.interface.bridge``).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from qlock.core.bridge import Bridge, Span
from qlock.core.comparison import Comparison
from qlock.core.scores import is_cost
from qlock.reports.html.drawing import WIDTH, axis_left, drawing, figure, line, shortened, word
from qlock.reports.html.markup import Markup, element, text
from qlock.reports.html.scale import spanning
from qlock.reports.interface.bridge import DESCRIBES, steps
from qlock.reports.interface.ladder import level_text, measure_text, shown_level

_TOP, _BOTTOM, _LEFT, _RIGHT = 30.0, 150.0, 44.0, WIDTH - 8.0


def bridge_plots(comparison: Comparison) -> Iterator[Markup]:
    """One drawing for each suite that has items on all four."""
    match comparison.bridge:
        case Bridge(span=spans):
            yield from (_way(comparison, span) for span in spans if span.stop)
        case _:
            return


def _way(comparison: Comparison, span: Span) -> Markup:
    times = 1.0 if is_cost(span.measure) else 100.0
    levels = [times * shown_level(span.measure, stop.level) for stop in span.stop]
    y = spanning(levels, _BOTTOM, _TOP)
    width = (_RIGHT - _LEFT) / len(levels)
    places = [(_LEFT + width * (at + 0.5), y.place(level)) for at, level in enumerate(levels)]
    name = measure_text(span.measure) if is_cost(span.measure) else f"{measure_text(span.measure)}, %"
    parts = [axis_left(y, _LEFT, _RIGHT, name)]
    told = list(steps(comparison, span))
    for (one, other), (what, change), kind in zip(
        pairwise(places), told, ("bar", "cross", "bar"), strict=True
    ):
        parts.append(element("g", element("title", text(f"{what}: {change}")), line(one, other, kind)))
    for at, ((x, up), stop, side) in enumerate(zip(places, span.stop, "AABB", strict=True)):
        parts.append(element("circle", cx=x, cy=up, r=4.5, class_="dot"))
        falls = isinstance(stop.change, float) and places[at - 1][1] < up  # then the line comes from above
        shown = level_text(span.measure, stop.level)
        parts.append(word(x, up + 18 if falls else up - 9, shown, anchor="middle", kind="strong"))
        lower = _BOTTOM + 26 + 14 * (at % 2)
        model = stop.point.rpartition("@")[0] or stop.point
        parts.append(word(x, lower, f"{shortened(model, 18)} ({side})", anchor="middle", kind="muted"))
    title = f"The way from A to B in {span.suite}"
    label = "; ".join([title, *(f"{what}: {change}" for what, change in told)])
    caption = f"Red: the same point on A's device and on B's. {DESCRIBES[:1].upper()}{DESCRIBES[1:]}."
    return figure(title, drawing(_BOTTOM + 48, label, *parts), caption)
