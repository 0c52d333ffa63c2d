"""What tokens are part of: answers as models write them, then laws, then hostile text."""

from __future__ import annotations

import itertools
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.token_kinds import TOKEN_KINDS, TokenKind, token_kinds

_PIECES = re.compile(r"\s?\w+|\s?[^\w\s]|\s+")
"""Pieces much as vocabularies have them: the white space before a word belongs to it."""


def kinds(text: str) -> list[tuple[str, TokenKind]]:
    pieces = _PIECES.findall(text)
    assert "".join(pieces) == text
    return [(piece.strip(), kind) for piece, kind in zip(pieces, token_kinds(pieces), strict=True)]


def words(text: str) -> dict[str, TokenKind]:
    """Kinds of all that is no mark."""
    return {piece: kind for piece, kind in kinds(text) if piece and (piece[0].isalnum() or piece[0] == "_")}


def test_prose_with_a_number() -> None:
    assert kinds("It costs 12,50 € (or so).") == [
        ("It", "prose"),
        ("costs", "prose"),
        ("12", "number"),
        (",", "number"),
        ("50", "number"),
        ("€", "punctuation"),
        ("(", "punctuation"),
        ("or", "prose"),
        ("so", "prose"),
        (")", "punctuation"),
        (".", "punctuation"),
    ]


def test_a_call_in_json_and_what_stands_around_it() -> None:
    text = 'Sure:\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "New York", "days": 3}}\n</tool_call>'
    assert words(text) == {
        "Sure": "prose",
        "tool_call": "punctuation",
        "name": "punctuation",
        "get_weather": "function-name",
        "arguments": "punctuation",
        "city": "argument-name",
        "New": "argument-value",
        "York": "argument-value",
        "days": "argument-name",
        "3": "number",
    }
    marks = {kind for piece, kind in kinds(text) if piece and not piece[0].isalnum()}
    assert marks == {"punctuation"}


@pytest.mark.parametrize(
    "text",
    [
        '{"arguments": {"name": "x"}, "name": "f"}',
        '[{"name": "f", "parameters": {"g": "x"}}]',
        '{"type": "function", "function": {"name": "f", "arguments": {"g": "x"}}}',
        '{"function": "f", "args": {"g": "x"}}',
        '```json\n{"name": "f", "arguments": {"g": "x"}}\n```',
    ],
)
def test_forms_of_a_call(text: str) -> None:
    found = words(text)
    assert (found["f"], found["x"]) == ("function-name", "argument-value")
    assert found.get("g", "argument-name") == "argument-name"


def test_an_argument_may_be_called_as_a_word_of_the_form() -> None:
    names = [kind for piece, kind in kinds('{"name": "f", "args": {"name": "x"}}') if piece == "name"]
    assert names == ["punctuation", "argument-name"]


def test_an_object_that_is_no_call_has_keys_and_values() -> None:
    assert words('{"name": "Ann", "paid": true, "sum": -1.5e3}') == {
        "name": "argument-name",
        "Ann": "argument-value",
        "paid": "argument-name",
        "true": "argument-value",
        "sum": "argument-name",
        "1": "number",
        "5e3": "number",
    }


def test_calls_as_python_writes_them() -> None:
    assert words('[get(city="Paris", n=3, opts={"a": [1]}), stop()]') == {
        "get": "function-name",
        "city": "argument-name",
        "Paris": "argument-value",
        "n": "argument-name",
        "3": "number",
        "opts": "argument-name",
        "a": "argument-name",
        "1": "number",
        "stop": "function-name",
    }
    assert words("f(x = y, z=g(1))") == {
        "f": "function-name",
        "x": "argument-name",
        "y": "argument-value",
        "z": "argument-name",
        "g": "function-name",
        "1": "number",
    }


def test_prose_in_brackets_is_no_call() -> None:
    assert set(words("the Bank (of England) and f (x) and a(b) and {so} on").values()) == {"prose"}


def test_a_call_in_tags() -> None:
    assert words(
        "<function=get_weather>\n<parameter=city>\nParis 12\n</parameter>\n</function>\nThat is all"
    ) == {
        "function": "punctuation",
        "get_weather": "function-name",
        "parameter": "punctuation",
        "city": "argument-name",
        "Paris": "argument-value",
        "12": "number",
        "That": "prose",
        "is": "prose",
        "all": "prose",
    }


def test_code_in_a_fence_and_in_a_line() -> None:
    text = "Use `x = 1`:\n```python\nprint(y + 2)\n```\nThen 3 more"
    assert words(text) == {
        "Use": "prose",
        "x": "code",
        "1": "code",
        "python": "punctuation",
        "print": "code",
        "y": "code",
        "2": "code",
        "Then": "prose",
        "3": "number",
        "more": "prose",
    }


def test_a_fence_that_never_ends_goes_on_to_the_end() -> None:
    assert words("```\nx = 1\n\nand so on") == dict.fromkeys(["x", "1", "and", "so", "on"], "code")


def test_a_broken_object_ends_where_it_is_one_no_more() -> None:
    assert words('{"a": 1, and then "b" follows') == {
        "a": "argument-name",
        "1": "number",
        "and": "prose",
        "then": "prose",
        "b": "prose",
        "follows": "prose",
    }
    assert words('{"a": 1,\n\n"b" is prose')["b"] == "prose"


def test_a_call_that_was_cut_off_still_has_its_name() -> None:
    assert words('{"name": "f", "arguments": {"cit') == {
        "name": "punctuation",
        "f": "function-name",
        "arguments": "punctuation",
        "cit": "argument-name",
    }


def test_a_piece_is_what_most_of_its_characters_are() -> None:
    pieces = ['{"', "city", '":', ' "x', "", '"}']
    assert token_kinds(pieces) == (
        "punctuation",
        "argument-name",
        "punctuation",
        "punctuation",
        "punctuation",
        "punctuation",
    )
    assert token_kinds(['{"city', '": "xy', '"}']) == ("argument-name", "punctuation", "punctuation")


def test_white_space_is_part_of_what_it_stands_in() -> None:
    pieces = ["a", "\n\n", "```\n", "x", "\n", "y", "\n```"]
    assert token_kinds(pieces) == ("prose", "prose", "punctuation", "code", "code", "code", "punctuation")


def test_bytes_that_are_no_character_alone_are_prose_or_marks() -> None:
    assert token_kinds(["caf", "\ufffd", "\ufffd", " ", "漢字"]) == (
        "prose",
        "punctuation",
        "punctuation",
        "prose",
        "prose",
    )


texts = st.text(alphabet=string.printable + "漢é\ufffd\u2028") | st.text(alphabet="{}[]()<>\"'`~=,:\\ \na1_-")


@given(st.lists(texts, max_size=12))
def test_every_piece_has_one_kind(pieces: list[str]) -> None:
    found = token_kinds(pieces)
    assert len(found) == len(pieces)
    assert set(found) <= set(TOKEN_KINDS)


@given(st.text(alphabet='{}[]()<>"`~=,:\\ \na1_-', max_size=60), st.lists(st.integers(0, 60), max_size=8))
def test_a_character_is_the_same_however_the_text_is_cut(text: str, cuts: list[int]) -> None:
    alone = token_kinds(list(text))
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in itertools.pairwise(edges)]
    for (start, end), kind in zip(itertools.pairwise(edges), token_kinds(pieces), strict=True):
        assert kind in alone[start:end]


HOSTILE = [
    "{", "[", '"', "`", "~", "<", "\\", "(", "f(", "f( ", "f(a=", "a.", '{"', "{'", '{"a":', '{"name":"a",',
    "<a ", "<|", "<parameter=x>", "<function=", "```\n", "1", "1,", '\\"', " ", "\n", "_", "[A", "`x",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_hostile_answer_is_read_in_steps_by_its_length(piece: str) -> None:
    # With the square of the length, each of these would take minutes.
    text = piece * (100_000 // len(piece))
    assert len(token_kinds([text, "end"])) == 2
