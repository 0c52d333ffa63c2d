import msgspec

from qlock.core.compare import compare
from qlock.core.comparison import Comparison
from qlock.reports.html.way import bridge_plots
from tests.fakes.comparisons import a_crossing, a_reading, a_side
from tests.fakes.pages import Page

replace = msgspec.structs.replace


def crossed(*letters: str) -> Comparison:
    a, here, there, b = a_crossing(*letters)
    return compare(a, b, through=(here, there))


def test_the_way_is_drawn_through_four_points_with_its_middle_step_told_apart() -> None:
    (drawn,) = bridge_plots(crossed("r" * 9 + "w", "r" * 8 + "ww", "r" * 8 + "ww", "r" * 5 + "w" * 5))
    page = Page(drawn)
    assert [one["class"] for one in page.all("circle")] == ["dot"] * 4
    kinds = [one["class"] for one in page.all("line") if one["class"] != "grid"]
    assert kinds == ["bar", "cross", "bar"]
    assert page.all("svg")[0]["aria-label"] == (
        "The way from A to B in orders; weights, on A's device: -10.0 points; device and engine alone: 0.0 points; "
        "weights, on B's device: -30.0 points"
    )
    assert [word for word in page.words if word[0].isdigit() and word.endswith(" %")] == [
        "90.0 %",
        "80.0 %",
        "80.0 %",
        "50.0 %",
    ]
    assert {"F16 (A)", "Q4_K_M (A)", "Q4_K_M (B)", "Q2_K (B)", "right, %"} <= set(page.words)
    assert page.words[-1] == (
        "Red: the same point on A's device and on B's. A description: no step is tested, and no verdict and no gate "
        "rests on it."
    )


def test_a_level_stands_where_no_line_crosses_it() -> None:
    (drawn,) = bridge_plots(crossed("rrrr", "rrrr", "rrww", "rrrr"))
    page = Page(drawn)
    circles = [float(one["cy"]) for one in page.all("circle")]
    words = [float(one["y"]) for one in page.all("text") if "strong" in one["class"]]
    assert [up < at for up, at in zip(words, circles, strict=True)] == [True, True, False, True]


def test_a_text_is_drawn_as_perplexity() -> None:
    way = [
        replace(side, sittings={"wikitext": (a_reading([cost]),)})
        for side, cost in zip(a_crossing("r", "r", "r", "r"), (250.0, 260.0, 261.0, 300.0), strict=True)
    ]
    (drawn,) = bridge_plots(compare(way[0], way[3], through=(way[1], way[2])))
    assert "perplexity" in Page(drawn).words


def test_without_a_bridge_or_without_items_nothing_is_drawn() -> None:
    assert list(bridge_plots(compare(a_side("r"), a_side("r")))) == []
    assert list(bridge_plots(crossed("r.", ".r", "rr", "rr"))) == []
