"""The graders exact, contains and regex."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.exchange import Outcome, Right, Unparsable, Wrong
from qlock.suites.tasks.texts import Contains, Exact, Regex

UNSET = msgspec.UNSET


@pytest.mark.parametrize(
    "grader, text, expected, outcome",
    [
        (Exact(), "Paris", "Paris", Right()),
        (Exact(), "\n Paris \n", "Paris", Right()),
        (Exact(), "paris", "Paris", Wrong(why="got `paris`, expected `Paris`")),
        (Exact(), "Paris.", "Paris", Wrong(why="got `Paris.`, expected `Paris`")),
        (Exact(casefold=True), "STRASSE", "Straße", Right()),
        (Exact(single_spaces=True), "a \n\t b", "a b", Right()),
        (Exact(), "a  b", "a b", Wrong(why="got `a  b`, expected `a b`")),
        (Exact(strip=False), "a ", "a", Wrong(why="got `a `, expected `a`")),
        (Exact(), "two", ["2", "two"], Right()),
        (Exact(), "3", ["2", "two"], Wrong(why="got `3`, expected `2` or `two`")),
        (Exact(), "x", ["1", "2", "3", "4"], Wrong(why="got `x`, expected `1` or `2` or `3` or 1 more")),
        (Exact(), "", "", Right()),
        (Contains(), "It is Paris, France", ["Paris", "France"], Right()),
        (Contains(), "It is Paris", ["Paris", "France"], Wrong(why="the reply does not contain `France`")),
        (Contains(need="any"), "It is Paris", ["Paris", "France"], Right()),
        (Contains(need="any"), "Rome", ["Paris", "France"], Wrong(why="the reply does not contain `Paris` or `France`")),
        (Contains(), "PARIS", "Paris", Wrong(why="the reply does not contain `Paris`")),
        (Contains(casefold=True), "PARIS", "Paris", Right()),
        (Regex(pattern="^[0-9]{4}-[0-9]{2}$"), "2024-05", UNSET, Right()),
        (Regex(pattern="[0-9]{4}", whole=True), "in 2024", UNSET, Wrong(why="the pattern does not match")),
        (Regex(pattern="[0-9]{4}", whole=True), " 2024\n", UNSET, Right()),
        (Regex(pattern="year: ([0-9]+)", group=1), "year: 1999", "1999", Right()),
        (Regex(pattern="year: (?P<y>[0-9]+)", group="y"), "year: 2000", "1999", Wrong(why="got `2000`, expected `1999`")),
        (Regex(pattern="year: ([0-9]+)", group=1), "no", "1999", Unparsable(why="the pattern does not match")),
        (Regex(pattern="a(b)?", group=1), "a", "b", Wrong(why="got ``, expected `b`")),
        (Regex(pattern="yes|no", ignore_case=True), "YES", "yes", Right()),
    ],
)  # fmt: skip
def test_outcomes(grader: Exact | Contains | Regex, text: str, expected: object, outcome: Outcome) -> None:
    assert grader.refusal(expected) == ""
    assert grader.grade(text, expected) == outcome


@pytest.mark.parametrize(
    "grader, expected, refusal",
    [
        (Exact(), 3, "expected a text or a list of texts"),
        (Exact(), [], "expected a text or a list of texts"),
        (Exact(), ["a", 1], "expected a text or a list of texts"),
        (Exact(), UNSET, "expected a text or a list of texts"),
        (Contains(), "", "expected a text or a list of texts, none of them empty"),
        (Contains(), ["a", ""], "expected a text or a list of texts, none of them empty"),
        (Contains(), None, "expected a text or a list of texts, none of them empty"),
        (Regex(pattern="a"), 3, "expected a text or nothing"),
    ],
)
def test_what_does_not_fit(grader: Exact | Contains | Regex, expected: object, refusal: str) -> None:
    assert grader.refusal(expected) == refusal


@pytest.mark.parametrize(
    "pattern, group, why",
    [
        ("(a", 0, "not a pattern of RE2: missing ): (a"),
        ("a", 1, "got the group `1`, expected one of the pattern's"),
        ("a", -1, "got the group `-1`, expected one of the pattern's"),
        ("a", "x", "got the group `x`, expected one of the pattern's"),
    ],
)
def test_what_is_no_pattern(pattern: str, group: int | str, why: str) -> None:
    with pytest.raises(ValueError) as caught:
        Regex(pattern=pattern, group=group)
    assert str(caught.value) == why


def test_a_regex_knows_its_gold_only_where_the_whole_match_is_compared() -> None:
    assert Regex(pattern="a+").gold("aa") == "aa"
    assert Regex(pattern="(a+)b", group=1).gold("aa") is None
    assert Regex(pattern="a+").gold(UNSET) is None


words = st.text(min_size=1, max_size=20)
exacts = st.builds(Exact, strip=st.booleans(), casefold=st.booleans(), single_spaces=st.booleans())
containings = st.builds(Contains, need=st.sampled_from(["all", "any"]), casefold=st.booleans())


@given(exacts | containings, words | st.lists(words, min_size=1, max_size=4))
def test_the_derived_gold_passes_and_the_bad_does_not(grader: Exact | Contains, expected: object) -> None:
    gold, bad = grader.gold(expected), grader.bad(expected)
    assert gold is not None
    assert bad is not None
    assert grader.grade(gold, expected) == Right()
    assert grader.grade(bad, expected) != Right()


@given(exacts | containings | st.just(Regex(pattern="(a*)*b", group=1)), st.text())
def test_any_text_has_an_outcome(grader: Exact | Contains | Regex, text: str) -> None:
    assert isinstance(grader.grade(text, "x"), Right | Wrong | Unparsable)
