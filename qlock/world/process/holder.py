"""A process that holds something, named in a file, and whether it is still there.

Does not live here: what is held (``world.folder``, ``world.scratch``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from qlock.core.base import Base, Count, Positive
from qlock.errors import AbsentError, InputError, QlockError
from qlock.world.files import read_bounded

_MAX_BYTES = 4096


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
    slurm_job: str = ""
    """``JOB_INDEX`` of an array or ``JOB``; empty outside Slurm."""
    slurm_restarts: Count = 0
    """How often Slurm had begun that job again when the process started."""


def this_process() -> Holder:
    """The process that asks."""
    started_ticks = _started_ticks(os.getpid())
    assert started_ticks is not None
    job, restarts = _slurm(os.environ)
    return Holder(
        pid=os.getpid(),
        started_ticks=started_ticks,
        boot_id=read_bounded(Path("/proc/sys/kernel/random/boot_id"), _MAX_BYTES, "boot id").decode().strip(),
        pid_namespace=str(Path("/proc/self/ns/pid").readlink()),
        host_name=os.uname().nodename,
        machine_id=_machine_id(),
        slurm_job=job,
        slurm_restarts=restarts,
    )


def _slurm(environment: Mapping[str, str]) -> tuple[str, int]:
    """The job that this process is part of, and how often it was begun again."""
    array, index = environment.get("SLURM_ARRAY_JOB_ID", ""), environment.get("SLURM_ARRAY_TASK_ID", "")
    job = f"{array}_{index}" if array and index else environment.get("SLURM_JOB_ID", "")
    restarts = environment.get("SLURM_RESTART_COUNT", "")
    return job, int(restarts) if restarts.isascii() and restarts.isdigit() else 0


def _machine_id() -> str:
    try:
        return (
            read_bounded(Path("/etc/machine-id"), _MAX_BYTES, "machine id").decode(errors="replace").strip()
        )
    except QlockError:
        return ""


def holder_in(path: Path) -> Holder | None:
    """The holder that a file names; ``None`` when it is not there or does not read as one."""
    try:
        return msgspec.json.decode(read_bounded(path, _MAX_BYTES, "file"), type=Holder)
    except (QlockError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def is_gone(holder: Holder | None, mine: Holder) -> bool:
    """Whether a holder has surely ended.

    In this boot and namespace the process table says it. A holder on this machine from another boot did not
    outlive the boot. Slurm begins a job again, on whichever node, only after its former start has ended. Everything
    else cannot be seen from here, and so is not gone.
    """
    if holder is None:
        return False
    if (
        holder.slurm_job
        and holder.slurm_job == mine.slurm_job
        and holder.slurm_restarts < mine.slurm_restarts
    ):
        return True
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
