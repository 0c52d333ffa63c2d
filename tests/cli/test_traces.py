"""`qlock traces`: what is said and the exit code."""

from __future__ import annotations

import json

from tests.cli.conftest import Type
from tests.fakes.kld import add_kld
from tests.fakes.project import Project, folder_of, sealed


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
    assert (project.path / "data/a.jsonl").read_bytes().count(b"\n") == 9  # a header, and a digest of it all


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


def test_no_other_file_is_lost_and_no_folder_made(project: Project, typed: Type) -> None:
    add_kld(project).lock()
    ran = sealed(project)
    record = folder_of(project, ran).path / "record/digits.A@plain.1.jsonl"
    for path in (record, project.lock_path, project.path / "data/text.txt"):
        before = path.read_bytes()
        assert typed("traces", project.runs, "--suite", "digits", "-o", path).code == 2
        assert path.read_bytes() == before
    said = typed("traces", project.runs, "--suite", "digits", "-o", "none/a.jsonl")
    assert (said.code, said.talk[0]) == (8, f"error: there is no folder `{project.path}/none`")
    assert not (project.path / "none").exists()
    for _ in range(2):
        assert typed("traces", project.runs, "--suite", "digits", "-o", "data/a.jsonl").code == 0
