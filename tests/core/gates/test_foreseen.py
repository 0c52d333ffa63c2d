import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core import stats
from qlock.core.gates.foreseen import too_few, too_few_to_time, within_noise
from qlock.core.rules import (
    AgreementShare,
    EndingShare,
    GateSpec,
    Kld,
    MemoryAtMost,
    NoMoreErrors,
    NonInferior,
    SpeedAtLeast,
)


@pytest.mark.parametrize("rule", [NonInferior, EndingShare, AgreementShare])
@given(items=st.integers(0, 400), margin=st.floats(0.001, 1))
def test_a_gate_is_foretold_exactly_where_it_stays_undecided_without_any_difference(
    rule: type[NonInferior] | type[EndingShare] | type[AgreementShare], items: int, margin: float
) -> None:
    told = too_few(rule(suite="orders", margin_share=margin), items)
    without_any = stats.marks_of_counts(both=items, only_a=0, only_b=0, neither=0)
    assert (told != "") == (stats.non_inferior(without_any, margin_share=margin).verdict == "undecided")


def test_too_few_items_are_told_with_how_many_would_do() -> None:
    assert too_few(NonInferior(suite="orders", slice="bank=north", margin_share=0.005), 40) == (
        "gate non-inferior of orders bank=north: undecidable: 40 items cannot pass a margin of 0.5 % even where "
        "nothing differs, 765 or more can"
    )
    assert too_few(EndingShare(suite="orders", margin_share=0.5), 1) == (
        "gate ending-share of orders: undecidable: 1 item cannot pass a margin of 50.0 % even where nothing differs, "
        "10 or more can"
    )


def test_without_a_margin_no_number_of_items_would_do() -> None:
    assert too_few(NonInferior(suite="orders"), 1_000_000) == (
        "gate non-inferior of orders: undecidable: with a margin of 0 only a better side passes; "
        "where nothing differs it stays undecided"
    )


@pytest.mark.parametrize(
    "rule",
    [
        NoMoreErrors(suite="orders"),
        SpeedAtLeast(suite="orders", at_least_ratio=0.9),
        MemoryAtMost(at_most_bytes=1),
    ],
)
def test_what_is_counted_or_measured_needs_no_number_of_items(rule: GateSpec) -> None:
    assert too_few(rule, 0) == ""


def test_a_speed_needs_ten_times_as_many_answers_as_there_are_slots() -> None:
    rule = SpeedAtLeast(suite="orders", at_least_ratio=0.9)
    assert too_few_to_time(rule, 79, at_once=8) == (
        "gate speed-at-least of orders: undecidable: to see how steady a speed is, 80 answers are needed with 8 at once, "
        "got 79"
    )
    assert too_few_to_time(rule, 80, at_once=8) == ""


def test_a_distance_needs_as_many_items_as_any_verdict() -> None:
    rule = Kld(suite="distance", slice="bank=north", margin_nats=0.1)
    assert too_few(rule, 9) == (
        "gate kld of distance bank=north: undecidable: a verdict needs 10 items, got 9"
    )
    assert too_few(rule, 10) == ""


def test_a_margin_under_the_noise_is_told_with_it() -> None:
    rule = NoMoreErrors(suite="orders", margin_share=0.01)
    assert within_noise(rule, 0.025, runs="5d9a31c9 and 5d9a31c9.2") == (
        "gate no-more-errors of orders: undecidable: its margin of 1.0 % lies under the noise of 2.5 % between "
        "5d9a31c9 and 5d9a31c9.2"
    )
    assert within_noise(rule, 0.01, runs="a and b") == ""
