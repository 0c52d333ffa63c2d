"""The one exception tree of qlock, and the exit codes.

::

    QlockError
    ├── UsageError        2   the command line does not make sense
    ├── RefusedError      3   what was asked is not what is locked
    ├── InvalidError      4   two runs may not be compared
    ├── IncompleteError   5   items are missing or in error; run again to resume
    ├── InputError        6   a spec, lock, GGUF or record is unreadable, inconsistent or edited
    ├── EngineError       7   the engine did not start, died, hung or answered nonsense
    └── AbsentError       8   a file, the hub, disk space, a device … is not there

An exception means "I could not look" and stops at once. "I looked, and the answer is no" is a value
(``core.verify.Finding``, a verdict, a changed lock): values are collected and shown together, and only the
command line turns them into an exit code.

What does not live here: how an error is printed, and leaving the process (``cli.main`` alone does both).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """Exit codes of every verb; the README's table is checked against this class."""

    YES = 0
    NO = 1
    USAGE = 2
    REFUSED = 3
    INVALID = 4
    INCOMPLETE = 5
    INPUT = 6
    ENGINE = 7
    ABSENT = 8
    BUG = 70
    INTERRUPTED = 130
    TERMINATED = 143


class QlockError(Exception):
    """Root of everything that qlock raises on purpose.

    Args:
        message: What is wrong, with values in backticks and no full stop.
        hint: One thing to do about it; empty when there is nothing to say.
    """

    exit_code: ExitCode = ExitCode.BUG

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where: tuple[str, ...] = ()

    def within(self, key: str) -> Self:
        """The same error with ``key`` put in front of its place, for the caller to raise again."""
        self.where = (key, *self.where)
        return self

    def __str__(self) -> str:
        place = ""
        for part in self.where:
            place += part if part.startswith("[") or not place else f".{part}"
        return f"{place}: {self.message}" if place else self.message


class UsageError(QlockError):
    """The command line does not make sense."""

    exit_code = ExitCode.USAGE


class RefusedError(QlockError):
    """What was asked is not what is locked, found where no list of findings can be collected."""

    exit_code = ExitCode.REFUSED


class InvalidError(QlockError):
    """Two runs cannot be put side by side at all."""

    exit_code = ExitCode.INVALID


class IncompleteError(QlockError):
    """Something needs a finished run and this one is not."""

    exit_code = ExitCode.INCOMPLETE


class InputError(QlockError):
    """A spec, lock, GGUF or record is unreadable, inconsistent or edited."""

    exit_code = ExitCode.INPUT


class EngineError(QlockError):
    """The engine could not be asked: it did not start, died, hung or answered nonsense."""

    exit_code = ExitCode.ENGINE


class AbsentError(QlockError):
    """Something is not there: a file, the hub, disk space, a device, or the folder is held by another run."""

    exit_code = ExitCode.ABSENT
