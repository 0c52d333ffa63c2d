import msgspec

from qlock.core.compare import compare
from qlock.core.comparison import Comparison
from qlock.reports.html import plots
from qlock.reports.html.plots import MOST_ROWS, comparison_plots
from tests.fakes.comparisons import a_reading, a_side
from tests.fakes.pages import Page
from tests.golden.make_reports import a_comparison, an_invalid_comparison

replace = msgspec.structs.replace


def drawn(found: Comparison) -> list[Page]:
    return [Page(one) for one in comparison_plots(found)]


def titles(found: Comparison) -> list[str]:
    return [page.words[0] for page in drawn(found)]


def of_class(page: Page, kind: str) -> int:
    return sum(1 for _, attributes in page.elements if attributes.get("class") == kind)


def test_each_measure_suite_and_kind_has_its_drawing() -> None:
    assert titles(a_comparison()) == [
        "Differences in points",
        "Differences in nats a token",
        "Endings in orders",
        "Where answers diverge in orders",
    ]


def test_what_was_not_measured_is_not_drawn() -> None:
    assert titles(compare(a_side("r" * 20), a_side("r" * 20))) == [
        "Differences in points",
        "Endings in orders",
    ]
    text = a_side(sittings={"wikitext": (a_reading([90.0, 91.0]),)})
    assert titles(compare(text, text)) == ["Differences in nats a token"]
    assert titles(compare(a_side(), a_side())) == []


def test_the_whole_and_each_slice_are_a_dot_with_its_bar() -> None:
    points = drawn(a_comparison())[0]
    assert (of_class(points, "dot"), of_class(points, "bar"), of_class(points, "zero")) == (6, 6, 6)


def test_the_noise_is_a_band_on_the_whole_alone() -> None:
    points = drawn(a_comparison())[0]
    assert of_class(points, "noise") == 1
    assert "Band around 0: as much differs between two runs of one point." in points.text
    assert "Band" not in drawn(compare(a_side("r" * 20), a_side("r" * 20)))[0].text


def test_the_margin_of_a_gate_is_drawn_where_it_holds() -> None:
    points = drawn(a_comparison())[0]
    assert of_class(points, "margin") == 2
    assert "Dashed: margin of a gate." in points.text


def test_a_description_has_dots_and_no_bars() -> None:
    points = drawn(an_invalid_comparison())[0]
    assert (of_class(points, "dot"), of_class(points, "bar")) == (6, 0)
    assert points.words[-1] == "Dot: difference."


def test_more_slices_than_fit_are_counted() -> None:
    found = a_comparison()
    suite = found.suite[1]
    suite = replace(suite, slices=replace(suite.slices, row=suite.slices.row * 6))
    points = drawn(replace(found, suite=(suite,)))[0]
    assert of_class(points, "dot") == MOST_ROWS
    assert "7 more in the tables." in points.text


def test_each_ending_is_as_wide_as_it_is_frequent() -> None:
    found = drawn(compare(a_side("r" * 20), a_side("r" * 15 + "b" * 5)))[1]
    boxes = [one for one in found.all("rect") if one["height"] == "24"]
    assert [(box["class"], box["width"]) for box in boxes] == [
        ("ending eos", "324"),
        ("ending eos", "243"),
        ("ending budget", "81"),
    ]
    assert "Unfinished replies lean to one side" not in found.text
    assert "Replies with a loop: A 0, B 0." in found.text


def test_endings_that_lean_to_one_side_are_said_to() -> None:
    found = drawn(compare(a_side("r" * 20), a_side("r" * 10 + "b" * 10, model="Q4_K_M")))[1]
    assert found.words[-1] == (
        "Replies with a loop: A 0, B 0. Unfinished replies lean to one side: "
        "the score says how far each came, not which is better."
    )


def test_a_stretch_is_as_high_as_it_is_frequent() -> None:
    found = drawn(a_comparison())[3]
    assert [one["height"] for one in found.all("rect")] == ["8.46", "8.46", "110"]


def test_every_ending_has_words() -> None:
    assert set(plots._ENDINGS) == {"eos", "stop", "budget", "context", "error"}
