"""`qlock fetch`: what is said, and that nothing secret or raw is."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Type
from tests.fakes.hub import FakeHub, served
from tests.fakes.project import Project, tiny_gguf

LOCK = "locks/small@cpu-amd-1a-02.toml"
SPEC = "specs/small.toml"
WEIGHTS = tiny_gguf(5) + bytes(4_000)
SIZE = "4.6 kB"


@pytest.fixture
def stub(project: Project) -> Iterator[FakeHub]:
    with served() as hub:
        hub.repository("o/m").commit({"q/m-Q4_K_M.gguf": WEIGHTS})
        project.connect(hub)
        project.models = {"A": "hub:o/m:q4_k_m", "B": "file:models/b.gguf"}
        project.write_spec()
        yield hub


def test_resolve_fetch_resolve_run_as_people_type_it(project: Project, stub: FakeHub, typed: Type) -> None:
    said = typed("resolve", SPEC)
    assert said.code == 0
    assert "note: model.A.tensors_digest is not pinned yet: the weights are not here" in said.talk
    said = typed("run", LOCK)
    assert (said.code, said.talk) == (
        3,
        [
            (
                "error: the lock still misses 7 pins, first `model.A.file.q/m-Q4_K_M.gguf.blake3`: "
                "the weights are not here"
            ),
            (
                f"hint: run `qlock fetch {LOCK}`, then `qlock resolve {SPEC}`, "
                "on the machine that shall run it"
            ),
        ],
    )
    said = typed("fetch", LOCK)
    assert said.code == 0
    assert said.talk == [
        f"q/m-Q4_K_M.gguf: 0 B of {SIZE}",
        f"q/m-Q4_K_M.gguf: {SIZE} of {SIZE}",
        f"Fetched model A: q/m-Q4_K_M.gguf ({SIZE})",
        f"ok: 1 file is here and as locked; 2 pins were added to `{LOCK}`",
        f"hint: pin what only the engine knows with `qlock resolve {SPEC}`",
    ]
    assert said.out.endswith("q/m-Q4_K_M.gguf\n")
    assert typed("resolve", SPEC).code == 0
    stub.seen.clear()
    assert typed("run", LOCK, "--offline").code == 0
    assert typed("run", LOCK).code == 0
    assert typed("check", LOCK).code == 0
    assert typed("resolve", SPEC, "--offline").code == 0
    assert stub.seen == []


def test_what_is_here_is_said_to_be(project: Project, stub: FakeHub, typed: Type) -> None:
    typed("resolve", SPEC, "--no-prove")
    typed("fetch", LOCK)
    said = typed("fetch", LOCK)
    assert said.talk[:2] == [
        f"Have model A: q/m-Q4_K_M.gguf ({SIZE})",
        "ok: 1 file is here and as locked; the lock is as it was",
    ]


def test_json(project: Project, stub: FakeHub, typed: Type) -> None:
    typed("resolve", SPEC, "--no-prove")
    found = json.loads(typed("fetch", LOCK, "--json").out)
    assert found["verb"] == "fetch"
    assert [(file["owner"], file["is_new"]) for file in found["file"]] == [("model A", True)]
    assert found["pins"] == ["model.A.file.q/m-Q4_K_M.gguf.blake3", "model.A.tensors_digest"]


def test_a_lock_without_files_elsewhere(locked: Project, typed: Type) -> None:
    said = typed("fetch", LOCK)
    assert (said.code, said.talk) == (0, ["ok: the lock names no files that lie elsewhere"])


@pytest.mark.parametrize(
    "words", [("resolve", SPEC, "--no-prove"), ("fetch", LOCK), ("resolve", SPEC, "--check"), ("run", LOCK)]
)
def test_a_token_is_in_no_output_and_no_lock(
    project: Project, stub: FakeHub, typed: Type, words: tuple[str, ...]
) -> None:
    typed("resolve", SPEC, "--no-prove")
    project.connect(stub, HF_TOKEN="hf_goodtoken")
    before = stub.repository("o/m").commit({"q/m-Q4_K_M.gguf": WEIGHTS}, "Hello hf_goodtoken \x1b[2J")
    assert before
    said = typed(*words)
    for text in (said.out, said.err, project.lock_path.read_text()):
        assert "hf_goodtoken" not in text
        assert "\x1b" not in text
    project.connect(stub, HF_TOKEN="hf_badtoken0")
    stub.repository("o/m").gated = True
    said = typed(*words)
    assert "hf_badtoken0" not in said.out + said.err


def test_a_gated_repository_is_pinned_and_says_what_to_do_at_the_fetch(
    project: Project, stub: FakeHub, typed: Type
) -> None:
    typed("resolve", SPEC, "--no-prove")
    stub.repository("o/m").gated = True
    said = typed("fetch", LOCK)
    assert said.code == 8
    assert said.talk[-2:] == [
        "error: model.A: repository `o/m` is gated and this account has no access",
        f"hint: accept the terms at {stub.endpoint}/o/m and log in with `hf auth login`",
    ]


def test_offline_says_what_is_not_here(project: Project, stub: FakeHub, typed: Type) -> None:
    typed("resolve", SPEC, "--no-prove")
    stub.seen.clear()
    said = typed("fetch", LOCK, "--offline")
    assert (said.code, said.out, stub.seen) == (8, "", [])
    assert said.talk == [
        f"Lacks model A: q/m-Q4_K_M.gguf ({SIZE})",
        f"error: 1 file is not here ({SIZE}), and no network may be used",
        f"hint: run `qlock fetch {LOCK}` where there is a network",
    ]
    found = json.loads(typed("fetch", LOCK, "--offline", "--json").out)
    assert found["absent"] == [{"owner": "model A", "file": "q/m-Q4_K_M.gguf", "size_bytes": len(WEIGHTS)}]
    typed("fetch", LOCK)
    said = typed("fetch", LOCK, "--offline")
    assert (said.code, said.talk[0]) == (0, f"Have model A: q/m-Q4_K_M.gguf ({SIZE})")


def test_one_model_of_several_is_brought(project: Project, stub: FakeHub, typed: Type) -> None:
    stub.repository("o/m").commit({"q/m-Q8_0.gguf": WEIGHTS})
    project.models["C"] = "hub:o/m:Q8_0"
    project.write_spec()
    typed("resolve", SPEC, "--no-prove")
    said = typed("fetch", LOCK, "--model", "C")
    assert (said.code, [line for line in said.talk if line.startswith("Fetched")]) == (
        0,
        [f"Fetched model C: q/m-Q8_0.gguf ({SIZE})"],
    )
    said = typed("fetch", LOCK, "--model", "X")
    assert (said.code, said.talk) == (
        2,
        ["error: got `--model X`, expected the name of a model of the lock", "hint: one of A, B, C"],
    )
