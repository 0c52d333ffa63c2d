"""What proving works with, and how a suite is put before one point.

Does not live here: loading points (``flows.point_proofs``) and vocabularies (``flows.prompts_ahead``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import UnsetType

from qlock.core.lock import PromptsPin
from qlock.core.spec import Spec
from qlock.core.words import listed
from qlock.errors import InputError
from qlock.flows.asking import Respondent
from qlock.flows.papers import Paper, paper
from qlock.flows.proving import Exam, Opener
from qlock.flows.vocabularies import Vocabularies
from qlock.flows.weighing import Weighed
from qlock.world.interface import World
from qlock.world.render import Renderer

_MOST_NAMED = 3


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """All that proving needs besides the settings."""

    world: World
    open_engine: Opener
    build: Path | None
    """Folder of the engine's libraries; ``None`` for those that come with it."""
    spec: Spec
    models: Mapping[str, Weighed]
    """By name."""
    vocabularies: Vocabularies
    exams: tuple[Exam, ...]
    device: str
    pci_bus_id: tuple[str, ...]
    """Where the cards sit that the engine is given."""
    tell: Callable[[str], None] = lambda _: None
    """Told of each point before it is proved."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What people should know of a point, and what is no reason to stop."""

    point: str
    told: str
    """About the point, without its name."""


def told(notes: Iterable[Note]) -> tuple[str, ...]:
    """Notes as lines; points of which the same is told share one."""
    by_text: dict[str, list[str]] = {}
    for note in notes:
        by_text.setdefault(note.told, []).append(note.point)
    return tuple(f"{_listed(names)}: {text}" for text, names in by_text.items())


def _listed(names: list[str]) -> str:
    kind = "point" if len(names) == 1 else "points"
    return f"{kind} {listed(names, most=_MOST_NAMED)}"


class Prompted(msgspec.Struct, frozen=True, kw_only=True):
    """What a point is asked in a suite."""

    pin: PromptsPin
    tight: str
    """That the context may end answers; empty where it cannot."""


def prompted(
    bench: Bench, respondent: Respondent, renderer: Renderer, exam: Exam, *, model_template: str | UnsetType
) -> Prompted:
    """Every question of a suite, rendered and tokenized, its graders tried.

    Raises:
        InputError: An item cannot be asked, or a canned reply is not graded as its item says.
        EngineError: The engine could not tokenize.
    """
    made = paper(
        respondent, renderer, exam, model_template=model_template, frozen_date=bench.spec.frozen_date
    )
    _refuse_bad_graders(made)
    return Prompted(pin=made.pin, tight=made.asker.tight(made.questions))


def _refuse_bad_graders(made: Paper) -> None:
    """Stop where a canned reply is not graded as its item says: a run of such a lock could measure nothing."""
    failures = made.trials()
    if failures:
        first = failures[0]
        what = "gold" if first.expected == "right" else "bad"
        raise (
            InputError(
                f"the {what} reply must be graded as {first.expected}, got `{first.found}`",
                hint="mend the item's expected, gold or bad, or its grader",
            )
            .within(first.item)
            .within(f"suite.{first.suite}")
        )
