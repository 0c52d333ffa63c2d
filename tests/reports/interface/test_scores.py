import msgspec

from qlock.core.compare import compare
from qlock.core.sides import Side
from qlock.reports.interface.scores import scores
from tests.fakes.comparisons import a_reading, a_side, a_sitting

replace = msgspec.structs.replace
EQUAL_WEIGHT = "every item counts the same; intervals tell of the choice of items alone, at 95 %"
UNMEASURED = (
    "noise between runs: not measured; both points repeat bit for bit on their machine, "
    "so a second run there gives the same answers"
)


def said(a: Side | str, b: Side | str, again_a: Side | None = None) -> tuple[tuple[str, ...], list[str]]:
    """The exam's row, and what is remarked of it."""
    left = a_side(a) if isinstance(a, str) else a
    right = a_side(b, model="Q4_K_M") if isinstance(b, str) else b
    part = scores(compare(left, right, again_a=again_a))
    name = "wikitext" if "orders" not in left.sittings else "orders"
    (row,) = [row for row in part.rows if row[0] == name]
    return row, [text.removeprefix(f"{name}: ") for text in part.remarks if text.startswith(f"{name}: ")]


def test_a_difference_that_was_seen() -> None:
    row, remarks = said("r" * 40, "r" * 30 + "w" * 10)
    assert row == ("orders", "right", "40", "100 %", "75.0 %", "-25.0 points", "-40.2 to -11.1 points", "0.0020", "B is worse")  # fmt: skip
    assert remarks == ["B is worse: the paired test gives p below 0.05"]


def test_a_difference_that_was_not_seen_says_what_would_have_been() -> None:
    row, remarks = said("r" * 95 + "w" * 5, "r" * 90 + "w" * 5 + "r" * 5)
    assert row[-2:] == ("1.0000", "no difference seen")
    assert remarks == [
        "no difference seen: this is no proof that there is none",
        "100 pairs would probably have shown a difference of 8.8 points",
    ]


def test_so_few_that_differ_that_no_test_could_see_it() -> None:
    _, remarks = said("r" * 20, "r" * 18 + "ww")
    assert remarks[1] == (
        "the smallest detectable difference is not known: of so few pairs, 20, "
        "the power would be 0.01 even if all that differ went one way"
    )
    assert remarks[2] == "pairs that differ: 2, so p cannot be below 0.5"


def test_marks_and_what_they_would_have_shown() -> None:
    row, remarks = said("h" * 6 + "w" * 8 + "h" * 6, "r" * 6 + "w" * 8 + "w" * 6)
    assert row[:6] == ("orders", "mean mark", "20", "30.0 %", "30.0 %", "0.0 points")
    assert remarks[1] == "20 pairs would probably have shown a difference of 25.6 points"


def test_what_needs_spread_is_not_told_without_it() -> None:
    mine, other = a_reading([300.0] * 20), a_reading([301.0] * 20)
    row, remarks = said(
        a_side(sittings={"wikitext": (mine,)}), a_side(model="Q4_K_M", sittings={"wikitext": (other,)})
    )
    assert row[6:] == ("cannot tell", "<0.0001", "B is worse")
    assert (
        remarks[1]
        == "there is no interval: all values are 0.01, which does not show how far they could differ"
    )


def test_independent_pairs_are_told_where_costs_vary() -> None:
    cost = [300.0 + 7 * (index % 5) for index in range(40)]
    other = [one + (-1) ** index * (1 + index % 3) for index, one in enumerate(cost)]
    _, remarks = said(
        a_side(sittings={"wikitext": (a_reading(cost),)}),
        a_side(model="Q4_K_M", sittings={"wikitext": (a_reading(other),)}),
    )
    assert remarks[1] == "40 independent pairs would probably have shown a difference of 0.0096"


def test_text_is_shown_as_perplexity_with_its_ratio() -> None:
    reading = [300.0 + 7 * (index % 5) for index in range(40)]
    worse = [cost + 1.5 + 0.25 * (index % 7) for index, cost in enumerate(reading)]
    a = a_side(sittings={"wikitext": (a_reading(reading),)})
    b = a_side(model="Q4_K_M", sittings={"wikitext": (a_reading(worse),)})
    row, remarks = said(a, b)
    assert row == ("wikitext", "perplexity", "40", "23.1039", "23.6222", "x1.0224", "x1.0208 to x1.0241", "<0.0001", "B is worse")  # fmt: skip
    assert remarks[1] == "+0.0222 nats a token (+0.0206 to +0.0238 nats); a lower perplexity is better"
    row, _ = said(a, replace(a, lock=a.lock))
    assert row[5:] == ("x1.0000", "cannot tell", "1.0000", "no difference seen")


def test_costs_beyond_any_perplexity_are_shown_in_nats() -> None:
    a = a_side(sittings={"wikitext": (a_reading([80_000.0, 80_000.0]),)})
    row, _ = said(a, a)
    assert row[:6] == ("wikitext", "nats per token", "2", "800.0000", "800.0000", "0.0000 nats")


def test_lost_items_are_told_by_side_and_reason_and_bounded() -> None:
    _, remarks = said("r" * 90 + "w" * 10, "r" * 88 + "c." + "w" * 9 + "x")
    assert remarks[-2:] == [
        (
            "in no scored pair: 1 on side B: no row (item-0090); 1 on side B: no room in the context (item-0089); "
            "1 on side B: excluded (item-0100)"
        ),
        "if all of these went one way, B - A would lie between -2.0 points and +1.0 points",
    ]


def test_lost_windows_are_told_and_have_no_bounds() -> None:
    whole = a_reading([300.0, 301.0, 302.0])
    a = a_side(sittings={"wikitext": (whole,)})
    _, remarks = said(a, replace(a, sittings={"wikitext": (replace(whole, rows=whole.rows[:2]),)}))
    assert remarks[-1] == "in no scored pair: 1 on side B: no row (window-0003)"


def test_many_lost_items_are_told_by_their_first() -> None:
    _, remarks = said("r" * 20, "r" * 13 + "." * 7)
    assert remarks[0] == "no verdict: more than 5% of the items, 7 of 20, are in no scored pair"
    assert remarks[-2] == (
        "in no scored pair: 7 on side B: no row (item-0014, item-0015, item-0016, item-0017, item-0018 ...)"
    )


def test_items_that_nobody_wrote_have_no_names() -> None:
    _, remarks = said("r" * 20 + ".", "r" * 20 + ".")
    assert "in no scored pair: 1 on both sides: no row" in remarks


def test_the_noise_is_told_where_it_was_measured_and_said_to_be_unknown_elsewhere() -> None:
    a = a_side("r" * 40)
    again = replace(a, sittings={"orders": (a_sitting("r" * 38 + "ww"),)})
    _, remarks = said(a, "r" * 40, again_a=again)
    assert remarks[-1] == "noise: between two runs of side A, the marks of 5.0 % of 40 items moved"
    assert scores(compare(a, a)).remarks[-2:] == (UNMEASURED, EQUAL_WEIGHT)
    text = a_side(sittings={"wikitext": (a_reading([100.0, 200.0]),)})
    moved = a_side(sittings={"wikitext": (a_reading([101.0, 200.0]),)})
    part = scores(compare(text, text, again_b=moved))
    assert "wikitext: noise: between two runs of side B, 0.005000 nats a token moved" in part.remarks


def test_a_description_concludes_nothing() -> None:
    row, remarks = said(a_side("r" * 20), a_side("w" * 20, forced=("device",)))
    assert row == ("orders", "right", "20", "100 %", "0 %", "-100.0 points", "-", "-", "no verdict")
    assert remarks == []
    part = scores(compare(a_side("r" * 20), a_side("w" * 20, forced=("device",))))
    assert part.remarks == (
        "no verdict: the comparison is invalid, so this is a description only",
        "every item counts the same",
    )


def test_where_suites_of_an_open_run_have_other_reasons_each_says_its_own() -> None:
    found = compare(a_side("r" * 20), a_side("r" * 20, model="Q4_K_M", sealed=False))
    first, second = found.suite
    other = replace(second, score=replace(second.score, why="too few"))
    assert scores(replace(found, suite=(first, other))).remarks[:2] == (
        "wikitext: no verdict: a run is not complete, so this is a description only",
        "orders: no verdict: too few",
    )
