"""Files in the Hub's own cache: where they lie, and how one gets there whole, checked and resumable.

The layout is huggingface_hub's (2.4.0, ``file_download.py``): ``models--OWNER--NAME/blobs/ETAG`` holds the bytes and
``models--OWNER--NAME/snapshots/COMMIT/PATH`` is a link to them, so other programs find what qlock fetched, and the
reverse. The download is ours, since the library's begins anew after a kill and puts a file in its place before anybody
has looked at its bytes. Here a file gets its name only once size and digest are right, in one rename.

No lock is taken, as some cluster file systems refuse ``flock`` and others grant it to everybody. Each process writes
a file of its own, whose name says whose it is; what a dead process left is taken over by renaming it, which one alone
can do.

Does not live here: requests (``world.hub``).
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from qlock.core.escape import for_message
from qlock.errors import AbsentError, InputError, QlockError
from qlock.world.files import shown, sync_folder, write_all, writing_error
from qlock.world.hub.refusals import is_commit
from qlock.world.interface import HubFile, Snapshot
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
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


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


def storage(cache: Path, snapshot: Snapshot) -> Path:
    """The folder of a repository in the cache."""
    return cache / f"{snapshot.kind}s--{snapshot.repository.replace('/', '--')}"


def pointer(cache: Path, snapshot: Snapshot, path: str) -> Path:
    """Where a file of a snapshot lies, or would lie. The link is kept: resolved, a shard would lose its name.

    Raises:
        InputError: The path or the commit would lead out of the cache.
    """
    if not is_commit(snapshot.commit):
        raise InputError(f"`{for_message(snapshot.commit)}` is no commit, expected 40 hex digits")
    parts = path.split("/")
    if any(part in {"", ".", ".."} or "\0" in part for part in parts):
        raise InputError(f"`{for_message(path)}` is no path in a repository")
    return storage(cache, snapshot).joinpath("snapshots", snapshot.commit, *parts)


def is_here(path: Path, size_bytes: int) -> bool:
    """Whether a file of that size lies at ``path``."""
    try:
        return path.is_file() and path.stat().st_size == size_bytes
    except OSError:
        return False


class Shelf:
    """The places of one file in the cache.

    Args:
        cache: The folder of the Hub's cache.
        snapshot: Where the file comes from.
        file: What it must be.
    """

    def __init__(self, cache: Path, snapshot: Snapshot, file: HubFile) -> None:
        self._cache = cache
        self._repository = snapshot.repository
        self._file = file
        self._etag = file.oid if file.sha256 is UNSET else file.sha256.partition(":")[2]
        self.pointer = pointer(cache, snapshot, file.path)
        self.blob = storage(cache, snapshot) / "blobs" / self._etag

    def link(self) -> Path:
        """Make the snapshot's link to the blob, and give its path."""
        with self._writing():
            self.pointer.parent.mkdir(parents=True, exist_ok=True)
            beside = self.pointer.with_name(f".qlock-{secrets.token_hex(8)}.tmp")
            try:
                beside.symlink_to(os.path.relpath(self.blob, self.pointer.parent))
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self.blob.replace(self.pointer)
            else:
                beside.replace(self.pointer)
        return self.pointer

    def bring(self, ask: Ask, progress: Callable[[int], None]) -> None:
        """Download the blob, going on where an earlier try was cut.

        Raises:
            InputError: What came is not the file; it is thrown away.
            AbsentError: The cache cannot be written, or has no space.
        """
        with self._writing():
            self.blob.parent.mkdir(parents=True, exist_ok=True)
            partial = self._claimed()
            try:
                self._fill(partial, ask, progress)
            except BaseException:
                partial.close()
                with contextlib.suppress(OSError):
                    # The process goes on living, and what it left here is free all the same.
                    partial.path.replace(self._partial_name(_NOBODY))
                raise
            os.fsync(partial.descriptor)
            partial.close()
            self._check(partial)
            if is_here(self.blob, self._file.size_bytes):
                # Another process was quicker. Whoever reads its file must not find it exchanged meanwhile.
                partial.path.unlink()
            else:
                partial.path.replace(self.blob)
            sync_folder(self.blob.parent)

    def _fill(self, partial: _Partial, ask: Ask, progress: Callable[[int], None]) -> None:
        size_bytes = self._file.size_bytes
        free_bytes = shutil.disk_usage(self.blob.parent).free
        if free_bytes < size_bytes - partial.have_bytes:
            raise AbsentError(
                f"no space left for `{for_message(self._file.path)}` in the Hub's cache `{shown(self._cache)}`: "
                f"got `{free_bytes}` bytes, expected `{size_bytes - partial.have_bytes}`",
                hint="free some space, or set HF_HUB_CACHE to a folder on another disk",
            )
        progress(partial.have_bytes)

        def take(answer: Answer) -> None:
            if answer.total_bytes != size_bytes:
                raise self._wrong("another size", f"`{answer.total_bytes}` bytes", f"`{size_bytes}`")
            if answer.start != partial.have_bytes:
                partial.restart(self._hasher())
            for piece in answer.pieces:
                if partial.have_bytes + len(piece) > size_bytes:
                    raise self._wrong("another size", f"more than `{size_bytes}` bytes", f"`{size_bytes}`")
                partial.append(piece)
                progress(partial.have_bytes)

        def span() -> tuple[int, int]:
            return partial.have_bytes, min(partial.have_bytes + _ASKED_BYTES, size_bytes)

        while partial.have_bytes < size_bytes:
            ask(span, take)

    def _check(self, partial: _Partial) -> None:
        got = partial.hasher.hexdigest()
        if got != self._etag:
            partial.path.unlink()
            kind = "git" if self._file.sha256 is UNSET else "sha256"
            raise self._wrong("other bytes", f"`{kind}:{got}`", f"`{kind}:{self._etag}`")

    def _wrong(self, what: str, got: str, expected: str) -> InputError:
        return InputError(
            f"`{for_message(self._file.path)}` of `{for_message(self._repository)}` arrived with {what} than the "
            f"Hub names, and is not used: got {got}, expected {expected}",
            hint="fetch it again; if it stays so, a proxy or the storage damages it",
        )

    def _hasher(self) -> hashlib._Hash:
        if self._file.sha256 is not UNSET:
            return hashlib.sha256()
        # Git's own name of a blob, which is no protection against an attacker but finds damage.
        return hashlib.sha1(b"blob %d\0" % self._file.size_bytes, usedforsecurity=False)

    def _claimed(self) -> _Partial:
        """What an earlier try left, now under a name of ours, or a new empty file."""
        me = this_process()
        mine = self._partial_name(f"{_where(me)}-{me.pid}-{me.started_ticks}")
        for left in sorted(self.blob.parent.glob(f"{self._etag}.qlock-*.incomplete")):
            if _is_free(left, me):
                with contextlib.suppress(OSError):
                    left.replace(mine)
                    return _Partial.resumed(mine, self._hasher(), self._file.size_bytes)
        return _Partial.resumed(mine, self._hasher(), self._file.size_bytes)

    def _partial_name(self, owner: str) -> Path:
        name = f"{self._etag}.qlock-{owner}-{secrets.token_hex(4)}.incomplete"
        return self.blob.with_name(name)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except QlockError:
            raise
        except OSError as error:
            if error.errno in _NOT_WRITABLE:
                raise AbsentError(
                    f"the Hub's cache `{shown(self._cache)}` cannot be written: "
                    f"{os.strerror(error.errno or 0).lower()}",
                    hint="set HF_HUB_CACHE to a folder that can be written",
                ) from None
            raise writing_error(error, self.blob, "file of the Hub's cache") from None


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
