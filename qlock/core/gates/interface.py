"""What a gate comes to, whichever its rule.

Lives here: the answer, and what was seen for it. Does not live here: judging (the modules beside).
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from qlock.core.base import Base, Count, Share
from qlock.core.escape import for_message
from qlock.core.rules import GateSpec
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


class Gate(Base, frozen=True, kw_only=True):
    """One rule and its answer."""

    asked: GateSpec
    """As the spec says it, safe to show."""
    verdict: GateVerdict
    why: str
    seen: PairsSeen | CannotTell


def gate(rule: GateSpec, verdict: GateVerdict, why: str, seen: PairsSeen | CannotTell) -> Gate:
    """The answer to a rule."""
    asked = msgspec.structs.replace(rule, slice=for_message(rule.slice))
    return Gate(asked=asked, verdict=verdict, why=why, seen=seen)


def undecided(rule: GateSpec, why: str) -> Gate:
    """The answer where there is nothing to judge by."""
    return gate(rule, "undecided", why, CannotTell(why=why))
