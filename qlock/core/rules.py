"""Acceptance rules, as a spec words them and a lock keeps them: fixed before the run.

Each rule has just the keys that it needs, told apart by ``rule``. Lives here: the structs. Does not live here: who sits a
suite (``core.spec``), and what a rule comes to (``core.gates``).
"""

from __future__ import annotations

from typing import Literal, get_args

from qlock.core.base import Base, Name, Share


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

GateSpec = ShareSpec
"""One gate of a spec."""

Rule = Literal["non-inferior", "no-more-errors", "ending-share", "agreement-share"]
RULES: tuple[Rule, ...] = get_args(Rule)


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


def place_of(gate: GateSpec) -> str:
    """What a gate looks at, in words: the suite, and the slice where it names one."""
    return f"{gate.suite} {gate.slice}".strip()
