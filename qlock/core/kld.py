"""How far a point's predictions lie from those of its reference: KL divergence and the figures that belong beside it.

The formulas are those of ``llama-perplexity --kl-divergence``. Its ``±`` takes tokens for independent of each other and
is called ``token_error`` here; beside it stands an interval with items as clusters, since tokens of one window or answer
may depend on each other in any way.

Does not live here: the numbers of single tokens (the engine), the arithmetic of means (``core.kld_tokens``), and two
points side by side (``core.scores``).

Source: ``tools/perplexity/perplexity.cpp`` of llama.cpp, functions ``log_softmax`` and ``kl_divergence``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Finite, Positive
from qlock.core.exchange import (
    Divergence,
    Excluded,
    Nats,
    Outcome,
    Partial,
    Right,
    Ungraded,
    Unparsable,
    Wrong,
)
from qlock.core.kld_tokens import (
    CHANGES,
    NEVER_BELOW_0,
    SHARES,
    Estimate,
    Quantiles,
    Tokens,
    exponential,
    mean,
    quantiles,
    root,
    tokens_of,
)
from qlock.core.perplexity import LARGEST_MEAN_NATS, LARGEST_NATS
from qlock.core.stats import CannotTell

if TYPE_CHECKING:
    from qlock.core.kld_tokens import Floats


class Kld(Base, frozen=True, kw_only=True):
    """A point beside its reference, over all scored tokens."""

    tokens: Positive
    items: Positive
    is_zero: bool
    """Whether both gave the same numbers throughout."""
    kld_nats: Estimate
    """Mean of Σ p_ref · ln(p_ref / p_point)."""
    kld_slack_nats: Finite | UnsetType = UNSET
    """How much more that mean may be at most, where only the likeliest tokens were kept and it is a lower bound; unset where
    it is the divergence itself. The percentiles and the other direction are lower bounds then, too."""
    quantiles: Quantiles
    reverse_kld_nats: Estimate
    """The other direction: mean of Σ p_point · ln(p_point / p_ref)."""
    same_top_share: Estimate
    """Tokens where both find the same one likeliest."""
    probability_change: Estimate
    """Mean of p_point − p_ref of the text's own tokens, as a share."""
    probability_change_rms: Estimate
    """Root of the mean square of the same."""
    perplexity: Estimate
    reference_perplexity: Estimate
    perplexity_ratio: Estimate
    """Point / reference; its errors are paired, token by token."""
    cost_correlation: Finite | CannotTell
    """Of what a token costs the point and what it costs the reference."""


def kld_of(outcomes: Iterable[Outcome], names: Sequence[str] = ()) -> Kld | CannotTell:
    """The figures over all items, or why there are none.

    Every outcome must be a ``Divergence``: a figure over the items that happened to work would be another figure
    under the same name.

    Args:
        outcomes: Of every item, in every repeat.
        names: The item of each outcome, where items are repeated: repeats of one item are one cluster.
    """
    items = _divergences(outcomes)
    match items:
        case CannotTell():
            return items
        case _:
            pass
    tokens = tokens_of(items, names)
    if not len(tokens.kld):
        return CannotTell(why="no token was scored")
    # Of a column with a NaN the largest is NaN, which the largest of several columns may not be: each is looked at.
    for largest in (float(abs(getattr(tokens, name)).max()) for name in tokens.__struct_fields__[1:]):
        if not largest <= LARGEST_NATS:
            return CannotTell(why=f"got `{largest}` for a token, expected at most `{LARGEST_NATS:g}` nats")
    cost = max(float(tokens.nats.mean()), float(tokens.reference_nats.mean()))
    if cost > LARGEST_MEAN_NATS:
        return CannotTell(why=f"got a mean cost of `{cost}` nats, expected at most `{LARGEST_MEAN_NATS}`")
    slack = [nats for item in items for nats in item.kld_slack_nats]
    for nats in slack:
        if not 0 <= nats <= LARGEST_NATS:
            return CannotTell(why=f"got `{nats}` as what may be missing of a divergence")
    return _figures(tokens, slack=slack)


def _divergences(outcomes: Iterable[Outcome]) -> list[Divergence] | CannotTell:
    found: list[Divergence] = []
    for number, outcome in enumerate(outcomes, start=1):
        match outcome:
            case Divergence():
                found.append(outcome)
            case Right() | Wrong() | Partial() | Unparsable() | Ungraded() | Excluded() | Nats():
                return CannotTell(why=f"item {number} has no divergence")
    return found


def _figures(tokens: Tokens, *, slack: list[float]) -> Kld:
    import numpy as np

    change = np.exp(-tokens.nats) - np.exp(-tokens.reference_nats)
    costs = [mean(tokens, nats, within=NEVER_BELOW_0) for nats in (tokens.nats, tokens.reference_nats)]
    return Kld(
        tokens=len(tokens.kld),
        items=int(tokens.item.max()) + 1,
        is_zero=not (tokens.kld.any() or tokens.reverse_kld.any())
        and bool((tokens.nats == tokens.reference_nats).all() and tokens.same_top.all()),
        kld_nats=mean(tokens, tokens.kld, within=NEVER_BELOW_0),
        kld_slack_nats=math.fsum(slack) / len(tokens.kld) if slack else UNSET,
        quantiles=quantiles(tokens.kld),
        reverse_kld_nats=mean(tokens, tokens.reverse_kld, within=NEVER_BELOW_0),
        same_top_share=mean(tokens, tokens.same_top, within=SHARES),
        probability_change=mean(tokens, change, within=CHANGES),
        probability_change_rms=root(mean(tokens, change * change, within=SHARES)),
        perplexity=exponential(costs[0]),
        reference_perplexity=exponential(costs[1]),
        perplexity_ratio=exponential(mean(tokens, tokens.nats - tokens.reference_nats)),
        cost_correlation=_correlation(tokens.nats, tokens.reference_nats),
    )


def _correlation(a: Floats, b: Floats) -> float | CannotTell:
    """Pearson's; of numbers that do not vary there is none."""
    import numpy as np

    far_a, far_b = a - a.mean(), b - b.mean()
    spread = math.sqrt(float((far_a * far_a).mean()) * float((far_b * far_b).mean()))
    if len(a) < 2 or spread <= 1e-12 * max(1.0, float(np.abs(a).max()), float(np.abs(b).max())):
        return CannotTell(why="the costs do not vary")
    return min(max(float((far_a * far_b).mean()) / spread, -1.0), 1.0)
