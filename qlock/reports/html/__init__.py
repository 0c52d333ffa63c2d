"""A comparison, or a ladder of them, as one HTML file to look at: drawings first, then every table and flip.

The file stands alone: it asks for nothing from anywhere, and its policy allows only its own style and its own few
lines of script, each by its digest. No text of a model can run or reach out of its place.

Does not live here: the words and numbers (``reports.interface``).
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterator

import msgspec

from qlock.core.comparison import Comparison
from qlock.core.gates import GATE_VERDICTS
from qlock.core.ladder import Ladder, ladder
from qlock.core.units import count_text
from qlock.reports.html.look import SCRIPT, STYLE
from qlock.reports.html.markup import Markup, element, many, sentence, text
from qlock.reports.html.plots import comparison_plots
from qlock.reports.html.rungs import ladder_plots
from qlock.reports.html.tables import flips, part
from qlock.reports.html.way import bridge_plots
from qlock.reports.interface import Part, headline, headlines, ladder_parts, parts

SUFFIX = ".html"

MOST_FLIPS = 400
"""Flips on a page in each direction, shared out among its suites, so that it opens at once."""

_LEAST_FLIPS = 5
_FLIPS = "Flips of "


def render(comparison: Comparison) -> str:
    """The page of one comparison."""
    return render_all(ladder([comparison]))


def render_all(found: Ladder) -> str:
    """The page of many: all in one view, then each comparison."""
    suites = sum(len(one.suite) for one in found.comparison)
    most = max(MOST_FLIPS // max(suites, 1), _LEAST_FLIPS)
    if len(found.comparison) == 1 and not found.best:
        (alone,) = found.comparison
        line = headline(alone)
        return _page(line, _comparison(alone, "c1", most, line=line, alone=True))
    title = count_text(len(found.comparison), "comparison")
    return _page(
        title,
        element("h1", text(title)),
        _contents(found),
        element("div", *ladder_plots(found), class_="plots"),
        *map(part, ladder_parts(found)),
        *(
            _comparison(one, f"c{number}", most, line=line, alone=False)
            for number, (one, line) in enumerate(
                zip(found.comparison, headlines(found.comparison), strict=True), start=1
            )
        ),
    )


def _contents(found: Ladder) -> Markup:
    """Where each comparison is, whether it is valid, and how its gates came out."""
    told = enumerate(zip(found.comparison, headlines(found.comparison), strict=True), start=1)
    links = (
        element("li", element("a", text(line), href=f"#c{number}"), *_overall(one))
        for number, (one, line) in told
    )
    return element("nav", element("ul", *links), aria_label="comparisons")


def _overall(comparison: Comparison) -> Iterator[Markup]:
    """The worst verdict of its gates, where it has any."""
    verdicts = {gate.verdict for gate in comparison.gate}
    for verdict, colour in (("fail", "bad"), ("undecided", "open"), ("pass", "good")):
        if verdict in verdicts:
            yield element("span", text(f" gates: {verdict}"), class_=colour)
            return


def _comparison(comparison: Comparison, anchor: str, most: int, *, line: str, alone: bool) -> Markup:
    first, *others = parts(comparison)
    drawings = [*bridge_plots(comparison), *comparison_plots(comparison)]
    listed = {f"{_FLIPS}{suite.suite}": flips(suite, most) for suite in comparison.suite}
    return element(
        "section",
        element("h1" if alone else "h2", text(line.partition(": ")[2])),
        _state(comparison, first),
        element("div", *drawings, class_="plots"),
        part(msgspec.structs.replace(first, sentences=())),
        *(listed.get(one.heading) or part(one) for one in others),
        id=anchor,
    )


def _state(comparison: Comparison, first: Part) -> Markup:
    """Whether it is valid, why not, what the gates say, and what must be known before any number."""
    verdicts = Counter(gate.verdict for gate in comparison.gate)
    gates = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in GATE_VERDICTS if verdicts[verdict])
    said = [*([f"gates: {gates}"] if gates else []), *first.sentences]
    return element(
        "div",
        element("strong", text(comparison.state.upper())),
        *([element("ul", *(element("li", sentence(one)) for one in said))] if said else []),
        class_=f"state {comparison.state}",
    )


def _page(title: str, *content: Markup) -> str:
    policy = (
        f"default-src 'none'; style-src '{_digest(STYLE)}'; script-src '{_digest(SCRIPT)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", text(title)),
        element("style", Markup(STYLE)),
    )
    footer = element("footer", element("p", text("Written by qlock. The JSON report holds every number.")))
    body = element("body", element("main", *content), footer, element("script", Markup(SCRIPT)))
    return f"<!doctype html>\n{element('html', head, many((Markup(chr(10)), body)), lang='en')}\n"


def _digest(written: str) -> str:
    """How a content security policy names an inline text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(written.encode()).digest()).decode()}"
