"""A paper: one suite as one point is asked it, every question rendered and tokenized.

Does not live here: rendering and tokenizing (``flows.asking``), and what is held against a paper or asked from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.gguf import describe
from qlock.core.lock import PointPin, PromptsPin, SuitePin
from qlock.core.plan import prompts_of
from qlock.core.verify import Finding, differences
from qlock.errors import InputError, QlockError
from qlock.flows.asking import Asker, Question, Respondent
from qlock.flows.grading import TrialFailure, try_grader
from qlock.flows.headers import header_of
from qlock.flows.kinds import items_of, params_of, suite_kind
from qlock.flows.proving import Exam
from qlock.suites.interface import Item
from qlock.world.interface import World
from qlock.world.render import Renderer


class Paper(msgspec.Struct, frozen=True, kw_only=True):
    """One suite at one point."""

    asker: Asker
    questions: tuple[Question, ...]

    @property
    def items(self) -> tuple[Item, ...]:
        """What is asked, in order."""
        return tuple(question.item for question in self.questions)

    @property
    def pin(self) -> PromptsPin:
        """What a lock pins of it."""
        return self.asker.pin(self.questions)

    def held(self, point: PointPin) -> list[Finding]:
        """Rule 6: what is asked now against what is locked."""
        suite = self.asker.suite.name
        where = f"point.{point.name}.prompts.{suite}"
        return differences("prompts", where, prompts_of(point, suite), self.pin)

    def trials(self) -> tuple[TrialFailure, ...]:
        """Canned replies that are not graded as they must be."""
        return try_grader(self.asker.kind, self.items, self.asker.params, suite=self.asker.suite.name)


def asker(
    respondent: Respondent,
    renderer: Renderer,
    exam: Exam,
    *,
    model_template: str | UnsetType,
    frozen_date: str,
) -> Asker:
    """The asker of one suite, which has a chat template of its own or takes the model's."""
    kind = suite_kind(exam.pin.kind)
    template = model_template if exam.template is None else exam.template
    return Asker(
        respondent=respondent,
        renderer=renderer,
        template=None if template is UNSET else template,
        kind=kind,
        params=params_of(kind, exam.pin, where=f"suite.{exam.pin.name}"),
        suite=exam.pin,
        frozen_date=frozen_date,
    )


def paper(
    respondent: Respondent,
    renderer: Renderer,
    exam: Exam,
    *,
    model_template: str | UnsetType,
    frozen_date: str,
) -> Paper:
    """A suite put before one point.

    Raises:
        InputError: An item cannot be asked; with the suite's name, or the path of its file, in front.
        EngineError: The engine could not tokenize.
    """
    made = asker(respondent, renderer, exam, model_template=model_template, frozen_date=frozen_date)
    try:
        questions = made.questions(exam.data)
        _refuse_unknown_tokens(questions, respondent.vocabulary.vocab_tokens)
        return Paper(asker=made, questions=questions)
    except QlockError as error:
        raise error.within(f"suite.{exam.pin.name}") from None


def check_readable(exams: Iterable[Exam], before: Iterable[SuitePin]) -> None:
    """Refuse files that are not as an older lock has them and that no item can be read from, before anything is loaded.

    Of a long text no more is looked at here than what is seen without a vocabulary.

    Args:
        exams: Every suite.
        before: The suites of the older lock; those with the same files were read when it was made.

    Raises:
        InputError: As ``paper``.
    """
    known = [pin.file for pin in before]
    for exam in exams:
        if exam.pin.file in known:
            continue
        where = f"suite.{exam.pin.name}"
        kind = suite_kind(exam.pin.kind)
        try:
            items_of(kind, params_of(kind, exam.pin, where=where), exam.pin, exam.data, _no_vocabulary)
        except _NoVocabularyError:
            continue
        except InputError as error:
            raise error.within(where) from None


class _NoVocabularyError(Exception):
    """Tokens were asked for, of which there are none yet."""


def _no_vocabulary(text: str) -> tuple[int, ...]:  # noqa: ARG001 - stands in for a vocabulary's
    raise _NoVocabularyError


def _refuse_unknown_tokens(questions: tuple[Question, ...], vocab_tokens: int | UnsetType) -> None:
    """Refuse token ids of a suite's data that no such model has."""
    if vocab_tokens is UNSET:
        return
    for question in questions:
        largest = max(question.first.tokens, default=0)
        if largest >= vocab_tokens:
            raise InputError(
                f"got the token `{largest}`, expected ids below the vocabulary's `{vocab_tokens}`",
                hint="take the traces again from a run of this model",
            ).within(question.item.id)


def template_of(world: World, weights: tuple[str, ...]) -> str | UnsetType:
    """The chat template in a model's own file."""
    return describe(header_of(world, Path(weights[0]))).template
