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
    assert (str(error), error.message, error.hint, error.where) == (
        "got `1`, expected `2`",
        "got `1`, expected `2`",
        "",
        (),
    )


def test_the_place_grows_from_the_inside_out() -> None:
    error = InputError("got `1`, expected `2`", hint="say 2")
    assert error.within("[0]").within("model").within("x.toml") is error
    assert error.where == ("x.toml", "model", "[0]")
    assert (str(error), error.hint) == ("x.toml.model[0]: got `1`, expected `2`", "say 2")


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
