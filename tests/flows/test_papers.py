"""Papers: a suite as one point is asked it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from qlock.core.lock import Lock, PointPin
from qlock.core.plan import prompts_of
from qlock.engines.interface import Load
from qlock.errors import InputError
from qlock.flows.asking import respondent
from qlock.flows.locks import read_lock_file
from qlock.flows.look import look
from qlock.flows.papers import Paper, paper, template_of
from qlock.flows.places import Places
from qlock.flows.proving import Exam
from qlock.world.render import Renderer
from tests.fakes.project import TEMPLATE, Project

ROW = '{"id": "q", "messages": [{"role": "user", "content": "hi"}], "expected": "1", "grader": {"kind": "exact"}}\n'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.write("tasks/digits.jsonl", ROW)
    project.lock()
    return project


@pytest.fixture
def renderer() -> Iterator[Renderer]:
    with Renderer() as renderer:
        yield renderer


def the_lock(project: Project) -> Lock:
    return read_lock_file(project.world, project.lock_path)[0]


def digits(project: Project, lock: Lock) -> Exam:
    sight = look(project.world, lock, Places(project.world, base=project.path))
    return next(exam for exam in sight.exams if exam.pin.name == "digits")


def put(
    project: Project, renderer: Renderer, exam: Exam, *, model_template: str | UnsetType = TEMPLATE
) -> tuple[Paper, PointPin]:
    lock = the_lock(project)
    engine = project.script.open_engine()
    read_back = engine.load(Load(weights=(str(project.path / "models/a.gguf"),), setting=lock.setting[0]))
    made = paper(
        respondent(engine, read_back),
        renderer,
        exam,
        model_template=model_template,
        frozen_date=lock.frozen_date,
    )
    return made, lock.point[0]


def test_a_paper_is_what_the_lock_pins(project: Project, renderer: Renderer) -> None:
    made, point = put(project, renderer, digits(project, the_lock(project)))
    assert [question.first.text for question in made.questions] == ["[user]hi[assistant]"]
    assert [item.id for item in made.items] == ["q"]
    assert made.pin == prompts_of(point, "digits")
    assert (made.held(point), made.trials()) == ([], ())


def test_other_prompts_are_found(project: Project, renderer: Renderer) -> None:
    made, point = put(project, renderer, digits(project, the_lock(project)), model_template="other")
    assert [finding.where for finding in made.held(point)] == [
        f"point.A@plain.prompts.digits.{name}" for name in ("text_digest", "tokens_digest")
    ]


def test_a_suite_brings_its_own_template(project: Project, renderer: Renderer) -> None:
    exam = msgspec.structs.replace(digits(project, the_lock(project)), template="own")
    made, _ = put(project, renderer, exam)
    assert [question.first.text for question in made.questions] == ["own"]


def test_a_reply_that_is_graded_otherwise_than_it_must_be_is_told(
    project: Project, renderer: Renderer
) -> None:
    exam = digits(project, the_lock(project))
    data = {"items": ROW.replace('"expected"', '"gold": "2", "expected"').encode()}
    made, _ = put(project, renderer, msgspec.structs.replace(exam, data=data))
    assert [(failure.suite, failure.item, failure.expected) for failure in made.trials()] == [
        ("digits", "q", "right")
    ]


def test_an_item_that_cannot_be_asked_is_told_with_its_suite(project: Project, renderer: Renderer) -> None:
    with pytest.raises(InputError) as caught:
        put(project, renderer, digits(project, the_lock(project)), model_template=UNSET)
    assert str(caught.value) == (
        "suite.digits.q: the model has no chat template and the item is a conversation"
    )


def test_the_template_of_a_file(project: Project) -> None:
    assert template_of(project.world, (str(project.path / "models/a.gguf"),)) == TEMPLATE
