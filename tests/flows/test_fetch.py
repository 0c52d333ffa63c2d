"""Bringing what a lock names, and filling in what could not be known without it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import UNSET

from qlock.core.lock import Lock, read_lock
from qlock.errors import AbsentError, InputError, QlockError, UsageError
from qlock.flows.fetch import AbsentFile, Asked, Fetched, Progress, fetch
from tests.fakes.hub import FakeHub, served
from tests.fakes.project import Project, items_jsonl, tiny_gguf

PADDING = bytes(4_000)
NAMES = ("Q4/m-Q4_K_M.gguf", "m-Q8_0.gguf")
EXAM = "hub:datasets/o/exams/digits.jsonl"


def weights(seed: int) -> bytes:
    return tiny_gguf(seed) + PADDING


@pytest.fixture
def stub() -> Iterator[FakeHub]:
    with served() as hub:
        yield hub


@pytest.fixture
def commit(stub: FakeHub) -> str:
    stub.repository("o/exams", "dataset").commit({"digits.jsonl": items_jsonl(8)})
    return stub.repository("o/m").commit({name: weights(seed) for seed, name in enumerate(NAMES)})


@pytest.fixture
def project(tmp_path: Path, stub: FakeHub, commit: str) -> Project:
    """Its lock is made without the weights."""
    made = Project(tmp_path)
    made.connect(stub)
    made.models = {"A": "hub:o/m:Q4_K_M", "B": "hub:o/m:Q8_0"}
    made.write_spec(lambda text: text.replace("file:tasks/digits.jsonl", EXAM))
    made.lock()
    return made


def brought(project: Project, **asked: object) -> tuple[Fetched, list[Progress]]:
    told: list[Progress] = []
    order = Asked(lock_path=project.lock_path, **asked)  # type: ignore[arg-type]  # passed on as given
    return fetch(project.world, order, told.append), told


def lock_of(project: Project) -> Lock:
    return read_lock(project.lock_path.read_bytes(), name="lock")


def test_fetch_fills_in_digests_and_changes_nothing_else(project: Project) -> None:
    before = project.lock_path.read_bytes().decode()
    fetched, told = brought(project)
    assert [(file.owner, file.file, file.is_new) for file in fetched.file] == [
        ("model A", NAMES[0], True),
        ("model B", NAMES[1], True),
        ("suite digits", "digits.jsonl", False),
    ]
    assert all(Path(file.path).is_file() for file in fetched.file)
    assert fetched.pins == tuple(
        f"model.{name}.{pin}"
        for name, file in zip("AB", NAMES, strict=True)
        for pin in (f"file.{file}.blake3", "tensors_digest")
    )
    size = len(weights(0))
    assert (told[0], told[-1]) == (
        Progress(file=NAMES[0], done_bytes=0, size_bytes=size),
        Progress(file=NAMES[1], done_bytes=size, size_bytes=size),
    )
    after = project.lock_path.read_bytes().decode()
    gone = set(before.splitlines()) - set(after.splitlines())
    assert {line.partition(" ")[0] for line in gone} == {"body_digest", "pin", "until"}
    new = set(after.splitlines()) - set(before.splitlines())
    assert {line.partition(" ")[0] for line in new} == {"body_digest", "blake3", "tensors_digest"}
    assert {entry.until for entry in lock_of(project).missing} == {"prove"}


def test_resolve_fetch_resolve_run(project: Project, stub: FakeHub) -> None:
    brought(project)
    proved = project.lock()
    assert {entry.until for entry in proved.lock.missing} == {"never"}
    stub.seen.clear()
    assert (project.run().state, stub.seen) == ("sealed", [])


def test_a_second_fetch_makes_no_request_and_leaves_the_lock(project: Project, stub: FakeHub) -> None:
    brought(project)
    before = project.lock_path.read_bytes()
    stub.seen.clear()
    fetched, told = brought(project)
    assert (stub.seen, told, fetched.pins, [file.is_new for file in fetched.file]) == (
        [],
        [],
        (),
        [False] * 3,
    )
    assert project.lock_path.read_bytes() == before


def test_what_lies_elsewhere_in_the_right_bytes_is_not_fetched(
    project: Project, stub: FakeHub, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "m-Q4_K_M.gguf").write_bytes(weights(0))
    (store / "m-Q8_0.gguf").write_bytes(weights(7))
    fetched, _ = brought(project, models=(store,))
    assert [file.is_new for file in fetched.file] == [False, True, False]
    assert fetched.file[0].path == str(store / "m-Q4_K_M.gguf")
    lock = project.resolve(models=(store,)).lock
    assert {entry.until for entry in lock.missing} == {"never"}


def test_a_vanished_commit_is_no_matter_where_the_files_are_here(project: Project, stub: FakeHub) -> None:
    brought(project)
    stub.repository("o/m").squash()
    assert len(brought(project)[0].file) == 3


def test_a_vanished_commit_is_named_where_they_are_not(project: Project, stub: FakeHub, commit: str) -> None:
    stub.repository("o/m").squash()
    with pytest.raises(AbsentError) as caught:
        brought(project)
    assert str(caught.value) == f"model.A: commit `{commit}` of repository `o/m` has vanished upstream"


def test_right_size_and_wrong_bytes_are_not_used(project: Project, stub: FakeHub) -> None:
    before = project.lock_path.read_bytes()
    stub.trouble.flip_byte = True
    with pytest.raises(InputError) as caught:
        brought(project)
    assert str(caught.value).startswith(
        f"model.A: `{NAMES[0]}` of `o/m` arrived with other bytes than the Hub names, and is not used: got "
    )
    assert project.lock_path.read_bytes() == before


def test_what_came_before_an_error_is_kept(project: Project, stub: FakeHub) -> None:
    stub.repository("o/m").gated = True
    with pytest.raises(AbsentError):
        brought(project)
    stub.repository("o/m").gated = False
    listing = project.world.hub.listing("o/m", "main", paths=[NAMES[0]])
    project.world.hub.fetch(listing.snapshot, listing.files[0])
    stub.trouble.flip_byte = True
    with pytest.raises(InputError):
        brought(project)
    assert {entry.pin for entry in lock_of(project).missing if entry.until == "fetch"} == {
        f"model.B.file.{NAMES[1]}.blake3",
        "model.B.tensors_digest",
    }


def test_a_rate_limit_is_waited_for_and_then_given_up(project: Project, stub: FakeHub) -> None:
    stub.trouble.always = (429, {"Retry_After": "7"})
    with pytest.raises(AbsentError) as caught:
        brought(project)
    assert str(caught.value) == "model.A: the Hub did not answer in 4 tries: too many requests (429)"
    assert project.told == ["the Hub: too many requests (429); waiting 7 s"] * 3


@pytest.mark.parametrize("flock", ["missing", "for everybody"])
def test_two_fetches_at_once_both_end_with_the_right_files(
    project: Project, monkeypatch: pytest.MonkeyPatch, flock: str
) -> None:
    def broken(*_: object) -> None:
        if flock == "missing":
            raise OSError(38, os.strerror(38))

    monkeypatch.setattr("fcntl.flock", broken)
    ends: list[QlockError | None] = []

    def one() -> None:
        try:
            brought(project)
            ends.append(None)
        except QlockError as error:
            ends.append(error)

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends == [None, None]
    assert {entry.until for entry in lock_of(project).missing} == {"prove"}


def test_a_lock_that_was_renewed_meanwhile_is_not_overwritten(project: Project, stub: FakeHub) -> None:
    later = stub.repository("o/m").commit({NAMES[0]: weights(9)})
    renewed: list[bytes] = []

    def renew(_: Progress) -> None:
        if not renewed:
            project.lock(upgrade=("model",))
            renewed.append(project.lock_path.read_bytes())

    fetch(project.world, Asked(lock_path=project.lock_path), renew)
    lock = lock_of(project)
    assert lock.model[0].revision == lock.model[1].revision == later
    assert {entry.pin for entry in lock.missing if entry.until == "fetch"} == {
        f"model.{name}.{pin}"
        for name, file in zip("AB", NAMES, strict=True)
        for pin in (f"file.{file}.blake3", "tensors_digest")
    }


def test_a_lock_of_files_that_are_here_has_nothing_to_fetch(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    before = project.lock_path.read_bytes()
    fetched, _ = brought(project)
    assert (fetched.file, fetched.pins, project.lock_path.read_bytes()) == ((), (), before)


# Some of it, and none of it


def test_only_the_models_that_are_named_are_brought_and_all_data(project: Project) -> None:
    fetched, _ = brought(project, only=("B",))
    assert [file.owner for file in fetched.file] == ["model B", "suite digits"]
    assert fetched.pins == (f"model.B.file.{NAMES[1]}.blake3", "model.B.tensors_digest")
    assert [model.file[0].blake3 is UNSET for model in lock_of(project).model] == [True, False]


def test_a_name_that_no_model_has_is_usage(project: Project, stub: FakeHub) -> None:
    stub.seen.clear()
    for name, hint in (("Bb", "did you mean `B`?"), ("\x1b", "one of A, B")):
        with pytest.raises(UsageError) as caught:
            brought(project, only=("A", name))
        shown = name.replace("\x1b", "\\x1b")
        assert (str(caught.value), caught.value.hint) == (
            f"got `--model {shown}`, expected the name of a model of the lock",
            hint,
        )
    assert stub.seen == []


def test_without_downloading_what_is_not_here_is_told(project: Project, stub: FakeHub) -> None:
    brought(project, only=("B",))
    before = project.lock_path.read_bytes()
    project.connect(stub, HF_HUB_OFFLINE="1")
    stub.seen.clear()
    fetched, told = brought(project, may_download=False)
    assert [(file.owner, file.is_new) for file in fetched.file] == [
        ("model B", False),
        ("suite digits", False),
    ]
    assert fetched.absent == (AbsentFile(owner="model A", file=NAMES[0], size_bytes=len(weights(0))),)
    assert (fetched.pins, told, stub.seen, project.lock_path.read_bytes()) == ((), [], [], before)
    shutil.rmtree(project.path.parent / "hf")
    fetched, _ = brought(project, may_download=False)
    assert [lacking.owner for lacking in fetched.absent] == ["model A", "model B", "suite digits"]


def test_without_downloading_the_digests_of_what_is_here_are_filled_in(
    project: Project, stub: FakeHub, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "m-Q4_K_M.gguf").write_bytes(weights(0))
    fetched, _ = brought(project, may_download=False, models=(store,))
    assert fetched.pins == (f"model.A.file.{NAMES[0]}.blake3", "model.A.tensors_digest")
    assert [lacking.owner for lacking in fetched.absent] == ["model B"]
