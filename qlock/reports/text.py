"""A comparison for a terminal or a log: plain columns, readable without colour.

Does not live here: the words and numbers (``reports.interface``), colour (the command line).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from qlock.core.columns import GAP, aligned, width_of, widths_of
from qlock.core.comparison import Comparison
from qlock.core.escape import for_terminal
from qlock.core.ladder import Ladder
from qlock.reports.interface import Part, Row, headline, headlines, ladder_parts, parts
from qlock.reports.interface.gates import gates

SUFFIX = ".txt"
MORE = "all of one comparison: name its point as RUN:POINT; all of all: --format html"

_CELL = 64
"""Characters of a cell at most."""
_SENTENCE = 600
_WIDEST = 160
"""Columns of a table at most; a wider one is shown in several, or row by row where it holds whole answers."""
_NARROW = 48
"""Columns of a cell that is no sentence."""


def render(comparison: Comparison) -> str:
    """The whole report."""
    lines = [_sentence(headline(comparison))]
    for part in parts(comparison):
        lines += _part(part)
    return "\n".join(lines) + "\n"


def render_all(found: Ladder) -> str:
    """All points in one view, then of each comparison whether it is valid, and its gates."""
    lines = [line for part in ladder_parts(found) for line in _part(part)]
    for one, line in zip(found.comparison, headlines(found.comparison), strict=True):
        first, *_ = parts(one)
        lines += ["", _sentence(line), *(f"  {_sentence(text)}" for text in first.sentences)]
        lines += _part(msgspec.structs.replace(gates(one), heading=""))
    if len(found.comparison) > 1:
        lines += ["", MORE]
    return "\n".join(lines).lstrip("\n") + "\n"


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
    if _is_wide(widths) and max(widths) > _NARROW:
        yield from _blocks(columns, rows)
        return
    for chosen in _side_by_side(widths):
        for line in aligned([[row[column] for column in chosen] for row in shown]):
            yield f"  {line}"


def _is_wide(widths: list[int]) -> bool:
    return sum(widths) + len(GAP) * len(widths) > _WIDEST


def _side_by_side(widths: list[int]) -> list[list[int]]:
    """Columns that fit side by side, table for table; each begins with the first one, so that a row can be told."""
    tables = [[0]]
    for column in range(1, len(widths)):
        if _is_wide([widths[one] for one in (*tables[-1], column)]) and len(tables[-1]) > 1:
            tables.append([0])
        tables[-1].append(column)
    return tables


def _blocks(columns: Row, rows: tuple[Row, ...]) -> Iterator[str]:
    """Each row as a line with its first cell, and below it a line for each further cell that is not empty."""
    width = max(map(width_of, columns[1:]))
    for first, *others in rows:
        yield f"  {_cell(first)}"
        for name, text in zip(columns[1:], others, strict=True):
            if text:
                yield f"    {name}{' ' * (width - width_of(name))}  {_sentence(text)}"
