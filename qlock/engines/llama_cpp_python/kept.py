"""Files of kept log-probabilities as the child process reads and writes them, some rows at a time.

Does not live here: their layout and what a row means (``core.kept_logits``, ``core.kept_top``), when they are used (``reading``).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from qlock.core.digest import StreamDigests
from qlock.core.escape import for_message
from qlock.core.kept_logits import HEAD_BYTES, KeptRows, Layout, decoded, layout_in, tokens_in
from qlock.core.kept_top import MAGIC as TOP_MAGIC
from qlock.core.kept_top import TopLayout, TopRows, sizes_in, top_decoded, top_layout_in, top_tokens_in
from qlock.errors import InputError


class KeptFileError(Exception):
    """A file of kept rows cannot be used; the text says why.

    Args:
        why: In one line.
        is_disk_full: Whether there was no room to write it.
    """

    def __init__(self, why: str, *, is_disk_full: bool = False) -> None:
        super().__init__(why)
        self.is_disk_full = is_disk_full


class Parts:
    """The parts of one file.

    Args:
        path: Absolute; of a file whose head is there.
        is_writable: Whether parts are to be written; otherwise all of them must be there.

    Raises:
        KeptFileError: It cannot be opened, or is no such file, or is not whole.
    """

    def __init__(self, path: str, *, is_writable: bool = False) -> None:
        self._name = for_message(path)
        try:
            self._file = os.open(path, (os.O_RDWR if is_writable else os.O_RDONLY) | os.O_CLOEXEC)
        except OSError as error:
            raise self._failure("open", error) from error
        try:
            self.layout = self._layout()
            if not is_writable:
                self._refuse_unlike(self.layout.total_bytes)
            self._tokens = self._tokens_of_parts()
        except InputError as error:
            self.close()
            raise KeptFileError(f"`{self._name}`: {error.message}") from error
        except BaseException:
            self.close()
            raise

    @cached_property
    def _part_by_tokens(self) -> dict[bytes, int]:
        return {row.tobytes(): part for part, row in enumerate(self._tokens)}

    @cached_property
    def _part_by_rest(self) -> dict[bytes, int]:
        return {row[1:].tobytes(): part for part, row in enumerate(self._tokens)}

    def close(self) -> None:
        """Let go of the file; safe to call twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def part_of(self, tokens: tuple[int, ...], *, bos_token: int) -> int | None:
        """Which part is of these tokens; where BOS stands in front, the file may have another token there."""
        wanted = np.asarray(tokens, dtype=np.int32)
        part = self._part_by_tokens.get(wanted.tobytes())
        if part is None and tokens[0] == bos_token:
            part = self._part_by_rest.get(wanted[1:].tobytes())
        return part

    def is_of(self, part: int, tokens: tuple[int, ...], *, bos_token: int) -> bool:
        """Whether a part is of these tokens."""
        mine = tuple(self._tokens[part].tolist())
        return mine == tokens or (tokens[0] == bos_token and mine[1:] == tokens[1:])

    def rows(self, part: int, start: int, stop: int) -> KeptRows | TopRows:
        """Some rows of a part; may be called from several threads at once.

        Raises:
            KeptFileError: They cannot be read.
        """
        data = self._read(self.layout.offset(part, start), (stop - start) * self.layout.row_bytes)
        match self.layout:
            case Layout(vocab_tokens=vocab_tokens):
                return decoded(data, vocab_tokens)
            case TopLayout(vocab_tokens=vocab_tokens, kept_tokens=kept_tokens):
                return top_decoded(data, vocab_tokens=vocab_tokens, kept_tokens=kept_tokens)

    def write(self, part: int, pieces: Iterable[bytes]) -> str:
        """Write a part, make sure that it is stored, and give its blake3.

        Raises:
            KeptFileError: It cannot be written.
        """
        digests = StreamDigests()
        at = self.layout.offset(part)
        try:
            for piece in pieces:
                digests.feed_blake3(piece)
                at += _write_all(self._file, piece, at)
            os.fsync(self._file)
        except OSError as error:
            raise self._failure("write", error) from error
        assert at == self.layout.offset(part + 1)
        return digests.blake3()

    def _layout(self) -> Layout | TopLayout:
        head = self._read(0, HEAD_BYTES)
        if head.startswith(TOP_MAGIC):
            sizes = sizes_in(head)
            return top_layout_in(sizes, self._read(HEAD_BYTES, sizes.shapes_bytes))
        return layout_in(head)

    def _tokens_of_parts(self) -> list[NDArray[np.int32]]:
        match self.layout:
            case Layout(tokens_bytes=size) as layout:
                return list(tokens_in(layout, self._read(HEAD_BYTES, size)))
            case TopLayout(tokens_at=at, tokens_bytes=size) as layout:
                return top_tokens_in(layout, self._read(at, size))

    def _read(self, at: int, size: int) -> bytes:
        # Looked at before, since the room for all that a head promises is taken first.
        if os.fstat(self._file).st_size < at + size:
            self._refuse_unlike(at + size)
        try:
            data = os.pread(self._file, size, at)
            while len(data) < size and (more := os.pread(self._file, size - len(data), at + len(data))):
                data += more
        except OSError as error:
            raise self._failure("read", error) from error
        if len(data) < size:
            raise self._cut_short(at + len(data), expected=at + size)
        return data

    def _refuse_unlike(self, expected: int) -> None:
        got = os.fstat(self._file).st_size
        if got != expected:
            raise self._cut_short(got, expected=expected)

    def _cut_short(self, got: int, *, expected: int) -> KeptFileError:
        return KeptFileError(f"`{self._name}` is not whole: got `{got}` bytes, expected `{expected}`")

    def _failure(self, what: str, error: OSError) -> KeptFileError:
        why = f"cannot {what} `{self._name}`: {(error.strerror or str(error)).lower()}"
        return KeptFileError(why, is_disk_full=error.errno in (errno.ENOSPC, errno.EDQUOT))


def _write_all(file: int, data: bytes, at: int) -> int:
    """How many bytes there were: all of them are written."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(file, rest, at)
        rest, at = rest[written:], at + written
    return len(data)
