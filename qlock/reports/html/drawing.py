"""Pieces that every drawing is made of: figures, lines, words and axes, as SVG.

A drawing is 360 units wide, about a phone's width, so that its words stay readable there; a wide window puts several
side by side. Colours are classes, so that light, dark and paper each have their own. What a drawing shows stands in
its caption and in a table too.

Does not live here: what is drawn (``plots``, ``rungs``).
"""

from __future__ import annotations

from collections.abc import Sequence

from qlock.reports.html.markup import Markup, element, text
from qlock.reports.html.scale import Scale, ticks

WIDTH = 360.0
_LABEL = 60
"""Characters of a word in a drawing at most."""


def figure(title: str, drawing: Markup, caption: str) -> Markup:
    """A drawing with its title above and a caption below."""
    return element(
        "figure",
        element("h4", text(title)),
        drawing,
        element("figcaption", text(caption)),
    )


def drawing(height: float, label: str, *content: Markup) -> Markup:
    """An SVG of the usual width, which a screen reader reads as its label."""
    return element(
        "svg",
        element("title", text(label)),
        *content,
        viewBox=f"0 0 {WIDTH:g} {height:g}",
        role="img",
        aria_label=label,
    )


def word(x: float, y: float, written: str, *, anchor: str = "start", kind: str = "") -> Markup:
    """A word whose base line is at ``y``."""
    return element(
        "text", text(written, limit=_LABEL), x=x, y=y, text_anchor=anchor, class_=f"word {kind}".strip()
    )


def line(a: tuple[float, float], b: tuple[float, float], kind: str) -> Markup:
    """A line between two places."""
    return element("line", x1=a[0], y1=a[1], x2=b[0], y2=b[1], class_=kind)


def box(corner: tuple[float, float], size: tuple[float, float], kind: str, *, told: str = "") -> Markup:
    """A box by its upper left corner; what is told is shown to a pointer that rests on it."""
    found = element("rect", x=corner[0], y=corner[1], width=size[0], height=size[1], class_=kind)
    return element("g", element("title", text(told)), found) if told else found


def shortened(written: str, most: int) -> str:
    """A name cut in its middle."""
    if len(written) <= most:
        return written
    return f"{written[: most // 2]}…{written[-(most - most // 2 - 1) :]}"


def axis_below(scale: Scale, marks: Sequence[float], *, y: float, top: float, name: str) -> Markup:
    """Grid lines and numbers of a horizontal scale from ``top`` down to ``y``, and its name in the lower right."""
    parts = []
    for value in marks:
        x = scale.place(value)
        parts.append(line((x, top), (x, y), "grid"))
        parts.append(word(x, y + 13, number(value), anchor="middle", kind="muted"))
    parts.append(word(scale.end, y + 27, name, anchor="end", kind="muted"))
    return element("g", *parts)


def axis_left(scale: Scale, x: float, right: float, name: str) -> Markup:
    """Ticks and grid lines of a vertical scale, and its name above."""
    parts = []
    for value in ticks(scale, 5):
        y = scale.place(value)
        parts.append(line((x, y), (right, y), "grid"))
        parts.append(word(x - 4, y + 4, number(value), anchor="end", kind="muted"))
    parts.append(word(0, 11, name, kind="muted"))
    return element("g", *parts)


def number(value: float) -> str:
    """A tick's number, without the noise of its last bits."""
    return f"{round(value, 10) + 0.0:.6g}"  # no minus before 0
