from qlock.core.compare import compare
from qlock.reports.interface import headline, parts
from qlock.reports.interface.part import Part
from tests.fakes.comparisons import a_side
from tests.golden.make_reports import a_comparison


def test_a_part_is_a_heading_and_as_much_as_it_has_to_say() -> None:
    assert Part(heading="Scores") == Part(
        heading="Scores", sentences=(), columns=(), rows=(), remarks=(), is_detail=False
    )


def test_the_parts_come_in_the_order_of_reading() -> None:
    assert [(part.heading, part.is_detail) for part in parts(a_comparison())] == [
        ("", False),
        ("Gates", False),
        ("Scores", False),
        ("Endings", False),
        ("Agreement", False),
        ("Slices of orders", True),
        ("Flips of orders", True),
        ("Recipe", False),
        ("What is not the same on both sides", True),
    ]


def test_a_part_that_has_nothing_to_say_is_left_out() -> None:
    headings = [part.heading for part in parts(compare(a_side(), a_side()))]
    assert headings == ["", "Scores", "Recipe"]


def test_every_row_has_a_cell_for_each_column() -> None:
    for part in parts(a_comparison()):
        assert {len(row) for row in part.rows} <= {len(part.columns)}


def test_the_headline_names_points_or_runs_where_the_points_have_one_name() -> None:
    a, b = a_side(), a_side(model="Q4_K_M")
    assert (
        headline(compare(a, b)) == "VALID: Q4_K_M@f16kv (B) against F16@f16kv (A); meant to differ: weights"
    )
    assert headline(compare(a, a_side(name="runs/later:F16@f16kv", sealed=False), treatment="kv")) == (
        "INCOMPLETE: runs/later:F16@f16kv (B) against runs/ladder:F16@f16kv (A); meant to differ: kv"
    )
