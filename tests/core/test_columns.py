"""Rows laid out in columns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qlock.core.columns import aligned, width_of, widths_of

CELLS = st.text("ab é語e\u0301", max_size=4)
ROWS = st.integers(1, 4).flatmap(
    lambda columns: st.lists(st.lists(CELLS, min_size=columns, max_size=columns), min_size=1, max_size=5)
)


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert aligned([("suite", "items", "why"), ("a", "12", ""), ("digits", "3", "late")], right=(1,)) == [
        "suite   items  why",
        "a          12",
        "digits      3  late",
    ]


def test_wide_characters_take_two_columns_and_combining_ones_none() -> None:
    assert [width_of(text) for text in ("", "ab", "語", "e\u0301")] == [0, 2, 2, 1]
    assert aligned([("語", "x"), ("abc", "y")]) == ["語   x", "abc  y"]


def test_no_rows_are_no_lines() -> None:
    assert aligned([]) == []
    assert widths_of([]) == []


@given(ROWS)
def test_every_cell_begins_in_its_column(rows: list[list[str]]) -> None:
    starts = [sum(widths_of(rows)[:column]) + 2 * column for column in range(len(rows[0]))]
    for row, line in zip(rows, aligned(rows), strict=True):
        columns = ["" if width_of(one) == 0 else one + " " * (width_of(one) - 1) for one in line]
        flat = "".join(columns)
        for cell, start in zip(row, starts, strict=True):
            plain = "".join("" if width_of(one) == 0 else one + " " * (width_of(one) - 1) for one in cell)
            assert flat[start : start + len(plain)].rstrip() == plain.rstrip()


@given(ROWS)
def test_columns_at_the_right_end_where_they_are_widest(rows: list[list[str]]) -> None:
    last = len(rows[0]) - 1
    total = sum(widths_of(rows)) + 2 * last
    for row, line in zip(rows, aligned(rows, right=(last,)), strict=True):
        if row[last].strip() == row[last] != "":
            assert width_of(line) == total
