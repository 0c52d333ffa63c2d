import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.compare import compare
from qlock.core.escape import visible
from qlock.core.ladder import ladder
from qlock.reports import text
from qlock.reports.interface import Part
from qlock.reports.text import SUFFIX, render, render_all
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


def test_many_points_stand_in_one_view_first() -> None:
    found = a_comparison()
    other = msgspec.structs.replace(
        found, b=msgspec.structs.replace(found.b, name="runs/x:Q2_K@f16kv", point="Q2_K@f16kv")
    )
    shown = render_all(ladder([found, other], at_most_bytes=106_000_000))
    lines = shown.split("\n")
    at = lines.index("Ladder of orders")
    assert lines[:2] == ["Ladder of wikitext", "  best at or under 106.0 MB: F16@f16kv, of 3 points"]
    assert lines[at + 1 : at + 6] == [
        "  best at or under 106.0 MB: Q2_K@f16kv, of 3 points",
        "  point         size      bits   score   interval        change       interval             verdict             unfinished  loops  equal   front",
        "  F16@f16kv     105.5 MB  16.00  80.4 %  72.0 to 86.7 %  -            -                    reference           1.7 %       0 %    -",
        "  Q2_K@f16kv    105.5 MB  4.85   82.1 %  74.0 to 88.1 %  +1.8 points  -5.2 to +9.0 points  no difference seen  2.6 %       0 %    86.8 %  front",
        "  Q4_K_M@f16kv  105.5 MB  4.85   82.1 %  74.0 to 88.1 %  +1.8 points  -5.2 to +9.0 points  no difference seen  2.6 %       0 %    86.8 %  front",
    ]
    assert shown.endswith(f"\n\n{render(found)}\n{render(other)}")
