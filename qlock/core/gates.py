"""Acceptance rules that were fixed before the run, and what the pairs say about them.

- ``non-inferior``: the interval of the difference of shares lies above −margin (pass) or below it (fail).
- ``no-more-errors``: side B has at most as many errors as side A, and ``margin_share`` of the pairs more. A count of
  these very items, no estimate.

Items in no scored pair are counted against B, and then for B; where that changes the answer, it is undecided. The
gates of both locks hold, so that none can be dropped by comparing with another lock.

Does not live here: the formulas (``core.stats``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from qlock.core import stats
from qlock.core.base import Base, Count, Finite
from qlock.core.escape import for_message
from qlock.core.pairs import MOST_MISSING_SHARE, Cells, Pair, Pairing
from qlock.core.scores import paired_scores
from qlock.core.slices import slices_of
from qlock.core.spec import GateSpec
from qlock.core.stats import CannotTell, Interval, PairsNeeded

GateVerdict = Literal["pass", "fail", "undecided"]
GATE_VERDICTS: tuple[GateVerdict, ...] = get_args(GateVerdict)


class Gate(Base, frozen=True, kw_only=True):
    """One rule and its answer."""

    suite: str
    slice: str
    """As the spec says it; empty for all items."""
    rule: Literal["non-inferior", "no-more-errors"]
    margin_share: Finite
    verdict: GateVerdict
    why: str
    pairs: Count
    errors_a: Count
    errors_b: Count
    difference: Interval | CannotTell
    needed: PairsNeeded | CannotTell
    """How many pairs would decide."""


def judge(rule: GateSpec, pairing: Pairing | None, *, withheld: str = "") -> Gate:
    """What the pairs of the rule's suite say.

    Args:
        rule: The gate.
        pairing: Of its suite; ``None`` where not both sides sat it.
        withheld: Why nothing may be judged; empty where it may.
    """
    if pairing is None:
        return _undecided(rule, f"the suite `{rule.suite}` is not on both sides")
    pairs = pairs_in(pairing.scored, rule.slice)
    if isinstance(pairs, str):
        return _undecided(rule, pairs)
    if withheld:
        return _undecided(rule, withheld)
    if pairing.lost_share > MOST_MISSING_SHARE:
        return _undecided(rule, f"more than {MOST_MISSING_SHARE:.0%} of the items are in no scored pair")
    found = paired_scores(pairs)
    if found.measure == "nats-per-token":
        return _undecided(rule, "the suite has no right and wrong")
    match rule.rule:
        case "non-inferior":
            return _non_inferior(rule, pairs, pairing)
        case "no-more-errors":
            return _no_more_errors(rule, pairs, pairing)


def pairs_in(pairs: Sequence[Pair], slice_: str) -> list[Pair] | str:
    """Pairs of a slice, named ``NAME=VALUE`` or by a value that occurs in one slice alone; or why there are none."""
    if not slice_:
        return list(pairs)
    members = slices_of(pairs)
    if slice_ in members:
        return members[slice_]
    named = [name for name in sorted(members) if name.partition("=")[2] == slice_]
    if not named:
        return f"no scored pair lies in the slice `{for_message(slice_)}`"
    if len(named) > 1:
        return f"the slice `{for_message(slice_)}` could be any of {', '.join(map(for_message, named[:5]))}"
    return members[named[0]]


def _undecided(rule: GateSpec, why: str) -> Gate:
    unknown = CannotTell(why=why)
    return Gate(
        suite=rule.suite,
        slice=for_message(rule.slice),
        rule=rule.rule,
        margin_share=rule.margin_share,
        verdict="undecided",
        why=why,
        pairs=0,
        errors_a=0,
        errors_b=0,
        difference=unknown,
        needed=unknown,
    )


def _gate(
    rule: GateSpec, pairs: Sequence[Pair], *, verdict: GateVerdict, why: str, needed: PairsNeeded | CannotTell
) -> Gate:
    return Gate(
        suite=rule.suite,
        slice=for_message(rule.slice),
        rule=rule.rule,
        margin_share=rule.margin_share,
        verdict=verdict,
        why=why,
        pairs=len(pairs),
        errors_a=_errors(pairs)[0],
        errors_b=_errors(pairs)[1],
        difference=paired_scores(pairs).difference,
        needed=needed,
    )


def _errors(pairs: Sequence[Pair]) -> tuple[int, int]:
    return sum(1 for pair in pairs if pair.a.mark != 1.0), sum(1 for pair in pairs if pair.b.mark != 1.0)


def _no_more_errors(rule: GateSpec, pairs: Sequence[Pair], pairing: Pairing) -> Gate:
    errors_a, errors_b = _errors(pairs)
    allowed = errors_a + rule.margin_share * len(pairs)
    lost = pairing.lost
    exact = CannotTell(why="the rule counts these very items")
    if errors_b - lost > allowed:
        return _gate(rule, pairs, verdict="fail", why=f"{errors_b} errors against {errors_a}", needed=exact)
    if errors_b + lost <= allowed and pairs:
        return _gate(rule, pairs, verdict="pass", why=f"{errors_b} errors against {errors_a}", needed=exact)
    why = f"{lost} items are in no scored pair and could change it" if pairs else "there are no pairs"
    return _gate(rule, pairs, verdict="undecided", why=why, needed=exact)


def _non_inferior(rule: GateSpec, pairs: Sequence[Pair], pairing: Pairing) -> Gate:
    found = paired_scores(pairs)
    match found.cells:
        case Cells() as cells:
            return _by_cells(rule, pairs, cells, lost=pairing.lost)
        case CannotTell():
            pass
    answer = stats.verdict_of(found.difference, rule.margin_share)
    verdict, why = answer.verdict, answer.why
    if verdict != "undecided" and pairing.lost:
        moved = pairing.lost / (len(pairs) + pairing.lost)
        assert isinstance(answer.interval, Interval)
        room = (answer.interval.low - moved, answer.interval.high + moved)
        if room[0] <= -rule.margin_share <= room[1]:
            verdict, why = "undecided", f"{pairing.lost} items are in no scored pair and could change it"
    return _gate(
        rule,
        pairs,
        verdict=verdict,
        why=why,
        needed=CannotTell(why="the number of pairs is worked out for right and wrong alone"),
    )


def _by_cells(rule: GateSpec, pairs: Sequence[Pair], cells: Cells, *, lost: int) -> Gate:
    answers = [
        stats.non_inferior(
            both=cells.both,
            only_a=cells.only_a + against,
            only_b=cells.only_b + in_favour,
            neither=cells.neither,
            margin_share=rule.margin_share,
        )
        for against, in_favour in ((0, 0), (lost, 0), (0, lost))
    ]
    verdict, why = answers[0].verdict, answers[0].why
    if verdict != "undecided" and len({answer.verdict for answer in answers}) > 1:
        verdict, why = "undecided", f"{lost} items are in no scored pair and could change it"
    needed = stats.pairs_to_decide(
        both=cells.both,
        only_a=cells.only_a,
        only_b=cells.only_b,
        neither=cells.neither,
        margin_share=rule.margin_share,
    )
    return _gate(rule, pairs, verdict=verdict, why=why, needed=needed)
