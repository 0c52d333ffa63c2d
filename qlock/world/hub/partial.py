"""A file on its way from a server into its place: begun by anyone, gone on with by others, checked before it is there.

huggingface_hub's own download begins anew after a kill, and puts a file in its place before anybody has looked at its
bytes. Here a file gets its name only once size and digest are right, in one rename.

No lock is taken, as some cluster file systems refuse ``flock`` and others grant it to everybody. Each process writes a
file of its own beside the place, whose name says whose it is; what a dead process left is taken over by renaming it,
which one alone can do.

Does not live here: requests (``world.hub``, ``remote``), and where files belong (``blobs``).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from qlock.errors import AbsentError, InputError, QlockError
from qlock.world.files import sync_folder, write_all, writing_error
from qlock.world.process import Holder, is_gone, this_process

STALE_S = 900
"""A partial file that nobody wrote to for so long belongs to nobody."""

_PIECE_BYTES = 1 << 20
_ASKED_BYTES = 1 << 34
"""Of one request: the Hub's network answers at most 50 GB at once."""
_PARTIAL = re.compile(r"[0-9a-f]+\.qlock-([0-9a-f]{8})-([0-9]{1,10})-([0-9]{1,19})-[0-9a-f]{8}\.incomplete")
"""The place where the writer's number means something, its number, and when it was started."""
_NOBODY = "00000000-0-0"
_NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM}


class Answer(NamedTuple):
    """The bytes that a server sends for a range."""

    start: int
    """Where they begin in the file: 0 from a server that knows no ranges."""
    total_bytes: int
    """Of the whole file, as the server has it."""
    pieces: Iterator[bytes]


Ask = Callable[[Callable[[], tuple[int, int]], Callable[[Answer], None]], None]
"""``ask(span, take)``: ask for the bytes of ``span()``, from its start up to its end, and hand the answer to ``take``.

When a transfer is cut it is asked again, for what ``span`` says then.
"""


class Parcel(NamedTuple):
    """A file that shall be brought."""

    path: Path
    """Its place."""
    size_bytes: int
    digest: str
    """Of ``new_hasher``, in hex."""
    new_hasher: Callable[[], hashlib._Hash]
    words: Words


class Words(NamedTuple):
    """How messages speak of a parcel."""

    file: str
    """Its name in backticks."""
    kind: str
    """What it is one of: ``file of the Hub's cache``."""
    place: str
    """Where it is put, in words and with the path in backticks."""
    variable: str
    """Which environment variable names another place."""
    wrong: Callable[[str, str, str], InputError]
    """The error for ``another size`` or ``other bytes``, what was got, and what was expected."""


def place_in(status: int, headers: Mapping[str, str], *, start: int) -> tuple[int, int] | None:
    """Where the bytes of an answer begin, and the size of the whole file; ``None`` where it says neither.

    Args:
        status: 206 for the range that was asked for, 200 for the whole file.
        headers: Of the answer, by their names in small letters.
        start: Where the range that was asked for begins.
    """
    try:
        if status == 206:
            unit, _, rest = headers["content-range"].partition(" ")
            span, _, total = rest.partition("/")
            if unit == "bytes" and int(span.partition("-")[0]) == start:
                return start, int(total)
        elif status == 200:
            return 0, int(headers["content-length"])
    except (KeyError, ValueError):
        pass
    return None


def read_span(ask: Ask, *, start: int, length: int) -> bytes:
    """``length`` bytes from ``start``; fewer only where the file ends."""
    held = bytearray()
    total_bytes = 0

    def take(answer: Answer) -> None:
        nonlocal total_bytes
        total_bytes = answer.total_bytes
        skip = start + len(held) - answer.start
        for piece in answer.pieces:
            held.extend(piece[skip:])
            skip = max(0, skip - len(piece))
            if len(held) >= length:
                return

    while len(held) < length:
        ask(lambda: (start + len(held), start + length), take)
        if start + len(held) >= total_bytes:
            break
    return bytes(held[:length])


def bring(parcel: Parcel, ask: Ask, progress: Callable[[int], None]) -> None:
    """Download a file into its place, going on where an earlier try was cut.

    Raises:
        InputError: What came is not the file; it is thrown away.
        AbsentError: The place cannot be written, or has no space.
    """
    with writing(parcel):
        parcel.path.parent.mkdir(parents=True, exist_ok=True)
        partial = _claimed(parcel)
        try:
            _fill(parcel, partial, ask, progress)
        except BaseException:
            partial.close()
            with contextlib.suppress(OSError):
                # The process goes on living, and what it left here is free all the same.
                partial.path.replace(_partial_name(parcel, _NOBODY))
            raise
        os.fsync(partial.descriptor)
        partial.close()
        got = partial.hasher.hexdigest()
        if got != parcel.digest:
            partial.path.unlink()
            raise parcel.words.wrong("other bytes", got, parcel.digest)
        if is_here(parcel.path, parcel.size_bytes):
            # Another process was quicker. Whoever reads its file must not find it exchanged meanwhile.
            partial.path.unlink()
        else:
            partial.path.replace(parcel.path)
        sync_folder(parcel.path.parent)


def is_here(path: Path, size_bytes: int) -> bool:
    """Whether a file of that size lies at ``path``."""
    try:
        return path.is_file() and path.stat().st_size == size_bytes
    except OSError:
        return False


@contextlib.contextmanager
def writing(parcel: Parcel) -> Iterator[None]:
    """Say in one line that something could not be written in a parcel's place."""
    words = parcel.words
    try:
        yield
    except QlockError:
        raise
    except OSError as error:
        if error.errno in _NOT_WRITABLE:
            raise AbsentError(
                f"{words.place} cannot be written: {os.strerror(error.errno or 0).lower()}",
                hint=f"set {words.variable} to a folder that can be written",
            ) from None
        raise writing_error(error, parcel.path, words.kind) from None


def _fill(parcel: Parcel, partial: _Partial, ask: Ask, progress: Callable[[int], None]) -> None:
    size_bytes, words = parcel.size_bytes, parcel.words
    free_bytes = shutil.disk_usage(parcel.path.parent).free
    if free_bytes < size_bytes - partial.have_bytes:
        raise AbsentError(
            f"no space left for {words.file} in {words.place}: "
            f"got `{free_bytes}` bytes, expected `{size_bytes - partial.have_bytes}`",
            hint=f"free some space, or set {words.variable} to a folder on another disk",
        )
    progress(partial.have_bytes)

    def take(answer: Answer) -> None:
        if answer.total_bytes != size_bytes:
            raise words.wrong("another size", f"{answer.total_bytes} bytes", f"{size_bytes} bytes")
        if answer.start != partial.have_bytes:
            partial.restart(parcel.new_hasher())
        for piece in answer.pieces:
            if partial.have_bytes + len(piece) > size_bytes:
                raise words.wrong("another size", f"more than {size_bytes} bytes", f"{size_bytes} bytes")
            partial.append(piece)
            progress(partial.have_bytes)

    def span() -> tuple[int, int]:
        return partial.have_bytes, min(partial.have_bytes + _ASKED_BYTES, size_bytes)

    while partial.have_bytes < size_bytes:
        ask(span, take)


def _claimed(parcel: Parcel) -> _Partial:
    """What an earlier try left, now under a name of ours, or a new empty file."""
    me = this_process()
    mine = _partial_name(parcel, f"{_where(me)}-{me.pid}-{me.started_ticks}")
    for left in sorted(parcel.path.parent.glob(f"{parcel.digest}.qlock-*.incomplete")):
        if _is_free(left, me):
            with contextlib.suppress(OSError):
                left.replace(mine)
                return _Partial.resumed(mine, parcel.new_hasher(), parcel.size_bytes)
    return _Partial.resumed(mine, parcel.new_hasher(), parcel.size_bytes)


def _partial_name(parcel: Parcel, owner: str) -> Path:
    return parcel.path.with_name(f"{parcel.digest}.qlock-{owner}-{secrets.token_hex(4)}.incomplete")


class _Partial:
    """A file that is being downloaded, with the digest of what is in it."""

    def __init__(self, path: Path, descriptor: int, hasher: hashlib._Hash) -> None:
        self.path = path
        self.descriptor = descriptor
        self.hasher = hasher
        self.have_bytes = 0

    @classmethod
    def resumed(cls, path: Path, hasher: hashlib._Hash, most_bytes: int) -> _Partial:
        """The file at ``path``, made if it is not there, with all that is already in it digested."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        partial = cls(path, os.open(path, flags, 0o666), hasher)
        while partial.have_bytes < most_bytes and (piece := os.read(partial.descriptor, _PIECE_BYTES)):
            rest = piece[: most_bytes - partial.have_bytes]
            hasher.update(rest)
            partial.have_bytes += len(rest)
        os.ftruncate(partial.descriptor, partial.have_bytes)
        os.lseek(partial.descriptor, partial.have_bytes, os.SEEK_SET)
        return partial

    def append(self, piece: bytes) -> None:
        """Write the next bytes."""
        write_all(self.descriptor, piece)
        self.hasher.update(piece)
        self.have_bytes += len(piece)

    def restart(self, hasher: hashlib._Hash) -> None:
        """Throw away what is in it."""
        os.ftruncate(self.descriptor, 0)
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        self.hasher = hasher
        self.have_bytes = 0

    def close(self) -> None:
        """Close the file; its bytes stay."""
        os.close(self.descriptor)


def _where(holder: Holder) -> str:
    """The boot and namespace of a process, in eight hex digits: its number means nothing in another one."""
    place = f"{holder.boot_id} {holder.pid_namespace} {holder.machine_id}"
    return hashlib.sha256(place.encode()).hexdigest()[:8]


def _is_free(partial: Path, mine: Holder) -> bool:
    """Whether nobody is writing to a partial file any more, seen from the process ``mine``."""
    found = _PARTIAL.fullmatch(partial.name)
    if found is None:
        return False
    where, pid, started_ticks = found[1], int(found[2]), int(found[3])
    try:
        seen = partial.lstat()
        if not stat.S_ISREG(seen.st_mode):
            return False
        if pid == 0 or time.time() - seen.st_mtime > STALE_S:
            return True
    except OSError:
        return False
    owner = msgspec.structs.replace(mine, pid=pid, started_ticks=started_ticks)
    return where == _where(mine) and is_gone(owner, mine)
