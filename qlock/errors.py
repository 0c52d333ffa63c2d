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
        self._places: tuple[tuple[str, bool], ...] = ()
        """Outermost first: what stands there, and whether that is a document (else a key)."""
        self._is_placed = False

    def within(self, key: str) -> Self:
        """The same error with ``key`` put in front of its place, for the caller to raise again."""
        return self._in_front(key, is_document=False)

    def in_document(self, name: str) -> Self:
        """The same error with a document, or a line of it, put in front of its place: ``x.toml``, ``line 7``."""
        return self._in_front(name, is_document=True)

    def in_folder(self, path: str) -> Self:
        """The same error with the folder of its document put in front of that: ``runs/x/5d9a31c9/seal.json``."""
        match self._places:
            case ((name, True), *rest) if not self._is_placed:
                self._places = ((f"{path}/{name}", True), *rest)
                return self
            case _:
                return self.in_document(path)

    def in_file(self, path: str) -> Self:
        """The same error with a file in front that people find by this path: whatever it is read for stays unsaid."""
        self._in_front(path, is_document=True)
        self._is_placed = True
        return self

    def _in_front(self, place: str, *, is_document: bool) -> Self:
        if not self._is_placed:
            self._places = ((place, is_document), *self._places)
        return self

    def __str__(self) -> str:
        place, follows_key = "", False
        for part, is_document in self._places:
            if follows_key and not is_document:
                place += part if part.startswith("[") else f".{part}"
            else:
                place += f": {part}" if place else part
            follows_key = not is_document
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
    """Something is not there: a file, the hub, disk space, a device, Slurm, or the folder is held by another run."""

    exit_code = ExitCode.ABSENT
