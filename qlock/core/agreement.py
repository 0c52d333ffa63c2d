"""Agreement: how many answers are the same, where others diverge, and which items changed their mark.

Token ids are compared where both sides have one tokenizer, otherwise the text; nothing is rounded or normalized.
Flips are for reading by people: both answers are shortened, made safe to show, and bounded in number.

Does not live here: what a flip does to the score (``core.scores``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Literal

from msgspec.structs import replace

from qlock.core import stats
from qlock.core.base import Base, Count, Positive, Share
from qlock.core.digest import blake3_of
from qlock.core.escape import for_message, for_terminal
from qlock.core.exchange import (
    Completed,
    Divergence,
    Excluded,
    Nats,
    Outcome,
    Partial,
    Reply,
    Right,
    Ungraded,
    Unparsable,
    Wrong,
)
from qlock.core.pairs import Half, Pair, ending_of
from qlock.core.parts import PartDifference, Parts, part_differences, parts
from qlock.core.record import Row
from qlock.core.stats import CannotTell, Interval

MOST_FLIPS = 50
"""So many flips of a suite are told in each direction."""

TEXT_LIMIT = 2_000
"""Characters of an answer beside a flip; a report with less room shortens it further."""

_LONG = 5 * TEXT_LIMIT

_MOST_SLICES = 8


class Quartiles(Base, frozen=True, kw_only=True, tag_field="kind", tag="quartiles"):
    """Where answers diverge: positions of the first token that differs, from 0."""

    n: Positive
    least: Count
    lower: Count
    median: Count
    upper: Count
    most: Count


class Bucket(Base, frozen=True, kw_only=True):
    """How many answers diverge in a stretch of positions: 0, 1, 2 to 3, 4 to 7, and so on."""

    first: Count
    last: Count
    answers: Count


class Flip(Base, frozen=True, kw_only=True):
    """An item whose mark is not the same on both sides."""

    item: str
    repeat: Positive
    slices: tuple[str, ...]
    """``NAME=VALUE``."""
    mark_a: Share
    mark_b: Share
    outcome_a: str
    outcome_b: str
    ending_a: str
    ending_b: str
    diverge_at: Count | CannotTell
    """First token that differs."""
    text_a: str
    """What was written, shortened, with every control character but line feeds written out."""
    text_b: str
    difference: tuple[PartDifference, ...]
    """What was read otherwise out of the two, where the grader reads answers part by part."""


class Agreement(Base, frozen=True, kw_only=True, tag_field="kind", tag="agreement"):
    """How alike the answers of a suite are."""

    by: Literal["tokens", "text"]
    answers: Count
    """Pairs in which both sides wrote something."""
    equal: Count
    equal_share: Interval | CannotTell
    diverge_at: Quartiles | CannotTell
    """Over the answers that are not equal."""
    bucket: tuple[Bucket, ...]
    """The same answers by where they diverge, without a gap from the first stretch to the last that occurs."""
    worse: Count
    """Pairs whose mark is lower on side B."""
    better: Count
    flip: tuple[Flip, ...]
    """The first of those that got worse, then of those that got better."""
    parts: Parts


def agreement(
    matched: Sequence[Pair], *, same_tokenizer: bool, first: Collection[str] = ()
) -> Agreement | CannotTell:
    """How alike the answers are; cannot tell where nothing was written.

    Args:
        matched: Every pair.
        same_tokenizer: Whether token ids mean the same on both sides.
        first: Slices, as gates name them, whose flips are told before all others.
    """
    written = [pair for pair in matched if wrote(pair)]
    if not written:
        return CannotTell(why="no pair has a written answer on both sides")
    apart = [pair for pair in written if not is_equal(pair, same_tokenizer=same_tokenizer)]
    equal = len(written) - len(apart)
    positions = [_diverge_at(pair) for pair in apart] if same_tokenizer else []
    ordered = sorted(matched, key=lambda pair: not _lies_in(pair, first)) if first else matched
    worse = [pair for pair in ordered if _gain(pair) < 0]
    better = [pair for pair in ordered if _gain(pair) > 0]
    return Agreement(
        by="tokens" if same_tokenizer else "text",
        answers=len(written),
        equal=equal,
        equal_share=_equal_share(written, apart),
        diverge_at=_quartiles(positions) if same_tokenizer else CannotTell(why="the tokenizers differ"),
        bucket=buckets(positions),
        worse=len(worse),
        better=len(better),
        flip=tuple(
            _flip(pair, same_tokenizer=same_tokenizer) for pair in (*worse[:MOST_FLIPS], *better[:MOST_FLIPS])
        ),
        parts=parts(matched),
    )


def _equal_share(written: Sequence[Pair], apart: Sequence[Pair]) -> Interval | CannotTell:
    """Share of equal answers; those of one item in its repeats are no independent ones."""
    unequal = {(pair.item, pair.repeat) for pair in apart}
    equal = [float((pair.item, pair.repeat) not in unequal) for pair in written]
    return stats.share_interval(equal, [pair.item for pair in written])


def wrote(pair: Pair) -> bool:
    """Whether both sides of a pair wrote an answer."""
    return _wrote(pair.a.row) and _wrote(pair.b.row)


def is_equal(pair: Pair, *, same_tokenizer: bool) -> bool:
    """Whether both answers of a pair are the same: in their tokens, or their text where the tokenizers differ."""
    a, b = _answer(pair.a.row), _answer(pair.b.row)
    return a.tokens == b.tokens if same_tokenizer else a.text == b.text


def without_long_texts(row: Row) -> Row:
    """The same row for a comparison, which shows the ends of texts and no more: long ones have their middle cut out.

    Length and digest stand in its place, so that texts are equal where they were.
    """
    replies: list[Reply] = []
    for reply in row.replies:
        match reply:
            case Completed(text=text) if len(text) > _LONG:
                digest = blake3_of(text.encode(errors="surrogatepass"))
                cut = f"{text[:TEXT_LIMIT]}… ({len(text)} characters, {digest}) …{text[-TEXT_LIMIT:]}"
                replies.append(replace(reply, text=cut))
            case _:
                replies.append(reply)
    return replace(row, replies=tuple(replies))


def first_difference(a: Sequence[int], b: Sequence[int]) -> int:
    """Index of the first token that differs; the length of the shorter one where it begins the longer one."""
    for index, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return index
    return min(len(a), len(b))


def _diverge_at(pair: Pair) -> int:
    return first_difference(_answer(pair.a.row).tokens, _answer(pair.b.row).tokens)


def buckets(positions: Sequence[int]) -> tuple[Bucket, ...]:
    """Positions counted in stretches that double in length."""
    counts = Counter(position.bit_length() for position in positions)
    if not counts:
        return ()
    return tuple(
        Bucket(first=(1 << bits) >> 1, last=(1 << bits) - 1, answers=counts[bits])
        for bits in range(min(counts), max(counts) + 1)
    )


class _Answer(Base, frozen=True, kw_only=True):
    """All replies of a row in one."""

    tokens: tuple[int, ...]
    text: str


def _wrote(row: Row) -> bool:
    return bool(row.replies) and all(isinstance(reply, Completed) for reply in row.replies)


def _answer(row: Row) -> _Answer:
    replies = [reply for reply in row.replies if isinstance(reply, Completed)]
    if len(replies) == 1:
        return _Answer(tokens=replies[0].tokens, text=replies[0].text)
    return _Answer(
        tokens=tuple(token for reply in replies for token in reply.tokens),
        text="\n".join(reply.text for reply in replies),
    )


def _lies_in(pair: Pair, slices: Collection[str]) -> bool:
    return any(value in slices or f"{name}={value}" in slices for name, value in pair.a.row.slices.items())


def _gain(pair: Pair) -> float:
    a, b = pair.a.mark, pair.b.mark
    return 0.0 if a is None or b is None else b - a


def _quartiles(positions: list[int]) -> Quartiles | CannotTell:
    """By the nearest rank from below, so that each is a position that occurs."""
    if not positions:
        return CannotTell(why="all answers are equal")
    ordered = sorted(positions)
    last = len(ordered) - 1
    least, lower, median, upper, most = (ordered[last * quarter // 4] for quarter in range(5))
    return Quartiles(n=len(ordered), least=least, lower=lower, median=median, upper=upper, most=most)


def _flip(pair: Pair, *, same_tokenizer: bool) -> Flip:
    a, b = _answer(pair.a.row), _answer(pair.b.row)
    names = sorted(pair.a.row.slices)[:_MOST_SLICES]
    return Flip(
        item=for_message(pair.item),
        repeat=pair.repeat,
        slices=tuple(for_message(f"{name}={pair.a.row.slices[name]}") for name in names),
        mark_a=pair.a.mark or 0.0,
        mark_b=pair.b.mark or 0.0,
        outcome_a=_told(pair.a.outcome),
        outcome_b=_told(pair.b.outcome),
        ending_a=_ending(pair.a),
        ending_b=_ending(pair.b),
        diverge_at=_diverge_at(pair) if same_tokenizer else CannotTell(why="the tokenizers differ"),
        text_a=for_terminal(a.text, limit=TEXT_LIMIT),
        text_b=for_terminal(b.text, limit=TEXT_LIMIT),
        difference=part_differences(pair),
    )


def _ending(half: Half) -> str:
    return ending_of(half.row) or ""


def _told(outcome: Outcome) -> str:
    """An outcome in words, safe to show."""
    match outcome:
        case Right():
            return "right"
        case Partial(share=share):
            return f"partial: {share:.3f}"
        case Wrong(why=why):
            return for_message(f"wrong: {why}")
        case Unparsable(why=why):
            return for_message(f"unparsable: {why}")
        case Ungraded() | Excluded() | Nats() | Divergence():
            return "not marked"
