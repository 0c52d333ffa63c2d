"""The scored tokens of several items as arrays, and what is worked out of them: means with their errors, percentiles.

The formulas are those of ``llama-perplexity --kl-divergence``, so that its printed digits come out of the same numbers.

Does not live here: which figures there are (``core.kld``).

Source: ``tools/perplexity/perplexity.cpp`` of llama.cpp, function ``kl_divergence``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from qlock.core import stats
from qlock.core.base import Base, Finite
from qlock.core.exchange import Divergence, Outcome
from qlock.core.perplexity import LARGEST_MEAN_NATS
from qlock.core.stats import CannotTell, Interval

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Indexes = npt.NDArray[np.intp]

Range = tuple[float, float]
"""The least and the largest that a mean can be."""

NEVER_BELOW_0: Range = (0.0, math.inf)
SHARES: Range = (0.0, 1.0)
CHANGES: Range = (-1.0, 1.0)
"""Of shares."""


class Measured(NamedTuple):
    """What an item came to in one repeat."""

    item: str
    """Its id; repeats have the same."""
    slices: Mapping[str, str]
    outcome: Outcome


class Estimate(Base, frozen=True, kw_only=True):
    """A mean over scored tokens, or what follows from one."""

    value: Finite
    token_error: Finite | CannotTell
    """Standard error with tokens taken for independent, as llama-perplexity prints it behind ``±``: too small."""
    interval: Interval | CannotTell
    """At 95 %, items being the clusters."""


class Quantiles(Base, frozen=True, kw_only=True):
    """Of the KL divergences of single tokens, nats; float32 numbers, as llama-perplexity keeps them."""

    minimum: Finite
    median: Finite
    at_90: Finite
    at_95: Finite
    at_99: Finite
    at_999: Finite
    """99.9 % lie below."""
    maximum: Finite


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """All scored tokens of some items, one number each."""

    item: Indexes
    """Which item each token belongs to."""
    nats: Floats
    reference_nats: Floats
    kld: Floats
    reverse_kld: Floats
    same_top: Floats

    def at(self, chosen: Indexes) -> Tokens:
        """Some of them."""
        return Tokens(**{name: getattr(self, name)[chosen] for name in self.__struct_fields__})


def tokens_of(items: Sequence[Divergence], names: Sequence[str] = ()) -> Tokens:
    """The tokens of all items, one item after the other.

    Args:
        items: In any order.
        names: The item of each; those of one name are repeats of one item. Unset: each is an item of its own.
    """
    import numpy as np

    def joined(values: Callable[[Divergence], Sequence[float]]) -> Floats:
        return np.array([value for item in items for value in values(item)], dtype=np.float64)

    lengths = [len(item.kld_nats) for item in items]
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    whose = [places[name] for name in names] if names else range(len(items))
    return Tokens(
        item=np.repeat(np.array(whose, dtype=np.intp), lengths),
        nats=joined(lambda item: item.nats),
        reference_nats=joined(lambda item: item.reference_nats),
        kld=joined(lambda item: item.kld_nats),
        reverse_kld=joined(lambda item: item.reverse_kld_nats),
        same_top=joined(lambda item: item.same_top),
    )


def mean(tokens: Tokens, values: Floats, *, within: Range = stats.ANYWHERE) -> Estimate:
    """With mean m of n numbers v: llama-perplexity's error sqrt((Σv² / n − m²) / (n − 1)), and an interval by item.

    The order of items does not matter: sums over them are exact.

    Args:
        tokens: Whose items are the clusters.
        values: One number per token.
        within: Where a mean of such numbers can lie; the interval keeps to it.
    """
    n, (sums, sizes) = len(values), _by_item(tokens, values)
    value = math.fsum(sums) / n
    error: float | CannotTell = CannotTell(why="one scored token has no spread")
    if n > 1:
        # Rounding can leave the variance of equal numbers a hair below zero.
        squares, _ = _by_item(tokens, values * values)
        error = math.sqrt(max(math.fsum(squares) / n - value * value, 0.0) / (n - 1))
    return Estimate(
        value=value,
        token_error=error,
        interval=stats.mean_of_clusters(sums, sizes, within=within),
    )


def _by_item(tokens: Tokens, values: Floats) -> tuple[list[float], list[int]]:
    """The exact sum of each item's values, and how many it has; at least one value."""
    import numpy as np

    order = np.argsort(tokens.item, kind="stable")
    ends = np.flatnonzero(np.diff(tokens.item[order])) + 1
    parts = [part.tolist() for part in np.split(values[order], ends)]
    return [math.fsum(part) for part in parts], [len(part) for part in parts]


def root(square: Estimate) -> Estimate:
    """The root of a mean square, which was kept from lying below 0; its error by the delta method."""
    value = math.sqrt(square.value)
    error, interval = square.token_error, square.interval
    match error:
        case float():
            error = 0.5 / value * error if value else 0.0
        case CannotTell():
            pass
    match interval:
        case Interval(low=low, high=high, standard_error=float(spread)):
            interval = replace(
                interval,
                point=value,
                low=math.sqrt(low),
                high=math.sqrt(high),
                standard_error=0.5 / value * spread,
            )
        case _:
            pass
    return Estimate(value=value, token_error=error, interval=interval)


def exponential(exponent: Estimate) -> Estimate:
    """The exponential of a mean; its error by the delta method."""
    value = math.exp(exponent.value)
    error, interval = exponent.token_error, exponent.interval
    match error:
        case float():
            error = value * error
        case CannotTell():
            pass
    match interval:
        case Interval(low=low, high=high, standard_error=float(spread)) if high < 2 * LARGEST_MEAN_NATS:
            interval = replace(
                interval,
                point=value,
                low=math.exp(low),
                high=math.exp(high),
                standard_error=value * spread,
            )
        case Interval(high=high):
            interval = CannotTell(why=f"its upper end is exp({high:g})")
        case CannotTell():
            pass
    return Estimate(value=value, token_error=error, interval=interval)


def quantiles(kld: Floats) -> Quantiles:
    """As llama-perplexity takes them: of float32 numbers, and in float32."""
    import numpy as np

    ordered = np.sort(kld.astype(np.float32))
    middle = len(ordered) // 2
    median = ordered[middle]
    if len(ordered) % 2 == 0:
        median = np.float32(0.5) * (ordered[middle] + ordered[middle - 1])
    return Quantiles(
        minimum=float(ordered[0]),
        median=float(median),
        at_90=_below(ordered, 0.9),
        at_95=_below(ordered, 0.95),
        at_99=_below(ordered, 0.99),
        at_999=_below(ordered, 0.999),
        maximum=float(ordered[-1]),
    )


def _below(ordered: npt.NDArray[np.float32], share: float) -> float:
    """The number below which a share lies, between its neighbours.

    NOTE: the place is worked out in float32, as in llama-perplexity: with ten thousand tokens that moves the 99.9 %
    by digits that are printed.
    """
    import numpy as np

    place = np.float32(share) * np.float32(len(ordered) - 1)
    index = int(place)
    beyond = place - np.float32(index)
    above = ordered[min(index + 1, len(ordered) - 1)]
    return float((np.float32(1) - beyond) * ordered[index] + beyond * above)
