"""`qlock check`: what is said and the exit code."""

from __future__ import annotations

import json

from tests.cli.conftest import Type
from tests.fakes.project import Project, tiny_gguf

LOCK = "locks/small@cpu-amd-1a-02.toml"


def test_as_locked(locked: Project, typed: Type) -> None:
    said = typed("check", LOCK)
    assert (said.code, said.out, said.talk) == (
        0,
        "",
        [*(f"point {name}@plain: loading and asking" for name in "AB"), "ok: 2 points are as locked"],
    )


def test_one_point_is_no_plural(project: Project, typed: Type) -> None:
    del project.models["B"]
    project.write_spec()
    project.lock()
    assert typed("check", LOCK).talk[1:] == ["ok: 1 point is as locked"]


def test_quick(locked: Project, typed: Type) -> None:
    said = typed("check", LOCK, "--quick")
    assert (said.code, said.talk) == (0, ["ok: files and device are as locked"])


def test_another_model(locked: Project, typed: Type) -> None:
    locked.write("models/a.gguf", tiny_gguf(3))
    said = typed("check", LOCK)
    assert said.code == 3
    assert "error: model.A.file.a.gguf is not as locked (model-files)" in said.talk
    assert said.talk[-2:] == [
        "note: point A@plain was not loaded: its files are not as locked",
        "error: this is not what is locked; `qlock run` will refuse",
    ]


def test_absent(locked: Project, typed: Type) -> None:
    (locked.path / "models/a.gguf").unlink()
    said = typed("check", LOCK)
    assert said.code == 8
    assert said.talk[-1] == "hint: say where they lie with --models DIR, or bring them with `qlock fetch`"


def test_stale(locked: Project, typed: Type) -> None:
    locked.write_spec(lambda text: text.replace("windows = 3", "windows = 2"))
    said = typed("check", LOCK, "--quick")
    assert (said.code, said.talk) == (
        1,
        [
            "error: the lock is stale: the spec `specs/small.toml` changed since this lock was made",
            "hint: renew it with `qlock resolve`",
            "ok: files and device are as locked",
        ],
    )


def test_json(locked: Project, typed: Type) -> None:
    locked.write("models/a.gguf", tiny_gguf(3))
    said = typed("check", LOCK, "--json")
    document = json.loads(said.out)
    assert said.code == 3
    assert (document["verb"], document["state"], document["left_out"]) == ("check", "refused", ["A@plain"])
    assert document["findings"][0]["hint"] == (
        "bring back the locked file, or take the new one with `qlock resolve --upgrade NAME`"
    )


def test_an_engine_that_cannot_be_asked(locked: Project, typed: Type) -> None:
    locked.script.start_error = "the engine did not start"
    assert typed("check", LOCK).code == 7
