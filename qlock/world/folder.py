"""One run, one folder: keeping every other qlock process out of it.

Lives here: holding a folder, and taking over from a holder that is gone. Does not live here: what is written in
it.

A holder is a file ``held.N.json`` in the folder that says which process holds it. It does not rely on ``flock``,
which some cluster file systems do not have, or have without effect.

How it stays free of races, without a file that could be left behind and block for ever:

1. The files are numbered. Whoever wants the folder looks at all of them. One with a living holder, or with one
   that cannot be judged from here, ends the attempt.
2. The next higher number is made with ``O_EXCL``, which exactly one process can do.
3. All files are looked at again. Another living holder means that somebody else came through step 2 with another
   number, having looked at another moment; both see each other here, and each takes its own file away and begins
   again.
4. Only who is through step 3 removes the files of holders that are gone. Its own file is there all that time, so
   whoever makes one of the removed numbers again meets it in step 3.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from qlock.world.files import error_of, shown, sync_folder, write_all
from qlock.world.interface import HeldError
from qlock.world.process import Holder, holder_in, is_gone, this_process

_ATTEMPTS = 100
_PAUSE_S = 0.01
_BEING_WRITTEN_S = 1.0
"""How long a file that names no holder yet may be one that is being written."""

_NAME = re.compile(r"held\.([1-9]\d{0,8})\.json")


class _Held(msgspec.Struct, frozen=True, kw_only=True):
    """A file ``held.N.json``; ``holder`` is ``None`` when it cannot be read."""

    number: int
    path: Path
    holder: Holder | None


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Keep every other qlock process out of ``folder`` until the end of the ``with``.

    Args:
        folder: It must be there.

    Raises:
        HeldError: Another process holds it, or might.
        AbsentError: The folder is not there or may not be written.
    """
    mine = this_process()
    path = _take(folder, mine)
    try:
        yield
    finally:
        # Only what is still ours: somebody may have removed the file by hand and another run taken the folder.
        if holder_in(path) == mine:
            with contextlib.suppress(OSError):
                path.unlink()


def release(folder: Path, jobs: Collection[str]) -> None:
    """Remove what holders left that were part of these Slurm jobs, which have ended: another node cannot see that.

    Args:
        folder: It may be missing.
        jobs: As ``Holder.slurm_job`` has them.

    Raises:
        AbsentError: The folder cannot be read or written.
    """
    if not folder.exists():
        return
    for held in _all_held(folder):
        if held.holder is not None and held.holder.slurm_job in jobs:
            held.path.unlink(missing_ok=True)


def _take(folder: Path, mine: Holder) -> Path:
    """Make the file that holds the folder; the numbered steps are in the module's text."""
    for _ in range(_ATTEMPTS):
        # 1.
        before = _all_held(folder)
        for held in before:
            if not is_gone(held.holder, mine):
                raise _refusal(held, mine)
        # 2.
        number = max((held.number for held in before), default=0) + 1
        path = folder / f"held.{number}.json"
        if not _make(path, mine):
            continue
        # 3.
        others = [held for held in _all_held(folder) if held.number != number]
        if any(not is_gone(held.holder, mine) for held in others):
            path.unlink(missing_ok=True)
            time.sleep(_PAUSE_S * (1 + secrets.randbelow(8)))
            continue
        # 4.
        for held in others:
            held.path.unlink(missing_ok=True)
        return path
    raise HeldError(
        f"folder `{shown(folder)}` changes hands too quickly to be taken", hint="run again in a moment"
    )


def _make(path: Path, mine: Holder) -> bool:
    """Make a file of a holder; false when another process was quicker."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        return False
    except (OSError, ValueError) as error:
        raise error_of(error, path.parent, "folder") from error
    try:
        try:
            write_all(descriptor, msgspec.json.encode(mine) + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise error_of(error, path, "file") from error
    sync_folder(path.parent)
    return True


def _all_held(folder: Path) -> list[_Held]:
    """Every file of a holder in a folder, lowest number first."""
    try:
        names = [path.name for path in folder.iterdir()]
    except (OSError, ValueError) as error:
        raise error_of(error, folder, "folder") from error
    numbers = sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))
    held = []
    for number in numbers:
        path = folder / f"held.{number}.json"
        until = time.monotonic() + _BEING_WRITTEN_S
        while (holder := holder_in(path)) is None and path.exists() and time.monotonic() < until:
            time.sleep(_PAUSE_S)
        if holder is not None or path.exists():
            held.append(_Held(number=number, path=path, holder=holder))
    return held


def _refusal(held: _Held, mine: Holder) -> HeldError:
    """Why the folder cannot be had, and what to do."""
    folder = shown(held.path.parent)
    hint = f"when you are sure that no qlock process uses the folder, remove `{shown(held.path)}`"
    holder = held.holder
    if holder is None:
        return HeldError(f"folder `{folder}` is held, and `{held.path.name}` does not say by whom", hint=hint)
    if (holder.boot_id, holder.pid_namespace) == (mine.boot_id, mine.pid_namespace):
        hint = "wait until it has ended"
    return HeldError(
        f"folder `{folder}` is held by process `{holder.pid}` on host `{shown(holder.host_name)}`", hint=hint
    )
