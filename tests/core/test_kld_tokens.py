"""Means of scored tokens and their errors: by hand, and against statsmodels, numpy and llama-perplexity's own steps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core import stats
from qlock.core.kld_tokens import (
    NEVER_BELOW_0,
    Estimate,
    Tokens,
    exponential,
    mean,
    quantiles,
    root,
    tokens_of,
)
from qlock.core.stats import CannotTell, Interval
from tests.fakes.comparisons import a_divergence


def of_groups(groups: list[list[float]]) -> tuple[Tokens, Estimate]:
    tokens = tokens_of([a_divergence(*group) for group in groups])
    return tokens, mean(tokens, tokens.kld)


def test_tokens_stand_item_after_item() -> None:
    tokens = tokens_of([a_divergence(1.0, 2.0), a_divergence(3.0)])
    assert tokens.item.tolist() == [0, 0, 1]
    assert tokens.kld.tolist() == [1.0, 2.0, 3.0]
    assert tokens.same_top.tolist() == [1.0, 1.0, 1.0]
    assert tokens.at(np.array([2])).item.tolist() == [1]


def test_a_mean_by_hand() -> None:
    _, found = of_groups([[1.0, 3.0], [4.0, 8.0]])
    assert found.value == 4.0
    # mean of squares 22.5, variance 6.5, over 3
    assert found.token_error == pytest.approx(math.sqrt(6.5 / 3))
    # distances of both sums -4 and 4: sqrt(2 / 1 * 32) / 4 = 2; t with one degree of freedom is 12.7062
    assert isinstance(found.interval, Interval)
    assert found.interval.standard_error == pytest.approx(2.0)
    assert (found.interval.low, found.interval.high) == pytest.approx((4 - 25.41241, 4 + 25.41241), rel=1e-5)


def test_one_token_has_no_error() -> None:
    _, found = of_groups([[0.5]])
    assert found == Estimate(
        value=0.5,
        token_error=CannotTell(why="one scored token has no spread"),
        interval=CannotTell(why="there is only one cluster, and at least two show how far they differ"),
    )


def test_a_root_and_an_exponential_carry_their_errors_along() -> None:
    tokens, _ = of_groups([[3.0, 5.0], [4.0, 4.5]])
    square = mean(tokens, tokens.kld, within=NEVER_BELOW_0)
    assert isinstance(square.token_error, float)
    assert isinstance(square.interval, Interval)
    rooted, raised = root(square), exponential(square)
    assert rooted.value == math.sqrt(square.value)
    assert rooted.token_error == pytest.approx(0.5 / rooted.value * square.token_error)
    assert raised.value == math.exp(square.value)
    assert raised.token_error == pytest.approx(raised.value * square.token_error)
    for made in (rooted, raised):
        assert isinstance(made.interval, Interval)
        assert made.interval.low < made.value == made.interval.point < made.interval.high


def test_the_root_of_nothing_is_nothing() -> None:
    _, nothing = of_groups([[0.0, 0.0], [0.0, 0.0]])
    assert root(nothing) == nothing
    assert nothing.token_error == 0.0
    assert nothing.interval == CannotTell(
        why="all means of clusters are 0, which does not show how far they could differ"
    )


def test_an_interval_beyond_all_numbers_is_not_told() -> None:
    _, wide = of_groups([[0.0, 10.0], [250.0, 300.0]])
    assert isinstance(wide.interval, Interval)
    assert exponential(wide).interval == CannotTell(why=f"its upper end is exp({wide.interval.high:g})")


def test_percentiles_by_hand() -> None:
    found = quantiles(np.array([5.0, 1.0, 3.0, 2.0, 4.0]))
    assert (found.minimum, found.median, found.maximum) == (1.0, 3.0, 5.0)
    assert found.at_90 == pytest.approx(4.6)
    assert quantiles(np.array([1.0, 2.0])).median == 1.5
    assert quantiles(np.array([7.0])).at_999 == 7.0


values = st.lists(st.floats(min_value=0, max_value=50), min_size=1, max_size=6)


@given(st.lists(values, min_size=2, max_size=8))
def test_the_interval_is_that_of_items_as_clusters(groups: list[list[float]]) -> None:
    tokens, found = of_groups(groups)
    sums, sizes = [math.fsum(group) for group in groups], [len(group) for group in groups]
    assert found.interval == stats.mean_of_clusters(sums, sizes)
    kept = mean(tokens, tokens.kld, within=NEVER_BELOW_0)
    assert kept.interval == stats.mean_of_clusters(sums, sizes, within=NEVER_BELOW_0)


@given(st.lists(values, min_size=1, max_size=8))
def test_the_token_error_is_the_one_of_independent_tokens(groups: list[list[float]]) -> None:
    tokens, found = of_groups(groups)
    assert found.value == pytest.approx(float(tokens.kld.mean()))
    if isinstance(found.token_error, float):
        n = len(tokens.kld)
        assert found.token_error == pytest.approx(float(tokens.kld.std()) / math.sqrt(n - 1), abs=1e-5)


@given(st.lists(values, min_size=1, max_size=8))
def test_the_order_of_items_does_not_matter(groups: list[list[float]]) -> None:
    assert of_groups(groups)[1] == of_groups(groups[::-1])[1]


@given(values)
def test_percentiles_lie_where_numpy_has_them(kld: list[float]) -> None:
    found = quantiles(np.array(kld))
    shares = (0, 50, 90, 95, 99, 99.9, 100)
    expected = np.percentile(np.array(kld), shares)
    assert tuple(getattr(found, name) for name in found.__struct_fields__) == pytest.approx(
        tuple(expected), rel=1e-4, abs=1e-4
    )


@given(st.lists(st.floats(0, 20, width=32), min_size=100, max_size=400))
def test_percentiles_are_those_of_llama_perplexity(kld: list[float]) -> None:
    single, ordered = np.float32, np.sort(np.array(kld, dtype=np.float32))
    place = single(0.999) * single(len(ordered) - 1)
    index = int(place)
    place -= single(index)
    theirs = (single(1) - place) * ordered[index] + place * ordered[min(index + 1, len(ordered) - 1)]
    assert quantiles(np.array(kld)).at_999 == float(theirs)
