"""Data files of suites from the Hub and from addresses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from qlock.errors import AbsentError
from qlock.flows.data_files import located
from tests.fakes.hub import FakeHub, served
from tests.fakes.project import Project, items_jsonl

SOURCE = "hub:datasets/o/exams/data/digits.jsonl"
ITEMS = items_jsonl(8)


@pytest.fixture
def stub() -> Iterator[FakeHub]:
    with served() as hub:
        yield hub


@pytest.fixture
def commit(stub: FakeHub) -> str:
    return stub.repository("o/exams", "dataset").commit({"data/digits.jsonl": ITEMS})


@pytest.fixture
def project(tmp_path: Path, stub: FakeHub) -> Project:
    made = Project(tmp_path)
    made.connect(stub)
    made.write_spec(lambda text: text.replace("file:tasks/digits.jsonl", SOURCE))
    return made


def test_a_data_set_of_the_hub_is_fetched_and_pinned(project: Project, commit: str) -> None:
    (suite, _) = project.lock().lock.suite
    (file,) = suite.file
    assert (file.key, file.name, file.requested, file.revision) == (
        "items",
        "data/digits.jsonl",
        f"{SOURCE}@main",
        commit,
    )
    assert file.sha256 == f"sha256:{hashlib.sha256(ITEMS).hexdigest()}"
    assert suite.params["items"] == SOURCE


def test_a_data_set_that_moved_upstream_stays_as_it_is_pinned(
    project: Project, stub: FakeHub, commit: str
) -> None:
    before = project.lock()
    later = stub.repository("o/exams", "dataset").commit({"data/digits.jsonl": items_jsonl(9)})
    kept = project.resolve()
    assert (kept.state, kept.data) == ("same", before.data)
    assert kept.notes == (
        (
            f"`main` of `o/exams` has moved from `{commit[:7]}` to `{later[:7]}`: `digits` changed there; "
            "what is pinned stays, `--upgrade digits` lets it move"
        ),
    )
    moved = project.resolve(upgrade=("digits",))
    assert (moved.moves, moved.lock.suite[0].file[0].revision) == ((), later)


def test_a_run_with_a_data_set_of_the_hub_makes_no_request(
    project: Project, stub: FakeHub, commit: str
) -> None:
    project.lock()
    stub.seen.clear()
    assert (project.run().state, stub.seen) == ("sealed", [])


def test_a_file_that_the_repository_does_not_have_is_named(
    project: Project, stub: FakeHub, commit: str
) -> None:
    with pytest.raises(AbsentError) as caught:
        located(project.world, "hub:datasets/o/exams/none.jsonl", base=project.path)
    assert str(caught.value) == f"`o/exams` has no file `none.jsonl` at `{commit}`"
