"""What is said of gates: what each asks for, what was seen, and the answer.

Does not live here: judging (``core.gates``).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from qlock.core.comparison import Comparison
from qlock.core.gates import DistanceSeen, Gate, MemorySeen, PairsSeen, SpeedSeen
from qlock.core.rules import (
    AgreementShare,
    EndingShare,
    GateSpec,
    Kld,
    MemoryAtMost,
    NoMoreErrors,
    NonInferior,
    SpeedAtLeast,
    place_of,
    rule_of,
)
from qlock.core.speed import Speed
from qlock.core.stats import CannotTell, Interval, PairsNeeded
from qlock.core.units import bytes_text, count_text, share_percent, share_points
from qlock.reports.interface.distance import nats_text
from qlock.reports.interface.part import Part, Row
from qlock.reports.interface.words import interval_text, size_text


def gates(comparison: Comparison) -> Part:
    """Acceptance rules and their answers."""
    return Part(
        heading="Gates",
        columns=("gate", "of", "passes with", "seen", "noise", "verdict"),
        rows=tuple(map(_row, comparison.gate)),
        remarks=tuple(_remarks(comparison)),
    )


def _remarks(comparison: Comparison) -> Iterator[str]:
    """Why gates are undecided, once where it is one reason for all of them; and what a speed is not held against."""
    open_ones = [gate for gate in comparison.gate if gate.verdict == "undecided"]
    if comparison.state != "valid" and len({gate.why for gate in open_ones}) == 1:
        yield f"no gate is judged: {open_ones[0].why}"
        return
    for gate in open_ones:
        yield f"{named(gate)}: {_open(gate)}"
    for gate in comparison.gate:
        match gate.seen:
            case SpeedSeen(noise_ratio=CannotTell()) if gate.verdict != "undecided":
                yield f"{named(gate)}: how far two runs differ is not known; give a second one with --noise"
            case _:
                pass


def named(gate: Gate) -> str:
    """A gate in a line of text: ``non-inferior of orders north``."""
    return f"{rule_of(gate.asked)} of {place_of(gate.asked)}"


def asks(rule: GateSpec) -> str:
    """What passes a gate."""
    match rule:
        case NonInferior(margin_share=margin):
            return f"B - A above {share_points(-margin)}"
        case NoMoreErrors(margin_share=margin) if margin:
            return f"errors of A, and {share_percent(margin)} of the pairs more, at most"
        case NoMoreErrors():
            return "errors of A at most"
        case EndingShare(margin_share=margin):
            return f"finished: B - A above {share_points(-margin)}"
        case AgreementShare(margin_share=margin):
            return f"equal: above {share_percent(1 - margin)}"
        case Kld(margin_nats=margin):
            return f"mean below {margin:g} nats"
        case SpeedAtLeast(at_least_ratio=ratio):
            return f"x{ratio:g} of A's speed or more"
        case MemoryAtMost(at_most_bytes=size):
            return f"{bytes_text(size)} or less"


def reason(gate: Gate) -> str:
    """Why a gate has its verdict: what was seen, or why nothing follows from it."""
    return gate.why if gate.verdict == "undecided" else seen(gate)


def seen(gate: Gate) -> str:
    """The figure that a gate rests on."""
    match gate.seen:
        case CannotTell():
            return "-"
        case SpeedSeen() as found:
            return _speeds(found)
        case DistanceSeen(items=items, kld_nats=mean, interval=interval, kld_slack_nats=slack):
            far, of = f"{nats_text(mean)} nats{_nats(interval)}", count_text(items, "item")
            return (
                f"{far}, {of}" if slack is UNSET else f"at least {far}, {nats_text(slack)} more at most, {of}"
            )
        case MemorySeen(of=of, a_bytes=a, b_bytes=b):
            where = " on the cards" if of == "gpu" else ""
            return f"{size_text(b)}{where}; A {size_text(a)}"
        case PairsSeen() as pairs:
            return _pairs(gate.asked, pairs)


def _pairs(rule: GateSpec, found: PairsSeen) -> str:
    pairs = count_text(found.pairs, "pair")
    match rule:
        case NoMoreErrors():
            return f"{count_text(found.errors_b, 'error')} against {found.errors_a}, {pairs}"
        case EndingShare():
            counts = f"{found.errors_b} unfinished against {found.errors_a}"
            return f"{_difference(found.difference)}; {counts}, {pairs}"
        case AgreementShare():
            return f"{found.pairs - found.errors_b} equal of {pairs}{_share(found.difference)}"
        case _:
            return f"{_difference(found.difference)}, {pairs}"


def _speeds(found: SpeedSeen) -> str:
    a, b = (f"{one.tokens_per_s:.4g}" if isinstance(one, Speed) else "unknown" for one in (found.a, found.b))
    speeds = f"{b} tokens/s against {a}"
    match found.ratio:
        case Interval(point=point, low=low, high=high):
            return f"x{point:.3f} (x{low:.3f} to x{high:.3f}); {speeds}"
        case CannotTell():
            return speeds


def _nats(found: Interval | CannotTell) -> str:
    match found:
        case Interval(low=low, high=high):
            return f" ({nats_text(low)} to {nats_text(high)})"
        case CannotTell():
            return ""


def _difference(found: Interval | CannotTell) -> str:
    match found:
        case Interval(point=point):
            return f"{share_points(point)} ({interval_text('right-share', found)})"
        case CannotTell():
            return "no interval"


def _share(found: Interval | CannotTell) -> str:
    """The share of equal answers, of which the interval holds how far it lies from 1."""
    match found:
        case Interval(low=low, high=high):
            return f" ({share_percent(max(1 + low, 0.0))} to {share_percent(min(1 + high, 1.0))})"
        case CannotTell():
            return ""


def _row(gate: Gate) -> Row:
    return (
        rule_of(gate.asked),
        place_of(gate.asked),
        asks(gate.asked),
        seen(gate),
        _noise(gate),
        gate.verdict,
    )


def _noise(gate: Gate) -> str:
    match gate.seen:
        case PairsSeen(noise_share=float(share)):
            return share_percent(share)
        case DistanceSeen(noise_nats=float(nats)):
            return f"{nats_text(nats)} nats"
        case SpeedSeen(noise_ratio=float(ratio)):
            return f"x{ratio:.3f}"
        case _:
            return "-"


def _open(gate: Gate) -> str:
    """Why a gate is undecided, and what would decide it."""
    match gate.seen:
        case PairsSeen(needed=PairsNeeded(more=more, pairs=pairs, verdict=verdict)) if more:
            would = f"{count_text(pairs, 'pair')} ({more} more) would decide: {verdict}"
            return f"{gate.why}; if what was seen is true, {would}"
        case _:
            return gate.why
