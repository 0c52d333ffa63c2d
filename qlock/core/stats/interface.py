"""What the arithmetic of comparisons answers with, and the checks that all of it shares.

Lives here: the answers as structs, and the refusal of counts and levels that make no sense. Does not live here:
any formula but the normal quantile.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from qlock.core.base import Base, Count, Finite, Positive, Share
from qlock.errors import InputError

FEWEST_PAIRS = 10
"""Below this many pairs no verdict is given: an interval of so few is too rough, and no exact test at 5 % can
reject before six pairs differ."""

if TYPE_CHECKING:
    import numpy as np

AT_ONCE = 1_000_000
"""Random numbers held at once; part of what a seed means, so never changed lightly."""

BLUR = 1e-12
"""Of the largest, what is zero but for rounding."""

_LARGEST = 1e100  # squares of sums stay finite

Probability = Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)]


class CannotTell(Base, frozen=True, kw_only=True, tag_field="kind", tag="unknown"):
    """Nothing can be said, and why."""

    why: str


class Interval(Base, frozen=True, kw_only=True, tag_field="kind", tag="interval"):
    """An estimate with its two-sided confidence interval, which always contains the estimate."""

    point: Finite
    low: Finite
    high: Finite
    level: Probability
    n: Positive
    """Items, or pairs of items; tokens where each of them counts."""
    clusters: Positive
    """Independent groups of items; ``n`` where each item stands alone."""
    method: Literal[
        "wilson", "newcombe-10", "tango", "newcombe-tango", "t", "cluster-t", "hall-t", "bootstrap-t"
    ]
    standard_error: Finite | msgspec.UnsetType = msgspec.UNSET
    """Only where the interval is a t interval or follows from one."""


class PairedTest(Base, frozen=True, kw_only=True, tag_field="kind", tag="test"):
    """A two-sided test of "no difference" on pairs."""

    p_value: Share
    mid_p: Share
    """Counts only half of what is exactly as extreme as seen: less conservative where few values are possible."""
    n: Count
    """Pairs that differ; equal pairs say nothing about the direction."""
    method: Literal["mcnemar-exact", "sign-flip-exact", "sign-flip-random"]
    note: str
    """A sentence that belongs beside the numbers; empty when there is none."""


class LargeSample(Base, frozen=True, kw_only=True, tag_field="kind", tag="large-sample"):
    """A two-sided normal test of a mean of very many paired differences."""

    p_value: Share
    n: Positive
    """Independent pairs or clusters."""


class Detectable(Base, frozen=True, kw_only=True, tag_field="kind", tag="detectable"):
    """The smallest true difference that a test of this size would probably have seen."""

    difference_share: Share
    n: Positive
    discordant_share: Share
    power: Probability
    alpha: Probability


class DetectableMean(Base, frozen=True, kw_only=True, tag_field="kind", tag="detectable-mean"):
    """The smallest true difference of means that would probably have been seen."""

    difference: Finite
    n: Positive
    power: Share
    alpha: Share


class PairsNeeded(Base, frozen=True, kw_only=True, tag_field="kind", tag="pairs"):
    """How many pairs would decide, if the shares seen so far are the true ones."""

    verdict: Literal["pass", "fail"]
    pairs: Positive
    """In all, those already measured included."""
    more: Count


class NonInferiority(Base, frozen=True, kw_only=True, tag_field="kind", tag="verdict"):
    """Whether B is no worse than A by as much as the margin."""

    verdict: Literal["pass", "fail", "undecided"]
    margin_share: Share
    interval: Interval | CannotTell
    why: str
    """The reason of an undecided verdict; empty otherwise."""


def check_counts(**counts: int) -> None:
    """Refuses a negative count, by its name.

    Raises:
        InputError: A count lies below 0.
    """
    for name, value in counts.items():
        if value < 0:
            raise InputError(f"`{name}` is a count: got `{value}`, expected at least `0`")


def check_probability(name: str, value: float) -> None:
    """Refuses a level, power or alpha that is not strictly between 0 and 1.

    Raises:
        InputError: It is not.
    """
    if not 0 < value < 1:
        raise InputError(f"`{name}` lies between 0 and 1, both excluded: got `{value}`")


@lru_cache(maxsize=64)
def quantile_of_level(level: float) -> float:
    """The normal quantile z that leaves (1 − level) / 2 on either side; 1.96 for 0.95.

    Raises:
        InputError: The level is not between 0 and 1.
    """
    from scipy.special import ndtri

    check_probability("level", level)
    return -float(ndtri((1 - level) / 2))  # from the lower tail, where a level close to 1 is still exact


def note_on_few(n: int) -> str:
    """The sentence beside an exact sign test of ``n`` differing pairs that cannot reach 5 %, else empty."""
    if n == 0:
        return "no discordant pairs"
    smallest = 0.5 ** (n - 1)
    return f"pairs that differ: {n}, so p cannot be below {smallest:g}" if smallest > 0.05 else ""


def generator_of(seed: int) -> np.random.Generator:
    """Random numbers that depend on the seed alone."""
    import numpy as np

    if seed < 0:
        raise InputError(f"`seed` is not negative: got `{seed}`, expected at least `0`")
    return np.random.Generator(np.random.PCG64(seed))


def unfit(values: Sequence[float]) -> CannotTell | None:
    """The reason why nothing can be computed from these values at all."""
    if not values:
        return CannotTell(why="there are no items")
    odd = sum(1 for value in values if not abs(value) <= _LARGEST)
    if odd:
        return CannotTell(why=f"values that are no finite number of ordinary size: {odd} of {len(values)}")
    return None
