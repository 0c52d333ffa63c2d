"""Grades, worked out from a record and the items that were asked; no engine is needed.

Lives here: playing recorded replies back through the suite and grading the answer, the trials that prove a grader,
and the score of a job. Does not live here: storing any of it (``flows.run_folder``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from qlock.core.base import Base, Count, Finite
from qlock.core.distance import has_divergences
from qlock.core.exchange import (
    Completed,
    Divergence,
    Excluded,
    Nats,
    Outcome,
    Partial,
    Right,
    Ungraded,
    Unparsable,
    Wrong,
)
from qlock.core.kld import Kld, kld_of
from qlock.core.pairs import mark_of
from qlock.core.perplexity import Perplexity, perplexity_of
from qlock.core.record import Grade, Record, Row
from qlock.core.stats import CannotTell
from qlock.flows.kinds import SuiteKind
from qlock.suites.interface import Answer, Item, play_back


class Score(Base, frozen=True, kw_only=True):
    """The score of one job, with its honest denominator."""

    what: str
    """``perplexity``, ``kld_nats`` or ``right_share``."""
    value: Finite
    items: Count
    """Items that the value rests on."""
    left_out: Count
    """Items that are excluded or not graded."""


class TrialFailure(Base, frozen=True, kw_only=True):
    """A gold reply that did not pass, or a bad one that did."""

    suite: str
    item: str
    expected: str
    found: str


def grade(record: Record, items: Mapping[str, Item], kind: SuiteKind, params: Any) -> tuple[Grade, ...]:
    """A grade for every row of a record, in the order of the rows."""
    return tuple(graded(row, items.get(row.item), kind, params) for row in record.rows)


def graded(row: Row, item: Item | None, kind: SuiteKind, params: Any) -> Grade:
    """What one row is worth, and what was read out of it."""
    if item is None:
        return Grade(item=row.item, outcome=Ungraded(why="the item is not among those that were asked"))
    answer = _answer(row, item, kind, params)
    match answer:
        case Ungraded():
            return Grade(item=row.item, outcome=answer)
        case _:
            read = kind.read(item, answer, params)
            found = kind.grade(item, answer, params)
            return Grade(item=row.item, outcome=found, read=UNSET if read is None else read)


def _answer(row: Row, item: Item, kind: SuiteKind, params: Any) -> Answer | Ungraded:
    """The answer, or why there is none to grade.

    A prompt that did not fit the context was never answered, and a failed reply is redone: neither is wrong.
    """
    for reply in row.replies:
        if isinstance(reply, Completed) and reply.ending == "context" and not reply.tokens:
            return Ungraded(why=f"the prompt does not fit the context: {reply.why}")
    answer = play_back(kind.ask(item, params), row.replies)
    return Ungraded(why=answer.failed) if answer.failed else answer


def try_grader(
    kind: SuiteKind, items: tuple[Item, ...], params: Any, *, suite: str
) -> tuple[TrialFailure, ...]:
    """Every trial whose canned reply did not earn what it must: the grader is then not to be believed."""
    failures = []
    for trial in kind.trials(items, params):
        answer = play_back(kind.ask(trial.item, params), trial.replies)
        got = Ungraded(why=answer.failed) if answer.failed else kind.grade(trial.item, answer, params)
        if isinstance(got, Right) != trial.passes:
            failures.append(
                TrialFailure(
                    suite=suite,
                    item=trial.item.id,
                    expected="right" if trial.passes else "not right",
                    found=told(got),
                )
            )
    return tuple(failures)


def told(outcome: Outcome) -> str:
    """An outcome in words."""
    why = reason(outcome)
    match outcome:
        case Nats() | Divergence():
            return why
        case _:
            return f"{word(outcome)}: {why}" if why else word(outcome)


def word(outcome: Outcome) -> str:
    """The one word of an outcome: ``right``, ``wrong`` and so on."""
    return str(outcome.__struct_config__.tag)


def reason(outcome: Outcome) -> str:
    """Why an outcome is what it is, or how much; empty where the word says it all."""
    match outcome:
        case Right():
            return ""
        case Wrong(why=why) | Unparsable(why=why) | Ungraded(why=why) | Excluded(why=why):
            return why
        case Partial(share=share):
            return f"{share:.3f}"
        case Nats(nats_sum=nats, scored_tokens=tokens):
            return f"{nats:.4f} nats over {tokens} tokens"
        case Divergence(kld_nats=kld_nats, kld_slack_nats=slack):
            least = "at least " if slack else ""
            return f"{least}{math.fsum(kld_nats):.4f} nats from the reference over {len(kld_nats)} tokens"


def score(outcomes: tuple[Outcome, ...]) -> Score | None:
    """The score over outcomes; ``None`` when there is none to give.

    A perplexity over the windows that happened to work would be another figure under the same name, so one window
    without its cost leaves none; and likewise for divergences.
    """
    if any(isinstance(outcome, Nats) for outcome in outcomes):
        return _perplexity(outcomes)
    if has_divergences(outcomes):
        return _divergence(outcomes)
    marks = [value for value in map(mark_of, outcomes) if value is not None]
    if not marks:
        return None
    return Score(
        what="right_share",
        value=math.fsum(marks) / len(marks),
        items=len(marks),
        left_out=len(outcomes) - len(marks),
    )


def _divergence(outcomes: tuple[Outcome, ...]) -> Score | None:
    match kld_of(outcomes):
        case Kld(kld_nats=mean, items=items):
            return Score(what="kld_nats", value=mean.value, items=items, left_out=0)
        case CannotTell():
            return None


def _perplexity(outcomes: tuple[Outcome, ...]) -> Score | None:
    match perplexity_of(outcomes):
        case Perplexity(perplexity=value, windows=windows):
            return Score(what="perplexity", value=value, items=windows, left_out=0)
        case CannotTell():
            return None
