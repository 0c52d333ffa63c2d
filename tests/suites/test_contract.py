"""What every suite owes, whichever it is: each kind in the folder goes through the same checks.

A kind brings a small sample, `tests/suites/samples/<kind>.py`, with `PARAMS` (its own keys) and `DATA` (the bytes of
its sources). Nothing else is edited when a kind is added.
"""

from __future__ import annotations

import importlib
import itertools
import pkgutil
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qlock.suites
from qlock.core.base import Base
from qlock.core.canon import json_bytes, known_keys, to_struct
from qlock.core.exchange import (
    Call,
    Called,
    Complete,
    Completed,
    Diverge,
    Diverged,
    Failed,
    Outcome,
    Reply,
    Right,
    Score,
    Scored,
)
from qlock.core.rules import Rule
from qlock.suites.interface import Answer, Item, play_back

KINDS = sorted(
    module.name for module in pkgutil.iter_modules(qlock.suites.__path__) if module.name != "interface"
)
MOST_REPLIES = 200
"""More replies than any play may need for one item of a sample."""


class Sample:
    """A kind with the items of its sample."""

    def __init__(self, kind: str) -> None:
        self.module: Any = importlib.import_module(f"qlock.suites.{kind}")
        self.sample: Any = importlib.import_module(f"tests.suites.samples.{kind}")
        self.params = to_struct(self.sample.PARAMS, self.module.Params, name="params")
        self.items: tuple[Item, ...] = self.module.items(self.sample.DATA, self.params, tokens_of)


def tokens_of(text: str) -> tuple[int, ...]:
    """A vocabulary of bytes with BOS 0."""
    return (0, *(1 + byte for byte in text.encode()))


SAMPLES = {kind: Sample(kind) for kind in KINDS}
every_kind = pytest.mark.parametrize("sample", SAMPLES.values(), ids=KINDS)

texts = st.text() | st.text(alphabet='[]{}()<>"\\,:=.-+ \n0123456789eabcdfnAC') | st.just("[" * 100_000)
completed = st.builds(
    Completed,
    text=texts,
    tokens=st.lists(st.integers(0, 300), max_size=3).map(tuple),
    ending=st.sampled_from(["eos", "stop", "budget", "context", "error"]),
    prompt_tokens=st.integers(0, 9),
    why=st.text(max_size=9),
)
several = st.lists(st.floats(), max_size=8).map(tuple)
scored = st.builds(Scored, nats=several)
diverged = st.builds(
    Diverged,
    nats=several,
    reference_nats=several,
    kld_nats=several,
    reverse_kld_nats=several,
    same_top=st.lists(st.booleans(), max_size=8).map(tuple),
    pieces=st.lists(texts, max_size=8).map(tuple),
)
called = st.builds(Called, results=st.lists(st.text(), max_size=3).map(tuple), state=st.just({}))
failed = st.builds(Failed, why=st.text())
replies: st.SearchStrategy[Reply] = completed | scored | diverged | called | failed
answers = st.builds(Answer, text=texts, nats=several, diverged=st.none() | diverged)


def test_there_are_suites() -> None:
    assert {"kld", "perplexity", "tasks"} <= set(KINDS)


@every_kind
def test_all_names_are_defined(sample: Sample) -> None:
    module = sample.module
    assert module.__doc__
    assert module.ASK_VERSION >= 1
    assert module.GRADE_VERSION >= 1
    assert issubclass(module.Params, Base)
    assert set(module.SOURCES) <= set(known_keys(module.Params, ""))
    given = {key for key in module.SOURCES if getattr(sample.params, key) is not msgspec.UNSET}
    assert given == set(sample.sample.DATA)
    assert set(module.GATES) <= set(get_args(Rule))


@every_kind
def test_own_keys_survive_a_lock(sample: Sample) -> None:
    plain = msgspec.to_builtins(sample.params)
    assert to_struct(plain, sample.module.Params, name="lock") == sample.params


@every_kind
def test_items_have_names_of_their_own_and_plain_bodies(sample: Sample) -> None:
    assert sample.items
    assert len({item.id for item in sample.items}) == len(sample.items)
    for item in sample.items:
        assert msgspec.json.decode(json_bytes(item), type=Item) == item


@every_kind
def test_the_same_data_give_the_same_items(sample: Sample) -> None:
    again = sample.module.items(sample.sample.DATA, sample.params, tokens_of)
    assert again == sample.items


@every_kind
def test_the_grader_behaves_at_every_trial(sample: Sample) -> None:
    for trial in sample.module.trials(sample.items, sample.params):
        assert trial.item in sample.items
        answer = play_back(sample.module.ask(trial.item, sample.params), trial.replies)
        assert answer.failed == ""
        outcome: Outcome = sample.module.grade(trial.item, answer, sample.params)
        assert (outcome == Right()) is trial.passes, (trial, outcome)


@every_kind
def test_trials_come_with_a_gold_and_a_bad_or_not_at_all(sample: Sample) -> None:
    assert {trial.passes for trial in sample.module.trials(sample.items, sample.params)} in (
        {True, False},
        set(),
    )


def played(sample: Sample, item: Item, sent: Iterator[Reply]) -> tuple[int, Answer]:
    """How many replies a play took, and what it returned."""
    play = sample.module.ask(item, sample.params)
    request = next(play)
    for count in range(1, MOST_REPLIES + 1):
        assert isinstance(request, Complete | Score | Diverge | Call)
        try:
            request = play.send(next(sent))
        except StopIteration as stop:
            answer: Answer = stop.value
            return count, answer
    raise AssertionError(f"the play of `{item.id}` does not stop")


@every_kind
@given(chosen=st.data())
def test_a_play_stops_whatever_the_replies(sample: Sample, chosen: st.DataObject) -> None:
    item = chosen.draw(st.sampled_from(sample.items))
    some = chosen.draw(st.lists(replies, min_size=1, max_size=4))
    played(sample, item, itertools.cycle(some))


@every_kind
def test_a_play_stops_at_a_failure_and_says_why(sample: Sample) -> None:
    for item in sample.items:
        assert played(sample, item, itertools.repeat(Failed(why="no memory")))[1].failed == "no memory"


@every_kind
@given(chosen=st.data())
def test_the_same_replies_give_the_same_outcome(sample: Sample, chosen: st.DataObject) -> None:
    item = chosen.draw(st.sampled_from(sample.items))
    some = chosen.draw(st.lists(replies, min_size=1, max_size=4))
    count, answer = played(sample, item, itertools.cycle(some))
    recorded = tuple(itertools.islice(itertools.cycle(some), count))
    again = play_back(sample.module.ask(item, sample.params), recorded)
    assert bool(again.failed) is bool(answer.failed)
    if not answer.failed:
        assert repr(again) == repr(answer)
        first, second = (sample.module.grade(item, one, sample.params) for one in (answer, again))
        assert first == second


@every_kind
@given(chosen=st.data())
def test_any_answer_has_an_outcome_that_can_be_recorded(sample: Sample, chosen: st.DataObject) -> None:
    item = chosen.draw(st.sampled_from(sample.items))
    outcome = sample.module.grade(item, chosen.draw(answers), sample.params)
    assert msgspec.json.decode(json_bytes(outcome), type=Outcome) == outcome
