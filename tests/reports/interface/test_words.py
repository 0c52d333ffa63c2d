import pytest

from qlock.core.scores import Measure
from qlock.core.stats import CannotTell, Interval, LargeSample, PairedTest
from qlock.reports.interface.words import (
    difference,
    interval_text,
    level,
    p_of,
    p_text,
    share_text,
    size_text,
)


def an_interval(low: float, high: float) -> Interval:
    return Interval(point=(low + high) / 2, low=low, high=high, level=0.95, n=9, clusters=9, method="t")


@pytest.mark.parametrize(
    "measure, value, text",
    [
        ("right-share", 0.5, "50.0 %"),
        ("mean-mark", 1.2, "100 %"),
        ("mean-mark", -0.2, "0 %"),
        ("nats-per-token", 3.0449, "3.0449"),
    ],
)
def test_a_level_has_the_unit_of_its_measure(measure: Measure, value: float, text: str) -> None:
    assert level(measure, value) == text


@pytest.mark.parametrize(
    "measure, value, text",
    [
        ("right-share", 0.012, "+1.2 points"),
        ("right-share", 0.0, "0.0 points"),
        ("mean-mark", -6.5, "-100.0 points"),
        ("mean-mark", 6.5, "+100.0 points"),
        ("nats-per-token", -0.000000001, "0.0000 nats"),
        ("nats-per-token", -0.25, "-0.2500 nats"),
    ],
)
def test_a_difference_has_its_sign_unless_it_rounds_to_zero(
    measure: Measure, value: float, text: str
) -> None:
    assert difference(measure, value) == text


def test_an_interval_has_its_unit_once() -> None:
    assert interval_text("right-share", an_interval(-0.05, 0.1)) == "-5.0 to +10.0 points"
    assert interval_text("nats-per-token", an_interval(-0.05, 0.1)) == "-0.0500 to +0.1000 nats"
    assert interval_text("right-share", an_interval(0.05, 0.1), signed=False) == "5.0 % to 10.0 %"
    assert interval_text("right-share", CannotTell(why="no")) == "cannot tell"


@pytest.mark.parametrize(
    "p_value, text", [(0.00009, "<0.0001"), (0.0001, "0.0001"), (0.05, "0.0500"), (1.0, "1.0000")]
)
def test_a_p_value_has_four_digits(p_value: float, text: str) -> None:
    assert p_of(p_value) == text
    assert p_text(LargeSample(p_value=p_value, n=9)) == text
    test = PairedTest(p_value=p_value, mid_p=p_value, n=9, method="mcnemar-exact", note="")
    assert p_text(test) == text


def test_no_p_value_is_a_dash() -> None:
    assert (p_of(CannotTell(why="")), p_text(CannotTell(why=""))) == ("-", "-")


def test_what_is_not_known_has_no_number() -> None:
    assert (share_text(0.125), share_text(CannotTell(why="no"))) == ("12.5 %", "-")
    assert (size_text(0), size_text(1_500_000), size_text(CannotTell(why="no"))) == (
        "0 B",
        "1.5 MB",
        "unknown",
    )
