"""What a new lock changes in an old one, entry by entry."""

from __future__ import annotations

import msgspec
from hypothesis import given

from qlock.core.lock import Lock
from qlock.flows.changed import Change, lock_changes
from tests.fakes.documents import a_device, a_lock, a_model
from tests.strategies import strategy


def told(old: Lock | None, new: Lock) -> list[str]:
    return [f"{change.word} {change.told()}" for change in lock_changes(old, new) if change.word != "Kept"]


def test_everything_of_a_first_lock_is_added() -> None:
    lock = a_lock()
    assert {change.word for change in lock_changes(None, lock)} == {"Added"}
    assert f"Added model {lock.model[0].name}" in told(None, lock)


def test_a_model_of_other_bytes_says_which_part_differs() -> None:
    lock = a_lock()
    first, *others = lock.model
    (file, *files) = first.file
    other = msgspec.structs.replace(
        first,
        tensors_digest=f"blake3:{'0' * 64}",
        file=(msgspec.structs.replace(file, size_bytes=file.size_bytes + 1), *files),
    )
    assert told(lock, msgspec.structs.replace(lock, model=(other, *others))) == [
        f"Updated model {first.name}: tensors differ; tokenizer, template, metadata identical"
    ]


def test_a_model_that_is_only_asked_for_otherwise_says_what() -> None:
    lock = a_lock()
    first, *others = lock.model
    other = msgspec.structs.replace(first, requested="file:elsewhere.gguf")
    assert told(lock, msgspec.structs.replace(lock, model=(other, *others))) == [
        f"Updated model {first.name}: requested"
    ]


def test_what_is_gone_is_removed() -> None:
    lock = a_lock()
    gone = a_model("Q0")
    assert told(msgspec.structs.replace(lock, model=(*lock.model, gone)), lock) == ["Removed model Q0"]


def test_many_leaves_are_counted() -> None:
    lock = a_lock()
    other = a_device(
        cpu_model="x", cpu_family=1, cpu_model_number=1, cpu_stepping=7, cores=77, instruction_sets=()
    )
    (line,) = told(lock, msgspec.structs.replace(lock, device=(other,)))
    assert line.startswith(f"Updated device {other.name}: ")
    assert line.endswith(" and 2 more")
    assert line.count(",") == 3


@given(strategy(Lock))
def test_a_lock_changes_nothing_in_itself(lock: Lock) -> None:
    assert {change.word for change in lock_changes(lock, lock)} == {"Kept"}


@given(strategy(Lock), strategy(Lock))
def test_what_one_adds_the_other_removes(a: Lock, b: Lock) -> None:
    def names(old: Lock, new: Lock, word: str) -> set[tuple[str, str]]:
        return {(change.table, change.name) for change in lock_changes(old, new) if change.word == word}

    assert names(a, b, "Added") == names(b, a, "Removed")
    assert names(a, b, "Kept") == names(b, a, "Kept")
    assert names(a, b, "Updated") == names(b, a, "Updated")


def test_an_entry_is_told_in_one_line() -> None:
    assert Change(word="Added", table="model", name="A", why="").told() == "model A"
    assert Change(word="Updated", table="model", name="A", why="requested").told() == "model A: requested"
