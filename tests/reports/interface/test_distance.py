"""What is said of the distance from a reference."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from qlock.core.compare import compare
from qlock.core.comparison import Distances, Suite
from qlock.reports.interface.distance import CUT, distance_text, distances, distances_brief, nats_text
from tests.core.test_distance import distance
from tests.fakes.comparisons import a_distance, a_side
from tests.fakes.documents import a_kld_lock


@pytest.mark.parametrize(
    "value, written",
    [
        (0.0656341, "0.065634"),
        (-4e-8, "0.000000"),
        (0.0, "0.000000"),
        (-0.00002, "-0.000020"),
        (12.5, "12.500000"),
    ],
)
def test_nats_are_written_as_llama_perplexity_does_but_for_a_negative_zero(
    value: float, written: str
) -> None:
    assert nats_text(value) == written


def test_a_distance_in_a_sentence() -> None:
    assert distance_text(distance([0.1, 0.3])) == (
        "0.200000 nats from F16@f16kv (0.000000 to 1.470620), 99.9 % of tokens below 0.449384; "
        "the same likeliest token in 25.0 %; perplexity 13.4637, x1.1052"
    )
    assert distance_text(distance([0.0], "F16@f16kv")) == (
        "identical bytes: it is F16@f16kv itself, and nothing differs"
    )


def test_a_distance_below_the_floor_says_so() -> None:
    assert distance_text(distance([2e-5, 3e-5], stored=True)).endswith(
        "; no more than this way of measuring cannot tell from 0, 5e-05 nats"
    )


def test_a_lower_bound_is_called_so() -> None:
    assert distance_text(distance([0.1, 0.3], stored=True, slack=0.4)) == (
        "at least 0.200000 nats from F16@f16kv (0.000000 to 1.470620), 0.400000 more at most; "
        "the same likeliest token in 25.0 %; perplexity 13.4637, x1.1052"
    )


def test_many_distances_are_a_sentence_for_each_kind() -> None:
    assert list(distances_brief([])) == []
    far = [(f"far{number}", distance([0.1 * number, 0.3])) for number in (1, 2, 3, 4)]
    assert list(distances_brief(far)) == [
        "4 distances from F16@f16kv: 0.200000 to 0.350000 nats; `qlock diff` shows all figures"
    ]
    near = [(f"near{number}", distance([2e-5, 3e-5], stored=True)) for number in (1, 2, 3, 4)]
    bound = ("bound", distance([0.1, 0.3], stored=True, slack=0.4))
    itself = ("itself", distance([0.0], "F16@f16kv"))
    assert list(distances_brief([far[0], *near, bound, itself])) == [
        "6 distances from F16@f16kv: 0.000025 to 0.200000 nats; `qlock diff` shows all figures",
        "the same bytes as the reference, so nothing differs: itself",
        "no more than this way of measuring cannot tell from 0: near1, near2, near3 and 1 more",
        "the least that it can be, since only the likeliest tokens are stored: bound",
    ]
    assert list(distances_brief([itself])) == ["the same bytes as the reference, so nothing differs: itself"]


def suite_of(a: list[float], b: list[float], *, slack: float = 0.0) -> Suite:
    lock = a_kld_lock(gate=())
    left = a_side(lock=lock, sittings={"distance": (a_distance(a),)})
    right = a_side(lock=lock, model="Q4_K_M", sittings={"distance": (a_distance(b, slack=slack),)})
    return next(suite for suite in compare(left, right).suite if suite.suite == "distance")


def test_the_figures_stand_in_a_table_and_the_tokens_apart_from_it() -> None:
    figures, *parts = distances(suite_of([0.0, 0.0], [0.1, 0.3]))
    assert figures.heading == "Distance from the reference in distance"
    assert figures.sentences[0] == "A: identical bytes: it is F16@f16kv itself, and nothing differs"
    assert figures.columns == ("figure", "B", "interval", "±")
    rows = {row[0]: row[1:] for row in figures.rows}
    assert rows["mean KL divergence, nats"] == ("0.200000", "0.000000 to 1.470620", "0.019352")
    assert rows["  99.9 %"] == ("0.449384", "", "")
    assert rows["same likeliest token"] == ("25.000 %", "0.00 % to 100.00 %", "6.934")
    assert rows["tokens"] == ("40", "", "")
    assert [part.heading for part in parts] == [
        "Distance by slice (B, distance)",
        "Distance by part of (B, distance)",
        "Distance by tokens before (B, distance)",
    ]
    assert all(part.is_detail for part in parts)
    assert parts[0].rows[0] == (
        "half=first",
        "20",
        "1",
        "0.100000",
        "cannot tell",
        "0.149000",
        "50.0 %",
    )


def test_both_sides_have_columns_where_neither_is_the_reference() -> None:
    figures, *parts = distances(suite_of([0.1, 0.2], [0.1, 0.3]))
    assert figures.columns == ("figure", "A", "interval", "±", "B", "interval", "±")
    assert len(parts) == 6


def test_what_may_be_missing_stands_below_a_lower_bound() -> None:
    figures, *_ = distances(suite_of([0.1, 0.2], [0.1, 0.3], slack=0.4))
    rows = {row[0]: row[1:] for row in figures.rows}
    assert rows["  more at most"] == ("-", "", "", "0.400000", "", "")
    assert figures.remarks[1] == (
        "only the likeliest tokens of the reference are stored: each divergence is the least that it can be, "
        "and two points are compared by what is seen of theirs"
    )
    whole, *_ = distances(suite_of([0.1, 0.2], [0.1, 0.3]))
    assert "  more at most" not in {row[0] for row in whole.rows}
    assert len(whole.remarks) == 1


def test_a_stored_file_that_ends_16_nats_below_the_likeliest_token_says_so() -> None:
    suite = suite_of([0.1, 0.2], [0.1, 0.3])
    assert isinstance(suite.distances, Distances)
    cut = replace(suite, distances=Distances(a=suite.distances.a, b=distance([0.1, 0.3], stored=True)))
    figures, *_ = distances(cut)
    assert figures.remarks[1:] == (CUT,)
    assert CUT == (
        "the stored file keeps no token more than 16 nats below the likeliest one: "
        "side by side, divergences and the reference's perplexity differ a little"
    )


def test_two_that_are_the_reference_need_no_table() -> None:
    lock = a_kld_lock(gate=())
    side = a_side(lock=lock, sittings={"distance": (a_distance([0.0, 0.0]),)})
    found = next(suite for suite in compare(side, side).suite if suite.suite == "distance")
    (figures,) = distances(found)
    assert (figures.columns, figures.rows, figures.remarks) == ((), (), ())
    assert len(figures.sentences) == 2


def test_another_suite_says_nothing_of_distances() -> None:
    assert list(distances(replace(suite_of([0.1], [0.2]), distances=UNSET))) == []
