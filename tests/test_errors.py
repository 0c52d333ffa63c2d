"""Errors: the classes and their exit codes, the place of an error, and the tree in the docstring."""

from __future__ import annotations

import re

import pytest

from qlock import errors
from qlock.errors import ExitCode, InputError, QlockError

CLASSES = [
    thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, QlockError)
]


def test_an_error_is_its_message() -> None:
    error = InputError("got `1`, expected `2`")
    assert (str(error), error.message, error.hint) == ("got `1`, expected `2`", "got `1`, expected `2`", "")


def test_the_place_grows_from_the_inside_out() -> None:
    error = InputError("got `1`, expected `2`", hint="say 2")
    assert error.within("name").within("[0]").within("model").in_document("x.toml") is error
    assert (str(error), error.hint) == ("x.toml: model[0].name: got `1`, expected `2`", "say 2")


@pytest.mark.parametrize(
    "places, text",
    [
        ([], "no"),
        (["x.jsonl"], "x.jsonl: no"),
        (["key"], "key: no"),
        (["x.jsonl", "line 7"], "x.jsonl: line 7: no"),
        (["x.jsonl", "line 7", "key", "[0]", "key"], "x.jsonl: line 7: key[0].key: no"),
        (["key", "x.jsonl", "[0]", "key"], "key: x.jsonl: [0].key: no"),
        (["key", "line 7"], "key: line 7: no"),
    ],
)
def test_keys_are_joined_by_dots_and_documents_stand_apart(places: list[str], text: str) -> None:
    error = InputError("no")
    for place in reversed(places):
        error = error.in_document(place) if " " in place or "." in place else error.within(place)
    assert str(error) == text


def test_a_file_that_is_found_by_its_path_needs_nothing_in_front() -> None:
    error = InputError("no").within("key").in_document("line 7").in_file("tasks/x.jsonl")
    assert str(error.within("suite.x").in_document("y.toml").in_file("z")) == "tasks/x.jsonl: line 7: key: no"


def test_the_folder_of_a_document_is_a_part_of_its_path() -> None:
    error = InputError("no").within("key").in_document("x.jsonl").in_folder("runs/a")
    assert str(error) == "runs/a/x.jsonl: key: no"
    assert str(InputError("no").within("key").in_folder("runs/a")) == "runs/a: key: no"
    assert str(InputError("no").in_folder("runs/a")) == "runs/a: no"
    assert str(InputError("no").in_file("tasks/x.jsonl").in_folder("runs/a")) == "tasks/x.jsonl: no"


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_has_an_exit_code_and_a_sentence(kind: type[QlockError]) -> None:
    assert kind.exit_code in ExitCode
    assert (kind.__doc__ or "").splitlines()[0].endswith(".")


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = re.findall(r"[├└]── (\w+) +(\d+)", errors.__doc__ or "")
    assert drawn == [(kind.__name__, str(int(kind.exit_code))) for kind in CLASSES if kind is not QlockError]
    assert all(kind.__mro__[1] is QlockError for kind in CLASSES if kind is not QlockError)


def test_exit_codes_are_the_documented_numbers() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "YES": 0,
        "NO": 1,
        "USAGE": 2,
        "REFUSED": 3,
        "INVALID": 4,
        "INCOMPLETE": 5,
        "INPUT": 6,
        "ENGINE": 7,
        "ABSENT": 8,
        "BUG": 70,
        "INTERRUPTED": 130,
        "TERMINATED": 143,
    }
    assert QlockError("x").exit_code is ExitCode.BUG
