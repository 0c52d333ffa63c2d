"""What the items of one side cost, with the interval that the same figure has everywhere."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.costs import mean_cost, turned
from qlock.core.exchange import Nats, Ungraded
from qlock.core.kld import Kld, kld_of
from qlock.core.pairs import Half
from qlock.core.stats import CannotTell, Interval
from tests.fakes.comparisons import a_divergence
from tests.fakes.documents import a_row

NATS = st.lists(st.floats(0, 20), min_size=1, max_size=4)


def half(item: str, *kld: float) -> Half:
    """An answer that lies so far from its reference."""
    return Half(row=a_row(item), outcome=a_divergence(*kld))


def test_every_token_counts_the_same_and_no_end_lies_below_nothing() -> None:
    found = mean_cost([half("a", 0.1, 0.2, 0.3), half("b", 0.4)])
    assert isinstance(found, Interval)
    assert (found.n, found.clusters, found.method) == (4, 2, "hall-t")
    assert found.point == pytest.approx(0.25)
    # both sums lie 0.15 from what the mean would give: sqrt(2 * 2 * 0.0225) / 4, times 12.7062
    assert (found.low, found.high) == pytest.approx((0.0, 0.25 + 12.7062 * 0.075))


def test_windows_of_a_text_are_weighed_by_their_tokens() -> None:
    outcomes = [
        Nats(nats_sum=6.0, nats_square_sum=36.0, scored_tokens=3),
        Nats(nats_sum=2.0, nats_square_sum=2.0, scored_tokens=2),
    ]
    found = mean_cost(Half(row=a_row(f"w{number}"), outcome=one) for number, one in enumerate(outcomes))
    assert isinstance(found, Interval)
    assert found.point == pytest.approx(8 / 5)


def test_without_costs_there_is_no_mean() -> None:
    unscored = Half(row=a_row("a"), outcome=Ungraded(why="no"))
    assert mean_cost([unscored]) == CannotTell(why="there are no items")
    assert turned(CannotTell(why="there are no items")) == CannotTell(why="there are no items")


@given(st.lists(st.tuples(st.sampled_from("abcdef"), NATS), min_size=1, max_size=12))
def test_a_divergence_has_the_same_interval_beside_its_other_figures(
    answers: list[tuple[str, list[float]]],
) -> None:
    halves = [half(item, *nats) for item, nats in answers]
    figures = kld_of([one.outcome for one in halves], [one.row.item for one in halves])
    assert isinstance(figures, Kld)
    assert mean_cost(halves) == figures.kld_nats.interval


@given(st.lists(NATS, min_size=2, max_size=8))
def test_turned_twice_is_as_before(groups: list[list[float]]) -> None:
    found = mean_cost(half(str(number), *nats) for number, nats in enumerate(groups))
    assert turned(turned(found)) == found
    match turned(found):
        case Interval(high=high):
            assert math.copysign(1.0, high) == -1.0 or high == 0
        case CannotTell():
            pass
