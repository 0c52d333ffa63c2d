"""``speed-at-least``: side B answered a suite at so many times the speed of side A, or more.

The interval of the ratio lies at or above the limit (pass) or below it (fail). It is undecided where anything that can
change the speed alone was not the same: between the locks, as the devices were seen, or where answers were taken over
from another run. Where two runs of one point were measured, the ratio must keep as far from the limit as they differ.

Does not live here: the speeds (``core.speed``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from qlock.core.gates.interface import Gate, GateVerdict, SpeedSeen, gate, undecided
from qlock.core.rules import SpeedAtLeast
from qlock.core.sides import Side, device_of, setting_of
from qlock.core.speed import Speed, speed_of, speed_ratio
from qlock.core.stats import CannotTell, Interval
from qlock.core.timing import timing_changes


def judge(
    rule: SpeedAtLeast,
    a: Side,
    b: Side,
    *,
    withheld: str = "",
    again: Sequence[tuple[Side, Side]] = (),
) -> Gate:
    """What the times of both runs say.

    Args:
        rule: The gate.
        a: The reference.
        b: What is judged.
        withheld: Why nothing may be judged; empty where it may.
        again: A side and another run of its point: how far their speeds differ is noise.
    """
    mine, theirs = (side.sittings.get(rule.suite, ()) for side in (a, b))
    if not mine or not theirs:
        return undecided(rule, f"the suite `{rule.suite}` is not on both sides")
    if withheld:
        return undecided(rule, withheld)
    ratio = speed_ratio(mine, theirs, at_once=setting_of(a).at_once)
    seen = SpeedSeen(a=speed_of(mine), b=speed_of(theirs), ratio=ratio, noise_ratio=_noise(rule.suite, again))
    why = _otherwise(a, b)
    match seen.a, seen.b, ratio:
        case Speed(), Speed(), Interval() if not why:
            return gate(rule, *_verdict(rule, ratio, seen.noise_ratio), seen)
        case (
            (CannotTell(why=unknown), _, _)
            | (_, CannotTell(why=unknown), _)
            | (_, _, CannotTell(why=unknown))
        ):
            return gate(rule, "undecided", why or unknown, seen)
        case _:
            return gate(rule, "undecided", why, seen)


def _verdict(rule: SpeedAtLeast, ratio: Interval, noise: float | CannotTell) -> tuple[GateVerdict, str]:
    if ratio.low < rule.at_least_ratio <= ratio.high:
        return "undecided", "the interval holds the limit"
    if isinstance(noise, float) and abs(math.log(ratio.point / rule.at_least_ratio)) <= math.log(noise):
        return "undecided", f"two runs of one point differ by as much, x{noise:.3f}"
    return ("pass" if ratio.low >= rule.at_least_ratio else "fail"), ""


def _noise(suite: str, again: Sequence[tuple[Side, Side]]) -> float | CannotTell:
    """How many times faster one of two runs of one point was, at most."""
    ratios = []
    for side, other in again:
        match speed_of(side.sittings.get(suite, ())), speed_of(other.sittings.get(suite, ())):
            case Speed() as one, Speed() as two:
                ratios.append(max(one.tokens_per_s / two.tokens_per_s, two.tokens_per_s / one.tokens_per_s))
            case _:
                pass
    return max(ratios) if ratios else CannotTell(why="no point was run twice")


def _otherwise(a: Side, b: Side) -> str:
    """What can change the speed and was not the same, in one sentence; empty where all of it was."""
    if not a.devices or not b.devices:
        return "it is not known on what the points were measured"
    first = a.devices[0]
    told = [
        *timing_changes("setting", setting_of(a), setting_of(b)),
        *timing_changes("device", device_of(a), device_of(b)),
        *(
            text
            for device in (*a.devices[1:], *b.devices)
            for text in timing_changes("device", first, device)
        ),
        *a.other_timing,
        *b.other_timing,
    ]
    return f"what can change the speed was not the same: {'; '.join(dict.fromkeys(told))}" if told else ""
