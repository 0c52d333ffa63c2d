from typing import get_args

import pytest
from hypothesis import given

from qlock.core.rules import (
    GateSpec,
    Kld,
    MemoryAtMost,
    NonInferior,
    Rule,
    SpeedAtLeast,
    place_of,
    rule_of,
    slice_of,
    suite_of,
)
from tests.strategies import strategy


def test_every_rule_is_called_by_its_tag() -> None:
    assert tuple(kind.__struct_config__.tag for kind in get_args(GateSpec)) == get_args(Rule)


@pytest.mark.parametrize("kind", get_args(GateSpec))
def test_a_gate_says_its_rule(kind: type) -> None:
    @given(strategy(kind))
    def law(gate: GateSpec) -> None:
        assert rule_of(gate) == kind.__struct_config__.tag  # type: ignore[attr-defined]

    law()


def test_a_gate_says_what_it_looks_at() -> None:
    assert place_of(NonInferior(suite="orders")) == "orders"
    assert place_of(NonInferior(suite="orders", slice="bank=north")) == "orders bank=north"
    assert place_of(SpeedAtLeast(suite="orders", at_least_ratio=0.9)) == "orders"
    assert place_of(MemoryAtMost(at_most_bytes=1)) == "the point"


def test_a_gate_of_a_slice_names_it() -> None:
    assert slice_of(NonInferior(suite="orders", slice="bank=north")) == "bank=north"
    assert slice_of(Kld(suite="distance", slice="deep", margin_nats=0.1)) == "deep"
    assert slice_of(NonInferior(suite="orders")) == ""
    assert slice_of(SpeedAtLeast(suite="orders", at_least_ratio=0.9)) == ""
    assert slice_of(MemoryAtMost(at_most_bytes=1)) == ""


def test_a_gate_of_a_point_has_no_suite() -> None:
    assert suite_of(MemoryAtMost(at_most_bytes=1)) == ""
    assert suite_of(SpeedAtLeast(suite="orders", at_least_ratio=0.9)) == "orders"
    assert suite_of(NonInferior(suite="orders", slice="bank=north")) == "orders"
