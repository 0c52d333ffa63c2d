from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core import agreement as module
from qlock.core.agreement import (
    MOST_FLIPS,
    TEXT_LIMIT,
    Agreement,
    Bucket,
    Flip,
    Quartiles,
    agreement,
    buckets,
    first_difference,
    without_long_texts,
)
from qlock.core.digest import blake3_of
from qlock.core.escape import for_terminal
from qlock.core.exchange import Completed, Excluded, Failed, Wrong
from qlock.core.pairs import Pair, pair
from qlock.core.record import Row
from qlock.core.stats import CannotTell, share_interval, wilson
from tests.fakes.comparisons import DIVERGENCE, a_reading, a_sitting
from tests.fakes.documents import a_row

replace = msgspec.structs.replace


def matched(a: str, b: str) -> tuple[Pair, ...]:
    return pair((a_sitting(a),), (a_sitting(b),)).matched


def agreed(a: str, b: str, *, same_tokenizer: bool = True) -> Agreement:
    found = agreement(matched(a, b), same_tokenizer=same_tokenizer)
    assert isinstance(found, Agreement)
    return found


def test_equal_answers_are_counted_by_their_tokens() -> None:
    found = agreed("rrrw", "rrww")
    assert (found.by, found.answers, found.equal, found.equal_share) == ("tokens", 4, 3, wilson(3, 4))
    assert found.diverge_at == Quartiles(n=1, least=2, lower=2, median=2, upper=2, most=2)
    assert (found.worse, found.better) == (1, 0)


def test_equal_answers_to_one_item_are_no_independent_ones() -> None:
    sides = [
        tuple(a_sitting(side, repeat=repeat) for repeat in (1, 2)) for side in ("r" * 20, "r" * 16 + "w" * 4)
    ]
    found = agreement(pair(*sides).matched, same_tokenizer=True)
    assert isinstance(found, Agreement)
    items = [f"{number}" for number in range(20)] * 2
    assert (found.answers, found.equal) == (40, 32)
    assert found.equal_share == share_interval(([1.0] * 16 + [0.0] * 4) * 2, items)


def test_answers_of_two_tokenizers_are_compared_as_text() -> None:
    found = agreed("rw", "rr", same_tokenizer=False)
    assert (found.by, found.equal, found.diverge_at) == ("text", 1, CannotTell(why="the tokenizers differ"))
    assert found.flip[0].diverge_at == CannotTell(why="the tokenizers differ")


def test_where_all_are_equal_nothing_parts() -> None:
    assert agreed("rw", "rw").diverge_at == CannotTell(why="all answers are equal")


def test_a_failed_reply_is_no_answer() -> None:
    assert agreed("rr", "re").answers == 1


def test_text_that_is_only_scored_cannot_agree() -> None:
    pairs = pair((a_reading([1.0]),), (a_reading([1.0]),)).matched
    found = agreement(pairs, same_tokenizer=True)
    assert found == CannotTell(why="no pair has a written answer on both sides")


def test_flips_name_item_slices_marks_endings_and_both_answers() -> None:
    found = agreed("rw", "br")
    assert found.flip == (
        Flip(
            item="item-0001",
            repeat=1,
            slices=("bank=north", "third=1"),
            mark_a=1.0,
            mark_b=0.0,
            outcome_a="right",
            outcome_b="wrong: there is no answer",
            ending_a="eos",
            ending_b="budget",
            diverge_at=2,
            text_a="The answer is 42.",
            text_b="The answer is b.",
            difference=(),
        ),
        Flip(
            item="item-0002",
            repeat=1,
            slices=("bank=south", "third=2"),
            mark_a=0.0,
            mark_b=1.0,
            outcome_a="wrong: got `7`, expected `42`",
            outcome_b="right",
            ending_a="eos",
            ending_b="eos",
            diverge_at=2,
            text_a="The answer is w.",
            text_b="The answer is 42.",
            difference=(),
        ),
    )


def test_a_wrong_answer_that_became_unparsable_is_no_flip() -> None:
    assert agreed("w", "u").flip == ()


def test_part_of_a_mark_flips_too() -> None:
    (flip,) = agreed("h", "r").flip
    assert (flip.mark_a, flip.mark_b, flip.outcome_a) == (0.5, 1.0, "partial: 0.500")


def test_so_many_flips_are_told_in_each_direction_and_all_are_counted() -> None:
    many = MOST_FLIPS + 3
    found = agreed("r" * many + "w" * many, "w" * many + "r" * many)
    assert (found.worse, found.better, len(found.flip)) == (many, many, 2 * MOST_FLIPS)
    assert [flip.mark_b for flip in found.flip] == [0.0] * MOST_FLIPS + [1.0] * MOST_FLIPS


def test_what_a_model_wrote_is_safe_and_short() -> None:
    (one,) = matched("r", "w")
    wild = Completed(text="\x1b[2K\r" + "x" * 10_000 + "\nend", tokens=(1,), ending="eos", prompt_tokens=1)
    found = agreement(
        (replace(one, b=replace(one.b, row=replace(one.b.row, replies=(wild,)))),), same_tokenizer=True
    )
    assert isinstance(found, Agreement)
    text = found.flip[0].text_b
    assert text.startswith("\\x1b[2K\\rxxx")
    assert text.endswith("x\nend")
    assert len(text) == 2_000


def test_several_replies_of_a_row_are_one_answer() -> None:
    (one,) = matched("r", "w")
    turns = tuple(
        Completed(text=text, tokens=(token,), ending="eos", prompt_tokens=1)
        for text, token in (("a", 1), ("b", 2))
    )
    both = replace(one, a=replace(one.a, row=replace(one.a.row, replies=turns)))
    found = agreement((both,), same_tokenizer=True)
    assert isinstance(found, Agreement)
    assert (found.flip[0].text_a, found.flip[0].diverge_at) == ("a\nb", 0)


def test_outcomes_are_told_in_words_that_are_safe_to_show() -> None:
    (flip,) = agreed("u", "h").flip
    assert (flip.outcome_a, flip.outcome_b) == ("unparsable: there is no JSON", "partial: 0.500")
    assert module._told(Wrong(why="got `\x1b[2J`")) == "wrong: got `\\x1b[2J`"
    assert module._told(Excluded(why="")) == "not marked"
    assert module._told(DIVERGENCE) == "not marked"


@pytest.mark.parametrize(
    "a, b, index",
    [((), (), 0), ((1,), (1, 2), 1), ((1, 2), (1,), 1), ((1, 2, 3), (1, 9, 3), 1), ((5,), (6,), 0)],
)
def test_the_first_token_that_differs(a: tuple[int, ...], b: tuple[int, ...], index: int) -> None:
    assert first_difference(a, b) == index


@given(st.lists(st.integers(0, 2), max_size=8), st.lists(st.integers(0, 2), max_size=8))
def test_all_tokens_before_the_first_difference_are_equal(a: list[int], b: list[int]) -> None:
    index = first_difference(a, b)
    assert index == first_difference(b, a)
    assert a[:index] == b[:index]
    assert a == b or a[index : index + 1] != b[index : index + 1]


@given(st.text("rwubh", min_size=1, max_size=20), st.text("rwubh", min_size=1, max_size=20))
def test_exchanging_the_sides_exchanges_worse_and_better(a: str, b: str) -> None:
    one, other = agreed(a, b), agreed(b, a)
    assert (one.worse, one.better, one.equal, one.diverge_at) == (
        other.better,
        other.worse,
        other.equal,
        other.diverge_at,
    )


def test_positions_are_counted_in_stretches_that_double() -> None:
    assert buckets([]) == ()
    assert buckets([0, 1, 1, 7]) == (
        Bucket(first=0, last=0, answers=1),
        Bucket(first=1, last=1, answers=2),
        Bucket(first=2, last=3, answers=0),
        Bucket(first=4, last=7, answers=1),
    )


@given(st.lists(st.integers(0, 2**40)))
def test_every_position_lies_in_one_stretch(positions: list[int]) -> None:
    found = buckets(positions)
    assert sum(bucket.answers for bucket in found) == len(positions)
    for bucket in found:
        inside = sum(1 for position in positions if bucket.first <= position <= bucket.last)
        assert inside == bucket.answers
    assert all(one.last + 1 == other.first for one, other in pairwise(found))


@pytest.mark.parametrize("named", ["south", "bank=south"])
def test_flips_of_slices_with_a_gate_come_first(named: str) -> None:
    pairs = matched("rrrrww", "wwwwrr")
    found = agreement(pairs, same_tokenizer=True, first=(named,))
    assert isinstance(found, Agreement)
    assert [flip.item[-1] for flip in found.flip] == ["2", "4", "1", "3", "6", "5"]
    plain = agreement(pairs, same_tokenizer=True)
    assert isinstance(plain, Agreement)
    assert [flip.item[-1] for flip in plain.flip] == ["1", "2", "3", "4", "5", "6"]


def test_long_texts_lose_their_middle_and_stay_equal_where_they_were() -> None:
    def row(text: str) -> Row:
        replies = (Completed(text=text, tokens=(1,), ending="eos", prompt_tokens=1), Failed(why="it died"))
        return a_row(replies=replies)

    def cut(text: str) -> str:
        reply, failed = without_long_texts(row(text)).replies
        assert failed == Failed(why="it died")
        assert isinstance(reply, Completed)
        return reply.text

    short, long = "x" * 10_000, "a" * 5_000 + "m" + "z" * 5_000
    assert without_long_texts(row(short)) == row(short)
    digest = blake3_of(long.encode())
    assert cut(long) == f"{'a' * 2_000}… (10001 characters, {digest}) …{'z' * 2_000}"
    assert cut(long) == cut(long[:])
    assert cut(long) != cut(long.replace("m", "n"))
    assert for_terminal(cut(long), limit=TEXT_LIMIT) == for_terminal(long, limit=TEXT_LIMIT)
    assert cut("\ud800" * 10_001).startswith("\ud800")
