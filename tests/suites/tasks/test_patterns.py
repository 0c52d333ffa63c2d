"""RE2 within bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.suites.tasks.patterns import as_bytes, compiled


@pytest.mark.parametrize(
    "pattern, why",
    [
        ("(a", "not a pattern of RE2: missing ): (a"),
        (r"(a)\1", r"not a pattern of RE2: invalid escape sequence: \1"),
        ("a(?=b)", "not a pattern of RE2: invalid perl operator: (?="),
        ("a{1001}", "not a pattern of RE2: invalid repetition size: {1001}"),
        ("((a{100}){100}){100}", "not a pattern of RE2: invalid repetition size: {100}"),
        ("a" * 1_001, "got a pattern of 1001 characters, expected at most 1000"),
        ("\ud800", "the pattern holds a lone surrogate"),
    ],
)
def test_what_is_no_pattern(pattern: str, why: str) -> None:
    with pytest.raises(ValueError) as caught:
        compiled(pattern)
    assert str(caught.value) == why


def test_a_pattern_that_other_engines_choke_on_ends() -> None:
    pattern = compiled("(x+x+)+y")
    assert pattern.search(b"x" * 3_000_000) is None


def test_case_may_be_ignored() -> None:
    strict, loose = compiled("paris"), compiled("paris", ignore_case=True)
    assert strict.search(b"PARIS") is None
    assert loose.search(b"PARIS") is not None


def test_letters_are_letters_and_not_bytes() -> None:
    pattern = compiled("^.$")
    found = pattern.search(as_bytes("é"))
    assert found is not None
    assert found.group(0) == "é".encode()


def test_lone_surrogates_are_searched_too() -> None:
    assert as_bytes("a\ud800") == b"a?"


@given(st.text(max_size=60), st.text())
def test_any_pattern_on_any_text_ends(pattern: str, text: str) -> None:
    try:
        made = compiled(pattern)
    except ValueError:
        return
    made.search(as_bytes(text))
