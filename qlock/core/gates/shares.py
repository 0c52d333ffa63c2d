"""Rules about shares of a suite's items, and what the pairs say about them.

- ``non-inferior``: the interval of the difference of shares lies above −margin (pass) or below it (fail).
- ``no-more-errors``: side B has at most as many errors as side A, and ``margin_share`` of the pairs more. A count of
  these very items, no estimate.
- ``ending-share``: the same as ``non-inferior``, of the share of replies that were finished.
- ``agreement-share``: the interval of the share of answers that are those of side A lies above 1 − margin (pass) or
  below it (fail).

Items in no pair are counted against B, and then for B; where that changes the answer, it is undecided.

Where two runs of one point were measured, and as much as the margin moves between them, the gate is undecidable: it is
never passed, and it fails only where B is worse by more than the noise too.

Does not live here: the formulas (``core.stats``).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from qlock.core import stats
from qlock.core.agreement import is_equal, wrote
from qlock.core.endings import UNFINISHED
from qlock.core.gates.interface import Gate, GateVerdict, PairsSeen, gate, undecided
from qlock.core.pairs import MOST_MISSING_SHARE, Pair, Pairing, ending_of
from qlock.core.record import Row
from qlock.core.rules import AgreementShare, EndingShare, NoMoreErrors, NonInferior, ShareSpec
from qlock.core.scores import is_cost, measure_of, paired_scores
from qlock.core.slices import slices_meant, slices_of, why_no_slice
from qlock.core.stats import CannotTell, Interval, PairedMarks, PairsNeeded
from qlock.core.units import count_text, share_percent


def judge(
    rule: ShareSpec,
    pairing: Pairing,
    *,
    withheld: str = "",
    same_tokenizer: bool = True,
    again: Sequence[Pairing] = (),
) -> Gate:
    """What the pairs of the rule's suite say.

    Args:
        rule: The gate.
        pairing: Of its suite.
        withheld: Why nothing may be judged; empty where it may.
        same_tokenizer: Whether answers are compared by their tokens.
        again: The suite of a point paired with another run of that point: what moves is noise.
    """
    pairs = _seen(rule, pairing)
    if isinstance(pairs, str):
        return undecided(rule, pairs)
    if withheld:
        return undecided(rule, withheld)
    match rule:
        case NonInferior() | NoMoreErrors():
            lost, paired, which = pairing.lost, len(pairing.scored), "scored pair"
        case EndingShare() | AgreementShare():
            lost, paired, which = _unpaired(pairing), len(pairing.matched), "pair"
    if lost > MOST_MISSING_SHARE * (paired + lost):
        return undecided(rule, f"more than {MOST_MISSING_SHARE:.0%} of the items are in no {which}")
    match rule:
        case NonInferior():
            found = _non_inferior(rule, pairs, lost)
        case NoMoreErrors():
            found = _no_more_errors(rule, pairs, lost)
        case EndingShare():
            found = _ending_share(rule, pairs, lost)
        case AgreementShare():
            found = _agreement_share(rule, pairs, lost, same_tokenizer=same_tokenizer)
    answer = _beside_noise(rule, found, noise_share(rule, again, same_tokenizer=same_tokenizer))
    return gate(rule, answer.verdict, answer.why, answer.seen)


def pairs_in(pairs: Sequence[Pair], slice_: str) -> list[Pair] | str:
    """Pairs of a slice, named ``NAME=VALUE`` or by a value that occurs in one slice alone; or why there are none."""
    if not slice_:
        return list(pairs)
    members = slices_of(pairs)
    named = slices_meant(members, slice_)
    if len(named) != 1:
        return why_no_slice(slice_, named, of="scored pair")
    return members[named[0]]


def _seen(rule: ShareSpec, pairing: Pairing) -> list[Pair] | str:
    """The pairs that a rule looks at, or why there are none."""
    match rule:
        case NonInferior() | NoMoreErrors():
            pairs = pairs_in(pairing.scored, rule.slice)
            if not isinstance(pairs, str) and is_cost(measure_of(pairs)):
                return "the suite has no right and wrong"
            return pairs
        case EndingShare() | AgreementShare():
            pairs = pairs_in(pairing.matched, rule.slice)
            if isinstance(pairs, str):
                return pairs
            written = [pair for pair in pairs if ending_of(pair.a.row) and ending_of(pair.b.row)]
            return "nothing is written in this suite" if pairs and not written else written


def _unpaired(pairing: Pairing) -> int:
    """Items that only one side has, or neither."""
    return sum(loss.items for loss in pairing.losses if loss.why in ("absent", "another-item"))


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule came to, and on what."""

    verdict: GateVerdict
    why: str
    seen: PairsSeen


class _Decided(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule came to by its counts or its interval."""

    verdict: GateVerdict
    why: str
    difference: Interval | CannotTell
    needed: PairsNeeded | CannotTell


def _answer(pairs: Sequence[Pair], errors: tuple[int, int], decided: _Decided) -> _Answer:
    seen = PairsSeen(
        pairs=len(pairs),
        errors_a=errors[0],
        errors_b=errors[1],
        difference=decided.difference,
        needed=decided.needed,
        noise_share=_UNMEASURED,
    )
    return _Answer(verdict=decided.verdict, why=decided.why, seen=seen)


_UNMEASURED = CannotTell(why="no point was run twice")
_ONE_SIDED = CannotTell(why="the number of pairs is worked out for shares of both sides alone")


def _errors(pairs: Sequence[Pair]) -> tuple[int, int]:
    return sum(1 for pair in pairs if pair.a.mark != 1.0), sum(1 for pair in pairs if pair.b.mark != 1.0)


def _no_more_errors(rule: ShareSpec, pairs: Sequence[Pair], lost: int) -> _Answer:
    errors = _errors(pairs)
    allowed = errors[0] + rule.margin_share * len(pairs)
    verdict: GateVerdict = "undecided"
    why = f"{count_text(errors[1], 'error')} against {errors[0]}"
    if errors[1] - lost > allowed:
        verdict = "fail"
    elif errors[1] + lost <= allowed and pairs:
        verdict = "pass"
    else:
        why = _could_change(lost) if pairs else "there are no pairs"
    needed = CannotTell(why="the rule counts these very items")
    difference = paired_scores(pairs).difference
    return _answer(pairs, errors, _Decided(verdict=verdict, why=why, difference=difference, needed=needed))


def _non_inferior(rule: ShareSpec, pairs: Sequence[Pair], lost: int) -> _Answer:
    marks = paired_scores(pairs, exact=False).marks
    assert isinstance(marks, PairedMarks)  # text is turned away before
    return _answer(pairs, _errors(pairs), _by_marks(rule, marks, lost))


def _ending_share(rule: ShareSpec, pairs: Sequence[Pair], lost: int) -> _Answer:
    """Non-inferiority of the share of replies that are finished."""
    a = [float(_is_finished(pair.a.row)) for pair in pairs]
    b = [float(_is_finished(pair.b.row)) for pair in pairs]
    errors = (a.count(0.0), b.count(0.0))
    answer = _by_marks(rule, stats.paired_marks(a, b, [pair.item for pair in pairs]), lost)
    return _answer(pairs, errors, _said(answer, f"{errors[1]} unfinished against {errors[0]}"))


def _agreement_share(rule: ShareSpec, pairs: Sequence[Pair], lost: int, *, same_tokenizer: bool) -> _Answer:
    """Whether the share of equal answers is 1 but for the margin."""
    equal = [float(wrote(pair) and is_equal(pair, same_tokenizer=same_tokenizer)) for pair in pairs]
    n, same = len(pairs), equal.count(1.0)
    share = stats.share_interval(equal, [pair.item for pair in pairs])
    answer = _by_interval(rule, _below_one(share), lost / max(n + lost, 1), lost)
    return _answer(pairs, (0, n - same), _said(answer, f"{same} of {count_text(n, 'answer')} the same"))


def _is_finished(row: Row) -> bool:
    return ending_of(row) not in UNFINISHED


def _below_one(share: Interval | CannotTell) -> Interval | CannotTell:
    """How far a share lies from 1, as a difference."""
    match share:
        case Interval(point=point, low=low, high=high):
            return msgspec.structs.replace(share, point=point - 1, low=low - 1, high=high - 1)
        case CannotTell():
            return share


def _said(answer: _Decided, counts: str) -> _Decided:
    """The answer with what was counted, where nothing else is to be said."""
    return answer if answer.why else msgspec.structs.replace(answer, why=counts)


def _could_change(lost: int) -> str:
    return f"{count_text(lost, 'item')} in no pair could change it"


def _by_interval(rule: ShareSpec, difference: Interval | CannotTell, moved: float, lost: int) -> _Decided:
    """By an interval, which the lost items could move by their share."""
    answer = stats.verdict_of(difference, rule.margin_share)
    verdict, why = answer.verdict, answer.why
    match difference:
        case Interval(low=low, high=high) if lost and verdict != "undecided":
            if low - moved <= -rule.margin_share <= high + moved:
                verdict, why = "undecided", _could_change(lost)
        case _:
            pass
    return _Decided(verdict=verdict, why=why, difference=difference, needed=_ONE_SIDED)


def _by_marks(rule: ShareSpec, marks: PairedMarks, lost: int) -> _Decided:
    answers = [
        stats.non_inferior(table, margin_share=rule.margin_share)
        for table in (marks, marks.with_lost(only_a=lost), marks.with_lost(only_b=lost))
    ]
    verdict, why = answers[0].verdict, answers[0].why
    if verdict != "undecided" and len({answer.verdict for answer in answers}) > 1:
        verdict, why = "undecided", _could_change(lost)
    return _Decided(
        verdict=verdict,
        why=why,
        difference=answers[0].interval,
        needed=stats.pairs_to_decide(marks, margin_share=rule.margin_share),
    )


def noise_share(
    rule: ShareSpec, again: Sequence[Pairing], *, same_tokenizer: bool = True
) -> float | CannotTell:
    """The largest share of pairs that count otherwise in another run of one point."""
    shares = []
    for pairing in again:
        pairs = _seen(rule, pairing)
        if isinstance(pairs, str) or not pairs:
            continue
        moved = sum(1 for pair in pairs if _moved(rule, pair, same_tokenizer=same_tokenizer))
        shares.append(moved / len(pairs))
    return max(shares) if shares else _UNMEASURED


def _moved(rule: ShareSpec, pair: Pair, *, same_tokenizer: bool) -> bool:
    match rule:
        case NonInferior():
            return pair.a.mark != pair.b.mark
        case NoMoreErrors():
            return (pair.a.mark == 1.0) != (pair.b.mark == 1.0)
        case EndingShare():
            return _is_finished(pair.a.row) != _is_finished(pair.b.row)
        case AgreementShare():
            return not is_equal(pair, same_tokenizer=same_tokenizer)


def _beside_noise(rule: ShareSpec, answer: _Answer, noise: float | CannotTell) -> _Answer:
    """The answer with the noise, and undecidable where the margin lies under it and B is not worse by more."""
    seen = msgspec.structs.replace(answer.seen, noise_share=noise)
    answer = msgspec.structs.replace(answer, seen=seen)
    if isinstance(noise, CannotTell) or rule.margin_share >= noise:
        return answer
    worse = 0.0
    match rule, seen.difference:
        case NoMoreErrors(), _:
            worse = (seen.errors_b - seen.errors_a) / max(seen.pairs, 1)
        case _, Interval(high=high):
            worse = -high
        case _:
            pass
    if answer.verdict == "fail" and worse > noise:
        return answer
    return _Answer(
        verdict="undecided",
        why=f"undecidable: the margin lies under the noise of {share_percent(noise)}",
        seen=msgspec.structs.replace(
            seen, needed=CannotTell(why="no number of items decides within the noise")
        ),
    )
