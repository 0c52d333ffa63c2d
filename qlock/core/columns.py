"""Rows of cells laid out in columns for a terminal.

Does not live here: what a cell may hold (``core.escape`` comes first), and what is done with a table that is too wide.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence

GAP = "  "
"""Between two columns."""


def aligned(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> list[str]:
    """A line for each row, every column as wide as its widest cell; nothing hangs over at the end.

    Args:
        rows: Cells of one line each, as many in each row.
        right: Columns that end flush, by number.
    """
    widths = widths_of(rows)
    return [
        GAP.join(
            _padded(cell, width, at_right=column in right)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def widths_of(rows: Sequence[Sequence[str]]) -> list[int]:
    """Width of each column."""
    return [max(map(width_of, column)) for column in zip(*rows, strict=True)]


def width_of(text: str) -> int:
    """Columns of a terminal that a text takes: two for a wide character, none for a combining one."""
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )


def _padded(cell: str, width: int, *, at_right: bool) -> str:
    space = " " * (width - width_of(cell))
    return space + cell if at_right else cell + space
