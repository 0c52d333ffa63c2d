"""A comparison for a terminal or a log: plain columns, readable without colour.

Does not live here: the words and numbers (``reports.interface``), colour (the command line).
"""

from __future__ import annotations

from collections.abc import Iterator

from qlock.core.columns import GAP, aligned, width_of, widths_of
from qlock.core.comparison import Comparison
from qlock.core.escape import for_terminal
from qlock.core.ladder import Ladder
from qlock.reports.interface import Part, Row, headline, ladder_parts, parts

SUFFIX = ".txt"

_CELL = 64
"""Characters of a cell at most."""
_SENTENCE = 600
_WIDEST = 160
"""Columns of a table at most; a wider one is shown row by row."""


def render(comparison: Comparison) -> str:
    """The whole report."""
    lines = [_sentence(headline(comparison))]
    for part in parts(comparison):
        lines += _part(part)
    return "\n".join(lines) + "\n"


def render_all(ladder: Ladder) -> str:
    """All points in one view, then each comparison."""
    seen = "\n".join(line for part in ladder_parts(ladder) for line in _part(part)).lstrip("\n")
    return "\n".join([f"{seen}\n", *map(render, ladder.comparison)])


def _part(part: Part) -> Iterator[str]:
    if part.heading:
        yield ""
        yield _sentence(part.heading)
    for text in part.sentences:
        yield f"  {_sentence(text)}"
    if part.rows:
        yield from _table(part.columns, part.rows)
    for text in part.remarks:
        yield f"  {_sentence(text)}"


def _sentence(text: str) -> str:
    return for_terminal(text, limit=_SENTENCE, newlines="arrow")


def _cell(text: str) -> str:
    return for_terminal(text, limit=_CELL, newlines="arrow")


def _table(columns: Row, rows: tuple[Row, ...]) -> Iterator[str]:
    shown = [tuple(map(_cell, row)) for row in (columns, *rows)]
    widths = widths_of(shown)
    if sum(widths) + len(GAP) * len(widths) > _WIDEST:
        yield from _blocks(columns, rows)
        return
    for line in aligned(shown):
        yield f"  {line}"


def _blocks(columns: Row, rows: tuple[Row, ...]) -> Iterator[str]:
    """Each row as a line with its first cell, and below it a line for each further cell that is not empty."""
    width = max(map(width_of, columns[1:]))
    for first, *others in rows:
        yield f"  {_cell(first)}"
        for name, text in zip(columns[1:], others, strict=True):
            if text:
                yield f"    {name}{' ' * (width - width_of(name))}  {_sentence(text)}"
