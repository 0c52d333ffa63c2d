from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from qlock.core.escape import visible
from qlock.reports.html.markup import element, many, sentence, text


def test_an_element_has_its_attributes_in_order() -> None:
    found = element("td", text("1 < 2"), class_="number", data_key="1", aria_label="a")
    assert found == '<td class="number" data-key="1" aria-label="a">1 &lt; 2</td>'


def test_an_element_without_content_closes_itself() -> None:
    assert element("line", x1=0.126, y1=2) == '<line x1="0.13" y1="2"/>'


def test_a_place_has_two_digits_however_large_it_is() -> None:
    assert element("circle", cx=1234.5678) == '<circle cx="1234.57"/>'


def test_what_a_sentence_quotes_is_code() -> None:
    assert sentence("A has `<b>`, B `x`") == "A has <code>&lt;b&gt;</code>, B <code>x</code>"
    assert sentence("one ` alone") == "one ` alone"
    assert sentence("``") == "``"


@given(st.text("`<a&", max_size=20))
def test_nothing_in_a_sentence_is_markup_of_its_own(written: str) -> None:
    found = sentence(written).replace("<code>", "`").replace("</code>", "`")
    assert found == text(written)


def test_elements_follow_one_another() -> None:
    assert many(element("b", text(one)) for one in "xy") == "<b>x</b><b>y</b>"


def test_a_long_text_loses_its_middle() -> None:
    assert text("abcdefghij", limit=5) == "ab…ij"


@given(st.text(max_size=50))
def test_an_attribute_reads_back_as_it_was(written: str) -> None:
    seen: list[str | None] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.append(dict(attrs)["title"])

    Reader().feed(element("p", title=written))
    assert seen == [visible(written, keep="\n\t")]
