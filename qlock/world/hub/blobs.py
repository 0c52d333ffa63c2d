"""Files in the Hub's own cache: where they lie, and the links that lead to them.

The layout is huggingface_hub's (2.4.0, ``file_download.py``): ``models--OWNER--NAME/blobs/ETAG`` holds the bytes and
``models--OWNER--NAME/snapshots/COMMIT/PATH`` is a link to them, so other programs find what qlock fetched, and the
reverse. Does not live here: requests (``world.hub``), and how a blob gets there (``partial``).
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from msgspec import UNSET

from qlock.core.escape import for_message
from qlock.errors import InputError
from qlock.world.files import shown
from qlock.world.hub.partial import Ask, Parcel, Words, bring, writing
from qlock.world.hub.refusals import is_commit
from qlock.world.interface import HubFile, Snapshot

_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


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


class Shelf:
    """The places of one file in the cache.

    Args:
        cache: The folder of the Hub's cache.
        snapshot: Where the file comes from.
        file: What it must be.
    """

    def __init__(self, cache: Path, snapshot: Snapshot, file: HubFile) -> None:
        self._file = file
        etag = file.oid if file.sha256 is UNSET else file.sha256.partition(":")[2]
        self.pointer = pointer(cache, snapshot, file.path)
        self.blob = storage(cache, snapshot) / "blobs" / etag
        name = f"`{for_message(file.path)}`"
        kind = "git" if file.sha256 is UNSET else "sha256"

        def wrong(what: str, got: str, expected: str) -> InputError:
            mark = f"{kind}:" if what == "other bytes" else ""
            return InputError(
                f"{name} of `{for_message(snapshot.repository)}` arrived with {what} than the Hub names, and is not "
                f"used: got `{mark}{got}`, expected `{mark}{expected}`",
                hint="fetch it again; if it stays so, a proxy or the storage damages it",
            )

        self._parcel = Parcel(
            path=self.blob,
            size_bytes=file.size_bytes,
            digest=etag,
            new_hasher=self._hasher,
            words=Words(
                file=name,
                kind="file of the Hub's cache",
                place=f"the Hub's cache `{shown(cache)}`",
                variable="HF_HUB_CACHE",
                wrong=wrong,
            ),
        )

    def link(self) -> Path:
        """Make the snapshot's link to the blob, and give its path."""
        with writing(self._parcel):
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
        """Download the blob; raises as ``partial.bring``."""
        bring(self._parcel, ask, progress)

    def _hasher(self) -> hashlib._Hash:
        if self._file.sha256 is not UNSET:
            return hashlib.sha256()
        # Git's own name of a blob, which is no protection against an attacker but finds damage.
        return hashlib.sha1(b"blob %d\0" % self._file.size_bytes, usedforsecurity=False)
