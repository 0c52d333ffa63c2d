"""Where pins came from, told by locks alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import UNSET

from qlock.errors import AbsentError, UsageError
from qlock.flows.why import Asked, Reason, why
from tests.fakes.hub import FakeHub, served
from tests.fakes.project import Project, tiny_gguf

SINCE = ("since", "unknown: a lock holds no dates; `git log` of the lock tells")


@pytest.fixture
def stub() -> Iterator[FakeHub]:
    with served() as hub:
        yield hub


def told(project: Project, name: str) -> list[tuple[str, str]]:
    (reason,) = asked(project, name)
    return [(row.what, row.told) for row in reason.row]


def asked(project: Project, name: str) -> tuple[Reason, ...]:
    return why(project.world, Asked(name=name, locks=(project.lock_path,)))


def test_a_model_of_the_hub_came_from_a_commit(tmp_path: Path, stub: FakeHub) -> None:
    project = Project(tmp_path)
    project.connect(stub)
    commit = stub.repository("o/m").commit({"m-Q4_0.gguf": tiny_gguf() + bytes(4_000)})
    project.models["A"] = "hub:o/m:Q4_0"
    project.models["B"] = f"hub:o/m:Q4_0@{commit}"
    project.write_spec()
    lock = project.lock().lock
    (file,) = lock.model[0].file
    stub.seen.clear()
    assert told(project, "A") == [
        ("requested", "hub:o/m:Q4_0@main"),
        ("became", f"`main` of `o/m` was commit {commit}"),
        SINCE,
        ("file", f"m-Q4_0.gguf, {file.size_bytes} bytes"),
        ("sha256", file.sha256),
        ("blake3", "not known yet"),
        ("missing", "file.m-Q4_0.gguf.blake3 until fetch: the weights are not here"),
        ("missing", "tensors_digest until fetch: the weights are not here"),
    ]
    assert told(project, "B")[1] == ("became", f"commit {commit} of `o/m`, as asked")
    prompts = lock.point[0].prompts
    assert prompts is not UNSET
    assert told(project, "A@plain")[1:4] == [
        ("repeatable", "not proved yet"),
        *(("asked", f"{pin.suite}, {pin.items} items, tokens {pin.tokens_digest}") for pin in prompts),
    ]
    assert told(project, "llama-cpp-python") == [("seen", "not looked at yet")]
    assert stub.seen == []


def test_local_files_suites_points_and_the_rest(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.script.shaky = {"a.gguf"}
    lock = project.lock().lock
    assert told(project, "A")[:3] == [
        ("requested", "file:models/a.gguf"),
        ("became", "the bytes that were there"),
        SINCE,
    ]
    data = lock.suite[0].file[0]
    assert told(project, "digits") == [
        ("requested", "file:tasks/digits.jsonl"),
        ("became", "the bytes that were there"),
        SINCE,
        ("file", f"items: digits.jsonl, {data.size_bytes} bytes"),
        ("sha256", data.sha256),
    ]
    assert told(project, "A@plain")[0] == ("made of", "A, plain, llama-cpp-python, cpu-amd-1a-02")
    (slots,) = told(project, "plain")
    assert slots[1].startswith("1 of 4 asked for: A@plain: ")
    assert told(project, "cpu-amd-1a-02") == [("seen", "AMD EPYC")]
    assert told(project, "llama-cpp-python")[0] == ("seen", "b6000 (fake)")


def test_a_name_that_no_lock_has_is_named_with_those_there_are(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    with pytest.raises(UsageError) as caught:
        asked(project, "Q4")
    assert (str(caught.value), caught.value.hint) == (
        "no lock here has a pin called `Q4`",
        "there are A, A@plain, B, B@plain, cpu-amd-1a-02, digits, llama-cpp-python, plain, text",
    )


def test_without_locks_nobody_knows(tmp_path: Path) -> None:
    project = Project(tmp_path)
    with pytest.raises(AbsentError) as caught:
        why(project.world, Asked(name="A", locks=()))
    assert str(caught.value) == "there are no locks here"
