"""Parts of a report as tables that sort, and flips that open.

Does not live here: the words and numbers (``reports.interface``), the lines that sort (``look``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from qlock.core.agreement import Agreement, Flip
from qlock.core.comparison import Suite
from qlock.core.stats import CannotTell
from qlock.core.units import BYTES_OF_STEP
from qlock.reports.html.markup import Markup, element, many, sentence, text
from qlock.reports.interface import Part, Row
from qlock.reports.interface.readings import read_otherwise

_NUMBER = re.compile(
    r"(?:[<>x]|\+)?(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)(?: (kB|MB|GB|TB|PB|EB|B|%|points|nats))?(?: to .*| \(.*\))?\Z"
)
_WITH_ENDS = re.compile(r"(.+) \((.+ to .+)\)")
"""A number with its interval behind it, which a page shows below it."""
_LOOKS = {
    "pass": "good",
    "better": "good",
    "B is better": "good",
    "fail": "bad",
    "worse": "bad",
    "B is worse": "bad",
    "undecided": "open",
}
_SHORT = 24
"""Characters of a cell that stays on one line."""
_ABSENT = frozenset({"-", "", "cannot tell", "unknown"})


def part(found: Part) -> Markup:
    """Heading, sentences, table and remarks; what most pass over is folded."""
    inner = many(
        (
            _sentences(found.sentences),
            table(found.columns, found.rows, name=found.heading or "Sides") if found.rows else Markup(""),
            _sentences(found.remarks),
        )
    )
    if found.is_detail:
        summary = element("summary", text(f"{found.heading} ({len(found.rows)})"))
        return element("details", summary, inner, class_="part")
    heading = element("h3", text(found.heading)) if found.heading else Markup("")
    return element("section", heading, inner)


def table(columns: Row, rows: Iterable[Row], *, name: str) -> Markup:
    """A table in a frame that scrolls by itself where a screen is narrow; a head that sorts where there is something to."""
    every = tuple(rows)
    numeric = [
        all(cell in _ABSENT or sort_key(cell) for cell in column) for column in zip(*every, strict=True)
    ]
    head = (
        element(
            "th",
            element("button", text(name), type="button") if len(every) > 1 else text(name),
            scope="col",
            **({"class_": "number"} if is_number else {}),
        )
        for name, is_number in zip(columns, numeric, strict=True)
    )
    body = (
        element(
            "tr", *(_cell(cell, is_number=is_number) for cell, is_number in zip(row, numeric, strict=True))
        )
        for row in every
    )
    whole = element("table", element("thead", element("tr", *head)), element("tbody", *body), class_="sorts")
    return element("div", whole, class_="wide", tabindex="0", role="group", aria_label=name)


def sort_key(cell: str) -> str:
    """What a cell sorts by: the number that it begins with, in one unit; empty where it is none."""
    found = _NUMBER.match(cell)
    if found is None:
        return ""
    return f"{float(found[1]) * BYTES_OF_STEP.get(found[2] or '', 1):.10g}"


def flips(suite: Suite, most: int) -> Markup:
    """Items whose mark changed, each opening to both answers.

    Args:
        suite: With its agreement.
        most: So many are listed in each direction; the others are counted.
    """
    match suite.agreement:
        case CannotTell():
            return Markup("")
        case Agreement() as found:
            pass
    if not found.worse and not found.better:
        return Markup("")
    worse = [flip for flip in found.flip if flip.mark_b < flip.mark_a][:most]
    better = [flip for flip in found.flip if flip.mark_b > flip.mark_a][:most]
    hidden = found.worse + found.better - len(worse) - len(better)
    rest = element("p", text(f"Not listed here: {hidden} more."), class_="muted") if hidden else Markup("")
    return element(
        "details",
        element("summary", text(f"Flips of {suite.suite}: {found.worse} lower on B, {found.better} higher")),
        *_listed("Lower on B", worse),
        *_listed("Higher on B", better),
        rest,
        class_="part",
    )


def _listed(heading: str, found: list[Flip]) -> Iterator[Markup]:
    if found:
        yield element("h4", text(heading))
        yield many(map(_flip, found))


def _flip(flip: Flip) -> Markup:
    repeat = "" if flip.repeat == 1 else f" (repeat {flip.repeat})"
    summary = element(
        "summary",
        element("strong", text(flip.item + repeat)),
        element("span", text(" ".join(flip.slices)), class_="muted"),
    )
    diverge_at = (
        ""
        if isinstance(flip.diverge_at, CannotTell)
        else f"The first token that differs is {flip.diverge_at}."
    )
    sides = (
        _answer("A", flip.outcome_a, flip.ending_a, flip.text_a),
        _answer("B", flip.outcome_b, flip.ending_b, flip.text_b),
    )
    return element(
        "details",
        summary,
        element("p", text(diverge_at), class_="muted") if diverge_at else Markup(""),
        _sentences(read_otherwise(flip)),
        element("div", *sides, class_="both"),
        class_="flip",
    )


def _answer(side: str, outcome: str, ending: str, written: str) -> Markup:
    ended = f", ended by {ending}" if ending else ""
    return element(
        "div",
        element("p", element("strong", text(f"{side}: ")), text(f"{outcome}{ended}")),
        element("pre", text(written), tabindex="0"),
    )


def _cell(cell: str, *, is_number: bool) -> Markup:
    if is_number:
        ends = _WITH_ENDS.fullmatch(cell)
        inner = (
            many((text(ends[1]), element("span", text(ends[2]), class_="muted ends"))) if ends else text(cell)
        )
        return element("td", inner, class_="number", data_key=sort_key(cell))
    length = "short" if len(cell) <= _SHORT else "long"
    return element("td", text(cell), class_=f"{_LOOKS.get(cell, '')} {length}".strip())


def _sentences(found: tuple[str, ...]) -> Markup:
    if not found:
        return Markup("")
    return element("ul", *(element("li", sentence(one)) for one in found))
