"""Escaping: real hostile answers first, then laws over any text."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from qlock.core import escape

NASTY = (
    "\x1b[2K\rALL SAMPLES PASSED",
    "\x1b]52;c;cm0gLXJmIH4=\x07",
    "\x1b]8;;https://evil.example\x1b\\safe\x1b]8;;\x1b\\",
    "wrong\b\b\b\b\bright",
    "\x9b31mred",
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    '" onmouseover="x" \'',
    '=HYPERLINK("https://evil.example","x")',
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "  =1",
    "＝1",
    "access\u202e\u2066level\u2069",
    "zero\u200bwidth\u200d\ufeff",
    "tag\U000e0041smuggled",
    "lone \ud800 surrogate",
    "a\u2028b\u2029c\x85d",
    "]]> &amp; &#0;",
    "| a | b |\n|---|---|\n",
    "```\nfence\n````",
    "[x](javascript:alert(1)) ![y](https://evil.example/p.png)",
    "https://evil.example www.evil.example a@evil.example",
    "    code",
    "# head",
    "1. one",
    "1) one",
    "- a",
    "===",
    "**bold** _em_ __b__ ~~s~~ $x$ Q4_K_M",
    "back\\slash \\* end\\",
    "null\x00",
    "",
)

ANY_TEXT = st.one_of(
    st.text(alphabet=st.characters(), max_size=80),  # surrogates too
    st.lists(st.sampled_from(NASTY), max_size=4).map("".join),
    st.text(alphabet="\\`*_[]()<>&|~$#+-=@:/.!1 a\n\t\r\x1b\u202e", max_size=40),
)


def hidden(text: str, *, allowed: str = "") -> list[str]:
    """Characters that must not be in an escaped text, by their Unicode category, found independently."""
    bad = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return [
        c
        for c in text
        if c not in allowed
        and (
            unicodedata.category(c) in bad
            or unicodedata.bidirectional(c) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
            or ord(c) & 0xFFFE == 0xFFFE
            or c in "\u034f\u115f\u1160\u3164\uffa0\ufe0f\u180b"
        )
    ]


@pytest.mark.parametrize(
    "text, shown",
    [
        ("\x1b[2K\rALL SAMPLES PASSED", "\\x1b[2K\\rALL SAMPLES PASSED"),
        ("\x1b]52;c;eA==\x07", "\\x1b]52;c;eA==\\x07"),
        ("wrong\b\b", "wrong\\x08\\x08"),
        ("\x9b31m", "\\x9b31m"),
        ("a\tb", "a\\tb"),
        ("a\r\nb", "a\\r\nb"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
        ("a\U000e0041b", "a\\U000e0041b"),
        ("a\ud800b", "a\\ud800b"),
        ("a\u2028b", "a\\u2028b"),
        ("a\U0001fffeb", "a\\U0001fffeb"),
        ("Grüße, 世界 🙂 e\u0301", "Grüße, 世界 🙂 e\u0301"),
        ("C:\\x1b", "C:\\x1b"),
    ],
)
def test_a_terminal_sees_escapes_instead_of_what_they_do(text: str, shown: str) -> None:
    assert escape.for_terminal(text) == shown


def test_line_feeds_are_kept_or_shown_as_arrows() -> None:
    assert escape.for_terminal("a\n\nb") == "a\n\nb"
    assert escape.for_terminal("a\n\nb", newlines="arrow") == "a↵↵b"


def test_a_long_text_loses_its_middle() -> None:
    assert escape.for_terminal("0123456789", limit=10) == "0123456789"
    assert escape.for_terminal("0123456789", limit=9) == "0123…6789"
    assert escape.for_terminal("0123456789", limit=8) == "0123…789"
    assert escape.for_terminal("0123456789", limit=2) == "0…"
    assert escape.for_terminal("0123456789", limit=1) == "…"
    assert escape.for_terminal("0123456789", limit=0) == "…"


def test_a_message_is_one_line_of_at_most_200_characters() -> None:
    assert escape.for_message("short\nand \x1b[31mred") == "short↵and \\x1b[31mred"
    assert escape.for_message("a" * 150 + "b" * 150) == "a" * 100 + "…" + "b" * 99


@pytest.mark.parametrize(
    "word, shown",
    [
        ("locks/x@cpu-1.toml", "locks/x@cpu-1.toml"),
        ("my locks/x.toml", "'my locks/x.toml'"),
        ("p's", "'p'\"'\"'s'"),
        ("\x1b[2J", "'\\x1b[2J'"),
    ],
)
def test_a_word_for_a_shell_is_quoted_where_it_must_be(word: str, shown: str) -> None:
    assert escape.for_shell(word) == shown


def test_html_holds_no_tag() -> None:
    shown = escape.for_html("<img src=x onerror='a(\"b\")'> & \x1b")
    assert shown == "&lt;img src=x onerror=&#x27;a(&quot;b&quot;)&#x27;&gt; &amp; \\x1b"


def test_xml_holds_no_tag_and_keeps_lines_in_attributes() -> None:
    assert escape.for_xml("a<b>&\"'\n\t\x00") == "a&lt;b&gt;&amp;&quot;&#39;&#10;&#9;\\x00"


@pytest.mark.parametrize(
    "text, line",
    [
        ("<img src=x>", "&lt;img src=x&gt;"),
        ("a | b", "a \\| b"),
        ("Q4_K_M", "Q4_K_M"),
        ("_em_", "\\_em\\_"),
        ("a\nb", "a↵b"),
        ("[x](y)", "\\[x\\](y)"),
        ("https://x", "https&#58;//x"),
        ("www.x a@b", "www&#46;x a@b"),
        ("Q4_K_M@f16kv.", "Q4_K_M@f16kv."),
        ("me@example.org @all (@all", "me&#64;example.org &#64;all (&#64;all"),
        ("`x`", "\\`x\\`"),
        ("# head", "\\# head"),
        ("12) x", "12\\) x"),
        ("    code", "&#32;   code"),
        ("2 - 1", "2 - 1"),
    ],
)
def test_markdown_holds_no_markup(text: str, line: str) -> None:
    assert escape.for_markdown(text) == line


@pytest.mark.parametrize(
    "text, cell",
    [
        ("-1.5 points", "-1.5 points"),
        ("+0.1", "+0.1"),
        ("16.00", "16.00"),
        ("# head", "# head"),
        ("  x", "&#32; x"),
        ("a | b", "a \\| b"),
        ("<b>", "&lt;b&gt;"),
    ],
)
def test_in_a_cell_nothing_starts_a_block(text: str, cell: str) -> None:
    assert escape.for_markdown_cell(text) == cell


@pytest.mark.parametrize(
    "text, line",
    [
        ("A has `a | b`, B has `*`", "A has `a | b`, B has `*`"),
        ("`x` is not here", "`x` is not here"),
        ("- `x`", "\\- `x`"),
        ("one ` alone_", "one \\` alone\\_"),
        ("`<b>` <b>", "`<b>` &lt;b&gt;"),
        ("``", "\\`\\`"),
        ("\\`x`", "\\\\`x`"),
    ],
)
def test_in_a_sentence_what_is_quoted_is_code(text: str, line: str) -> None:
    assert escape.for_markdown_sentence(text) == line


def test_a_markdown_block_has_a_longer_fence_than_its_text() -> None:
    assert escape.for_markdown_block("plain") == "```text\nplain\n```"
    assert escape.for_markdown_block("a ```` b\x1b") == "`````text\na ```` b\\x1b\n`````"


class _Reader(HTMLParser):
    """Collects text and notes every tag."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.extend(attrs)


def read_html(text: str) -> _Reader:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return reader


@given(ANY_TEXT)
@example("".join(NASTY))
def test_no_output_holds_a_hidden_character(text: str) -> None:
    assert hidden(escape.for_terminal(text), allowed="\n") == []
    assert hidden(escape.for_terminal(text, newlines="arrow")) == []
    assert hidden(escape.for_message(text)) == []
    assert hidden(escape.for_markdown(text)) == []
    assert hidden(escape.for_markdown_block(text), allowed="\n\t") == []
    assert hidden(escape.for_html(text), allowed="\n\t") == []
    assert hidden(escape.for_xml(text)) == []


def test_every_hidden_code_point_is_known() -> None:
    every = "".join(chr(code) for code in range(0x110000))
    assert hidden(escape.visible(every)) == []


def test_ordinary_letters_are_left_alone() -> None:
    letters = "".join(
        chr(code) for code in range(0x20, 0x10000) if unicodedata.category(chr(code))[0] in "LNPS"
    )
    changed = [c for c in letters if escape.visible(c) != c]
    assert changed == ["\u115f", "\u1160", "\u3164", "\uffa0"]


@given(ANY_TEXT)
def test_escaped_text_can_be_encoded(text: str) -> None:
    assert escape.for_terminal(text).encode().decode() == escape.for_terminal(text)


@given(ANY_TEXT)
def test_html_reads_back_as_the_visible_text(text: str) -> None:
    reader = read_html(f'<p title="{escape.for_html(text)}">{escape.for_html(text)}</p>')
    assert reader.tags == ["p"]
    assert reader.attributes == [("title", escape.visible(text, keep="\n\t"))]
    assert reader.text == escape.visible(text, keep="\n\t")


@given(ANY_TEXT)
def test_xml_reads_back_as_the_visible_text(text: str) -> None:
    shown = escape.for_xml(text)
    element = ET.fromstring(f'<a b="{shown}">{shown}</a>')
    assert list(element) == []
    assert element.get("b") == escape.visible(text, keep="\n\t")
    assert (element.text or "") == escape.visible(text, keep="\n\t")


@given(ANY_TEXT)
@example("\n".join(NASTY))
def test_markdown_renders_as_the_visible_text(text: str) -> None:
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    reader = read_html(markdown.render(escape.for_markdown(text)))
    assert reader.tags in ([], ["p"])
    assert " ".join(reader.text.split()) == " ".join(escape.visible(text).split())


@given(ANY_TEXT, st.sampled_from([escape.for_markdown, escape.for_markdown_cell]))
@example("---", escape.for_markdown_cell)
def test_a_markdown_table_keeps_its_cells(text: str, shown: Callable[[str], str]) -> None:
    markdown = MarkdownIt("commonmark").enable("table")
    reader = read_html(markdown.render(f"| a | b |\n|---|---|\n| {shown(text)} | y |\n"))
    assert reader.tags == ["table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td"]
    assert " ".join(reader.text.split()) == " ".join(f"a b {escape.visible(text)} y".split())


@given(ANY_TEXT | st.text("`*_<\\\\ ax#-|&", max_size=30))
@example("\n".join(NASTY))
def test_a_markdown_sentence_renders_as_the_visible_text_but_for_its_quotes(text: str) -> None:
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    reader = read_html(markdown.render(escape.for_markdown_sentence(text)))
    assert set(reader.tags) <= {"p", "code"}
    assert "".join(reader.text.replace("`", "").split()) == "".join(
        escape.visible(text).replace("`", "").split()
    )


@given(ANY_TEXT)
def test_a_markdown_block_holds_the_visible_text(text: str) -> None:
    tokens = MarkdownIt("commonmark").parse(escape.for_markdown_block(text) + "\n\nafter\n")
    assert [token.type for token in tokens[:2]] == ["fence", "paragraph_open"]
    assert tokens[0].content == escape.visible(text, keep="\n\t") + "\n"


@given(ANY_TEXT, st.integers(min_value=1, max_value=60))
def test_a_limit_keeps_both_ends_of_the_visible_text(text: str, limit: int) -> None:
    whole = escape.visible(text, keep="\n")
    shown = escape.for_terminal(text, limit=limit)
    if len(whole) <= limit:
        assert shown == whole
    else:
        assert len(shown) == limit
        head, tail = limit // 2, limit - 1 - limit // 2
        assert shown == whole[:head] + "…" + whole[len(whole) - tail :]


@given(ANY_TEXT)
def test_escaping_twice_shows_the_same_on_a_terminal(text: str) -> None:
    once = escape.for_terminal(text)
    assert escape.for_terminal(once) == once


def test_work_is_bounded_by_the_limit() -> None:
    huge = "\x1b" * 5_000_000
    assert escape.for_message(huge) == ("\\x1b" * 25) + "…" + ("\\x1b" * 25)[-99:]
