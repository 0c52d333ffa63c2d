"""The figures of KL divergence: by hand, against scipy, and digit by digit as llama-perplexity prints them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace
from scipy.stats import pearsonr

from qlock.core.exchange import Divergence, Nats, Outcome, Right
from qlock.core.kld import Kld, kld_of
from qlock.core.stats import CannotTell, Interval

Row = tuple[float, float, float, float, bool]
"""What one token has: cost, the reference's cost, KL divergence, the reverse, whether both find one likeliest."""


def item(rows: Sequence[Row]) -> Divergence:
    nats, reference, kld, reverse, same = zip(*rows, strict=True)
    return Divergence(
        nats=nats,
        reference_nats=reference,
        kld_nats=kld,
        reverse_kld_nats=reverse,
        same_top=same,
        depth_tokens=0,
        token_kinds=(),
    )


def figures(groups: Sequence[Sequence[Row]]) -> Kld:
    found = kld_of([item(rows) for rows in groups])
    assert isinstance(found, Kld)
    return found


ONE = [(1.0, 1.0, 0.0, 0.0, True), (2.0, 1.0, 0.5, 0.7, False)]
OTHER = [(3.0, 1.0, 0.1, 0.1, True), (2.0, 1.5, 0.2, 0.2, True)]


def test_the_figures_by_hand() -> None:
    found = figures([ONE, OTHER])
    assert (found.tokens, found.items, found.is_zero) == (4, 2, False)
    assert found.kld_nats.value == pytest.approx(0.2)
    assert found.reverse_kld_nats.value == pytest.approx(0.25)
    assert found.same_top_share.value == 0.75
    assert found.quantiles.maximum == 0.5
    assert found.perplexity.value == pytest.approx(math.exp(2.0))
    assert found.reference_perplexity.value == pytest.approx(math.exp(1.125))
    assert found.perplexity_ratio.value == pytest.approx(math.exp(0.875))
    changes = [0.0, math.exp(-2) - math.exp(-1), math.exp(-3) - math.exp(-1), math.exp(-2) - math.exp(-1.5)]
    assert found.probability_change.value == pytest.approx(sum(changes) / 4)
    assert found.probability_change_rms.value == pytest.approx(math.sqrt(sum(c * c for c in changes) / 4))


def test_what_is_missing_of_lower_bounds_is_a_mean_too() -> None:
    assert figures([ONE, OTHER]).kld_slack_nats is UNSET
    found = kld_of(
        [replace(item(ONE), kld_slack_nats=(0.4, 0.2)), replace(item(OTHER), kld_slack_nats=(0.0, 0.2))]
    )
    assert isinstance(found, Kld)
    assert found.kld_slack_nats == pytest.approx(0.2)
    assert replace(found, kld_slack_nats=UNSET) == figures([ONE, OTHER])
    for none in (math.nan, -0.1):
        assert kld_of([replace(item(ONE), kld_slack_nats=(none, 0.2))]) == CannotTell(
            why=f"got `{none}` as what may be missing of a divergence"
        )


def test_a_point_that_gives_the_same_numbers_is_zero() -> None:
    same = [(1.0, 1.0, 0.0, 0.0, True), (2.5, 2.5, 0.0, 0.0, True)]
    found = figures([same, same])
    assert found.is_zero
    assert found.kld_nats.value == found.quantiles.maximum == 0.0
    assert found.perplexity_ratio.value == 1.0
    assert found.probability_change_rms.value == 0.0
    assert found.cost_correlation == pytest.approx(1.0)


@pytest.mark.parametrize(
    "row",
    [
        (1.0, 1.5, 0.0, 0.0, True),
        (1.0, 1.0, 1e-9, 0.0, True),
        (1.0, 1.0, 0.0, -1e-9, True),
        (1.0, 1.0, 0.0, 0.0, False),
    ],
)
def test_any_other_number_is_no_zero(row: Row) -> None:
    assert not figures([[(1.0, 1.0, 0.0, 0.0, True), row]]).is_zero


def test_costs_that_do_not_vary_have_no_correlation() -> None:
    found = figures([[(1.0, 1.0, 0.0, 0.0, True), (1.0, 2.0, 0.1, 0.1, True)]])
    assert found.cost_correlation == CannotTell(why="the costs do not vary")


@pytest.mark.parametrize(
    "outcomes, why",
    [
        ([], "no token was scored"),
        ([item(ONE), Right()], "item 2 has no divergence"),
        ([Nats(nats_sum=1.0, nats_square_sum=1.0, scored_tokens=1)], "item 1 has no divergence"),
        (
            [item([(400.0, 1.0, 0.0, 0.0, True)])],
            "got a mean cost of `400.0` nats, expected at most `300.0`",
        ),
        (
            [item([(1.0, 1.0, 1e300, 0.0, True)])],
            "got `1e+300` for a token, expected at most `1e+06` nats",
        ),
    ],
)
def test_no_figures_have_a_reason(outcomes: list[Outcome], why: str) -> None:
    assert kld_of(outcomes) == CannotTell(why=why)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e7])
def test_a_number_that_is_none_is_seen_in_every_column(place: int, number: float) -> None:
    row: list[float] = [1.0, 1.0, 0.1, 0.1]
    row[place] = number
    found = kld_of([item([(1.0, 1.0, 0.1, 0.1, True), (row[0], row[1], row[2], row[3], True)])])
    assert found == CannotTell(why=f"got `{abs(number)}` for a token, expected at most `1e+06` nats")


costs = st.floats(0, 20, width=32)
divergences = st.floats(0, 5, width=32)
rows = st.tuples(costs, costs, divergences, divergences, st.booleans())
groups_of_rows = st.lists(st.lists(rows, min_size=1, max_size=6), min_size=1, max_size=6)


@given(groups_of_rows)
def test_the_order_of_items_does_not_matter(groups: list[list[Row]]) -> None:
    forth, back = figures(groups), figures(groups[::-1])
    unordered = {"cost_correlation": 0.0}
    assert replace(forth, **unordered) == replace(back, **unordered)


@given(groups_of_rows)
def test_the_correlation_is_pearsons(groups: list[list[Row]]) -> None:
    found = figures(groups).cost_correlation
    flat = [row for group in groups for row in group]
    if isinstance(found, float):
        theirs = pearsonr([row[0] for row in flat], [row[1] for row in flat]).statistic
        assert found == pytest.approx(theirs, abs=1e-6)


@given(groups_of_rows)
def test_every_interval_holds_its_value(groups: list[list[Row]]) -> None:
    found = figures(groups)
    for name in found.__struct_fields__:
        interval = getattr(getattr(found, name), "interval", None)
        if isinstance(interval, Interval):
            assert interval.low <= getattr(found, name).value <= interval.high


class Printed:
    """What llama-perplexity prints of the same tokens, worked out step by step as its ``kl_divergence`` does."""

    def __init__(self, tokens: Sequence[Row]) -> None:
        single = np.float32
        self.n = len(tokens)
        q = [single(row[0]) for row in tokens]
        base = [single(row[1]) for row in tokens]
        self.kld = np.sort(np.array([row[2] for row in tokens], dtype=np.float32))
        self.same = sum(row[4] for row in tokens)
        change = [np.exp(-one) - np.exp(-other) for one, other in zip(q, base, strict=True)]
        squares = [float(c * c) for c in change]
        self.nll = self._mean([float(v) for v in q], [float(v * v) for v in q])
        self.base = self._mean([float(v) for v in base], [float(v * v) for v in base])
        product = sum(float(a * b) for a, b in zip(q, base, strict=True)) / self.n
        self.covariance = (product - self.nll[0] * self.base[0]) / (self.n - 1)
        self.divergence = self._mean([row[2] for row in tokens], [row[2] ** 2 for row in tokens])
        self.change = self._mean([float(c) for c in change], squares)
        self.square = self._mean(squares, [v * v for v in squares])

    def _mean(self, values: list[float], squares: list[float]) -> tuple[float, float]:
        f = sum(values) / self.n
        df = sum(squares) / self.n - f * f
        return f, math.sqrt(df / (self.n - 1)) if df > 0 and self.n > 10 else 0.0

    def lines(self) -> list[str]:
        ppl, base = math.exp(self.nll[0]), math.exp(self.base[0])
        log = self.nll[0] - self.base[0]
        log_error = math.sqrt(self.nll[1] ** 2 + self.base[1] ** 2 - 2 * self.covariance)
        same = self.same / self.n
        rms = math.sqrt(self.square[0])
        return [
            f"{ppl:.6f} ± {ppl * self.nll[1]:.6f}",
            f"{base:.6f} ± {base * self.base[1]:.6f}",
            f"{100 * self.covariance / (self.nll[1] * self.base[1]):.2f}%",
            f"{math.exp(log):.6f} ± {math.exp(log) * log_error:.6f}",
            f"{self.divergence[0]:.6f} ± {self.divergence[1]:.6f}",
            f"{self.kld[-1]:.6f}",
            f"{np.float32(0.5) * (self.kld[self.n // 2] + self.kld[self.n // 2 - 1]):.6f}",
            f"{100 * self.change[0]:.3f} ± {100 * self.change[1]:.3f} %",
            f"{100 * rms:.3f} ± {100 * 0.5 / rms * self.square[1]:.3f} %",
            f"{100 * same:.3f} ± {100 * math.sqrt(same * (1 - same) / (self.n - 1)):.3f} %",
        ]


def ours(found: Kld) -> list[str]:
    def told(name: str, digits: int, scale: float = 1.0) -> str:
        estimate = getattr(found, name)
        return f"{scale * estimate.value:.{digits}f} ± {scale * estimate.token_error:.{digits}f}"

    assert isinstance(found.cost_correlation, float)
    return [
        told("perplexity", 6),
        told("reference_perplexity", 6),
        f"{100 * found.cost_correlation:.2f}%",
        told("perplexity_ratio", 6),
        told("kld_nats", 6),
        f"{found.quantiles.maximum:.6f}",
        f"{found.quantiles.median:.6f}",
        told("probability_change", 3, 100) + " %",
        told("probability_change_rms", 3, 100) + " %",
        told("same_top_share", 3, 100) + " %",
    ]


@pytest.mark.parametrize("seed", range(6))
def test_the_digits_are_those_that_llama_perplexity_prints(seed: int) -> None:
    draws = np.random.default_rng(seed)
    base = draws.exponential(2.5, 2040)
    q = np.abs(base + draws.normal(0.05, 0.2, 2040))
    kld = draws.exponential(0.06, 2040)
    tokens = [
        (float(np.float32(a)), float(np.float32(b)), float(k), float(k), bool(same))
        for a, b, k, same in zip(q, base, kld, draws.random(2040) < 0.85, strict=True)
    ]
    groups = [tokens[start : start + 255] for start in range(0, 2040, 255)]
    assert ours(figures(groups)) == Printed(tokens).lines()
