"""`qlock verify`: what is said and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Type
from tests.fakes.kld import add_kld
from tests.fakes.project import Project, sealed


@pytest.fixture
def run(locked: Project) -> Path:
    folder = locked.run().folder
    assert folder is not None
    return folder


def test_verified(run: Path, typed: Type) -> None:
    said = typed("verify", run)
    digest = json.loads((run / "seal.json").read_bytes())["answers_digest"]
    files = len(json.loads((run / "seal.json").read_bytes())["file"])
    assert (said.code, said.out) == (0, f"{digest}\n")
    assert said.talk == [f"ok: {files} files and 4 jobs are as sealed"]


def test_broken(run: Path, typed: Type) -> None:
    path = run / "record" / "digits.A@plain.1.jsonl"
    path.write_bytes(path.read_bytes() + b" ")
    said = typed("verify", run)
    assert (said.code, said.out) == (1, "")
    assert said.talk[0] == "error: record/digits.A@plain.1.jsonl is not as sealed"
    assert said.talk[-2:] == [
        "error: the seal is broken: this run is not what was measured",
        "hint: get it again from whoever measured it, or measure again",
    ]


def test_many_faults_are_counted(run: Path, typed: Type) -> None:
    for number in range(60):
        (run / "grades" / f"{number}.jsonl").write_bytes(b"")
    said = typed("verify", run)
    assert "error: not as sealed either: 10 more things" in said.talk
    assert len(json.loads(typed("verify", run, "--json").out)["faults"]) == 60


def test_unsealed(run: Path, typed: Type) -> None:
    (run / "seal.json").unlink()
    said = typed("verify", run)
    assert (said.code, said.out) == (5, "")
    assert said.talk[-1] == "hint: run its lock again to go on"


def test_unreadable(run: Path, typed: Type) -> None:
    (run / "seal.json").write_bytes(b"{")
    assert typed("verify", run).code == 6


def test_no_run(project: Project, typed: Type) -> None:
    said = typed("verify", "nowhere")
    assert said.code == 8
    assert said.talk == [
        f"error: no run in `{project.path}/nowhere`: no `lock.toml` and no `seal.json`",
        "hint: give the folder that `qlock run` named",
    ]


@pytest.mark.parametrize(
    "path, what", [("locks/small@cpu-amd-1a-02.toml", "a lock"), ("models/a.gguf", "a file")]
)
def test_a_file_is_no_run(locked: Project, typed: Type, path: str, what: str) -> None:
    assert (locked.path / path).is_file()
    said = typed("verify", path)
    assert (said.code, said.out) == (6, "")
    assert said.talk == [
        f"error: `{path}` is {what}, expected a run's folder",
        "hint: give the folder that `qlock run` named, such as runs/NAME@DEVICE/LOCK8",
    ]


def test_the_folder_of_all_runs(run: Path, typed: Type) -> None:
    said = typed("verify", run.parent)
    assert said.code == 8
    assert said.talk[-1] == f"hint: give one of the runs in it: {run.name}"


def test_forced(locked: Project, typed: Type) -> None:
    folder = locked.run(allow=("device",)).folder
    assert folder is not None
    said = typed("verify", folder)
    assert said.code == 0
    assert (
        said.talk[0]
        == "warning: FORCED: `device` was allowed to differ; no comparison with this run is valid"
    )


def test_json_document(run: Path, typed: Type) -> None:
    document = json.loads(typed("verify", run, "--json").out)
    assert (document["verb"], document["state"], document["faults"]) == ("verify", "verified", [])


def test_a_distance_from_the_reference_is_said(project: Project, typed: Type) -> None:
    add_kld(project).lock()
    folder = sealed(project).folder
    assert folder is not None
    said = typed("verify", folder)
    assert said.talk[:2] == [
        "note: 1 distance from A@plain: 0.171621 nats; `qlock diff` shows all figures",
        "note: the same bytes as the reference, so nothing differs: distance.A@plain.1",
    ]
