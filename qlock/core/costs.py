"""What the items of one side cost: nats of a token, with one interval wherever the figure is shown.

Does not live here: pairs (``core.pairs``), differences of costs (``core.scores``), and the figures beside a divergence
(``core.kld``), whose intervals are these.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import msgspec

from qlock.core import stats
from qlock.core.exchange import Divergence, Nats
from qlock.core.kld_tokens import NEVER_BELOW_0
from qlock.core.pairs import Half
from qlock.core.stats import CannotTell, Interval


def mean_cost(answers: Iterable[Half]) -> Interval | CannotTell:
    """Nats of a token over all answers that have a cost; repeats of one item are one cluster."""
    sums: dict[str, list[float]] = {}
    sizes: Counter[str] = Counter()
    for answer in answers:
        match answer.outcome:
            case Nats(nats_sum=nats_sum, scored_tokens=tokens) if tokens:
                sums.setdefault(answer.row.item, []).append(nats_sum)
                sizes[answer.row.item] += tokens
            case Divergence(kld_nats=nats) if nats:
                sums.setdefault(answer.row.item, []).extend(nats)
                sizes[answer.row.item] += len(nats)
            case _:
                pass
    return stats.mean_of_clusters(
        [math.fsum(nats) for nats in sums.values()], [sizes[item] for item in sums], within=NEVER_BELOW_0
    )


def turned(cost: Interval | CannotTell) -> Interval | CannotTell:
    """How far 0 lies from a cost: the same with its sign changed."""
    match cost:
        case Interval(point=point, low=low, high=high):
            return msgspec.structs.replace(cost, point=-point, low=-high, high=-low)
        case CannotTell():
            return cost
