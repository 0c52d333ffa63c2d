from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from qlock.core.exchange import (
    Completed,
    Excluded,
    Failed,
    Nats,
    Outcome,
    Partial,
    Reply,
    Right,
    Scored,
    Ungraded,
    Unparsable,
    Wrong,
)
from qlock.core.pairs import mark_of
from qlock.core.record import Grade, Row, Times
from qlock.flows.grading import Score, TrialFailure, graded, reason, score, told, try_grader, word
from qlock.flows.kinds import SuiteKind, suite_kind
from qlock.suites import tasks
from qlock.suites.interface import Item
from tests.fakes.comparisons import DIVERGENCE
from tests.fakes.documents import a_digest

TASKS = suite_kind("tasks")
PARAMS = tasks.Params(items="file:x")


def item(**body: Any) -> Item:
    return Item(
        id="q", slices={}, body={"prompt": "1+1", "expected": "2", "grader": {"kind": "exact"}} | body
    )


def row(*replies: Reply) -> Row:
    times = Times(prefill_s=0.0, decode_s=0.0)
    return Row(item="q", item_digest=a_digest("q"), slices={}, replies=replies, times=times, segment=0)


def said(text: str, **changes: Any) -> Completed:
    plain = Completed(text=text, tokens=(1,), ending="eos", prompt_tokens=3)
    return msgspec.structs.replace(plain, **changes)


def nats(total: float, tokens: int) -> Nats:
    return Nats(nats_sum=total, nats_square_sum=total * total, scored_tokens=tokens)


def outcome(row: Row, item: Item | None, kind: SuiteKind, params: Any) -> Outcome:
    found = graded(row, item, kind, params)
    assert found.item == row.item
    return found.outcome


def test_what_was_read_out_of_an_answer_stands_beside_its_outcome() -> None:
    call = item(expected=[{"name": "f", "arguments": {"a": 1}}], grader={"kind": "tool_call"})
    found = graded(row(said("f(a=2)")), call, TASKS, PARAMS)
    assert found == Grade(
        item="q", outcome=Wrong(why="the argument `a`: got `2`, expected `1`"), read={"f": {"a": "2"}}
    )
    assert graded(row(said("f(a=")), call, TASKS, PARAMS).read is UNSET
    assert graded(row(Failed(why="dead")), call, TASKS, PARAMS).read is UNSET
    assert graded(row(said("2")), item(), TASKS, PARAMS).read is UNSET


def test_recorded_replies_are_played_back_and_graded() -> None:
    assert outcome(row(said("2")), item(), TASKS, PARAMS) == Right()
    assert outcome(row(said("3")), item(), TASKS, PARAMS) == Wrong(why="got `3`, expected `2`")


@pytest.mark.parametrize(
    "replies, why",
    [
        ((), "the record ends before the play does"),
        ((Failed(why="the engine died"),), "the engine died"),
        ((said("2", ending="error", why="NaN"),), "NaN"),
        (
            (said("", tokens=(), ending="context", why="3000 of 2048"),),
            "the prompt does not fit the context: 3000 of 2048",
        ),
        ((Scored(nats=(1.0,)),), "the engine answered something else: expected a completion"),
    ],
)
def test_what_was_never_answered_is_ungraded_and_not_wrong(replies: tuple[Reply, ...], why: str) -> None:
    assert outcome(row(*replies), item(), TASKS, PARAMS) == Ungraded(why=why)


def test_an_answer_that_ran_out_of_context_is_graded_as_it_stands() -> None:
    assert outcome(row(said("2", ending="context")), item(), TASKS, PARAMS) == Right()


def test_an_item_that_is_not_known_is_ungraded() -> None:
    why = "the item is not among those that were asked"
    assert outcome(row(said("2")), None, TASKS, PARAMS) == Ungraded(why=why)


def test_trials_that_do_not_come_out_are_named() -> None:
    assert try_grader(TASKS, (item(),), PARAMS, suite="s") == ()
    assert try_grader(TASKS, (item(gold="3", bad="2"),), PARAMS, suite="s") == (
        TrialFailure(suite="s", item="q", expected="right", found="wrong: got `3`, expected `2`"),
        TrialFailure(suite="s", item="q", expected="not right", found="right"),
    )


@pytest.mark.parametrize(
    "one, words",
    [
        (Right(), "right"),
        (Wrong(why="no"), "wrong: no"),
        (Partial(share=0.25), "partial: 0.250"),
        (Unparsable(why="no JSON"), "unparsable: no JSON"),
        (Ungraded(why="later"), "ungraded: later"),
        (Excluded(why="gated"), "excluded: gated"),
        (nats(3.0, 2), "3.0000 nats over 2 tokens"),
        (DIVERGENCE, "0.7500 nats from the reference over 2 tokens"),
        (
            msgspec.structs.replace(DIVERGENCE, kld_slack_nats=(0.5, 0.5)),
            "at least 0.7500 nats from the reference over 2 tokens",
        ),
    ],
)
def test_each_outcome_has_its_words(one: Outcome, words: str) -> None:
    assert told(one) == words
    assert words in {f"{word(one)}: {reason(one)}", word(one), reason(one)}


def test_a_share_says_how_many_items_it_rests_on() -> None:
    outcomes = (
        Right(),
        Wrong(why=""),
        Unparsable(why=""),
        Partial(share=0.5),
        Ungraded(why=""),
        Excluded(why=""),
    )
    assert score(outcomes) == Score(what="right_share", value=0.375, items=4, left_out=2)


@pytest.mark.parametrize(
    "outcomes",
    [
        (),
        (Ungraded(why=""), Excluded(why="")),
        (nats(2.0, 1), Ungraded(why="")),
        (nats(2.0, 1), Right()),
        (nats(0.0, 0),),
        (nats(301.0, 1),),
    ],
    ids=["nothing", "no marks", "a window short", "a mixture", "no tokens", "beyond a working model"],
)
def test_where_there_is_no_score_to_give_there_is_none(outcomes: tuple[Outcome, ...]) -> None:
    assert score(outcomes) is None


@given(st.lists(st.tuples(st.floats(0.0, 200.0), st.integers(1, 500)), min_size=1, max_size=8))
def test_perplexity_is_the_exponential_of_the_mean_cost_of_a_token(windows: list[tuple[float, int]]) -> None:
    found = score(tuple(nats(total, tokens) for total, tokens in windows))
    mean = math.fsum(total for total, _ in windows) / sum(tokens for _, tokens in windows)
    assert found == Score(what="perplexity", value=math.exp(mean), items=len(windows), left_out=0)


@given(st.lists(st.sampled_from([Right(), Wrong(why=""), Partial(share=0.5), Ungraded(why="")]), max_size=9))
def test_every_item_is_counted_once(outcomes: list[Outcome]) -> None:
    found = score(tuple(outcomes))
    if found is None:
        assert all(mark_of(one) is None for one in outcomes)
    else:
        assert found.items + found.left_out == len(outcomes)
        assert 0 <= found.value <= 1
