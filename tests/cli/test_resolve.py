"""`qlock resolve`: what is written, what is said, and the exit code."""

from __future__ import annotations

import json

import msgspec
import pytest

from tests.cli.conftest import Said, Type
from tests.fakes.project import Project, tiny_gguf

SPEC = "specs/small.toml"
LOCK = "locks/small@cpu-amd-1a-02.toml"
FAKES = [
    *(
        f"warning: model {name}: `tokenizer.ggml.pre` is missing: llama.cpp needs it for BPE vocabularies only"
        for name in "AB"
    ),
    *(
        f"note: engine.llama-cpp-python.file.{name}.code_digest cannot be pinned: "
        "the file is no ELF file with code of its own"
        for name in ("libllama.so", "libm.so.6")
    ),
]
"""What the small project's packed models and text libraries lack; said each time."""


READING = [f"model {name}: reading 1 file (576 B)" for name in "AB"]
PROVING = [f"point {name}@plain: loading and proving" for name in "AB"]
"""The steps, as a log hears of them."""


def test_a_first_lock_is_written_and_its_path_is_the_answer(project: Project, typed: Type) -> None:
    said = typed("resolve", SPEC)
    assert (said.code, said.out) == (0, f"{LOCK}\n")
    assert said.talk == [
        *READING,
        *PROVING,
        "Resolved 2 models, 2 suites, 2 points in 0.0 s",
        "Added engine llama-cpp-python",
        "Added device cpu-amd-1a-02",
        "Added model A",
        "Added model B",
        "Added setting plain",
        "Added suite digits",
        "Added suite text",
        "Added point A@plain",
        "Added point B@plain",
        *FAKES,
    ]
    assert project.lock_path.read_bytes() == project.resolve().data


def test_a_lock_that_is_up_to_date_is_left_as_it_is(locked: Project, typed: Type) -> None:
    before = locked.lock_path.stat()
    said = typed("resolve", SPEC)
    assert (said.code, said.out) == (0, f"{LOCK}\n")
    assert said.talk == [
        *READING,
        *PROVING[:1],
        "Resolved 2 models, 2 suites, 2 points in 0.0 s",
        "Nothing changed",
        *FAKES,
    ]
    assert locked.lock_path.stat().st_mtime_ns == before.st_mtime_ns


def test_from_within_the_folder_of_specs_it_finds_the_project(locked: Project, typed: Type) -> None:
    locked.change_world(cwd=locked.path / "specs")
    said = typed("resolve", "./small.toml")
    assert (said.code, said.out) == (0, f"{locked.lock_path}\n")


def test_a_changed_spec_is_asking(locked: Project, typed: Type) -> None:
    locked.write_spec(lambda text: text.replace("windows = 3", "windows = 2"))
    said = typed("resolve", SPEC)
    assert said.code == 0
    prompts = ", ".join(
        f"prompts.text.{leaf}" for leaf in ("items", "items_digest", "text_digest", "tokens_digest")
    )
    assert said.talk[5:] == [
        "Updated suite text: items_limit, params.windows",
        f"Updated point A@plain: {prompts}",
        f"Updated point B@plain: {prompts}",
        "Kept 6 others as they are",
        *FAKES,
    ]


def moved(project: Project, typed: Type, *more: str) -> Said:
    project.write("models/a.gguf", tiny_gguf(3))
    return typed("resolve", SPEC, *more)


def test_what_moved_unasked_is_named_and_nothing_is_written(locked: Project, typed: Type) -> None:
    before = locked.lock_path.read_bytes()
    said = moved(locked, typed)
    assert said.code == 1
    assert locked.lock_path.read_bytes() == before
    assert "Would update model A: tensors differ; tokenizer, template, metadata identical" in said.talk
    assert said.talk[-2:] == [
        "error: model A moved, and nobody asked for it: tensors differ; tokenizer, template, metadata identical",
        f"hint: nothing was written; bring back what was locked, or let it move with `qlock resolve {SPEC} --upgrade A`",
    ]
    assert said.out == ""


@pytest.mark.parametrize("name", ["A", "all"])
def test_upgrade_lets_it_move(locked: Project, typed: Type, name: str) -> None:
    before = locked.lock_path.read_bytes()
    said = moved(locked, typed, "--upgrade", name)
    assert said.code == 0
    assert "Updated model A: tensors differ; tokenizer, template, metadata identical" in said.talk
    assert locked.lock_path.read_bytes() != before


def test_upgrade_of_another_name_does_not(locked: Project, typed: Type) -> None:
    assert moved(locked, typed, "--upgrade", "B").code == 1


def test_upgrade_of_a_name_that_nothing_has_is_usage(locked: Project, typed: Type) -> None:
    said = typed("resolve", SPEC, "--upgrade", "Q4")
    assert said.code == 2
    assert said.talk[0] == "error: got `--upgrade Q4`, expected the name of a pin"


def test_check_of_a_lock_that_is_up_to_date(locked: Project, typed: Type) -> None:
    assert (typed("resolve", SPEC, "--check").code, typed("resolve", SPEC, "--check").out) == (0, "")


def test_check_shows_what_would_change_and_writes_nothing(locked: Project, typed: Type) -> None:
    locked.write_spec(lambda text: text.replace("windows = 3", "windows = 2"))
    before = locked.lock_path.read_bytes()
    said = typed("resolve", SPEC, "--check")
    assert said.code == 1
    assert locked.lock_path.read_bytes() == before
    lines = said.out.split("\n")
    assert lines[:2] == [f"--- {LOCK} (as it is)", f"+++ {LOCK} (as it would be)"]
    assert "-windows = 3" in lines
    assert "+windows = 2" in lines
    assert said.talk[-2:] == [f"error: `{LOCK}` is not up to date", f"hint: run `qlock resolve {SPEC}`"]


def test_check_says_what_would_have_to_be_measured_again(locked: Project, typed: Type) -> None:
    said = moved(locked, typed, "--check")
    assert said.talk[-5:-2] == [
        "Would measure again (model A): digits.A@plain.1, text.A@plain.1",
        "2 jobs stay valid",
        "error: model A moved, and nobody asked for it: tensors differ; tokenizer, template, metadata identical",
    ]
    found = json.loads(typed("resolve", SPEC, "--check", "--json").out)
    assert found["again"] == {
        "measure": [{"why": "model A", "jobs": ["digits.A@plain.1", "text.A@plain.1"]}],
        "grade": [],
        "valid": ["digits.B@plain.1", "text.B@plain.1"],
    }


def test_check_without_a_lock_is_no(project: Project, typed: Type) -> None:
    said = typed("resolve", SPEC, "--check")
    assert said.code == 1
    assert not (project.path / "locks").exists()
    assert "+lock_version = 1" in said.out.split("\n")


def test_check_sees_what_moved_unasked(locked: Project, typed: Type) -> None:
    said = moved(locked, typed, "--check")
    assert said.code == 1
    assert said.talk[-3:] == [
        "error: model A moved, and nobody asked for it: tensors differ; tokenizer, template, metadata identical",
        f"error: `{LOCK}` is not up to date",
        f"hint: bring back what was locked, or let it move with `qlock resolve {SPEC} --upgrade A`",
    ]


def test_dry_run_shows_the_same_and_is_content(locked: Project, typed: Type) -> None:
    before = locked.lock_path.read_bytes()
    said = moved(locked, typed, "--dry-run")
    assert said.code == 0
    assert locked.lock_path.read_bytes() == before
    assert said.out.startswith(f"--- {LOCK} (as it is)\n")
    assert [line for line in said.talk if line.startswith("error")] == []
    why = "tensors differ; tokenizer, template, metadata identical"
    assert said.talk[-2:] == [
        f"warning: model A would move, and nobody asked for it: {why}",
        f"hint: bring back what was locked, or let it move with `qlock resolve {SPEC} --upgrade A`",
    ]


def test_one_of_something_is_no_plural(project: Project, typed: Type) -> None:
    del project.models["B"]
    project.write_spec()
    assert typed("resolve", SPEC).talk[2] == "Resolved 1 model, 2 suites, 1 point in 0.0 s"


def test_check_and_dry_run_are_two_things(project: Project, typed: Type) -> None:
    said = typed("resolve", SPEC, "--check", "--dry-run")
    assert (said.code, said.err) == (2, "error: got both --check and --dry-run, expected one of them\n")
    assert project.script.opened == 0


def test_without_proof_no_engine_is_opened_and_the_gaps_are_said(project: Project, typed: Type) -> None:
    said = typed("resolve", SPEC, "--no-prove")
    assert said.code == 0
    assert project.script.opened == 0
    assert (
        "note: 14 pins are not pinned yet, first point.A@plain.canary: the engine was not asked" in said.talk
    )


def test_slots_that_fall_back_are_shown_with_the_reason(project: Project, typed: Type) -> None:
    project.script.shaky = {"a.gguf"}
    said = typed("resolve", SPEC)
    assert said.code == 0
    (line,) = [line for line in said.talk if line.startswith("warning: setting ")]
    why = project.resolve().lock.setting[0].slots_why
    assert line == f"warning: setting plain: 1 slot instead of 4: {why}"
    assert why


def test_json_is_one_document(locked: Project, typed: Type) -> None:
    said = moved(locked, typed, "--json")
    document = json.loads(said.out)
    assert said.code == 1
    assert (document["verb"], document["state"], document["path"], document["written"]) == (
        "resolve",
        "changed",
        LOCK,
        False,
    )
    assert document["moves"] == [
        {"name": "A", "what": "model", "why": "tensors differ; tokenizer, template, metadata identical"}
    ]
    assert {"word": "Kept", "table": "model", "name": "B", "why": ""} in document["changes"]
    assert [entry["until"] for entry in document["missing"]] == ["never", "never"]


def test_a_spec_that_is_not_there(typed: Type) -> None:
    said = typed("resolve", "specs/none.toml")
    assert said.code == 8
    assert said.out == ""
    assert said.err.startswith("error: spec `")


def test_a_spec_with_an_unknown_key(project: Project, typed: Type) -> None:
    project.write_spec(lambda text: text.replace("slots = 4", "slotz = 4"))
    said = typed("resolve", SPEC)
    assert said.code == 6
    assert said.err.startswith("error: small.toml: setting[0]: ")
    assert "slots" in said.err


def test_offline_is_said_to_the_world_in_the_hubs_own_words(
    project: Project, typed: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qlock.flows import resolve as flow

    seen: list[str | None] = []
    honest = flow.resolve

    def spy(world: object, *rest: object) -> object:
        assert isinstance(world, type(project.world))
        seen.append(world.environment.get("HF_HUB_OFFLINE"))
        return honest(world, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(flow, "resolve", spy)
    typed("resolve", SPEC)
    typed("resolve", SPEC, "--offline")
    assert seen == [None, "1"]


def test_text_of_a_lock_cannot_move_the_terminal(project: Project, typed: Type) -> None:
    hostile = 'answer_tokens = 8\nstop = ["\\u202e\\u009b"]'
    project.write_spec(lambda text: text.replace("answer_tokens = 8", hostile))
    said = typed("resolve", SPEC, "--dry-run")
    assert said.code == 0
    assert {"\u202e", "\x9b"} & set(said.out) == set()
    assert "\\u202e" in said.out


def test_the_world_is_not_changed(project: Project, typed: Type) -> None:
    before = msgspec.structs.asdict(project.world)
    typed("resolve", SPEC, "--offline")
    assert msgspec.structs.asdict(project.world) == before
