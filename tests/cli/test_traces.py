"""`qlock traces`: what is said and the exit code."""

from __future__ import annotations

import json

from tests.cli.conftest import Type
from tests.fakes.kld import add_kld
from tests.fakes.project import Project, sealed


def test_traces_are_written_and_their_file_is_named(project: Project, typed: Type) -> None:
    add_kld(project).lock()
    project.script.replies["q00"] = ""
    sealed(project)
    said = typed("traces", project.runs, "--suite", "digits", "-o", "data/a.jsonl")
    assert (said.code, said.out) == (0, "data/a.jsonl\n")
    assert said.talk == [
        "ok: 7 traces of digits.A@plain.1, 7 tokens of answers",
        "note: 1 empty answer left out",
    ]
    assert (project.path / "data/a.jsonl").read_bytes().count(b"\n") == 8


def test_json(project: Project, typed: Type) -> None:
    add_kld(project).lock()
    sealed(project)
    said = typed("traces", project.runs, "--suite", "digits", "--point", "B@plain", "-o", "b.jsonl", "--json")
    document = json.loads(said.out)
    digest = document.pop("digest")
    assert digest.startswith("blake3:")
    assert document == {
        "verb": "traces",
        "job": "digits.B@plain.1",
        "output": "b.jsonl",
        "traces": 8,
        "answer_tokens": 8,
        "empty": 0,
    }


def test_without_a_suite_the_line_makes_no_sense(project: Project, typed: Type) -> None:
    assert typed("traces", project.runs, "-o", "x").code == 2


def test_a_run_that_is_not_sealed(project: Project, typed: Type) -> None:
    add_kld(project).lock()
    project.script.kills["q03"] = 99
    project.run()
    assert typed("traces", project.runs, "--suite", "digits", "-o", "x").code == 5
