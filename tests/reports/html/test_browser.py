"""The page in a real browser: it loads in silence, asks for nothing, runs nothing of a model, and can be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from qlock.core.agreement import Agreement
from qlock.core.ladder import ladder
from qlock.reports.html import render, render_all
from tests.fakes.browser import Browser, chromium
from tests.golden.make_reports import a_comparison
from tests.reports.html.hostile import ATTACKS, with_answers

pytestmark = pytest.mark.browser
replace = msgspec.structs.replace


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = chromium()
    if program is None:
        pytest.skip("there is no Chromium here")
    with Browser(program, tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Browser]:
    """The page of the golden comparison in a window of a desktop."""
    browser.said.clear()
    browser.asked.clear()
    browser.window(1280, 900)
    page = tmp_path / "report.html"
    page.write_text(render(a_comparison()), encoding="utf-8")
    browser.open(page)
    yield browser
    assert browser.said == []
    assert [address for address in browser.asked if not address.startswith("file:")] == []


def width_beyond_the_window(browser: Browser) -> int:
    wide: int = browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wide


def test_it_opens_in_silence_and_asks_for_the_file_alone(opened: Browser) -> None:
    assert opened.value("document.title").startswith("VALID: ")
    assert len(opened.asked) == 1


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_no_window_is_too_narrow(opened: Browser, width: int) -> None:
    opened.window(width, 800)
    assert width_beyond_the_window(opened) == 0
    opened.value("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert width_beyond_the_window(opened) == 0


def test_words_in_drawings_stay_readable_on_a_phone(opened: Browser) -> None:
    opened.window(360, 800)
    least = opened.value(
        "Math.min(...[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().width / 360)) * 11"
    )
    assert least >= 9


def test_a_head_sorts_its_table_by_number_and_turns_it_around(opened: Browser) -> None:
    opened.value("document.querySelectorAll('details').forEach(one => one.open = true)")
    table = (
        "[...document.querySelectorAll('table')].find(t => t.parentElement.ariaLabel === 'Slices of orders')"
    )
    column = f"[...{table}.tBodies[0].rows].map(row => row.cells[1].textContent)"
    head = f"{table}.tHead.rows[0].cells[1]"
    assert opened.value(column) == ["56", "56", "37", "38", "37"]
    opened.value(f"{head}.querySelector('button').click()")
    assert (opened.value(column), opened.value(f"{head}.ariaSort")) == (
        ["37", "37", "38", "56", "56"],
        "ascending",
    )
    opened.value(f"{head}.querySelector('button').click()")
    assert (opened.value(column), opened.value(f"{head}.ariaSort")) == (
        ["56", "56", "38", "37", "37"],
        "descending",
    )


def test_a_flip_opens_to_both_texts(opened: Browser) -> None:
    assert not opened.value("document.querySelector('.flip pre').checkVisibility()")
    opened.value("document.querySelector('.flip').closest('details.part').querySelector('summary').click()")
    opened.value("document.querySelector('.flip > summary').click()")
    assert opened.value("document.querySelectorAll('.flip[open] pre').length") == 2
    assert opened.value("document.querySelector('.flip pre').checkVisibility()")


@pytest.mark.parametrize("dark", [False, True])
def test_every_word_stands_out_from_its_ground(opened: Browser, *, dark: bool) -> None:
    opened.window(1280, 900, dark=dark)
    least = opened.value(
        """(() => {
        const light = text => { const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
            .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b };
        const ground = one => { for (let e = one; e; e = e.parentElement) {
            const color = getComputedStyle(e).backgroundColor; if (!/, 0\\)$/.test(color)) return color }
            return 'rgb(255,255,255)' };
        const ratio = (a, b) => (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        return Math.min(...[...document.querySelectorAll('h1,h3,h4,p,li,th,td,summary,strong,figcaption,text.word')]
            .map(e => { const style = getComputedStyle(e); return ratio(light(e.tagName === 'text' ? style.fill
                : style.color), light(ground(e))) }))
        })()"""
    )
    assert least >= 4.5


def test_on_paper_parts_are_open_and_their_words_are_dark(opened: Browser) -> None:
    opened.window(800, 1100, dark=True, printed=True)
    opened.value("dispatchEvent(new Event('beforeprint'))")
    assert opened.value("document.querySelectorAll('details.part:not([open])').length") == 0
    assert opened.value("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert width_beyond_the_window(opened) == 0
    opened.value("dispatchEvent(new Event('afterprint'))")
    assert opened.value("document.querySelectorAll('details.part[open]').length") == 0


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_that_a_model_wrote_runs(opened: Browser, tmp_path: Path, attack: str) -> None:
    page = tmp_path / "attack.html"
    page.write_text(render(with_answers(attack)), encoding="utf-8")
    opened.open(page)
    opened.value("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert opened.value("window.ran") is None
    assert opened.value("document.querySelectorAll('img, iframe, script').length") == 1
    assert opened.value("document.querySelector('.flip pre').textContent").startswith("a")


def test_a_script_would_not_run_even_if_it_came_in(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "broken.html"
    broken = render(a_comparison()).replace("</main>", "</main><script>window.ran = true</script><img src=x>")
    page.write_text(broken, encoding="utf-8")
    browser.open(page)
    assert browser.value("window.ran") is None
    assert len([line for line in browser.said if "Content Security Policy" in line]) == 2


def test_a_ladder_with_all_that_fits_opens_at_once(opened: Browser, tmp_path: Path) -> None:
    found = a_comparison()
    suite = found.suite[1]
    assert isinstance(suite.agreement, Agreement)
    long = suite.agreement.flip[0]
    flips = (replace(long, text_a="word " * 400, text_b="other " * 330),) * 100
    suite = replace(
        suite,
        agreement=replace(suite.agreement, flip=flips, worse=60_000),
        slices=replace(suite.slices, row=suite.slices.row[:1] * 100),
    )
    points = [
        replace(
            found, b=replace(found.b, name=f"runs/x:q{number}@s", point=f"q{number}@s"), suite=(suite,) * 10
        )
        for number in range(10)
    ]
    page = tmp_path / "ladder.html"
    page.write_text(render_all(ladder(points)), encoding="utf-8")
    assert page.stat().st_size < 20_000_000
    opened.open(page)
    assert opened.value("document.title") == "10 comparisons"
