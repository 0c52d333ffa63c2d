"""Reading and replacing files whose names and bytes come from outside.

Lives here: opening a regular file and nothing else, reading with a bound, replacing a file whole, and the one
place where an ``OSError`` of a path becomes an error that people can read. Does not live here: digests
(``world.digests``), journals (``world.journal``), what the bytes mean.

Nothing here waits for a FIFO, a device or a terminal: what is not a regular file is refused before it is opened,
and what is opened is looked at again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from qlock.core.escape import visible
from qlock.errors import AbsentError, InputError, QlockError
from qlock.world.interface import Prefix

_PIECE_BYTES = 1 << 20
_NO_SPACE = {
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "no quota left",
}
_OUTSIDE = {
    *_NO_SPACE,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EIO,
    errno.ESTALE,
}
"""What a path alone can bring about, whatever is done with it."""
_NO_UTF8 = re.compile("[\udc80-\udcff]")
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}


def shown(path: Path | str) -> str:
    """A path for a message: on one line, whatever is in it; bytes that are not UTF-8 become ``\\xff``."""
    # Python keeps such a byte as one of these code points (PEP 383).
    text = _NO_UTF8.sub(lambda found: f"\\x{ord(found.group()) - 0xDC00:02x}", str(path))
    return visible(text)


def error_of(error: OSError | ValueError, path: Path, what: str) -> QlockError:
    """What went wrong at ``path``, in one line; ``what`` says what the file is to the user (``spec``)."""
    place = f"{what} `{shown(path)}`"
    number = error.errno if isinstance(error, OSError) else None
    if number in _NO_SPACE:
        return AbsentError(f"{_NO_SPACE[number]} to write {place}", hint="free some space and run again")
    if number in (errno.ENOENT, errno.ENOTDIR):
        return AbsentError(f"{place} is not there")
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return AbsentError(f"{place} is not accessible: {os.strerror(number).lower()}")
    if number == errno.ELOOP:
        return InputError(f"{place} is a symbolic link that leads back to itself")
    if number == errno.ENAMETOOLONG:
        return InputError(f"{place} has too long a name")
    if number is None:
        return InputError(f"{place} is no possible file name: {error}")
    return AbsentError(f"{place} cannot be used: {os.strerror(number).lower()}")


def path_error(error: BaseException) -> QlockError | None:
    """What an error says of a path that cannot be used as such; ``None`` where it is about something else.

    Looking whether something is there fails too where its name is too long, or a folder above it may not be entered.
    """
    match error:
        case OSError(errno=number, filename=str(name)) if number in _OUTSIDE:
            return error_of(error, Path(name), "path")
        case _:
            return None


def writing_error(error: OSError | ValueError, path: Path, what: str) -> QlockError:
    """As ``error_of``, for a file that was to be written: then it is the folder that is not there."""
    if isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ENOTDIR):
        return error_of(error, path.parent, "folder")
    return error_of(error, path, what)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, where there is none.

    Raises:
        AbsentError: It cannot be made; what is in the way is named.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = _in_the_way(path) or os.strerror(error.errno or 0).lower()
        hint = "free some space and run again" if error.errno in _NO_SPACE else ""
        raise AbsentError(f"cannot make the folder `{shown(path)}`: {why}", hint=hint) from error


def _in_the_way(path: Path) -> str:
    """What stands where a folder or one above it should be; empty where nothing does."""
    # A folder that may not be entered does not let its entries be looked at.
    with contextlib.suppress(OSError):
        for place in (*reversed(path.parents), path):
            if place.is_symlink() and not place.exists():
                return f"`{shown(place)}` is a symbolic link that leads nowhere"
            if place.exists() and not place.is_dir():
                return f"`{shown(place)}` is no folder"
    return ""


def _kind(mode: int) -> str:
    """What a path that is no regular file is, in words."""
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")


def opened(path: Path, what: str) -> FileIO:
    """A regular file, open for reading; use it in a ``with``.

    Raises:
        AbsentError: It is not there, or may not be read.
        InputError: It is not a regular file.
    """
    try:
        # Looked at before it is opened, because opening alone can wind a tape or arm a watchdog; and after,
        # because the name may have got another meaning in between.
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISREG(mode):
                return FileIO(descriptor, "rb")
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise error_of(error, path, what) from error
    raise InputError(f"{what} `{shown(path)}` is {_kind(mode)}, expected a regular file")


def read_bounded(path: Path, max_bytes: int, what: str) -> bytes:
    """All bytes of a regular file of at most ``max_bytes``.

    Args:
        path: Symbolic links are followed.
        max_bytes: A longer file is refused, also one that grows while it is read.
        what: What the file is to the user, for an error (``spec``, ``lock`` …).

    Raises:
        AbsentError: It is not there, or may not be read.
        InputError: It is not a regular file, or longer than allowed.
    """
    # One byte more than allowed tells a file that is too long; its size alone can be a lie (``/proc``).
    prefix = read_prefix(path, max_bytes + 1, what)
    if len(prefix.data) <= max_bytes:
        return prefix.data
    raise _too_large(path, max_bytes, what, got=max(prefix.size_bytes, len(prefix.data)))


def read_prefix(path: Path, max_bytes: int, what: str) -> Prefix:
    """At most the first ``max_bytes`` of a regular file, and the size of all of it; errors as ``read_bounded``."""
    with opened(path, what) as file:
        try:
            pieces: list[bytes] = []
            rest = max_bytes
            while rest > 0 and (piece := os.read(file.fileno(), min(rest, _PIECE_BYTES))):
                pieces.append(piece)
                rest -= len(piece)
            size_bytes = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise error_of(error, path, what) from error
    return Prefix(data=b"".join(pieces), size_bytes=size_bytes)


def read_lines(path: Path, max_bytes: int, what: str) -> Iterator[bytes]:
    r"""The lines of a regular file, split on ``\n`` only, one after the other; no more than one is held.

    Each has its newline; the last one has none where the file does not end in one. Arguments and errors are those of
    ``read_bounded``; a file that is too long is refused where it becomes so.
    """
    pieces: list[bytes] = []
    rest = max_bytes
    with opened(path, what) as file:
        while piece := _piece(file, path, what):
            rest -= len(piece)
            if rest < 0:
                raise _too_large(path, max_bytes, what, got=max_bytes - rest)
            start = 0
            while end := piece.find(b"\n", start) + 1:
                pieces.append(piece[start:end])
                yield b"".join(pieces)
                pieces.clear()
                start = end
            pieces.append(piece[start:])
    if left := b"".join(pieces):
        yield left


def _piece(file: FileIO, path: Path, what: str) -> bytes:
    try:
        return os.read(file.fileno(), _PIECE_BYTES)
    except OSError as error:
        raise error_of(error, path, what) from error


def _too_large(path: Path, max_bytes: int, what: str, *, got: int) -> InputError:
    return InputError(
        f"{what} `{shown(path)}` is too large: got `{got}` bytes, expected at most `{max_bytes}`"
    )


def write_atomic(path: Path, data: bytes) -> None:
    """Put ``data`` in the place of ``path``: whatever happens, it holds the old bytes or all of the new ones.

    A symbolic link stays one, and the file it leads to is replaced. When this returns, file and name are on the
    disk; when it raises, nothing is left behind.

    Raises:
        AbsentError: The folder is not there or may not be written, or no space is left.
        InputError: The path names a folder, or cannot be a file name.
    """
    # A name of its own, not one made from the target's, which may already be as long as names can be.
    try:
        target = Path(os.path.realpath(path))
        if target.is_dir():
            raise InputError(f"`{shown(path)}` is a folder, expected a file to write")
        beside = target.with_name(f".qlock-{secrets.token_hex(8)}.tmp")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except (OSError, ValueError) as error:
        raise writing_error(error, path, "file") from error
    try:
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        beside.replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):
            raise writing_error(error, path, "file") from error
        raise
    sync_folder(target.parent)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte; a write that the kernel cuts short is gone on with."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_folder(folder: Path) -> None:
    """Put a folder's names on the disk, so that a new file is still there after a power cut.

    Raises:
        AbsentError: The disk refuses.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a folder; their names are safe when the call that made them is.
        if error.errno not in _NO_FOLDER_SYNC:
            raise error_of(error, folder, "folder") from error
