"""The machine: its CPU, the memory this process may use, and what belongs to one run only.

Lives here: reading ``/proc`` and the control groups. Does not live here: GPUs (``world.nvml``), whether a machine
is the locked one (``core.verify``).

The functions that read text are apart from those that read files, so that they can be tried on the text of many
machines.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import msgspec

from qlock.core.facts import Device
from qlock.errors import AbsentError, QlockError
from qlock.world.files import read_bounded
from qlock.world.interface import Memory, Surroundings

_MAX_BYTES = 16 << 20
_ROOT = Path("/")

_X86_SETS = """
    pni ssse3 sse4_1 sse4_2 avx avx2 avx_vnni avx_vnni_int8 fma f16c bmi2
    avx512f avx512cd avx512bw avx512dq avx512vl avx512vbmi avx512_vnni avx512_bf16 avx512_fp16
    amx_tile amx_int8 amx_bf16 amx_fp16
"""
"""As the kernel writes them (``pni`` is SSE3). Source: llama.cpp, ggml/src/ggml-cpu/arch/x86."""

_ARM_SETS = """
    asimd fphp asimdhp asimddp asimdfhm i8mm bf16 sve svei8mm svebf16 sve2 sme smei8i32 sme2
"""
"""Source: the same, arch/arm."""

INSTRUCTION_SETS = frozenset((_X86_SETS + _ARM_SETS).split())
"""Flags of a CPU that decide which of llama.cpp's kernels run."""

_VENDORS = {
    "AuthenticAMD": "amd",
    "GenuineIntel": "intel",
    "HygonGenuine": "hygon",
    "CentaurHauls": "zhaoxin",
    "Shanghai": "zhaoxin",
}
_IMPLEMENTERS = {
    0x41: "arm",
    0x42: "broadcom",
    0x43: "cavium",
    0x46: "fujitsu",
    0x48: "hisilicon",
    0x4E: "nvidia",
    0x50: "apm",
    0x51: "qualcomm",
    0x53: "samsung",
    0x56: "marvell",
    0x61: "apple",
    0x6D: "microsoft",
    0xC0: "ampere",
}
"""Source: Arm Architecture Reference Manual, MIDR_EL1."""


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """A CPU as ``/proc/cpuinfo`` shows it."""

    vendor: str
    model: str
    family: int
    model_number: int
    stepping: int
    instruction_sets: tuple[str, ...]
    """Sorted; those of ``INSTRUCTION_SETS`` that every core has."""


def device(name: str = "", *, root: Path = _ROOT) -> Device:
    """The CPU of this machine.

    Args:
        name: What the lock calls it; when empty, made of vendor, family and model (``cpu-amd-1a-02``).
        root: Where ``/proc`` lies; another folder in tests.

    Raises:
        AbsentError: ``/proc/cpuinfo`` is not there or does not say what the CPU is.
    """
    cpu = cpu_of(_text(root / "proc/cpuinfo", "list of CPUs"))
    return Device(
        name=name or f"cpu-{cpu.vendor}-{cpu.family:02x}-{cpu.model_number:02x}",
        kind="cpu",
        cpu_model=cpu.model,
        cpu_family=cpu.family,
        cpu_model_number=cpu.model_number,
        cpu_stepping=cpu.stepping,
        instruction_sets=cpu.instruction_sets,
        cores=len(os.sched_getaffinity(0)),
        driver_version="",
        gpu=(),
    )


def cpu_of(cpuinfo: str) -> Cpu:
    """The CPU in the text of a ``/proc/cpuinfo`` (x86-64 or 64-bit Arm).

    Cores of several kinds (big and little ones) count as one CPU: it has the instruction sets that all of them
    have, the numbers of the kind with the highest model number, and the names of all kinds.

    Raises:
        AbsentError: The text does not say what the CPU is.
    """
    cores = [core for block in re.split(r"\n\s*\n", cpuinfo) if "processor" in (core := _fields(block))]
    if not cores:
        raise _unknown("got no processor")
    flags = set.intersection(*(set(core.get("flags", core.get("Features", "")).split()) for core in cores))
    kinds = {_x86(core) if "vendor_id" in core else _arm(core) for core in cores}
    highest = max(kinds, key=lambda cpu: (cpu.family, cpu.model_number, cpu.stepping, cpu.model))
    return msgspec.structs.replace(
        highest,
        model=" + ".join(sorted({cpu.model for cpu in kinds})),
        instruction_sets=tuple(sorted(flags & INSTRUCTION_SETS)),
    )


def _fields(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.split("\n"))
    return {key.strip(): text.strip() for key, colon, text in pairs if colon}


def _x86(core: dict[str, str]) -> Cpu:
    vendor = core["vendor_id"]
    return Cpu(
        vendor=_VENDORS.get(vendor, re.sub(r"[^a-z0-9]+", "", vendor.lower()) or "unknown"),
        model=" ".join(core.get("model name", "unknown").split()),
        family=_number(core, "cpu family"),
        model_number=_number(core, "model"),
        stepping=_number(core, "stepping", otherwise=0),
        instruction_sets=(),
    )


def _arm(core: dict[str, str]) -> Cpu:
    implementer = _number(core, "CPU implementer")
    part = _number(core, "CPU part")
    vendor = _IMPLEMENTERS.get(implementer, f"implementer{implementer:02x}")
    return Cpu(
        vendor=vendor,
        model=" ".join(core.get("model name", f"{vendor} part 0x{part:03x}").split()),
        family=_number(core, "CPU architecture"),
        model_number=part,
        stepping=_number(core, "CPU variant", otherwise=0) << 4 | _number(core, "CPU revision", otherwise=0),
        instruction_sets=(),
    )


def _number(core: dict[str, str], key: str, *, otherwise: int | None = None) -> int:
    """A number in decimal or, with ``0x``, in hex."""
    text = core.get(key, "")
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    if number >= 0:
        return number
    # "unknown" is what the kernel writes for a stepping that the CPU does not tell.
    if otherwise is not None and text in ("", "unknown"):
        return otherwise
    raise _unknown(f"got `{text}` as `{key}`, expected a number")


def _unknown(why: str) -> AbsentError:
    return AbsentError(
        f"the CPU cannot be told from `/proc/cpuinfo`: {why}",
        hint="qlock knows x86-64 and 64-bit Arm under Linux",
    )


def memory(*, root: Path = _ROOT) -> Memory:
    """Memory that this process may use: the machine's, or less where a control group allows less.

    In a control group, what is only a cache of files counts as available, as it does for the machine.

    Raises:
        AbsentError: ``/proc/meminfo`` is not there or does not say it.
    """
    machine = meminfo_of(_text(root / "proc/meminfo", "memory of the machine"))
    found = [machine]
    for folder in _groups(root):
        group = _group_memory(folder, folder.relative_to(root / "sys/fs/cgroup"))
        if group is not None and group.total_bytes < machine.total_bytes:
            found.append(group)
    return Memory(
        total_bytes=min(one.total_bytes for one in found),
        available_bytes=min(one.available_bytes for one in found),
        limited_by=min(found, key=lambda one: one.available_bytes).limited_by,
    )


def meminfo_of(text: str) -> Memory:
    """The machine's memory in the text of a ``/proc/meminfo``."""
    fields = _fields(text)
    try:
        # The kernel writes "kB" and means 1,024 bytes.
        total, available = (1024 * int(fields[key].split()[0]) for key in ("MemTotal", "MemAvailable"))
    except (KeyError, ValueError, IndexError) as error:
        raise AbsentError("`/proc/meminfo` does not say how much memory there is") from error
    return Memory(total_bytes=total, available_bytes=available, limited_by="machine")


def _groups(root: Path) -> list[Path]:
    """Folders of the control groups (versions 2 and 1) that this process lies in, innermost first."""
    try:
        lines = _text(root / "proc/self/cgroup", "control group").split("\n")
    except QlockError:
        return []
    folders = []
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            top = root / "sys/fs/cgroup"
        elif "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup/memory"
        else:
            continue
        # In a container the path may be the host's, which is not there: the top is then the container's own.
        inner = top / path.lstrip("/")
        while inner != top and inner.is_relative_to(top):
            folders.append(inner)
            inner = inner.parent
        folders.append(top)
    return folders


def _group_memory(folder: Path, name: Path) -> Memory | None:
    """What one control group allows; ``None`` when it sets no limit."""
    for limit_name, used_name, cache_names in (
        ("memory.max", "memory.current", ("inactive_file", "active_file")),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
    ):
        try:
            limit = int(_text(folder / limit_name, "limit"))
            used = int(_text(folder / used_name, "usage"))
            rows = (line.split() for line in _text(folder / "memory.stat", "statistics").split("\n"))
            cached = sum(int(row[1]) for row in rows if len(row) == 2 and row[0] in cache_names)
        except (QlockError, ValueError):
            # "max" is no number: there is no limit.
            continue
        available = max(0, min(limit, limit - used + cached))
        where = "/".join(["", *name.parts]) or "/"
        return Memory(total_bytes=limit, available_bytes=available, limited_by=f"control group {where}")
    return None


def surroundings(*, root: Path = _ROOT) -> Surroundings:
    """Host name, boot, kernel, interpreter; raises ``AbsentError`` without ``/proc``."""
    system = os.uname()
    return Surroundings(
        host_name=system.nodename,
        boot_id=_text(root / "proc/sys/kernel/random/boot_id", "boot id").strip(),
        kernel=f"{system.sysname} {system.release}",
        python=platform.python_version(),
    )


def _text(path: Path, what: str) -> str:
    return read_bounded(path, _MAX_BYTES, what).decode("utf-8", "replace")
