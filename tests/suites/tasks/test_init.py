"""The suite `tasks` as a whole: asking, cutting thinking, grading, trials; and the exam that qlock brings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qlock.core.exchange import (
    Chat,
    Complete,
    Completed,
    Ending,
    Failed,
    Message,
    Outcome,
    Raw,
    Reply,
    Right,
    Scored,
    Unparsable,
    Wrong,
)
from qlock.suites import tasks
from qlock.suites.interface import Answer, Item, Trial, play_back
from qlock.suites.tasks import Params
from qlock.suites.tasks.texts import Exact
from qlock.suites.tasks.thinking import Thinking

ROOT = Path(__file__).resolve().parents[3]
PARAMS = Params(items="file:x", grader=Exact())


def items(*rows: dict[str, object], params: Params = PARAMS) -> tuple[Item, ...]:
    return tasks.items({"items": "\n".join(map(json.dumps, rows)).encode()}, params, lambda _text: ())


def row(**keys: object) -> dict[str, object]:
    return {"id": "a", "prompt": "p", "expected": "x", **keys}


def written(text: str, ending: Ending = "eos", why: str = "") -> Completed:
    return Completed(text=text, tokens=(), ending=ending, prompt_tokens=0, why=why)


def outcome(text: str, *, params: Params = PARAMS, ending: Ending = "eos") -> Outcome:
    (item,) = items(row(), params=params)
    answer = play_back(tasks.ask(item, params), (written(text, ending),))
    assert answer.failed == ""
    return tasks.grade(item, answer, params)


def test_a_prompt_is_continued_as_it_stands() -> None:
    (item,) = items(row())
    assert next(tasks.ask(item, PARAMS)) == Complete(prompt=Raw(text="p"))


def test_messages_are_a_chat() -> None:
    (item,) = items({"id": "a", "messages": [{"role": "user", "content": "hi"}], "expected": "x"})
    assert next(tasks.ask(item, PARAMS)) == Complete(
        prompt=Chat(messages=(Message(role="user", content="hi"),))
    )


def test_an_item_holds_its_grader_with_every_option() -> None:
    (item,) = items(row(slices={"topic": "t"}))
    assert item == Item(
        id="a",
        slices={"topic": "t"},
        body={
            "prompt": "p",
            "tools": [],
            "expected": "x",
            "grader": {"kind": "exact", "strip": True, "casefold": False, "single_spaces": False},
        },
    )


@pytest.mark.parametrize("ending", ["eos", "stop", "budget", "context"])
def test_what_was_written_is_graded_whatever_ended_it(ending: Ending) -> None:
    assert outcome("x", ending=ending) == Right()


@pytest.mark.parametrize(
    "reply, failed",
    [
        (written("x", "error", "the engine died"), "the engine died"),
        (written("x", "error"), "the reply ended in an error"),
        (Failed(why="no memory"), "no memory"),
        (Scored(nats=(1.0,)), "the engine answered something else: expected a completion"),
    ],
)
def test_a_fault_is_no_answer(reply: Reply, failed: str) -> None:
    (item,) = items(row())
    play = tasks.ask(item, PARAMS)
    next(play)
    with pytest.raises(StopIteration) as stop:
        play.send(reply)
    assert stop.value.value == Answer(failed=failed)


def test_thinking_is_cut_before_grading() -> None:
    assert outcome("<think>y</think>\n\nx") == Right()
    assert outcome("y</think>\n\nx") == Right()
    assert outcome("<think>x") == Unparsable(why="thinking did not end")
    assert outcome("<think>x", ending="budget") == Unparsable(why="thinking did not end")


def test_the_rule_of_thinking_is_the_suites() -> None:
    kept = Params(items="file:x", grader=Exact(), thinking=Thinking(cut=False))
    assert outcome("<think></think>x", params=kept) == Wrong(why="got `<think></think>x`, expected `x`")


def tried(trials: tuple[Trial, ...]) -> list[tuple[str, str, bool]]:
    return [
        (trial.item.id, reply.text, trial.passes)
        for trial in trials
        for reply in trial.replies
        if isinstance(reply, Completed)
    ]


def test_each_grader_with_its_options_is_tried_once_and_every_reply_that_a_row_states() -> None:
    made = items(
        row(),
        row(id="b", expected="y"),
        row(id="c", grader={"kind": "exact", "casefold": True}),
        row(id="d", gold=" x "),
        row(id="e", bad="z"),
    )
    assert tried(tasks.trials(made, PARAMS)) == [
        ("a", "x", True),
        ("a", "x otherwise", False),
        ("c", "x", True),
        ("c", "x otherwise", False),
        ("d", " x ", True),
        ("e", "z", False),
    ]


def test_where_the_template_opens_the_thinking_trials_close_it() -> None:
    params = Params(items="file:x", grader=Exact(), thinking=Thinking(opened_by_template=True))
    made = items(row(), params=params)
    assert tried(tasks.trials(made, params)) == [
        ("a", "</think>x", True),
        ("a", "</think>x otherwise", False),
    ]


@pytest.mark.parametrize("name", ["small.jsonl"])
def test_the_exam_that_qlock_brings_tries_well(name: str) -> None:
    params = Params(items=f"file:{name}")
    made = tasks.items({"items": (ROOT / "specs" / "tasks" / name).read_bytes()}, params, lambda _text: ())
    assert 24 <= len(made) <= 32
    assert {tuple(item.slices) for item in made} == {("topic", "format")}
    golds = 0
    for trial in tasks.trials(made, params):
        answer = play_back(tasks.ask(trial.item, params), trial.replies)
        graded = tasks.grade(trial.item, answer, params)
        assert (graded == Right()) is trial.passes, (trial.item.id, trial.replies, graded)
        golds += trial.passes
    assert golds >= 12


def test_calls_are_read_once_the_thinking_is_cut() -> None:
    (one,) = items(row(grader={"kind": "tool_call"}, expected=[{"name": "f", "arguments": {}}]))
    text = "<think>g()</think>f(a=1)"
    assert tasks.read(one, Answer(text=text), PARAMS) == {"f": {"a": "1"}}
    assert tasks.read(one, Answer(text="<think>f(a=1)"), PARAMS) is None
