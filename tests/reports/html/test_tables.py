import msgspec
import pytest

from qlock.core.compare import compare
from qlock.reports.html.tables import flips, part, sort_key, table
from qlock.reports.interface import Part
from tests.fakes.comparisons import a_side, a_sitting
from tests.fakes.pages import Page
from tests.golden.make_reports import a_comparison


@pytest.mark.parametrize(
    "cell, key",
    [
        ("80.4 %", "80.4"),
        ("<0.1 %", "0.1"),
        ("+1.8 points", "1.8"),
        ("-5.2 to +8.8 points", "-5.2"),
        ("99 (86.8 %)", "99"),
        ("x1.0224", "1.0224"),
        ("+0.0207 to +0.0237 nats", "0.0207"),
        ("269.0 MB", "269000000"),
        ("140.5 kB", "140500"),
        ("2.0 PB", "2e+15"),
        ("<0.0001", "0.0001"),
        ("112", "112"),
        ("-", ""),
        ("0 / 2 / 2", ""),
        ("12 monkeys", ""),
        ("", ""),
    ],
)
def test_a_cell_sorts_by_the_number_that_it_begins_with(cell: str, key: str) -> None:
    assert sort_key(cell) == key


def test_a_column_of_numbers_and_what_is_absent_sorts_by_number() -> None:
    found = table(("name", "size"), (("a", "1 MB"), ("b", "-")), name="Files")
    assert found == (
        '<div class="wide" tabindex="0" role="group" aria-label="Files"><table class="sorts"><thead><tr>'
        '<th scope="col"><button type="button">name</button></th>'
        '<th scope="col" class="number"><button type="button">size</button></th></tr></thead>'
        '<tbody><tr><td class="short">a</td><td class="number" data-key="1000000">1 MB</td></tr>'
        '<tr><td class="short">b</td><td class="number" data-key="">-</td></tr></tbody></table></div>'
    )


def test_an_interval_stands_below_its_number_and_does_not_sort() -> None:
    found = Page(table(("score",), (("75.0 % (66.6 to 81.9 %)",), ("34 (85.0 %)",)), name="S"))
    assert found.words[1:] == ["75.0 %", "66.6 to 81.9 %", "34 (85.0 %)"]
    assert [one["data-key"] for one in found.all("td")] == ["75", "34"]
    assert found.all("span") == [{"class": "muted ends"}]


def test_verdicts_have_a_colour_and_short_words_stay_on_one_line() -> None:
    cells = ("pass", "fail", "undecided", "B is worse", "B is better", "no difference seen", "x" * 25)
    found = Page(table(("verdict",), tuple((cell,) for cell in cells), name="V"))
    assert [one.get("class", "") for one in found.all("td")] == [
        "good short",
        "bad short",
        "open short",
        "bad short",
        "good short",
        "short",
        "long",
    ]


def test_what_a_sentence_quotes_is_code() -> None:
    found = Page(part(Part(heading="H", sentences=("A has `<b>`, B has nothing", "one ` alone"))))
    assert found.words == ["H", "A has ", "<b>", ", B has nothing", "one ` alone"]
    assert len(found.all("code")) == 1


def test_one_row_has_nothing_to_sort() -> None:
    assert Page(table(("a",), (("x",),), name="A")).all("button") == []


def test_a_part_has_its_sentences_around_its_table() -> None:
    found = Page(
        part(Part(heading="H", sentences=("one",), columns=("c",), rows=(("x",),), remarks=("two",)))
    )
    assert found.words == ["H", "one", "c", "x", "two"]
    assert [tag for tag, _ in found.elements[:2]] == ["section", "h3"]


def test_a_detail_is_folded_and_says_how_much_is_inside() -> None:
    found = Page(part(Part(heading="H", columns=("c",), rows=(("x",), ("y",)), is_detail=True)))
    assert [tag for tag, _ in found.elements[:2]] == ["details", "summary"]
    assert found.words[0] == "H (2)"


def test_a_part_without_heading_or_table() -> None:
    assert part(Part(heading="", sentences=("one",))) == "<section><ul><li>one</li></ul></section>"


def test_flips_are_listed_by_direction() -> None:
    found = Page(flips(a_comparison().suite[1], 50))
    assert found.words[0] == "Flips of orders: 6 lower on B, 8 higher"
    assert [word for word in found.words if word in ("Lower on B", "Higher on B")] == [
        "Lower on B",
        "Higher on B",
    ]
    at = found.words.index("item-0086")
    assert found.words[at : at + 9] == [
        "item-0086",
        "bank=south third=2",
        "The first token that differs is 2.",
        "A: ",
        "right, ended by eos",
        "The answer is 42.",
        "B: ",
        "wrong: got `7`, expected `42`, ended by eos",
        "The answer is w.",
    ]


def test_flips_that_are_not_listed_are_counted() -> None:
    assert Page(flips(a_comparison().suite[1], 2)).words[-1] == "Not listed here: 10 more."


def test_a_suite_without_answers_has_no_flips() -> None:
    assert flips(a_comparison().suite[0], 50) == ""


def test_where_no_mark_changed_there_is_nothing_to_open() -> None:
    same = compare(a_side("rw" * 10), a_side("rw" * 10))
    assert flips(same.suite[1], 50) == ""


def test_a_flip_opens_to_what_was_read_otherwise() -> None:
    mine, theirs = (
        msgspec.structs.replace(a_sitting(letters), reads={"item-0001": {"book": {"date": date}}})
        for letters, date in (("r" * 20, '"1 <b>"'), ("w" + "r" * 19, '"2"'))
    )
    found = compare(
        a_side(sittings={"orders": (mine,)}), a_side(model="Q4_K_M", sittings={"orders": (theirs,)})
    )
    (suite,) = [one for one in found.suite if one.suite == "orders"]
    assert 'book: date: A "1 <b>", B "2"' in Page(flips(suite, 5)).words
