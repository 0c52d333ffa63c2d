"""Perplexity: figures by hand, then laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from qlock.core.exchange import Nats, Right, Ungraded
from qlock.core.perplexity import Perplexity, perplexity_of
from qlock.core.stats import CannotTell, cluster_mean


def nats_of(*costs: float) -> Nats:
    return Nats(
        nats_sum=sum(costs), nats_square_sum=sum(cost * cost for cost in costs), scored_tokens=len(costs)
    )


def test_the_figure_by_hand() -> None:
    figure = perplexity_of([nats_of(1.0, 3.0), nats_of(2.0, 2.0)])
    assert isinstance(figure, Perplexity)
    assert figure.perplexity == pytest.approx(math.exp(2.0))
    # mean of squares 4.5, variance 0.5, over 3
    assert figure.standard_error == pytest.approx(math.exp(2.0) * math.sqrt(0.5 / 3))
    # both windows cost 2 a token: no spread between them
    assert figure.cluster_error == pytest.approx(0.0)
    assert (figure.scored_tokens, figure.windows) == (4, 2)


def test_windows_that_differ_widen_the_cluster_error() -> None:
    figure = perplexity_of([nats_of(1.0, 1.0), nats_of(3.0, 3.0)])
    assert isinstance(figure, Perplexity)
    # residuals -2 and 2; 2/1 * 8 = 16; sqrt(16) / 4 = 1
    assert figure.cluster_error == pytest.approx(math.exp(2.0))
    assert figure.standard_error == pytest.approx(math.exp(2.0) * math.sqrt(1 / 3))


@pytest.mark.parametrize(
    "outcomes, why",
    [
        ([], "no token was scored"),
        ([nats_of(1.0), Ungraded(why="x")], "window 2 has no cost"),
        ([Right()], "window 1 has no cost"),
        ([nats_of(700.0)], "got a mean cost of `700.0` nats, expected at most `300.0`"),
    ],
)
def test_no_figure_has_a_reason(outcomes: list[Nats], why: str) -> None:
    assert perplexity_of(outcomes) == CannotTell(why=why)


def test_one_token_has_a_figure_without_errors() -> None:
    assert perplexity_of([nats_of(0.0)]) == Perplexity(
        perplexity=1.0,
        standard_error=CannotTell(why="one scored token has no spread"),
        cluster_error=CannotTell(why="one window has no spread"),
        scored_tokens=1,
        windows=1,
    )


costs = st.lists(st.floats(min_value=0, max_value=200), min_size=2, max_size=8)


@given(st.lists(costs, min_size=1, max_size=6))
def test_the_figure_equals_the_one_over_all_tokens_at_once(groups: list[list[float]]) -> None:
    flat = [cost for group in groups for cost in group]
    mean = math.fsum(flat) / len(flat)
    figure = perplexity_of([nats_of(*group) for group in groups])
    assert isinstance(figure, Perplexity)
    assert figure.perplexity == pytest.approx(math.exp(mean), rel=1e-9)
    spread = math.sqrt(math.fsum((cost - mean) ** 2 for cost in flat) / len(flat) / (len(flat) - 1))
    assert isinstance(figure.standard_error, float)
    assert figure.standard_error / figure.perplexity == pytest.approx(spread, rel=1e-3, abs=1e-4)


@given(st.lists(costs, min_size=2, max_size=6))
def test_the_order_of_windows_does_not_matter(groups: list[list[float]]) -> None:
    outcomes = [nats_of(*group) for group in groups]
    assert perplexity_of(outcomes) == perplexity_of(outcomes[::-1])


@given(st.lists(costs, min_size=2, max_size=6))
def test_the_cluster_error_is_that_of_a_mean_over_clusters(groups: list[list[float]]) -> None:
    flat = [cost for group in groups for cost in group]
    mean = cluster_mean(flat, [number for number, group in enumerate(groups) for _ in group])
    figure = perplexity_of([nats_of(*group) for group in groups])
    assert isinstance(figure, Perplexity)
    assert isinstance(figure.cluster_error, float)
    if isinstance(mean, CannotTell):  # the clusters do not differ
        assert figure.cluster_error / figure.perplexity == pytest.approx(0, abs=1e-6)
        return
    error = (mean.high - mean.point) / float(student.ppf(0.975, len(groups) - 1))
    assert figure.cluster_error / figure.perplexity == pytest.approx(error, rel=1e-6, abs=1e-9)
