"""Acceptance rules, as a spec words them and a lock keeps them: fixed before the run.

Each rule has just the keys that it needs, told apart by ``rule``. Lives here: the structs. Does not live here: who sits a
suite (``core.spec``), and what a rule comes to (``core.gates``).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from qlock.core.base import Base, Name, Positive, Share


class ShareRule(Base, frozen=True, kw_only=True):
    """What the rules about shares of a suite's items have in common."""

    suite: Name
    slice: str = ""
    """``NAME=VALUE`` or a value that occurs in one slice name only; empty: all items."""
    margin_share: Share = 0.0
    """How much worse than the reference is still good: of the items' marks, of errors by the number of items, of replies
    left unfinished, or of answers that are not the same."""


class NonInferior(ShareRule, frozen=True, kw_only=True, tag_field="rule", tag="non-inferior"):
    """The interval of the difference of scores lies above −margin."""


class NoMoreErrors(ShareRule, frozen=True, kw_only=True, tag_field="rule", tag="no-more-errors"):
    """Side B has at most as many errors as side A, and ``margin_share`` of the pairs more."""


class EndingShare(ShareRule, frozen=True, kw_only=True, tag_field="rule", tag="ending-share"):
    """As ``non-inferior``, of the share of replies that were finished."""


class AgreementShare(ShareRule, frozen=True, kw_only=True, tag_field="rule", tag="agreement-share"):
    """The interval of the share of equal answers lies above 1 − margin."""


ShareSpec = NonInferior | NoMoreErrors | EndingShare | AgreementShare
"""A rule about shares of a suite's items."""


class Kld(Base, frozen=True, kw_only=True, tag_field="rule", tag="kld"):
    """Side B's mean KL divergence from the reference that the suite names is below the margin."""

    suite: Name
    slice: str = ""
    """As of the rules about shares."""
    margin_nats: Annotated[float, msgspec.Meta(gt=0.0, le=100.0)]
    """Nats per token."""


class SpeedAtLeast(Base, frozen=True, kw_only=True, tag_field="rule", tag="speed-at-least"):
    """Side B answers the suite at so many times the speed of side A, or more."""

    suite: Name
    at_least_ratio: Annotated[float, msgspec.Meta(gt=0.0, le=1000.0)]
    """Tokens per second of B over those of the reference; 0.9 allows a tenth less, 1.5 asks for half as much again."""


class MemoryAtMost(Base, frozen=True, kw_only=True, tag_field="rule", tag="memory-at-most"):
    """Side B's weights, cache and compute buffers take so many bytes or less."""

    at_most_bytes: Positive
    """On the cards, where the device has some; 6 GB are ``6_000_000_000``."""


GateSpec = ShareSpec | Kld | SpeedAtLeast | MemoryAtMost
"""One gate of a spec."""

Rule = Literal[
    "non-inferior",
    "no-more-errors",
    "ending-share",
    "agreement-share",
    "kld",
    "speed-at-least",
    "memory-at-most",
]


def rule_of(gate: GateSpec) -> Rule:
    """The name of a gate's rule."""
    match gate:
        case NonInferior():
            return "non-inferior"
        case NoMoreErrors():
            return "no-more-errors"
        case EndingShare():
            return "ending-share"
        case AgreementShare():
            return "agreement-share"
        case Kld():
            return "kld"
        case SpeedAtLeast():
            return "speed-at-least"
        case MemoryAtMost():
            return "memory-at-most"


def suite_of(gate: GateSpec) -> str:
    """The suite that a gate looks at; empty where it looks at the point itself."""
    match gate:
        case MemoryAtMost():
            return ""
        case _:
            return gate.suite


def slice_of(gate: GateSpec) -> str:
    """The slice that a gate looks at; empty where it looks at all items, or at none."""
    match gate:
        case MemoryAtMost() | SpeedAtLeast():
            return ""
        case _:
            return gate.slice


def place_of(gate: GateSpec) -> str:
    """What a gate looks at, in words: the suite, with the slice where it names one."""
    return f"{suite_of(gate)} {slice_of(gate)}".strip() or "the point"
