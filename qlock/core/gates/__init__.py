"""Acceptance rules that were fixed before the run, and what was measured says about them.

A gate passes or fails only where the figures bear it out; otherwise it is undecided, with the reason. The gates of both
locks hold, so that none can be dropped by comparing with another lock.

One module, one kind of rule: ``shares`` (counts of pairs), ``distance`` (divergences), ``speed``, ``memory``. Does not
live here: the rules as a spec words them (``core.rules``), the formulas (``core.stats``).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from qlock.core.gates import distance, memory, shares, speed
from qlock.core.gates.interface import (
    GATE_VERDICTS,
    DistanceSeen,
    Gate,
    GateVerdict,
    MemorySeen,
    PairsSeen,
    SpeedSeen,
    undecided,
)
from qlock.core.pairs import Pairing, pair
from qlock.core.rules import GateSpec, Kld, MemoryAtMost, SpeedAtLeast
from qlock.core.sides import Side, same_tokenizer

__all__ = [
    "GATE_VERDICTS",
    "DistanceSeen",
    "Gate",
    "GateVerdict",
    "Ground",
    "MemorySeen",
    "PairsSeen",
    "SpeedSeen",
    "judge",
]


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What gates are judged on."""

    a: Side
    b: Side
    pairings: Mapping[str, Pairing]
    """By the suites that both sides sat."""
    again: tuple[tuple[Side, Side], ...] = ()
    """A side and another run of its point."""
    withheld: str = ""
    """Why nothing may be judged; empty where it may."""


def judge(rule: GateSpec, ground: Ground) -> Gate:
    """What was measured says of a rule."""
    match rule:
        case MemoryAtMost():
            return memory.judge(rule, ground.a, ground.b, withheld=ground.withheld)
        case Kld():
            return distance.judge(rule, ground.b, withheld=ground.withheld, again=ground.again)
        case SpeedAtLeast():
            return speed.judge(rule, ground.a, ground.b, withheld=ground.withheld, again=ground.again)
        case _:
            pass
    pairing = ground.pairings.get(rule.suite)
    if pairing is None:
        return undecided(rule, f"the suite `{rule.suite}` is not on both sides")
    return shares.judge(
        rule,
        pairing,
        withheld=ground.withheld,
        same_tokenizer=same_tokenizer(ground.a, ground.b),
        again=[
            pair(side.sittings.get(rule.suite, ()), other.sittings.get(rule.suite, ()))
            for side, other in ground.again
        ],
    )
