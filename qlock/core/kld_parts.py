"""The scored tokens taken apart: by slice of their items, by what they are part of, and by how many stand before them.

Does not live here: the figures over all of them (``core.kld``), what a token is part of (``core.token_kinds``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from qlock.core.base import Base, Count, Finite, Positive, Share
from qlock.core.exchange import Divergence
from qlock.core.kld_tokens import NEVER_BELOW_0, Estimate, Measured, Tokens, mean, quantiles, tokens_of

if TYPE_CHECKING:
    from qlock.core.kld_tokens import Indexes

By = Literal["slice", "token-kind", "depth"]

MOST_PARTS = 50
"""Parts of one way that are told one by one, the largest first."""

_FIRST_DEPTHS = 256


class Part(Base, frozen=True, kw_only=True):
    """Some of the tokens."""

    name: str
    tokens: Positive
    items: Positive
    kld_nats: Estimate
    at_99: Finite
    """99 % of the KL divergences lie below, nats."""
    same_top_share: Share


class Parts(Base, frozen=True, kw_only=True):
    """The tokens taken apart in one way."""

    by: By
    row: tuple[Part, ...]
    left_out: Count
    """Parts that are not told, being smaller than those that are."""


def parts_of(items: Iterable[Measured]) -> tuple[Parts, ...]:
    """The tokens by slice of their items, by kind, and by how many tokens stand before them.

    A way in which nothing is taken apart is left out: without slices, without kinds, with all tokens at one depth.
    Items that are no ``Divergence`` are passed over.

    Args:
        items: In every repeat; repeats of one item are one cluster.
    """
    chosen = [
        (measured.item, measured.slices, measured.outcome)
        for measured in items
        if isinstance(measured.outcome, Divergence)
    ]
    outcomes = [outcome for _, _, outcome in chosen]
    tokens = tokens_of(outcomes, [item for item, _, _ in chosen])
    found = (
        _parts("slice", tokens, _by_slice(outcomes, [slices for _, slices, _ in chosen])),
        _parts("token-kind", tokens, _by_kind(outcomes)),
        _parts("depth", tokens, _by_depth(outcomes)),
    )
    return tuple(parts for parts in found if len(parts.row) > 1)


def _parts(by: By, tokens: Tokens, members: Mapping[str, Indexes]) -> Parts:
    """Every part with its figures, in the order of ``members``."""
    sizes = {name: len(chosen) for name, chosen in members.items() if len(chosen)}
    kept = set(sorted(sizes, key=lambda name: -sizes[name])[:MOST_PARTS])
    return Parts(
        by=by,
        row=tuple(_part(name, tokens.at(members[name])) for name in sizes if name in kept),
        left_out=len(sizes) - len(kept),
    )


def _part(name: str, tokens: Tokens) -> Part:
    import numpy as np

    return Part(
        name=name,
        tokens=len(tokens.kld),
        items=int(np.unique(tokens.item).size),
        kld_nats=mean(tokens, tokens.kld, within=NEVER_BELOW_0),
        at_99=quantiles(tokens.kld).at_99,
        same_top_share=float(tokens.same_top.mean()),
    )


def _by_slice(items: Sequence[Divergence], slices: Sequence[Mapping[str, str]]) -> dict[str, Indexes]:
    import numpy as np

    ends = np.cumsum([0, *(len(item.kld_nats) for item in items)])
    members: dict[str, list[Indexes]] = {}
    for index, named in enumerate(slices):
        for name, value in named.items():
            members.setdefault(f"{name}={value}", []).append(np.arange(ends[index], ends[index + 1]))
    return {name: np.concatenate(members[name]) for name in sorted(members)}


def _by_kind(items: Sequence[Divergence]) -> dict[str, Indexes]:
    import numpy as np

    kinds = np.array([kind for item in items for kind in item.token_kinds or [""] * len(item.kld_nats)])
    return {str(kind): np.flatnonzero(kinds == kind) for kind in np.unique(kinds) if kind}


def _by_depth(items: Sequence[Divergence]) -> dict[str, Indexes]:
    """Steps that double: ``0-255``, ``256-511``, ``512-1023`` tokens before."""
    import numpy as np

    before = np.array(
        [item.depth_tokens + index for item in items for index in range(len(item.kld_nats))], dtype=np.int64
    )
    found: dict[str, Indexes] = {}
    low, high = 0, _FIRST_DEPTHS
    while low <= int(before.max(initial=0)):
        found[f"{low}-{high - 1}"] = np.flatnonzero((before >= low) & (before < high))
        low, high = high, 2 * high
    return found
