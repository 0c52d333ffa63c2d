"""A point's distance from its reference: when it is none, and when it is below what can be told."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from qlock.core.distance import (
    ROUNDING_FLOOR_NATS,
    Distance,
    distance_of,
    floor_of,
    has_divergences,
    measured_in,
)
from qlock.core.exchange import Right, Ungraded
from qlock.core.kept_logits import FLOOR_NATS
from qlock.core.kld_tokens import Measured
from qlock.core.lock import Lock
from qlock.core.stats import CannotTell, Interval
from tests.fakes.comparisons import a_distance
from tests.fakes.documents import a_digest, a_kld_lock, a_kld_suite, a_model

REFERENCE, QUANT = "F16@f16kv", "Q4_K_M@f16kv"


def items(kld: list[float], slack: float = 0.0) -> list[Measured]:
    return measured_in([a_distance(kld, slack=slack)])


def distance(
    kld: list[float],
    point: str = QUANT,
    lock: Lock | None = None,
    *,
    stored: bool = False,
    slack: float = 0.0,
) -> Distance:
    """Where there is a slack, only the likeliest tokens were kept."""
    suite = a_kld_suite()
    more = {"stored_tokens": 1024} if slack else {}
    suite = replace(suite, params={**suite.params, "stored": stored, **more})
    found = distance_of(lock or a_kld_lock(), suite, point, items(kld, slack))
    assert isinstance(found, Distance)
    return found


def test_the_figures_and_their_parts_are_there() -> None:
    found = distance([0.1, 0.3])
    assert (found.reference, found.is_identical, found.is_below_floor) == (REFERENCE, False, False)
    assert found.figures.kld_nats.value == pytest.approx(0.2)
    assert [parts.by for parts in found.parts] == ["slice", "token-kind", "depth"]
    assert [row.name for row in found.parts[0].row] == ["half=first", "half=second"]


def test_repeats_of_an_item_are_one_cluster() -> None:
    once, often = (
        distance_of(a_kld_lock(), a_kld_suite(), QUANT, measured_in([a_distance([0.1, 0.3, 0.4])] * repeats))
        for repeats in (1, 4)
    )
    assert isinstance(once, Distance)
    assert isinstance(often, Distance)
    assert (once.figures.items, often.figures.items) == (3, 3)
    assert (once.figures.tokens, often.figures.tokens) == (60, 240)
    alone, joined = once.figures.kld_nats.interval, often.figures.kld_nats.interval
    assert isinstance(alone, Interval)
    assert isinstance(joined, Interval)
    assert joined.clusters == 3
    assert (joined.low, joined.high) == pytest.approx((alone.low, alone.high))


def test_a_row_that_was_not_graded_has_no_divergence() -> None:
    sitting = replace(a_distance([0.1]), outcomes={})
    slices = sitting.rows[0].slices
    assert measured_in([sitting]) == [Measured("window-0001", slices, Ungraded(why="there is no grade"))]


def test_the_reference_itself_is_identical() -> None:
    found = distance([0.0, 0.0], REFERENCE)
    assert (found.is_identical, found.is_below_floor) == (True, False)


def test_the_same_bytes_under_another_name_are_identical() -> None:
    lock = a_kld_lock()
    twin = replace(a_model("F16"), name="Q4_K_M")
    assert distance([0.0, 0.0], QUANT, replace(lock, model=(lock.model[0], twin))).is_identical


def test_other_bytes_or_other_numbers_are_not() -> None:
    assert not distance([0.0, 0.0], QUANT).is_identical
    assert not distance([0.0, 1e-9], REFERENCE).is_identical


def test_another_setting_is_not_identical() -> None:
    lock = a_kld_lock()
    setting = replace(lock.setting[0], name="q8kv", cache_type_k="q8_0")
    point = replace(lock.point[0], name="F16@q8kv", setting="q8kv")
    wider = replace(lock, setting=(*lock.setting, setting), point=(*lock.point, point))
    assert not distance([0.0, 0.0], "F16@q8kv", wider).is_identical
    same = replace(wider, setting=(lock.setting[0], replace(lock.setting[0], name="q8kv")))
    assert distance([0.0, 0.0], "F16@q8kv", same).is_identical


@pytest.mark.parametrize(
    "mean, stored, below",
    [
        (2e-5, True, True),
        (-2e-5, True, True),
        (2e-5, False, False),
        (5e-7, False, True),
        (1e-4, True, False),
    ],
)
def test_what_cannot_be_told_from_nothing(mean: float, stored: bool, below: bool) -> None:  # noqa: FBT001
    assert distance([mean, mean], stored=stored).is_below_floor is below


def test_the_floor_follows_from_how_the_reference_is_had() -> None:
    suite = a_kld_suite()
    assert floor_of(suite) == ROUNDING_FLOOR_NATS
    assert floor_of(replace(suite, params={**suite.params, "stored": True})) == FLOOR_NATS


def test_an_item_without_divergences_leaves_no_distance() -> None:
    found = distance_of(a_kld_lock(), a_kld_suite(), QUANT, [*items([0.1]), Measured("other", {}, Right())])
    assert found == CannotTell(why="item 2 has no divergence")
    assert has_divergences(measured.outcome for measured in items([0.1]))
    assert not has_divergences([Right()])


def test_a_name_is_no_fact() -> None:
    lock = a_kld_lock()
    other = replace(lock.model[1], tensors_digest=a_digest("x"))
    assert not distance([0.0], QUANT, replace(lock, model=(lock.model[0], other))).is_identical


def test_of_the_likeliest_tokens_alone_it_is_a_lower_bound_in_float32() -> None:
    found = distance([2e-5, 2e-5], stored=True, slack=0.3)
    assert (found.is_lower_bound, found.is_below_floor, found.floor_nats) == (
        True,
        False,
        ROUNDING_FLOOR_NATS,
    )
    assert found.figures.kld_slack_nats == pytest.approx(0.3)
    assert not distance([2e-5, 2e-5], stored=True).is_lower_bound


def test_only_a_file_of_whole_rows_is_cut() -> None:
    assert distance([0.1], stored=True).is_cut
    assert not distance([0.1]).is_cut
    assert not distance([0.1], stored=True, slack=0.3).is_cut
