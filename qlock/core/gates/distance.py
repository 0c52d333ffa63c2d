"""``kld``: side B's mean KL divergence from the reference of a suite is below a margin.

The interval of the mean, with items as clusters (repeats of an item are in one), lies below the margin (pass) or above it
(fail), by more than what the way of measuring cannot tell from 0. A divergence has no upper bound, so where an item has
none, nothing is decided. A margin below what cannot be told from 0 decides nothing either; and where two runs of one point
were measured, the mean must keep as far from the margin as they differ. Where only the likeliest tokens were kept, the mean
is a lower bound: it passes with all that may be missing of it.

Does not live here: the figures (``core.kld``, ``core.distance``).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from qlock.core.distance import Distance, distance_of, measured_in
from qlock.core.exchange import Divergence
from qlock.core.gates.interface import DistanceSeen, Gate, GateVerdict, gate, undecided
from qlock.core.kld_tokens import Measured
from qlock.core.rules import Kld
from qlock.core.sides import Side, suites_of
from qlock.core.slices import slices_meant, why_no_slice
from qlock.core.stats import FEWEST_PAIRS, CannotTell, Interval
from qlock.core.units import count_text


def judge(rule: Kld, b: Side, *, withheld: str = "", again: Sequence[tuple[Side, Side]] = ()) -> Gate:
    """What the divergences of side B say.

    Args:
        rule: The gate.
        b: What is judged.
        withheld: Why nothing may be judged; empty where it may.
        again: A side and another run of its point: how far their means differ is noise.
    """
    if withheld:
        return undecided(rule, withheld)
    found = _distance(rule, b)
    if isinstance(found, str):
        return undecided(rule, found)
    estimate = found.figures.kld_nats
    seen = DistanceSeen(
        items=found.figures.items,
        kld_nats=estimate.value,
        interval=estimate.interval,
        noise_nats=_noise(rule, again),
        kld_slack_nats=found.figures.kld_slack_nats,
    )
    return gate(rule, *_verdict(rule, found, seen), seen)


def _distance(rule: Kld, side: Side) -> Distance | str:
    """The distance over the items that the rule looks at, or why there is none."""
    suite = suites_of(side).get(rule.suite)
    sittings = side.sittings.get(rule.suite, ())
    if suite is None or not sittings:
        return f"the suite `{rule.suite}` was not sat"
    every = measured_in(sittings)
    lost = sum(sitting.items for sitting in sittings) - sum(
        isinstance(measured.outcome, Divergence) for measured in every
    )
    if lost:
        return f"{count_text(lost, 'item')} without a divergence, which has no upper bound"
    chosen = _within(every, rule.slice)
    if isinstance(chosen, str):
        return chosen
    found = distance_of(side.lock, suite, side.point, chosen)
    return found.why if isinstance(found, CannotTell) else found


def _within(every: list[Measured], slice_: str) -> list[Measured] | str:
    if not slice_:
        return every
    known = {f"{name}={value}" for measured in every for name, value in measured.slices.items()}
    named = slices_meant(known, slice_)
    if len(named) != 1:
        return why_no_slice(slice_, named, of="item")
    name, _, value = named[0].partition("=")
    return [measured for measured in every if measured.slices.get(name) == value]


def _verdict(rule: Kld, found: Distance, seen: DistanceSeen) -> tuple[GateVerdict, str]:
    if found.is_identical:
        return "pass", "it is the reference itself"
    if rule.margin_nats < found.floor_nats:
        return "undecided", (
            f"the margin lies under what this way of measuring cannot tell from 0, {found.floor_nats:g} nats"
        )
    if seen.items < FEWEST_PAIRS:
        return "undecided", f"a verdict needs {FEWEST_PAIRS} items, got {seen.items}"
    slack = 0.0 if found.figures.kld_slack_nats is UNSET else found.figures.kld_slack_nats
    match seen.interval:
        case CannotTell(why=why):
            return "undecided", why
        case Interval(low=low, high=high) if low <= rule.margin_nats <= high:
            return "undecided", "the interval holds the margin"
        case Interval(low=low, high=high) if (
            low - found.floor_nats <= rule.margin_nats <= high + found.floor_nats
        ):
            return "undecided", (
                "the margin lies so near the interval that the way of measuring alone could reach it, "
                f"{found.floor_nats:g} nats"
            )
        case Interval(high=high) if high < rule.margin_nats <= high + found.floor_nats + slack:
            return "undecided", f"only the likeliest tokens are stored: it may be {slack:.6f} nats more"
        case Interval(high=high):
            beyond = seen.kld_nats - rule.margin_nats
            far = min(abs(beyond), abs(beyond + slack))
            if isinstance(seen.noise_nats, float) and far <= seen.noise_nats:
                return "undecided", f"two runs of one point differ by as much, {seen.noise_nats:.6f} nats"
            return ("pass" if high < rule.margin_nats else "fail"), ""


def _noise(rule: Kld, again: Sequence[tuple[Side, Side]]) -> float | CannotTell:
    """How far the means of two runs of one point lie apart, at most."""
    apart = []
    for side, other in again:
        match _distance(rule, side), _distance(rule, other):
            case Distance(figures=one), Distance(figures=two):
                apart.append(abs(one.kld_nats.value - two.kld_nats.value))
            case _:
                pass
    return max(apart) if apart else CannotTell(why="no point was run twice")
