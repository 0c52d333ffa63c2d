"""Acceptance rules that were fixed before the run, and what the pairs say about them.

- ``non-inferior``: the interval of the difference of shares lies above −margin (pass) or below it (fail).
- ``no-more-errors``: side B has at most as many errors as side A, and ``margin_share`` of the pairs more. A count of
  these very items, no estimate.
- ``ending-share``: the same as ``non-inferior``, of the share of replies that were finished.
- ``agreement-share``: the interval of the share of answers that are those of side A lies above 1 − margin (pass) or
  below it (fail).

Items in no pair are counted against B, and then for B; where that changes the answer, it is undecided. The gates of
both locks hold, so that none can be dropped by comparing with another lock.

Where two runs of one point were measured, and as much as the margin moves between them, the gate is undecidable: it is
never passed, and it fails only where B is worse by more than the noise too.

Does not live here: the formulas (``core.stats``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from qlock.core import stats
from qlock.core.agreement import is_equal, wrote
from qlock.core.base import Base, Count, Finite, Share
from qlock.core.endings import UNFINISHED
from qlock.core.escape import for_message
from qlock.core.pairs import MOST_MISSING_SHARE, Cells, Pair, Pairing, ending_of
from qlock.core.record import Row
from qlock.core.scores import paired_scores
from qlock.core.slices import slices_meant, slices_of
from qlock.core.spec import GateRule, GateSpec
from qlock.core.stats import CannotTell, Interval, PairsNeeded
from qlock.core.units import share_percent

GateVerdict = Literal["pass", "fail", "undecided"]
GATE_VERDICTS: tuple[GateVerdict, ...] = get_args(GateVerdict)


class Gate(Base, frozen=True, kw_only=True):
    """One rule and its answer."""

    suite: str
    slice: str
    """As the spec says it; empty for all items."""
    rule: GateRule
    margin_share: Finite
    verdict: GateVerdict
    why: str
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


def judge(
    rule: GateSpec,
    pairing: Pairing | None,
    *,
    withheld: str = "",
    same_tokenizer: bool = True,
    again: Sequence[Pairing] = (),
) -> Gate:
    """What the pairs of the rule's suite say.

    Args:
        rule: The gate.
        pairing: Of its suite; ``None`` where not both sides sat it.
        withheld: Why nothing may be judged; empty where it may.
        same_tokenizer: Whether answers are compared by their tokens.
        again: The suite of a point paired with another run of that point: what moves is noise.
    """
    if pairing is None:
        return _undecided(rule, f"the suite `{rule.suite}` is not on both sides")
    is_of_marks = rule.rule in ("non-inferior", "no-more-errors")
    pairs = _seen(rule, pairing)
    if isinstance(pairs, str):
        return _undecided(rule, pairs)
    if withheld:
        return _undecided(rule, withheld)
    lost = pairing.lost if is_of_marks else _unpaired(pairing)
    every = len(pairing.scored if is_of_marks else pairing.matched) + lost
    if lost > MOST_MISSING_SHARE * every:
        which = "scored pair" if is_of_marks else "pair"
        return _undecided(rule, f"more than {MOST_MISSING_SHARE:.0%} of the items are in no {which}")
    match rule.rule:
        case "non-inferior":
            found = _non_inferior(rule, _once(pairs), lost)
        case "no-more-errors":
            found = _no_more_errors(rule, pairs, lost)
        case "ending-share":
            found = _ending_share(rule, _once(pairs), lost)
        case "agreement-share":
            found = _agreement_share(rule, _once(pairs), lost, same_tokenizer=same_tokenizer)
    return _beside_noise(found, _noise(rule, again, same_tokenizer=same_tokenizer))


def pairs_in(pairs: Sequence[Pair], slice_: str) -> list[Pair] | str:
    """Pairs of a slice, named ``NAME=VALUE`` or by a value that occurs in one slice alone; or why there are none."""
    if not slice_:
        return list(pairs)
    members = slices_of(pairs)
    named = slices_meant(members, slice_)
    if not named:
        return f"no scored pair lies in the slice `{for_message(slice_)}`"
    if len(named) > 1:
        return f"the slice `{for_message(slice_)}` could be any of {', '.join(map(for_message, named[:5]))}"
    return members[named[0]]


def _seen(rule: GateSpec, pairing: Pairing) -> list[Pair] | str:
    """The pairs that a rule looks at, or why there are none."""
    match rule.rule:
        case "non-inferior" | "no-more-errors":
            pairs = pairs_in(pairing.scored, rule.slice)
            if not isinstance(pairs, str) and paired_scores(pairs, exact=False).measure == "nats-per-token":
                return "the suite has no right and wrong"
            return pairs
        case "ending-share" | "agreement-share":
            pairs = pairs_in(pairing.matched, rule.slice)
            if isinstance(pairs, str):
                return pairs
            written = [pair for pair in pairs if ending_of(pair.a.row) and ending_of(pair.b.row)]
            return "nothing is written in this suite" if pairs and not written else written


def _unpaired(pairing: Pairing) -> int:
    """Items that only one side has, or neither."""
    return sum(loss.items for loss in pairing.losses if loss.why in ("absent", "another-item"))


def _once(pairs: list[Pair]) -> list[Pair]:
    """Each item once, where all its repeats came out alike on both sides: they say no more than one of them."""
    first: dict[str, Pair] = {}
    for pair in pairs:
        if _looks(first.setdefault(pair.item, pair)) != _looks(pair):
            return pairs
    return list(first.values())


def _looks(pair: Pair) -> tuple[object, ...]:
    return tuple((half.mark, ending_of(half.row), half.row.replies) for half in (pair.a, pair.b))


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
        noise_share=unknown,
    )


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule came to."""

    verdict: GateVerdict
    why: str
    difference: Interval | CannotTell
    needed: PairsNeeded | CannotTell


def _gate(rule: GateSpec, pairs: Sequence[Pair], errors: tuple[int, int], answer: _Answer) -> Gate:
    return Gate(
        suite=rule.suite,
        slice=for_message(rule.slice),
        rule=rule.rule,
        margin_share=rule.margin_share,
        verdict=answer.verdict,
        why=answer.why,
        pairs=len(pairs),
        errors_a=errors[0],
        errors_b=errors[1],
        difference=answer.difference,
        needed=answer.needed,
        noise_share=_UNMEASURED,
    )


_UNMEASURED = CannotTell(why="no point was run twice")
_CLUSTERED = CannotTell(why="the number of pairs is worked out for right and wrong alone")


def _errors(pairs: Sequence[Pair]) -> tuple[int, int]:
    return sum(1 for pair in pairs if pair.a.mark != 1.0), sum(1 for pair in pairs if pair.b.mark != 1.0)


def _no_more_errors(rule: GateSpec, pairs: Sequence[Pair], lost: int) -> Gate:
    errors = _errors(pairs)
    allowed = errors[0] + rule.margin_share * len(pairs)
    verdict: GateVerdict = "undecided"
    why = f"{errors[1]} errors against {errors[0]}"
    if errors[1] - lost > allowed:
        verdict = "fail"
    elif errors[1] + lost <= allowed and pairs:
        verdict = "pass"
    else:
        why = _could_change(lost) if pairs else "there are no pairs"
    needed = CannotTell(why="the rule counts these very items")
    difference = paired_scores(pairs).difference
    return _gate(rule, pairs, errors, _Answer(verdict=verdict, why=why, difference=difference, needed=needed))


def _non_inferior(rule: GateSpec, pairs: Sequence[Pair], lost: int) -> Gate:
    found = paired_scores(pairs)
    match found.cells:
        case Cells() as cells:
            answer = _by_cells(rule, cells, lost)
        case CannotTell():
            answer = _by_interval(rule, found.difference, lost / (len(pairs) + lost), lost)
    return _gate(rule, pairs, _errors(pairs), answer)


def _ending_share(rule: GateSpec, pairs: Sequence[Pair], lost: int) -> Gate:
    """Non-inferiority of the share of replies that are finished."""
    ends = [(_is_finished(pair.a.row), _is_finished(pair.b.row)) for pair in pairs]
    errors = (sum(not a for a, _ in ends), sum(not b for _, b in ends))
    if len({pair.item for pair in pairs}) == len(pairs):
        both, only_a = ends.count((True, True)), ends.count((True, False))
        only_b, neither = ends.count((False, True)), ends.count((False, False))
        answer = _by_cells(rule, Cells(both=both, only_a=only_a, only_b=only_b, neither=neither), lost)
    else:
        interval = stats.cluster_mean([float(b) - float(a) for a, b in ends], [pair.item for pair in pairs])
        answer = _by_interval(rule, interval, lost / (len(pairs) + lost), lost)
    return _gate(rule, pairs, errors, _said(answer, f"{errors[1]} unfinished against {errors[0]}"))


def _agreement_share(rule: GateSpec, pairs: Sequence[Pair], lost: int, *, same_tokenizer: bool) -> Gate:
    """Whether the share of equal answers is 1 but for the margin."""
    equal = [wrote(pair) and is_equal(pair, same_tokenizer=same_tokenizer) for pair in pairs]
    n, same = len(pairs), sum(equal)
    moved = lost / max(n + lost, 1)
    if len({pair.item for pair in pairs}) == n:
        answer = _by_interval(rule, _below_one(stats.wilson(same, n)), moved, lost)
    else:
        distance = stats.cluster_mean([float(one) - 1.0 for one in equal], [pair.item for pair in pairs])
        answer = _by_interval(rule, distance, moved, lost)
    return _gate(rule, pairs, (0, n - same), _said(answer, f"{same} of {n} answers are the same"))


def _is_finished(row: Row) -> bool:
    return ending_of(row) not in UNFINISHED


def _below_one(share: Interval | CannotTell) -> Interval | CannotTell:
    """How far a share lies from 1, as a difference."""
    match share:
        case Interval(point=point, low=low, high=high):
            return msgspec.structs.replace(share, point=point - 1, low=low - 1, high=high - 1)
        case CannotTell():
            return share


def _said(answer: _Answer, counts: str) -> _Answer:
    """The answer with what was counted, where nothing else is to be said."""
    return answer if answer.why else msgspec.structs.replace(answer, why=counts)


def _could_change(lost: int) -> str:
    return f"{lost} items are in no scored pair and could change it"


def _by_interval(rule: GateSpec, difference: Interval | CannotTell, moved: float, lost: int) -> _Answer:
    """By an interval, which the lost items could move by their share."""
    answer = stats.verdict_of(difference, rule.margin_share)
    verdict, why = answer.verdict, answer.why
    match difference:
        case Interval(low=low, high=high) if lost and verdict != "undecided":
            if low - moved <= -rule.margin_share <= high + moved:
                verdict, why = "undecided", _could_change(lost)
        case _:
            pass
    return _Answer(verdict=verdict, why=why, difference=difference, needed=_CLUSTERED)


def _by_cells(rule: GateSpec, cells: Cells, lost: int) -> _Answer:
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
        verdict, why = "undecided", _could_change(lost)
    counts = {
        "both": cells.both,
        "only_a": cells.only_a,
        "only_b": cells.only_b,
        "neither": cells.neither,
    }
    return _Answer(
        verdict=verdict,
        why=why,
        difference=stats.newcombe_paired(**counts),
        needed=stats.pairs_to_decide(**counts, margin_share=rule.margin_share),
    )


def _noise(rule: GateSpec, again: Sequence[Pairing], *, same_tokenizer: bool) -> float | CannotTell:
    """The largest share of pairs that count otherwise in another run of one point."""
    shares = []
    for pairing in again:
        pairs = _seen(rule, pairing)
        if isinstance(pairs, str) or not pairs:
            continue
        moved = sum(1 for pair in pairs if _moved(rule.rule, pair, same_tokenizer=same_tokenizer))
        shares.append(moved / len(pairs))
    return max(shares, default=None) or (0.0 if shares else _UNMEASURED)


def _moved(rule: GateRule, pair: Pair, *, same_tokenizer: bool) -> bool:
    match rule:
        case "non-inferior":
            return pair.a.mark != pair.b.mark
        case "no-more-errors":
            return (pair.a.mark == 1.0) != (pair.b.mark == 1.0)
        case "ending-share":
            return _is_finished(pair.a.row) != _is_finished(pair.b.row)
        case "agreement-share":
            return not is_equal(pair, same_tokenizer=same_tokenizer)


def _beside_noise(gate: Gate, noise: float | CannotTell) -> Gate:
    """The gate with the noise, and undecidable where its margin lies under it and B is not worse by more."""
    gate = msgspec.structs.replace(gate, noise_share=noise)
    if isinstance(noise, CannotTell) or gate.margin_share >= noise:
        return gate
    worse = 0.0
    match gate.rule, gate.difference:
        case "no-more-errors", _:
            worse = (gate.errors_b - gate.errors_a) / max(gate.pairs, 1)
        case _, Interval(high=high):
            worse = -high
        case _:
            pass
    if gate.verdict == "fail" and worse > noise:
        return gate
    return msgspec.structs.replace(
        gate,
        verdict="undecided",
        why=f"undecidable: the margin lies under the noise of {share_percent(noise)}",
        needed=CannotTell(why="no number of items decides within the noise"),
    )
