"""Temporary folders that go away even when nobody was left to remove them.

Each holds the name of the process that made it. Whoever makes one first removes those whose process is gone: killed,
or from before a restart of this machine. One that cannot be judged from here stays.

Does not live here: what is put into them, and removing them in good order (the engines).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from qlock.errors import AbsentError
from qlock.world.files import shown
from qlock.world.process import holder_in, is_gone, this_process

_OWNER = "owner.json"


def scratch(
    prefix: str, *, folders: tuple[str, ...] = (), files: tuple[str, ...] = (), place: Path | None = None
) -> Path:
    """A new temporary folder that only this user can enter.

    Args:
        prefix: What its name begins with; folders with the same beginning are looked through for orphans.
        folders: Made in it.
        files: Made in it, empty.
        place: Where it is made; the place for temporary folders when not given.

    Raises:
        AbsentError: ``/proc`` does not say which process this is, or there is no room.
    """
    mine = this_process()
    with filling(place):
        for folder in list(_own_folders(prefix, place or Path(tempfile.gettempdir()))):
            if is_gone(holder_in(folder / _OWNER), mine):
                shutil.rmtree(folder, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        try:
            (folder / _OWNER).write_bytes(msgspec.json.encode(mine))
            for name in folders:
                (folder / name).mkdir()
            for name in files:
                (folder / name).touch()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return folder


@contextlib.contextmanager
def filling(place: Path | None = None) -> Iterator[None]:
    """Say in one line that something could not be put into the place for temporary folders, or into another.

    Raises:
        AbsentError: No space, no inode, not there, or not writable.
    """
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno or 0).lower() if error.errno else str(error)
        if place is not None:
            raise AbsentError(f"nothing can be put into `{shown(place)}`: {why}") from error
        where = "" if tempfile.tempdir is None else f" `{shown(tempfile.tempdir)}`"
        raise AbsentError(
            f"nothing can be put into the temporary folder{where}: {why}",
            hint="free some space there, or set TMPDIR to a folder that has some",
        ) from error


def free_bytes(place: Path) -> int:
    """How many bytes this user may still put there.

    Raises:
        AbsentError: It is not there.
    """
    with filling(place):
        return shutil.disk_usage(place).free


def _own_folders(prefix: str, place: Path) -> Iterator[Path]:
    """Folders of this user, no links, in a place for temporary ones."""
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(prefix):
                try:
                    seen = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid():
                    yield Path(entry.path)
