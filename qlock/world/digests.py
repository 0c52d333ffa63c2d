"""Digests of files of any size, in bounded memory, and the cache of them.

Lives here: one pass over a file for blake3 and sha256, also while it is copied, digests of spans of a file, and what is
remembered of earlier passes. Does not live here: the algorithms (``core.digest``).

A file is read into two buffers in turn, not mapped: a mapped file that another process cuts short would kill
this process (SIGBUS). While one buffer is filled, both digests work on the other one in threads of their own.

**The cache** is a folder with one small file per hashed file, so that any number of processes on any file system
can use it: each is put in place whole. Its name is the digest of ``(device, inode, size, mtime, ctime)``. What
cannot be read there counts as not there, and a cache that cannot be written is gone without. A file that was
changed less than two seconds before it was hashed is not remembered: it could change once more and keep the same
time stamps.

A write through a shared mapping moves the time stamps when it first touches a clean page, and not while the page is
dirty. So a file is written out before it is read for the cache: whoever changes it afterwards moves them. File systems
in memory never write out and never move them that way: nothing on tmpfs, ramfs or hugetlbfs is remembered. Network and
FUSE file systems are, at their word: reading a model again in each task of a cluster costs minutes, and ``rehash``
is there for whoever does not trust their time stamps.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Count
from qlock.core.digest import Digest, StreamDigests, digest_of
from qlock.errors import InputError, QlockError
from qlock.world.files import (
    error_of,
    opened,
    read_bounded,
    shown,
    write_all,
    write_atomic,
    writing_error,
)
from qlock.world.interface import Blake3Digest, FileDigest

_BUFFER_BYTES = 4 << 20
"""Small enough to stay in a processor's cache between the two digests, large enough for all its cores."""

_SPAN_BUFFER_BYTES = 4 << 20
_SPAN_THREADS = 8
_SETTLED_NS = 2_000_000_000
"""Time stamps of some file systems have steps of up to two seconds."""

_MAX_ENTRY_BYTES = 4096
_WHAT = "file"

_IN_MEMORY = frozenset({0x01021994, 0x858458F6, 0x958458F6})
"""``f_type`` of tmpfs, ramfs and hugetlbfs (``statfs(2)``)."""
_STATFS_WORDS = 32
"""More than a ``struct statfs`` takes; its first word is ``f_type``."""

_Feed = Callable[[memoryview], None]


class _Entry(Base, frozen=True, kw_only=True):
    """One remembered file: what it was, so that no entry speaks for another file, and its digests."""

    device: Count
    inode: Count
    size_bytes: Count
    mtime_ns: int
    ctime_ns: int
    blake3: Digest
    sha256: Digest | UnsetType = UNSET
    """Unset when only blake3 was asked for."""


def digest_file(path: Path, *, cache: Path | None, rehash: bool = False) -> FileDigest:
    """Both digests of a file, in one pass.

    Args:
        path: A regular file; symbolic links are followed.
        cache: The cache folder of qlock (digests lie below it), or ``None`` to remember nothing.
        rehash: Read the bytes even when the cache knows the file; what it knew is replaced.

    Raises:
        AbsentError: It is not there, or cannot be read.
        InputError: It is not a regular file, or was changed while it was read.
    """
    entry, cached = _digested(path, cache=cache, rehash=rehash, with_sha256=True)
    assert entry.sha256 is not UNSET
    return FileDigest(size_bytes=entry.size_bytes, sha256=entry.sha256, blake3=entry.blake3, cached=cached)


def blake3_file(path: Path, *, cache: Path | None, rehash: bool = False) -> Blake3Digest:
    """blake3 of a file, without the slower sha256; otherwise as ``digest_file``."""
    entry, cached = _digested(path, cache=cache, rehash=rehash, with_sha256=False)
    return Blake3Digest(size_bytes=entry.size_bytes, blake3=entry.blake3, cached=cached)


def copy_file(path: Path, target: Path) -> Blake3Digest:
    """Copy a file, and give the digest of the bytes that were written.

    Args:
        path: A regular file; symbolic links are followed.
        target: It must not be there; its folder must.

    Raises:
        AbsentError: The file is not there, cannot be read, or there is no room for the copy.
        InputError: It is not a regular file, or was changed while it was read.
    """
    with opened(path, _WHAT) as file:
        digests = StreamDigests()
        try:
            before = os.fstat(file.fileno())
        except OSError as error:
            raise error_of(error, path, _WHAT) from error
        with _new_file(target) as written:

            def write(data: memoryview) -> None:
                try:
                    write_all(written, data)
                except OSError as error:
                    raise writing_error(error, target, _WHAT) from error

            try:
                _feed_all(file.fileno(), before.st_size, (write, digests.feed_blake3))
                _refuse_changed(path, before, file.fileno())
            except OSError as error:
                raise error_of(error, path, _WHAT) from error
    return Blake3Digest(size_bytes=before.st_size, blake3=digests.blake3(), cached=False)


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[int]:
    """A new file that only this user can read, open for writing; removed again when it does not become whole."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except (OSError, ValueError) as error:
        raise writing_error(error, path, _WHAT) from error
    try:
        yield descriptor
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def spans_digest(path: Path, spans: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """``blake3:…`` of each span of a file, in the order given.

    Args:
        path: A regular file.
        spans: Offset and size in bytes; they may overlap and be empty.

    Raises:
        AbsentError: It is not there, or cannot be read.
        InputError: A span does not lie in the file, or the file was changed while it was read.
    """
    with opened(path, _WHAT) as file:
        descriptor = file.fileno()
        try:
            before = os.fstat(descriptor)
            for number, (offset, size) in enumerate(spans):
                if offset < 0 or size < 0 or offset + size > before.st_size:
                    raise InputError(
                        f"span `{number}` does not lie in file `{shown(path)}`: got bytes `{offset}` to"
                        f" `{offset + size}`, expected at most `{before.st_size}`"
                    )
            threads = max(1, min(_SPAN_THREADS, len(os.sched_getaffinity(0)), len(spans)))
            with ThreadPoolExecutor(threads) as pool:
                digests = tuple(pool.map(partial(_span_digest, descriptor), spans))
            _refuse_changed(path, before, descriptor)
        except OSError as error:
            raise error_of(error, path, _WHAT) from error
    return digests


def _span_digest(descriptor: int, span: tuple[int, int]) -> str:
    """``blake3:…`` of one span; a file cut short meanwhile gives a digest that nobody will see."""
    offset, size = span
    digests = StreamDigests()
    buffer = memoryview(bytearray(min(size, _SPAN_BUFFER_BYTES)))
    end = offset + size
    while offset < end:
        got = os.preadv(descriptor, [buffer[: end - offset]], offset)
        if got == 0:
            break
        digests.feed_blake3(buffer[:got])
        offset += got
    return digests.blake3()


def _digested(path: Path, *, cache: Path | None, rehash: bool, with_sha256: bool) -> tuple[_Entry, bool]:
    """A file's entry, and whether the cache had it."""
    with opened(path, _WHAT) as file:
        descriptor = file.fileno()
        try:
            cache = cache if cache is not None and _tells_changes(descriptor) else None
            before = os.fstat(descriptor)
            known = None if cache is None else _remembered(cache, before)
            if known is not None and not rehash and not (with_sha256 and known.sha256 is UNSET):
                return known, True
            if cache is not None and not _written_out(descriptor):
                cache = None
            started_ns = time.time_ns()
            digests = StreamDigests()
            feeds: tuple[_Feed, ...] = (digests.feed_blake3,)
            if with_sha256:
                feeds = (digests.feed_sha256, digests.feed_blake3)
            _feed_all(descriptor, before.st_size, feeds)
            _refuse_changed(path, before, descriptor)
        except OSError as error:
            raise error_of(error, path, _WHAT) from error
    blake3 = digests.blake3()
    # Where blake3 is what it was, so is what was known of sha256.
    kept = known.sha256 if known is not None and known.blake3 == blake3 else UNSET
    sha256 = digests.sha256() if with_sha256 else kept
    entry = _entry(before, blake3, sha256)
    if cache is not None and max(before.st_mtime_ns, before.st_ctime_ns) + _SETTLED_NS < started_ns:
        _remember(cache, entry)
    return entry, False


def _tells_changes(descriptor: int) -> bool:
    """Whether the file system moves time stamps with every change; one that does not say what it is, does not."""
    words = (ctypes.c_ulong * _STATFS_WORDS)()
    if ctypes.CDLL(None, use_errno=True).fstatfs(descriptor, words) != 0:
        return False
    return words[0] & 0xFFFFFFFF not in _IN_MEMORY


def _written_out(descriptor: int) -> bool:
    """Have all dirty pages of a file written, so that the next change moves its time stamps."""
    try:
        os.fdatasync(descriptor)
    except OSError:
        return False
    return True


def _feed_all(descriptor: int, size: int, feeds: tuple[_Feed, ...]) -> None:
    """Give every byte of a file to each feed in turn; a file that grows is followed one buffer past ``size``."""
    buffers = [memoryview(bytearray(max(1, min(size, _BUFFER_BYTES)))) for _ in range(2)]
    offset = 0
    under_way: list[Future[None]] = []
    with ThreadPoolExecutor(len(feeds)) as pool:
        while offset <= size:
            got = os.preadv(descriptor, [buffers[0]], offset)
            for future in under_way:
                future.result()
            if got == 0:
                return
            under_way = [pool.submit(feed, buffers[0][:got]) for feed in feeds]
            offset += got
            buffers.reverse()


def _refuse_changed(path: Path, before: os.stat_result, descriptor: int) -> None:
    """Refuse a file that is not what it was, or whose name leads to another file by now."""
    for after in (os.fstat(descriptor), path.stat()):
        if _identity(after) != _identity(before):
            raise InputError(
                f"{_WHAT} `{shown(path)}` was changed while it was read",
                hint="wait until nothing writes to it and run again",
            )


def _identity(seen: os.stat_result) -> tuple[int, int, int, int, int]:
    """What is the same as long as nobody touches a file. ctime cannot be set back, mtime can."""
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def _entry(seen: os.stat_result, blake3: str, sha256: str | UnsetType) -> _Entry:
    device, inode, size_bytes, mtime_ns, ctime_ns = _identity(seen)
    return _Entry(
        device=device,
        inode=inode,
        size_bytes=size_bytes,
        mtime_ns=mtime_ns,
        ctime_ns=ctime_ns,
        blake3=blake3,
        sha256=sha256,
    )


def _place(cache: Path, identity: tuple[int, ...]) -> Path:
    """Where an entry lies."""
    return cache / "digests" / f"{digest_of('file', identity).removeprefix('blake3:')}.json"


def _remembered(cache: Path, seen: os.stat_result) -> _Entry | None:
    """What the cache knows of a file; nothing when that is unreadable or is about another file."""
    identity = _identity(seen)
    try:
        data = read_bounded(_place(cache, identity), _MAX_ENTRY_BYTES, "cache entry")
        entry = msgspec.json.decode(data, type=_Entry)
    except (QlockError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    written = (entry.device, entry.inode, entry.size_bytes, entry.mtime_ns, entry.ctime_ns)
    return entry if written == identity else None


def _remember(cache: Path, entry: _Entry) -> None:
    """Put an entry into the cache; a cache that cannot be written only costs time later."""
    identity = (entry.device, entry.inode, entry.size_bytes, entry.mtime_ns, entry.ctime_ns)
    place = _place(cache, identity)
    with contextlib.suppress(OSError, QlockError):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(place, msgspec.json.encode(entry))
