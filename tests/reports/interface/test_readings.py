from __future__ import annotations

import msgspec

from qlock.core.agreement import Agreement
from qlock.core.compare import compare
from qlock.core.comparison import Suite
from qlock.core.exchange import Reading
from qlock.reports.interface.answers import flips
from qlock.reports.interface.readings import differs_in_parts, read_otherwise, readings
from tests.fakes.comparisons import a_reading, a_side, a_sitting

BOOKED: Reading = {"book": {"date": '"2026-01-01"', "seats": "2"}}
OTHERWISE: Reading = {"book": {"date": '"2026-01-02"', "window": "true"}, "pay": {}}


def suite(a: list[Reading], b: list[Reading]) -> Suite:
    """An exam of which the first answer flips; the answers were read like this."""
    mine, theirs = (
        msgspec.structs.replace(
            a_sitting(letters),
            reads={f"item-{number:04d}": one for number, one in enumerate(read, start=1)},
        )
        for letters, read in (("r" * 20, a), ("w" + "r" * 19, b))
    )
    found = compare(
        a_side(sittings={"orders": (mine,)}), a_side(model="Q4_K_M", sittings={"orders": (theirs,)})
    )
    return next(one for one in found.suite if one.suite == "orders")


def test_parts_that_differ_are_counted() -> None:
    found = readings(suite([BOOKED] * 4, [OTHERWISE, BOOKED, BOOKED, {"": {"total": "3"}}]))
    assert found.heading == "Read out of the answers of orders"
    assert found.columns == ("part", "pairs", "other value", "A alone", "B alone")
    assert found.rows == (
        ("(every field)", "1", "0", "0", "1"),
        ("book", "4", "0", "1", "0"),
        ("book: date", "4", "1", "0", "0"),
        ("book: seats", "4", "0", "1", "0"),
        ("book: window", "1", "0", "0", "1"),
        ("pay", "1", "0", "0", "1"),
    )
    assert found.remarks == ("alike in every part: 2 of 4 pairs (50.0 %)",)


def test_where_all_is_read_alike_there_is_no_table() -> None:
    found = readings(suite([BOOKED], [BOOKED]))
    assert (found.rows, found.remarks) == (
        (),
        ("alike in every part: 1 of 1 pair (100 %)",),
    )


def test_where_nothing_is_read_part_by_part_nothing_is_said() -> None:
    assert readings(suite([], [])).heading == ""
    text = a_side(sittings={"wikitext": (a_reading([300.0] * 12),)})
    found = next(one for one in compare(text, text).suite if one.suite == "wikitext")
    assert readings(found).heading == ""
    assert not differs_in_parts(found.agreement)


def test_a_flip_says_what_was_read_otherwise() -> None:
    found = suite([BOOKED], [OTHERWISE])
    assert differs_in_parts(found.agreement)
    shown = flips(found)
    assert shown.columns[-1] == "read otherwise"
    assert shown.rows[0][-1] == (
        'book: date: A "2026-01-01", B "2026-01-02"; book: seats: A alone, 2; book: window: B alone, true; '
        "pay: B alone"
    )
    assert "read otherwise" not in flips(suite([], [])).columns


def test_a_field_of_the_answer_itself_has_its_own_name() -> None:
    found = suite([{"": {"total": "3"}}], [{"": {"total": "4"}}])
    assert flips(found).rows[0][-1] == "total: A 3, B 4"
    assert isinstance(found.agreement, Agreement)
    assert read_otherwise(found.agreement.flip[0]) == ("total: A 3, B 4",)
