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
from collections.abc import Iterator
from pathlib import Path

import msgspec

from qlock.core.base import Base, Count, Positive
from qlock.errors import AbsentError, InputError, QlockError
from qlock.world.files import error_of, read_bounded, shown, sync_folder, write_all

_MAX_BYTES = 4096
_ATTEMPTS = 100
_PAUSE_S = 0.01
_BEING_WRITTEN_S = 1.0
"""How long a file that names no holder yet may be one that is being written."""

_NAME = re.compile(r"held\.([1-9]\d{0,8})\.json")


class Holder(Base, frozen=True, kw_only=True):
    """A process, named so that it can be told from every later one with the same number."""

    pid: Positive
    started_ticks: Count
    """Clock ticks from boot to its start (field 22 of ``/proc/PID/stat``)."""
    boot_id: str
    """Drawn by the kernel at each boot."""
    pid_namespace: str
    """Numbers of processes mean something within one namespace only (containers have their own)."""
    host_name: str
    machine_id: str
    """``/etc/machine-id``, as two machines can have one name; empty where there is none."""


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
        AbsentError: Another process holds it, or might, or the folder is not there or may not be written.
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


def this_process() -> Holder:
    """The process that asks."""
    started_ticks = _started_ticks(os.getpid())
    assert started_ticks is not None
    return Holder(
        pid=os.getpid(),
        started_ticks=started_ticks,
        boot_id=read_bounded(Path("/proc/sys/kernel/random/boot_id"), _MAX_BYTES, "boot id").decode().strip(),
        pid_namespace=str(Path("/proc/self/ns/pid").readlink()),
        host_name=os.uname().nodename,
        machine_id=_machine_id(),
    )


def _machine_id() -> str:
    try:
        return (
            read_bounded(Path("/etc/machine-id"), _MAX_BYTES, "machine id").decode(errors="replace").strip()
        )
    except QlockError:
        return ""


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
    raise AbsentError(
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


def holder_in(path: Path) -> Holder | None:
    """The holder that a file names; ``None`` when it is not there or does not read as one."""
    try:
        return msgspec.json.decode(read_bounded(path, _MAX_BYTES, "file"), type=Holder)
    except (QlockError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _refusal(held: _Held, mine: Holder) -> AbsentError:
    """Why the folder cannot be had, and what to do."""
    folder = shown(held.path.parent)
    hint = f"when you are sure that no qlock process uses the folder, remove `{shown(held.path)}`"
    holder = held.holder
    if holder is None:
        return AbsentError(
            f"folder `{folder}` is held, and `{held.path.name}` does not say by whom", hint=hint
        )
    if (holder.boot_id, holder.pid_namespace) == (mine.boot_id, mine.pid_namespace):
        hint = "wait until it has ended"
    return AbsentError(
        f"folder `{folder}` is held by process `{holder.pid}` on host `{shown(holder.host_name)}`", hint=hint
    )


def is_gone(holder: Holder | None, mine: Holder) -> bool:
    """Whether a holder has surely ended.

    In this boot and namespace the process table says it. A holder on this machine from another boot did not
    outlive the boot. Everything else cannot be seen from here, and so is not gone.
    """
    if holder is None:
        return False
    if holder.boot_id != mine.boot_id:
        here = (mine.host_name, mine.machine_id)
        return bool(mine.machine_id) and (holder.host_name, holder.machine_id) == here
    if holder.pid_namespace != mine.pid_namespace:
        return False
    started_ticks = _started_ticks(holder.pid)
    if started_ticks is None:
        return not _is_hidden(holder.pid)
    return started_ticks != holder.started_ticks


def _is_hidden(pid: int) -> bool:
    """Whether there is such a process although ``/proc`` does not show it, as where other users' are hidden."""
    if Path(f"/proc/{pid}").exists():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _started_ticks(pid: int) -> int | None:
    """When a process started; ``None`` when there is none, or only its zombie."""
    try:
        text = read_bounded(Path(f"/proc/{pid}/stat"), _MAX_BYTES, "process").decode(errors="replace")
    except (AbsentError, InputError):
        return None
    # The name of the program is in brackets and may itself hold brackets and spaces. State is field 3.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])
