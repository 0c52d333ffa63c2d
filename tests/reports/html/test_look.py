import re
from typing import get_args

from qlock.core.exchange import Ending
from qlock.reports.html import render
from qlock.reports.html.look import SCRIPT, STYLE
from tests.fakes.pages import Page
from tests.golden.make_reports import a_comparison


def test_every_colour_has_a_value_for_light_dark_and_paper() -> None:
    used = set(re.findall(r"var\((--[a-z]+)\)", STYLE))
    for block in re.findall(r":root\{([^}]*)\}", STYLE):
        assert used <= set(re.findall(r"(--[a-z]+):", block))
    assert len(re.findall(r":root\{", STYLE)) == 3


def test_every_class_of_the_page_has_a_look() -> None:
    looked = set(re.findall(r"\.([a-z]+)", STYLE)) | {"sorts"}
    classes = {
        name for _, one in Page(render(a_comparison())).elements for name in one.get("class", "").split()
    }
    assert classes <= looked


def test_every_ending_has_a_colour() -> None:
    for ending in get_args(Ending):
        assert f".{ending}{{fill:var(--{ending})}}" in STYLE.replace("\n", "")


def test_style_and_script_cannot_end_their_element_or_ask_for_anything() -> None:
    for written in (STYLE, SCRIPT):
        assert "</" not in written
        assert "url(" not in written
        assert "http" not in written
    assert "innerHTML" not in SCRIPT
    assert "eval" not in SCRIPT
