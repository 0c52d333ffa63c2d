"""`qlock init`: what is written and said."""

from __future__ import annotations

from tests.cli.conftest import Type
from tests.fakes.project import Project


def test_a_spec_is_written_and_what_to_do_next_is_said(project: Project, typed: Type) -> None:
    said = typed("init", "mine")
    assert (said.code, said.out) == (0, "specs/mine.toml\n")
    assert said.talk == [
        "Wrote specs/mine.toml",
        "Wrote tasks/own.jsonl",
        "hint: put your models where it says, or change what it says, then run `qlock resolve specs/mine.toml`",
    ]
    assert (project.path / "specs/mine.toml").exists()


def test_items_that_are_there_are_not_said_to_be_written(project: Project, typed: Type) -> None:
    project.write("tasks/own.jsonl", "mine")
    assert [line for line in typed("init", "mine").talk if line.startswith("Wrote")] == [
        "Wrote specs/mine.toml"
    ]
    assert (project.path / "tasks/own.jsonl").read_text() == "mine"


def test_nothing_is_overwritten(typed: Type) -> None:
    said = typed("init", "small")
    assert (said.code, said.out) == (6, "")


def test_a_name_that_cannot_be_one_is_usage(typed: Type) -> None:
    assert typed("init", "../x").code == 2


def test_without_a_name_it_is_called_as_the_folder(typed: Type) -> None:
    assert typed("init").out == "specs/work.toml\n"
