import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.compare import compare
from qlock.core.escape import visible
from qlock.core.ladder import ladder
from qlock.reports import text
from qlock.reports.interface import Part
from qlock.reports.text import MORE, SUFFIX, render, render_all
from tests.fakes.comparisons import a_side
from tests.golden.make_reports import HOSTILE, a_comparison, a_ladder


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


def test_a_table_of_numbers_that_is_too_wide_is_shown_in_several_each_with_its_first_column() -> None:
    wide = [f"{number}" * 40 for number in range(1, 8)]
    assert table(("item", *"abcdefg"), ("one", *wide), ("two", *"1234567")) == [
        f"  item  a{' ' * 41}b{' ' * 41}c",
        f"  one   {'  '.join(wide[:3])}",
        f"  two   1{' ' * 41}2{' ' * 41}3",
        f"  item  d{' ' * 41}e{' ' * 41}f",
        f"  one   {'  '.join(wide[3:6])}",
        f"  two   4{' ' * 41}5{' ' * 41}6",
        "  item  g",
        f"  one   {wide[6]}",
        "  two   7",
    ]


def test_many_points_stand_in_one_view_and_of_each_comparison_its_gates() -> None:
    found = a_ladder()
    shown = render_all(found)
    lines = shown.split("\n")
    assert lines[:2] == [
        "Ladder of distance",
        "  best at or under 110.0 MB: runs/ladder:Q4_K_M@f16kv, of 2 points",
    ]
    headed = [line for line in lines if line.startswith(("VALID", "INVALID"))]
    assert headed == [
        "VALID: Q8_0@f16kv (B) against F16@f16kv (A); meant to differ: weights",
        "VALID: runs/ladder:Q4_K_M@f16kv (B) against runs/ladder:F16@f16kv (A); meant to differ: weights",
        "VALID: Q2_K@f16kv (B) against F16@f16kv (A); meant to differ: weights",
        "INVALID: runs/later:Q4_K_M@f16kv (B) against runs/ladder:F16@f16kv (A); meant to differ: weights",
    ]
    assert lines[lines.index(headed[3]) + 1] == (
        "  fatal: device.cpu_model: A has `AMD EPYC 9555`, B has `Intel Xeon`"
    )
    assert sum(line.startswith("  non-inferior ") for line in lines) == 4
    assert shown.endswith(f"\n\n{MORE}\n")
    alone = render_all(ladder(found.comparison[:1], at_most_bytes=1))
    assert MORE not in alone
