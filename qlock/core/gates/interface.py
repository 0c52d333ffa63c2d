"""What a gate comes to, whichever its rule.

Lives here: the answer, and what was seen for it. Does not live here: judging (the modules beside).
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Count, Finite, Share
from qlock.core.escape import for_message
from qlock.core.rules import GateSpec, MemoryAtMost, SpeedAtLeast
from qlock.core.speed import Speed
from qlock.core.stats import CannotTell, Interval, PairsNeeded

GateVerdict = Literal["pass", "fail", "undecided"]
GATE_VERDICTS: tuple[GateVerdict, ...] = get_args(GateVerdict)


class PairsSeen(Base, frozen=True, kw_only=True, tag_field="kind", tag="pairs"):
    """What a rule about shares counted."""

    pairs: Count
    errors_a: Count
    """What the rule counts against side A: errors, or unfinished replies."""
    errors_b: Count
    """Against side B: errors, unfinished replies, or answers that are not those of A."""
    difference: Interval | CannotTell
    """Of the share that is right, finished, or the same as A's, B − A."""
    needed: PairsNeeded | CannotTell
    """How many pairs would decide."""
    noise_share: Share | CannotTell
    """How many of the pairs count otherwise in another run of one point."""


class SpeedSeen(Base, frozen=True, kw_only=True, tag_field="kind", tag="speeds"):
    """What a rule about speed rests on."""

    a: Speed | CannotTell
    b: Speed | CannotTell
    ratio: Interval | CannotTell
    """B over A."""
    noise_ratio: Finite | CannotTell
    """How many times faster one of two runs of one point was."""


class DistanceSeen(Base, frozen=True, kw_only=True, tag_field="kind", tag="divergence"):
    """What a rule about the divergence from a reference rests on."""

    items: Count
    kld_nats: Finite
    """Mean of a token of side B."""
    interval: Interval | CannotTell
    noise_nats: Finite | CannotTell
    """How far the means of two runs of one point lie apart."""
    kld_slack_nats: Finite | UnsetType = UNSET
    """How much more the mean may be at most, where it is a lower bound."""


class MemorySeen(Base, frozen=True, kw_only=True, tag_field="kind", tag="memory"):
    """What a rule about memory rests on."""

    of: Literal["cpu", "gpu"]
    """The device that counts: the machine, or its cards alone."""
    a_bytes: Count | CannotTell
    b_bytes: Count | CannotTell


Seen = PairsSeen | DistanceSeen | SpeedSeen | MemorySeen | CannotTell


class Gate(Base, frozen=True, kw_only=True):
    """One rule and its answer."""

    asked: GateSpec
    """As the spec says it, safe to show."""
    verdict: GateVerdict
    why: str
    seen: Seen


def gate(rule: GateSpec, verdict: GateVerdict, why: str, seen: Seen) -> Gate:
    """The answer to a rule."""
    match rule:
        case SpeedAtLeast() | MemoryAtMost():
            asked: GateSpec = rule
        case _:
            asked = msgspec.structs.replace(rule, slice=for_message(rule.slice))
    return Gate(asked=asked, verdict=verdict, why=why, seen=seen)


def undecided(rule: GateSpec, why: str) -> Gate:
    """The answer where there is nothing to judge by."""
    return gate(rule, "undecided", why, CannotTell(why=why))
