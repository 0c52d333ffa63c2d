"""The suite `tasks`: your own exam in JSON lines, each row with its question, its answer and its grader.

``prompt`` is continued as it stands; ``messages`` go through the model's chat template. Thinking is cut away by
the rule in ``[suite.thinking]`` before anything is graded.

Lives here: what the interface of suites asks for. The parts: ``rows`` (the file), ``thinking``, ``graders`` (one
file per family), ``calls``, ``reading`` and ``patterns`` (untrusted text within bounds).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import Base
from qlock.core.exchange import (
    Called,
    Complete,
    Completed,
    Diverged,
    Failed,
    Outcome,
    Reading,
    Scored,
    Unparsable,
)
from qlock.core.rules import Rule
from qlock.suites.interface import Answer, Data, Item, Play, TokensOf, Trial
from qlock.suites.tasks.graders import Grader, read_by
from qlock.suites.tasks.rows import Task, read_rows
from qlock.suites.tasks.thinking import Thinking, final_answer

ASK_VERSION = 1
GRADE_VERSION = 1
SOURCES = ("items",)
GATES: tuple[Rule, ...] = (
    "non-inferior",
    "no-more-errors",
    "ending-share",
    "agreement-share",
    "speed-at-least",
)


class Params(Base, frozen=True, kw_only=True):
    """The suite's own keys."""

    items: str
    """Source of the rows, for instance ``file:tasks/orders.jsonl``."""
    grader: Grader | UnsetType = UNSET
    """For rows that name none."""
    thinking: Thinking = Thinking()
    """How thinking is told from the answer."""


def items(data: Data, params: Params, tokens_of: TokensOf) -> tuple[Item, ...]:  # noqa: ARG001 - as in every suite
    """The rows in the order of the file.

    Raises:
        InputError: A fault in the file, with its line.
    """
    return tuple(
        # Through JSON, so that an item is the same whether it was read now or from a record.
        Item(id=row.id, slices=row.slices, body=msgspec.json.decode(msgspec.json.encode(row.task())))
        for row in read_rows(data["items"], params.grader)
    )


def ask(item: Item, params: Params) -> Play:  # noqa: ARG001 - as in every suite
    """One completion; what the model wrote is the answer, whatever ended it except a fault."""
    reply = yield Complete(prompt=_task(item).asked())
    match reply:
        case Completed(ending="error", why=why):
            return Answer(failed=why or "the reply ended in an error")
        case Completed(text=text):
            return Answer(text=text)
        case Failed(why=why):
            return Answer(failed=why)
        case Scored() | Diverged() | Called():
            return Answer(failed="the engine answered something else: expected a completion")


def grade(item: Item, answer: Answer, params: Params) -> Outcome:
    """What the answer is worth once the thinking is cut away."""
    task = _task(item)
    assert task.grader is not UNSET
    final = final_answer(answer.text, params.thinking)
    if isinstance(final, Unparsable):
        return final
    return task.grader.grade(final, task.expected)


def read(item: Item, answer: Answer, params: Params) -> Reading | None:
    """What the item's grader reads out of the answer once the thinking is cut away."""
    task = _task(item)
    assert task.grader is not UNSET
    final = final_answer(answer.text, params.thinking)
    return None if isinstance(final, Unparsable) else read_by(task.grader, final)


def trials(items: Sequence[Item], params: Params) -> tuple[Trial, ...]:
    """A gold and a bad reply for the first item of each grader with its options, and for every row that has its own."""
    return tuple(_trials(items, params))


def _trials(items: Sequence[Item], params: Params) -> Iterator[Trial]:
    tried: set[bytes] = set()
    for item in items:
        task = _task(item)
        assert task.grader is not UNSET
        kind = msgspec.json.encode(task.grader)
        gold = task.gold if task.gold is not UNSET else task.grader.gold(task.expected)
        bad = task.bad if task.bad is not UNSET else task.grader.bad(task.expected)
        if gold is not None and (kind not in tried or task.gold is not UNSET):
            yield _trial(item, gold, params, passes=True)
        if bad is not None and (kind not in tried or task.bad is not UNSET):
            yield _trial(item, bad, params, passes=False)
        tried.add(kind)


def _trial(item: Item, text: str, params: Params, *, passes: bool) -> Trial:
    """A canned reply; where the template opens the thinking, every reply closes it first."""
    if params.thinking.cut and params.thinking.opened_by_template:
        text = f"{params.thinking.close}{text}"
    reply = Completed(text=text, tokens=(), ending="eos", prompt_tokens=0)
    return Trial(item=item, replies=(reply,), passes=passes)


def _task(item: Item) -> Task:
    return msgspec.convert(item.body, Task)
