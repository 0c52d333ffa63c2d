import base64
import hashlib
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.agreement import Agreement
from qlock.core.comparison import Comparison
from qlock.core.escape import visible
from qlock.core.gates import GateVerdict
from qlock.core.ladder import ladder
from qlock.reports.html import MOST_FLIPS, SUFFIX, render, render_all
from tests.fakes.pages import Page
from tests.golden.make_reports import HOSTILE, a_comparison, an_invalid_comparison
from tests.reports.html.hostile import ATTACKS, with_answers

replace = msgspec.structs.replace
LOADING = frozenset(
    {"src", "srcset", "href", "action", "formaction", "data", "poster", "background", "style"}
)
"""Attributes that could ask for something, or change the look."""


def many() -> list[Comparison]:
    found = a_comparison()
    small = replace(found.b, name="runs/ladder:Q2_K@f16kv", point="Q2_K@f16kv")
    return [found, replace(found, b=small, recipes=replace(found.recipes, file_bytes_b=60_000_000))]


def test_it_is_written_to_an_html_file() -> None:
    assert SUFFIX == ".html"


def test_every_element_closes_and_no_id_comes_twice() -> None:
    for shown in (render(a_comparison()), render(an_invalid_comparison()), render_all(ladder(many()))):
        page = Page(shown)
        ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
        assert len(ids) == len(set(ids))
        assert page.declarations == ["doctype html"]
        assert len(page.all("main")) == len(page.all("h1")) == 1


def test_it_asks_for_nothing_and_nothing_in_it_acts_by_itself() -> None:
    for shown in (render(a_comparison()), render_all(ladder(many()))):
        page = Page(shown)
        for tag, attributes in page.elements:
            asking = {name: value for name, value in attributes.items() if name in LOADING}
            assert all(value.startswith("#") for value in asking.values()), (tag, asking)
            assert not [name for name in attributes if name.startswith("on")]
        assert not {tag for tag, _ in page.elements} & {
            "img",
            "iframe",
            "link",
            "object",
            "embed",
            "form",
            "base",
        }
        assert "@import" not in shown
        assert "url(" not in shown


def test_the_policy_names_its_style_and_script_and_nothing_else() -> None:
    shown = render(a_comparison())
    (policy,) = [one["content"] for one in Page(shown).all("meta") if "http-equiv" in one]
    digests = {
        tag: base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        for tag, inner in re.findall(r"<(style|script)>(.*?)</\1>", shown, re.DOTALL)
    }
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digests['style']}'; script-src 'sha256-{digests['script']}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert shown.index("Content-Security-Policy") < shown.index("<style>")


def test_why_it_is_not_valid_stands_before_any_drawing() -> None:
    shown = render(an_invalid_comparison())
    assert shown.index("INVALID") < shown.index("fatal: device.cpu_model") < shown.index("<svg")


def test_what_the_gates_say_stands_at_the_top() -> None:
    shown = render(a_comparison())
    assert shown.index("gates: 2 pass, 1 undecided") < shown.index("<svg")


@pytest.mark.parametrize(
    "verdicts, told",
    [
        (["pass", "pass"], "gates: pass"),
        (["pass", "undecided"], "gates: undecided"),
        (["undecided", "fail", "pass"], "gates: fail"),
        ([], ""),
    ],
)
def test_the_list_of_comparisons_says_how_the_gates_of_each_came_out(
    verdicts: list[GateVerdict], told: str
) -> None:
    found = a_comparison()
    gates = tuple(replace(found.gate[0], verdict=verdict) for verdict in verdicts)
    shown = render_all(ladder([replace(found, gate=gates), replace(found, gate=())]))
    first, second = shown.partition("</nav>")[0].split("<li>")[1:]
    assert first.count("gates: ") == bool(told)
    assert told in first
    assert "gates: " not in second


def test_drawings_say_in_words_what_they_show() -> None:
    labels = [svg["aria-label"] for svg in Page(render(a_comparison())).all("svg")]
    assert len(labels) == 4
    assert labels[0] == (
        "Differences in points; orders: +1.8 points (-5.2 to +9.0 points); "
        "orders bank=north: +3.6 points (-7.4 to +15.0 points); "
        "orders bank=south: 0.0 points (-10.3 to +10.3 points); "
        "orders third=0: 0.0 points (-13.4 to +13.4 points); "
        "orders third=1: +5.3 points (-9.0 to +20.1 points); "
        "orders third=2: 0.0 points (-13.4 to +13.4 points)"
    )
    assert labels[3] == ("Where answers diverge in orders; token 0: 1; token 1: 1; token 2–3: 13")


def test_every_flip_opens_to_both_texts() -> None:
    page = Page(render(a_comparison()))
    flips = [one for one in page.all("details") if one.get("class") == "flip"]
    assert len(flips) == 14
    assert len(page.all("pre")) == 28
    assert visible(HOSTILE) in page.text


def test_flips_are_shared_out_and_the_others_counted() -> None:
    found = a_comparison()
    suite = found.suite[1]
    assert isinstance(suite.agreement, Agreement)
    flips = suite.agreement.flip[:1] * 300
    suite = replace(suite, agreement=replace(suite.agreement, flip=flips, worse=5_000, better=0))
    page = Page(render(replace(found, suite=(suite,) * 10)))
    assert len([one for one in page.all("details") if one.get("class") == "flip"]) == 10 * (MOST_FLIPS // 10)
    assert "Not listed here: 4960 more." in page.text


def test_many_stand_in_one_view_before_each_alone() -> None:
    page = Page(render_all(ladder(many(), at_most_bytes=90_000_000)))
    assert [one["href"] for one in page.all("a")] == ["#c1", "#c2"]
    assert {one["id"] for one in page.all("section") if "id" in one} == {"c1", "c2"}
    assert "best at or under 90.0 MB: Q2_K@f16kv, of 1 point" in page.text
    assert page.text.index("2 comparisons") < page.text.index("best at or under") < page.text.index("Scores")


def test_one_comparison_is_a_page_of_its_own_unless_the_best_is_asked_for() -> None:
    alone = ladder([a_comparison()])
    assert render_all(alone) == render(a_comparison())
    page = Page(render_all(ladder([a_comparison()], at_most_bytes=106_000_000)))
    assert page.text.index("1 comparison") < page.text.index(
        "best at or under 106.0 MB: F16@f16kv, of 2 points"
    )
    assert "score over bits per weight" in page.text


@given(st.sampled_from(ATTACKS) | st.text())
def test_no_text_makes_or_breaks_an_element(written: str) -> None:
    assert shape_of(with_answers(f"a{written}")) == shape_of(with_answers("a"))


def shape_of(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Every element with the names of its attributes, but for `code`: what stands in backticks in a sentence."""
    elements = Page(render(comparison)).elements
    assert all(not attributes for tag, attributes in elements if tag == "code")
    return [(tag, sorted(attributes)) for tag, attributes in elements if tag != "code"]
