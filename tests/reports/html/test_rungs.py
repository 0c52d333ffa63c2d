import msgspec

from qlock.core.comparison import Comparison, State
from qlock.core.ladder import ladder
from qlock.core.stats import CannotTell
from qlock.reports.html.rungs import ladder_plots
from tests.fakes.pages import Page
from tests.golden.make_reports import a_comparison, a_ladder

replace = msgspec.structs.replace


def a_rung(name: str, size: int, bits: float, state: State = "valid") -> Comparison:
    found = a_comparison()
    recipes = replace(found.recipes, file_bytes_a=270_000_000, file_bytes_b=size, bits_per_weight_b=bits)
    return replace(found, b=replace(found.b, name=f"runs/x:{name}", point=name), recipes=recipes, state=state)


def drawn(*rungs: Comparison) -> list[Page]:
    return [Page(one) for one in ladder_plots(ladder(rungs))]


def names(page: Page) -> set[str]:
    """The names that stand in a drawing."""
    return {word for word in page.words if "@" in word or word.startswith(("q", "F16"))}


def test_each_suite_is_drawn_over_size_and_over_bits() -> None:
    pages = drawn(a_rung("q@f16kv", 100_000_000, 4.85))
    assert [page.words[0] for page in pages] == [
        "wikitext: score over GB of weights",
        "wikitext: score over bits per weight",
        "orders: score over GB of weights",
        "orders: score over bits per weight",
    ]
    assert "perplexity, lower is better" in pages[0].words
    assert "right, %" in pages[2].words


def test_the_reference_is_a_square_and_what_is_judged_a_dot() -> None:
    page = drawn(a_rung("q@f16kv", 100_000_000, 4.85))[2]
    assert [one["class"] for one in page.all("rect")] == ["dot"]
    assert [one["class"] for one in page.all("circle")] == ["dot"]
    assert page.all("svg")[0]["aria-label"] == (
        "orders: score over GB of weights; F16@f16kv: 80.4 %; q@f16kv: 82.1 %"
    )


def test_a_point_that_may_not_be_compared_is_crossed() -> None:
    page = drawn(a_rung("q@f16kv", 100_000_000, 4.85, "invalid"))[2]
    assert [one["class"] for one in page.all("line") if one["class"] == "cross"] == ["cross"] * 2
    assert page.words[-1].endswith("Cross: not valid, a description only.")


def test_the_front_is_a_line_between_its_points() -> None:
    page = drawn(a_rung("q@f16kv", 100_000_000, 4.85))[0]
    assert len([one for one in page.all("line") if one["class"] == "front"]) == 1


def test_a_front_of_one_point_is_no_line_and_called_none() -> None:
    pages = drawn(a_rung("q@f16kv", 100_000_000, 4.85), a_rung("q2@f16kv", 60_000_000, 2.6))
    assert len(pages) == 4
    for page in pages:
        is_drawn = "front" in [one["class"] for one in page.all("line")]
        assert ("Line: Pareto front." in page.words[-1]) == is_drawn
    page = placed((1.0, 0.5, True), (2.0, 0.4, False))
    assert not [one for one in page.all("line") if one["class"] == "front"]
    assert page.words[-1] == "Bar: 95 % interval of the level. Square: reference."


def test_a_name_stands_off_the_line_where_there_is_room() -> None:
    def sides(*, is_on_front: bool) -> list[str]:
        near, far = (2.0, 0.5, is_on_front), (4.0, 0.505, is_on_front)
        page = placed(near, far, (1.0, 0.1, False), (8.0, 0.9, False))
        return [one["text-anchor"] for tag, one in page.elements if tag == "text" and one["class"] == "word"]

    # From the first dot the line goes to the right.
    assert sides(is_on_front=False)[-4] == "start"
    assert sides(is_on_front=True)[-4] == "end"


def placed(*dots: tuple[float, float, bool]) -> Page:
    """The drawing of points over their GB, with their level and whether they are on the front."""
    found = ladder([a_rung("q@f16kv", 100_000_000, 4.85)])
    rung = found.rung[1]
    mark = next(one for one in rung.mark if one.suite == "orders")
    rungs = [
        replace(
            rung,
            name=f"p{number}@f16kv",
            file_bytes=int(size_gb * 1e9),
            mark=(replace(mark, level=level, interval=CannotTell(why="none"), is_on_front=is_on_front),),
        )
        for number, (size_gb, level, is_on_front) in enumerate(dots)
    ]
    return Page(next(iter(ladder_plots(replace(found, rung=tuple(rungs))))))


def test_where_speeds_are_known_the_score_is_drawn_over_them_without_a_front() -> None:
    pages = [Page(one) for one in ladder_plots(a_ladder())]
    assert [page.words[0] for page in pages if "tokens/s" in page.words[0]] == ["orders: score over tokens/s"]
    page = pages[-1]
    assert len([one for one in page.all("line") if one["class"] == "front"]) == 0
    assert "Pareto" not in page.words[-1]
    assert "front" in [one["class"] for one in pages[-2].all("line")]


def test_points_of_one_size_are_not_drawn_over_it() -> None:
    pages = drawn(a_rung("q@f16kv", 270_000_000, 4.85))
    assert [page.words[0] for page in pages] == [
        "wikitext: score over bits per weight",
        "orders: score over bits per weight",
    ]


def test_an_unknown_number_of_bits_is_left_out() -> None:
    found = a_rung("q@f16kv", 100_000_000, 4.85)
    unknown = replace(found.recipes, bits_per_weight_b=CannotTell(why="a tensor has an unknown type"))
    assert [page.words[0] for page in drawn(replace(found, recipes=unknown))] == [
        "wikitext: score over GB of weights",
        "orders: score over GB of weights",
    ]


def test_a_suite_that_one_point_did_not_sit_shows_the_others() -> None:
    found = a_rung("q2@f16kv", 60_000_000, 2.6)
    pages = drawn(a_rung("q@f16kv", 100_000_000, 4.85), replace(found, suite=found.suite[1:]))
    assert "q2@f16kv" not in pages[0].all("svg")[0]["aria-label"]
    assert "q2@f16kv" in pages[2].all("svg")[0]["aria-label"]


def test_a_common_setting_is_not_repeated() -> None:
    assert names(drawn(a_rung("q@f16kv", 100_000_000, 4.85))[2]) >= {"F16", "q"}
    assert names(drawn(a_rung("q@q8kv", 100_000_000, 4.85))[2]) >= {"F16@f16kv", "q@q8kv"}


def test_names_never_cover_one_another() -> None:
    rungs = [a_rung(f"q{number}-of-a-family@f16kv", 100_000_000 + number, 4.85) for number in range(12)]
    page = drawn(*rungs)[2]
    shown = [one for tag, one in page.elements if tag == "text" and one["class"] == "word"]
    assert 1 < len(shown) < 13
    assert len({(one["x"], one["y"], one["text-anchor"]) for one in shown}) == len(shown)


def test_a_level_without_an_interval_is_a_dot_without_a_bar() -> None:
    found = a_rung("q@f16kv", 100_000_000, 4.85)
    suite = found.suite[1]
    score = replace(suite.score, b=CannotTell(why="one item"))
    (page, _) = drawn(replace(found, suite=(replace(suite, score=score),)))
    assert len([one for one in page.all("line") if one["class"] == "bar"]) == 1
    assert len(page.all("circle")) == 1
