"""Append-only files of JSON lines that survive being killed at any moment.

Lives here: opening one (and dropping a torn last line), appending rows, reading them back. Does not live here:
what a row means (``core.record``), who may write (``world.folder`` keeps others out).

A row is one JSON value and ends with ``\\n``; lines are split at that byte alone, so that the other line breaks
of Unicode may stand inside strings. After a kill or a power cut the last line may be torn: it has no newline, or
it does not read as JSON. It is dropped when the journal is opened for writing, and the number of its bytes is
kept. Anything unreadable before it is damage, and refused with its line number: nothing is ever skipped.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from qlock.errors import AbsentError, InputError
from qlock.world.files import error_of, opened, shown, sync_folder, write_all, writing_error

_PIECE_BYTES = 1 << 20
_MAX_ROW_BYTES = 64 << 20
_WHAT = "journal"


class Journal:
    """A journal open for writing; use it as a context manager, or call ``close``.

    Args:
        path: Made when it is not there; its folder must be.

    Raises:
        AbsentError: It cannot be opened or written.
        InputError: A line other than the last one is damaged, or it is no regular file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._broken = False
        self._synced = True
        try:
            is_new = not path.exists()
            if not is_new:
                opened(path, _WHAT).close()
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
            self._descriptor = os.open(path, flags, 0o666)
        except (OSError, ValueError) as error:
            raise writing_error(error, path, _WHAT) from error
        try:
            self._end = _whole_bytes(path)
            self._torn_bytes = os.fstat(self._descriptor).st_size - self._end
            if self._torn_bytes:
                os.ftruncate(self._descriptor, self._end)
                os.fsync(self._descriptor)
            if is_new:
                sync_folder(path.parent)
        except BaseException as error:
            os.close(self._descriptor)
            if isinstance(error, OSError):
                raise writing_error(error, path, _WHAT) from error
            raise

    @property
    def torn_bytes(self) -> int:
        """Bytes of an unfinished last line that were dropped when it was opened."""
        return self._torn_bytes

    def rows(self) -> Iterator[bytes]:
        """The rows written so far, first to last, without their newline."""
        return read_rows(self._path)

    def append(self, row: bytes, *, sync: bool = True) -> None:
        """Write one row.

        When this raises, the row is not in the journal: it is cut back to its last whole row, and takes no more.

        Args:
            row: One JSON value without a newline.
            sync: Wait until it is on the disk. Without, ``sync`` must be called before anybody is told.

        Raises:
            ValueError: The row is no JSON, or holds a newline.
            AbsentError: No space is left, or the disk refuses.
        """
        why = "got a newline in it" if b"\n" in row else _damage(row + b"\n")
        if why:
            raise ValueError(f"a row is one line of JSON: {why}")
        self._refuse_broken()
        try:
            write_all(self._descriptor, row + b"\n")
            self._synced = False
            if sync:
                self._sync()
        except OSError as error:
            self._cut_back()
            raise writing_error(error, self._path, _WHAT) from error
        self._end += len(row) + 1

    def sync(self) -> None:
        """Put on the disk what was appended without; ``AbsentError`` when the disk refuses."""
        self._refuse_broken()
        try:
            self._sync()
        except OSError as error:
            self._broken = True
            raise writing_error(error, self._path, _WHAT) from error

    def close(self) -> None:
        """Sync and close; safe to call twice."""
        if self._descriptor < 0:
            return
        try:
            if not self._broken:
                self.sync()
        finally:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _sync(self) -> None:
        if not self._synced:
            os.fsync(self._descriptor)
            self._synced = True

    def _cut_back(self) -> None:
        # After a failed sync nobody knows which bytes reached the disk; going on would hide that. And when the
        # file cannot even be made shorter, what lies behind the last whole row is dropped when it is opened again.
        self._broken = True
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, self._end)

    def _refuse_broken(self) -> None:
        if self._descriptor < 0 or self._broken:
            raise AbsentError(
                f"{_WHAT} `{shown(self._path)}` cannot be written any more",
                hint="run again to resume after its last whole row",
            )


def open_journal(path: Path) -> Journal:
    """The journal at ``path``, made if it is not there; errors as ``Journal``."""
    return Journal(path)


def read_rows(path: Path) -> Iterator[bytes]:
    """The whole rows of a journal, first to last, without their newline; a torn last line is left out.

    Raises:
        AbsentError: It is not there, or cannot be read.
        InputError: A line other than the last one is damaged, or it is no regular file.
    """
    for row, _ in _scan(path):
        yield row


def _whole_bytes(path: Path) -> int:
    """Where the last whole row ends."""
    end = 0
    for _, row_end in _scan(path):
        end = row_end
    return end


def _scan(path: Path) -> Iterator[tuple[bytes, int]]:
    """Each whole row, and the byte after its newline."""
    end = 0
    damage = ""
    for number, line in enumerate(_lines(path)):
        if damage:
            raise InputError(
                f"line `{number}` of {_WHAT} `{shown(path)}` is damaged: {damage}",
                hint="put the file back as it was written; a record is never mended by hand",
            )
        end += len(line)
        damage = _damage(line)
        if not damage:
            yield line[:-1], end


def _damage(line: bytes) -> str:
    """Why a line is no whole row; empty when it is one."""
    if not line.endswith(b"\n"):
        return "got no newline at its end"
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"got no JSON, {error}"
    return ""


def _lines(path: Path) -> Iterator[bytes]:
    """Lines with their newline, which only the last one may lack."""
    with opened(path, _WHAT) as file:
        unread = bytearray()
        while True:
            try:
                piece = file.read(_PIECE_BYTES)
            except OSError as error:
                raise error_of(error, path, _WHAT) from error
            searched = len(unread)
            unread += piece or b""
            start = 0
            while (found := unread.find(b"\n", max(start, searched))) >= 0:
                yield bytes(unread[start : found + 1])
                start = found + 1
            del unread[:start]
            if not piece:
                break
            if len(unread) > _MAX_ROW_BYTES:
                raise InputError(
                    f"{_WHAT} `{shown(path)}` has a line of more than `{_MAX_ROW_BYTES}` bytes, so it is none"
                )
        if unread:
            yield bytes(unread)
