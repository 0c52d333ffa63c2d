"""The grader number: reading and exact comparison."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.exchange import Outcome, Right, Unparsable, Wrong
from qlock.suites.tasks.number import Number

GERMAN = Number(thousands=".", decimal=",")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("42", 42),
        ("The answer is 42.", 42),
        ("First 7, then 42", 42),
        ("-3", -3),
        ("−3", -3),
        ("x=-3", -3),
        ("3-5", 5),
        ("(2)-5", 5),
        ("- 5", 5),
        ("+5", 5),
        ("1,234,567.5", "1234567.5"),
        ("1,2", 2),
        ("12,34", 34),
        ("0.1", 0.1),
        (".5", 0.5),
        ("wait...3", 3),
        ("$-5", -5),
        ("-$5", -5),
        ("€1,000", 1000),
        ("1e3", 1000),
        ("2.5E-1", 0.25),
        ("50%", 50),
        ("50 %", 50),
        ("3/4", 0.75),
        ("-1/8", -0.125),
        ("on 3/4/2020", 3),
        ("42 km2", 42),
        ("H2O is 1", 1),
        ("5th", 5),
        ("1.2.3", 1.2),
        ("\\boxed{17}", 17),
        ("答案是5", 5),
        ("**9**", 9),
        ("007", 7),
        ("5e", 5),
    ],
)
def test_numbers_in_running_text(text: str, expected: object) -> None:
    assert Number().grade(text, expected) == Right()


@pytest.mark.parametrize(
    "grader, text, expected, outcome",
    [
        (Number(), "four", 4, Unparsable(why="no number in the reply")),
        (Number(), "", 4, Unparsable(why="no number in the reply")),
        (Number(), "inf nan ∞ ٣", 3, Unparsable(why="no number in the reply")),
        (Number(), "5", 4, Wrong(why="got `5`, expected `4`")),
        (Number(), "1/3", 0, Wrong(why=f"got `0.{'3' * 200}`, expected `0`")),
        (Number(), "1/0", 0, Unparsable(why="the number `1/0` has no value")),
        (Number(), "1e101", 1, Unparsable(why="the number `1e101` has too many digits")),
        (Number(), "1e999999999999", 1, Unparsable(why="the number `1e999999999999` has too many digits")),
        (Number(marker="####"), "2 #### 3 and 4", 3, Right()),
        (Number(marker="####"), "#### 1 #### 3", 3, Right()),
        (Number(marker="####"), "3", 3, Unparsable(why="the reply has no `####`")),
        (Number(marker="####"), "3 ####", 3, Unparsable(why="no number after `####`")),
        (Number(tolerance=0.1), "0.4", 0.3, Right()),
        (Number(tolerance=0.1), "0.41", 0.3, Wrong(why="got `0.41`, expected `0.3`")),
        (Number(tolerance_share=0.01), "-101", -100, Right()),
        (Number(tolerance_share=0.01), "-101.01", -100, Wrong(why="got `-101.01`, expected `-100`")),
        (Number(percent="share"), "12%", 0.12, Right()),
        (Number(percent="share"), "0.12", 0.12, Right()),
        (GERMAN, "1.234,5", 1234.5, Right()),
        (Number(thousands=" "), "1\u202f234 567", 1234567, Right()),
        (Number(thousands=""), "1,234", 234, Right()),
    ],
)  # fmt: skip
def test_outcomes(grader: Number, text: str, expected: object, outcome: Outcome) -> None:
    assert grader.grade(text, expected) == outcome


def test_a_number_of_a_million_digits_is_not_read() -> None:
    outcome = Number().grade("9" * 1_000_000, 1)
    assert isinstance(outcome, Unparsable)
    assert outcome.why.startswith("the number `999")
    assert outcome.why.endswith("has too many digits")
    assert len(outcome.why) < 300


@pytest.mark.parametrize("piece", ["1,", "1/", "1.", "-", "1e", "1,111", "$", "0 %", "1e+", "1 "])
def test_long_hostile_text_ends(piece: str) -> None:
    assert isinstance(Number().grade(piece * 500_000, 12345), Wrong | Unparsable)


def test_floats_are_tenths_and_not_what_computers_make_of_them() -> None:
    assert Number().grade("0.3", 0.3) == Right()
    assert Number().grade("0.30000000000000004", 0.3) != Right()
    assert Number().grade("9007199254740993", "9007199254740993") == Right()
    assert Number().grade("9007199254740993", 9007199254740992) != Right()


@pytest.mark.parametrize(
    "expected", [None, True, "four", "1,000", "", [1], "9" * 101, "1e101", msgspec.UNSET, 10**100]
)
def test_what_is_no_expected_number(expected: object) -> None:
    assert Number().refusal(expected) == "expected a number, or one as text, of at most 100 digits"
    assert Number().gold(expected) is None
    assert Number().bad(expected) is None


@pytest.mark.parametrize("expected", [0, -1, 1.5, "1e100", "-0.001", 5e-324 * 0])
def test_what_is_an_expected_number(expected: object) -> None:
    assert Number().refusal(expected) == ""


def test_one_sign_cannot_mean_two_things() -> None:
    with pytest.raises(ValueError) as caught:
        Number(thousands=".", decimal=".")
    assert str(caught.value) == "`thousands` and `decimal` are both `.`"


graders = st.builds(
    Number,
    marker=st.sampled_from(["", "####", "Answer:"]),
    tolerance=st.sampled_from([0.0, 0.5, 1e-9, 1e100]),
    tolerance_share=st.sampled_from([0.0, 0.01, 2.0]),
    percent=st.sampled_from(["as-written", "share"]),
    thousands=st.sampled_from([",", " ", "_", "'", ""]),
) | st.just(GERMAN)
expected_numbers = (
    st.integers(-(10**99), 10**99)
    | st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20, places=6).map(
        str
    )
    | st.floats(-1e90, 1e90, allow_subnormal=False).filter(lambda value: value == 0 or abs(value) > 1e-80)
)


@given(graders, expected_numbers)
def test_the_derived_gold_passes_and_the_bad_does_not(grader: Number, expected: object) -> None:
    assert grader.refusal(expected) == ""
    gold, bad = grader.gold(expected), grader.bad(expected)
    assert gold is not None
    assert bad is not None
    assert grader.grade(gold, expected) == Right()
    assert grader.grade(bad, expected) != Right()


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**15), max_value=10**15, places=4))
def test_a_number_with_thousands_is_the_number(value: Decimal) -> None:
    assert Number().grade(f"so {value:,}", str(value)) == Right()


@given(graders, st.text() | st.text(alphabet="0123456789,./-e%$ +_'"))
def test_any_text_has_an_outcome(grader: Number, text: str) -> None:
    assert isinstance(grader.grade(text, 1), Right | Wrong | Unparsable)
