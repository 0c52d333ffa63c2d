"""A comparison for a pull request or an issue: short, details folded, never more than such a page takes.

Does not live here: the words and numbers (``reports.interface``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from qlock.core.comparison import Comparison
from qlock.core.escape import for_html, for_markdown_cell, for_markdown_sentence
from qlock.core.ladder import Ladder
from qlock.core.units import count_text
from qlock.reports.interface import Part, Row, headline, headlines, ladder_parts, parts

SUFFIX = ".md"

MOST_CHARACTERS = 60_000
"""GitHub refuses a comment of more than 65,536."""

_CELL = 240
_SENTENCE = 600
_MARKS = {"VALID": "✅", "INVALID": "❌", "INCOMPLETE": "⚠️"}
_ROOM_FOR_END = 200


def render(comparison: Comparison) -> str:
    """The whole report, or as much of it as fits, with a line that says so."""
    page = _Page(MOST_CHARACTERS - _ROOM_FOR_END)
    page.add(f"## {_marked(headline(comparison))}")
    for part in parts(comparison):
        _part(page, part)
    return page.text()


def render_all(found: Ladder) -> str:
    """All points in one view, then each comparison folded, or as much of it as fits."""
    page = _Page(MOST_CHARACTERS - _ROOM_FOR_END)
    page.add(f"## {count_text(len(found.comparison), 'comparison')}", "")
    lines = headlines(found.comparison)
    page.add(*(f"- {_marked(line)}" for line in lines))
    for part in ladder_parts(found):
        _part(page, part)
    for one, line in zip(found.comparison, lines, strict=True):
        opening = ("", f"<details><summary>{for_html(line, limit=_SENTENCE)}</summary>")
        with page.within(opening, ("", "</details>")) as fits:
            for part in parts(one) if fits else ():
                _part(page, part)
    return page.text()


def _marked(line: str) -> str:
    return f"{_MARKS[line.partition(':')[0]]} {for_markdown_cell(line, limit=_SENTENCE)}"


class _Page:
    """Lines up to a number of characters; what does not fit is counted."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._lines: list[str] = []
        self._dropped = 0

    def add(self, *lines: str) -> bool:
        """Add lines that belong together, or none of them."""
        if not self._take(lines):
            self._dropped += 1
            return False
        self._lines += lines
        return True

    @contextmanager
    def within(self, opening: tuple[str, ...], closing: tuple[str, ...]) -> Iterator[bool]:
        """Lines around others; the closing ones have their room from the start, so that no fold stays open."""
        fits = self._take((*opening, *closing))
        if not fits:
            self._dropped += 1
            yield False
            return
        self._lines += opening
        yield True
        self._lines += closing

    def text(self) -> str:
        """The page."""
        if self._dropped:
            self._lines += ["", f"{self._dropped} lines did not fit here; the JSON report has them all."]
        return "\n".join(self._lines) + "\n"

    def _take(self, lines: tuple[str, ...]) -> bool:
        size = sum(len(line) + 1 for line in lines)
        fits = size <= self._left
        self._left -= size if fits else 0
        return fits


def _part(page: _Page, part: Part) -> None:
    heading = for_markdown_cell(part.heading, limit=_SENTENCE)
    opening: tuple[str, ...] = ("", f"### {heading}") if part.heading else ()
    closing: tuple[str, ...] = ()
    if part.is_detail:
        # A summary stands on a line of HTML, where nothing is Markdown.
        name = for_html(part.heading, limit=_SENTENCE)
        opening = ("", f"<details><summary>{name} ({len(part.rows)})</summary>")
        closing = ("", "</details>")
    with page.within(opening, closing) as fits:
        if not fits:
            return
        _sentences(page, part.sentences)
        if part.rows and page.add("", _row(part.columns), "|" + "---|" * len(part.columns)):
            for row in part.rows:
                page.add(_row(row))
        _sentences(page, part.remarks)


def _sentences(page: _Page, sentences: Iterable[str]) -> None:
    opened = False
    for text in sentences:
        line = f"- {for_markdown_sentence(text, limit=_SENTENCE)}"
        opened = page.add(*(() if opened else ("",)), line) or opened


def _row(row: Row) -> str:
    return "| " + " | ".join(for_markdown_cell(cell, limit=_CELL) for cell in row) + " |"
