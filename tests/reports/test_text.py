import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.compare import compare
from qlock.core.escape import visible
from qlock.reports import text
from qlock.reports.interface import Part
from qlock.reports.text import SUFFIX, render
from tests.fakes.comparisons import a_side
from tests.golden.make_reports import HOSTILE, a_comparison


def test_it_is_written_to_a_text_file() -> None:
    assert SUFFIX == ".txt"


def test_the_first_line_says_whether_it_is_valid() -> None:
    first = render(compare(a_side("r"), a_side("r", forced=("device",)))).split("\n")[0]
    assert first == (
        "INVALID: runs/ladder:F16@f16kv (B) against runs/ladder:F16@f16kv (A); meant to differ: weights"
    )


def test_nothing_that_a_model_wrote_reaches_the_terminal_raw() -> None:
    shown = render(a_comparison())
    assert HOSTILE not in shown
    assert visible(shown, keep="\n") == shown


def test_a_part_without_a_table_is_its_sentences() -> None:
    assert list(text._part(Part(heading="x", sentences=("y\x1b",), remarks=("z",)))) == [
        "",
        "x",
        "  y\\x1b",
        "  z",
    ]


def table(*rows: tuple[str, ...]) -> list[str]:
    return list(text._table(rows[0], rows[1:]))


def test_columns_are_as_wide_as_a_terminal_shows_them() -> None:
    assert table(("a", "b"), ("日本", "x"), ("e\u0301", "y")) == ["  a     b", "  日本  x", "  e\u0301     y"]


def test_a_long_cell_loses_its_middle() -> None:
    (_, row) = table(("a",), ("x" * 100,))
    assert row == f"  {'x' * 32}…{'x' * 31}"


def test_a_table_that_is_too_wide_is_shown_row_by_row() -> None:
    wide = ("one", "x" * 60, "y" * 60, "z" * 60)
    assert table(("item", "a", "", "long name"), wide, ("two", "", "", "z")) == [
        "  one",
        f"    a          {'x' * 60}",
        f"               {'y' * 60}",
        f"    long name  {'z' * 60}",
        "  two",
        "    long name  z",
    ]


@pytest.mark.parametrize("width", [159, 160, 161])
def test_the_widest_table_has_160_columns(width: int) -> None:
    cells = ("x" * 50, "x" * 50, "x" * (width - 100 - 6))
    assert len(table(("", "", ""), cells)) == (2 if width <= 160 else 3)


@given(st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), min_size=1, max_size=4))
def test_a_row_is_one_line_whatever_its_cells_hold(rows: list[tuple[str, str]]) -> None:
    lines = table(("a", "b"), *rows)
    assert len(lines) == len(rows) + 1
    assert not any("\n" in line for line in lines)
