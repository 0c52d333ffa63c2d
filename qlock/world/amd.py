"""AMD's cards, out of sysfs: what the amdgpu driver tells without any library of ROCm.

Lives here: reading ``/sys/class/drm`` and the topology of KFD. Does not live here: NVIDIA's cards (``world.nvml``).

The same struct as for NVIDIA's cards: compute units stand for multiprocessors, the target (``gfx90a``) for the compute
capability, and the partition (``SPX/NPS1``) for the MIG profile. What a file does not tell is unset, with the reason.

Two cards of one PCI id may differ: only the revision tells an RX 7900 XT from an XTX. So the id has it, as ``lspci``
writes it. A card that does not tell its id, its revision, its memory or its address, that is cut into partitions, or
that permissions or a control group keep from this process, is ``Missing``: it could be taken for another one, or is none.

Source: Linux, Documentation/gpu/amdgpu and drivers/gpu/drm/amd/amdkfd/kfd_topology.c.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.escape import for_message
from qlock.core.facts import Gpu
from qlock.core.visible import bus_address
from qlock.errors import QlockError
from qlock.world.files import read_bounded
from qlock.world.interface import GpuSeen, Missing

_ROOT = Path("/")
_MAX_BYTES = 1 << 20
_MOST_NODES = 1024
_AMD = "0x1002"
_WHOLE = "SPX"
"""The compute partition of a card that is in one piece."""
_CARD = re.compile(r"card([0-9]{1,4})", re.ASCII)


def gpus(*, root: Path = _ROOT) -> tuple[GpuSeen, ...] | Missing:
    """Every AMD card that the kernel drives: those that ROCm knows, in its order, then the others.

    Args:
        root: Where ``/sys``, ``/proc`` and ``/dev`` lie; another folder in tests.

    Returns:
        ``Missing`` when the driver is not loaded.
    """
    if not (root / "sys/module/amdgpu").is_dir():
        return Missing(why="the amdgpu driver is not loaded")
    driver = _driver_version(root)
    nodes = _nodes(root)
    order = {address: place for place, address in enumerate(nodes)}
    found = []
    for index, folder in _cards(root):
        if _line(folder / "vendor") != _AMD:
            continue
        address = _address(folder)
        seen = _seen(index, folder, nodes.get(address, {}), driver)
        kept_away = _kept_away(root, folder)
        if kept_away:
            seen = msgspec.structs.replace(seen, gpu=Missing(why=f"AMD GPU `{index}` {kept_away}"))
        found.append((order.get(address, len(order)), index, seen))
    return tuple(seen for _, _, seen in sorted(found, key=lambda one: one[:2]))


def _kept_away(root: Path, folder: Path) -> str:
    """Why this process may not use a card; empty when it may. A control group shows only when the node is opened."""
    nodes = sorted((folder / "drm").glob("renderD*"))
    if not nodes:
        return "has no render node"
    try:
        os.close(os.open(root / "dev/dri" / nodes[0].name, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        return f"may not be used by this process: `/dev/dri/{nodes[0].name}`: {error.strerror}"
    return ""


def _cards(root: Path) -> list[tuple[int, Path]]:
    """Numbers of the cards and the folders of their PCI devices."""
    folder = root / "sys/class/drm"
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    numbers = sorted(int(match[1]) for name in names if (match := _CARD.fullmatch(name)))
    return [(number, folder / f"card{number}" / "device") for number in numbers]


def _seen(index: int, folder: Path, node: dict[str, int], driver: str) -> GpuSeen:
    untold: dict[str, str] = {}

    def told(field: str, file: str, read: Callable[[str], int]) -> int | UnsetType:
        value = _number(_line(folder / file), read) if file else None
        if value is None:
            untold[field] = f"sysfs has no `{file.rpartition('/')[2]}`"
            return UNSET
        return value

    pci_id = _pci_id(folder)
    target = _target(node.get("gfx_target_version", 0))
    if not target:
        untold["compute_capability"] = "KFD does not know the card"
    unique = _line(folder / "unique_id")
    uuid = f"GPU-{unique.removeprefix('0x')}" if unique else ""
    partition = [_line(folder / f"current_{kind}_partition") for kind in ("compute", "memory")]
    units = node.get("simd_count", 0) // max(1, node.get("simd_per_cu", 0))
    if not units:
        untold["sm_count"] = "KFD does not tell its compute units"
    untold["ecc"] = "sysfs does not tell it"
    untold["cuda_version"] = "there is no CUDA without an NVIDIA card"
    gpu = Gpu(
        gpu_name=_line(folder / "product_name") or f"AMD {pci_id}",
        pci_device_id=pci_id,
        memory_bytes=told("memory_bytes", "mem_info_vram_total", int),
        compute_capability=target or UNSET,
        sm_count=units or UNSET,
        mig_profile="/".join(part for part in partition if part),
        power_limit_mw=told("power_limit_mw", _power_file(folder), lambda text: int(text) // 1000),
    )
    why = _why_unknown(folder, gpu, partition[0])
    return GpuSeen(
        index=index,
        gpu=Missing(why=f"AMD GPU `{index}` {why}") if why else gpu,
        untold=untold,
        uuid=uuid,
        card_uuid=uuid,
        instance="",
        pci_bus_id=_slot(folder),
        driver_version=driver,
    )


def _pci_id(folder: Path) -> str:
    """Maker, model and revision: ``1002:744c (rev c8)``; empty where sysfs does not tell all of it."""
    model, revision = (_line(folder / name).removeprefix("0x") for name in ("device", "revision"))
    return f"1002:{model} (rev {revision})" if model and revision else ""


def _why_unknown(folder: Path, gpu: Gpu, partition: str) -> str:
    """Why a card could be taken for another one; empty where it cannot."""
    if not gpu.pci_device_id:
        return "cannot be told from others: sysfs does not tell its PCI id and revision"
    if not gpu.memory_bytes:
        return "cannot be told from others: sysfs does not tell its memory"
    if not _address(folder):
        return "has no PCI address in sysfs"
    if partition not in ("", _WHOLE):
        return f"is cut into partitions (`{for_message(gpu.mig_profile)}`), which share one address"
    return ""


def _target(number: int) -> str:
    """``gfx90a`` out of 90010: two decimal digits each for minor version and stepping, written in hex."""
    return f"gfx{number // 10000}{number // 100 % 100:x}{number % 100:x}" if number else ""


def _power_file(folder: Path) -> str:
    """The limit in microwatts; the number of its hwmon is no fact of the card."""
    found = sorted((folder / "hwmon").glob("hwmon*/power1_cap"))
    return found[0].relative_to(folder).as_posix() if found else "power1_cap"


def _nodes(root: Path) -> dict[tuple[int, ...], dict[str, int]]:
    """What KFD knows of each card, by PCI address, in its own order."""
    folder = root / "sys/class/kfd/kfd/topology/nodes"
    found: dict[tuple[int, ...], dict[str, int]] = {}
    paths = [path for path in folder.iterdir() if path.name.isdecimal()] if folder.is_dir() else []
    for path in sorted(paths, key=lambda path: int(path.name))[:_MOST_NODES]:
        pairs = (line.split() for line in _text(path / "properties").split("\n"))
        node = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
        if node.get("gfx_target_version"):
            place = node.get("location_id", 0)
            address = (node.get("domain", 0), place >> 8 & 0xFF, place >> 3 & 0x1F, place & 7)
            found[address] = node
    return found


def _slot(folder: Path) -> str:
    lines = (line.partition("=") for line in _text(folder / "uevent").split("\n"))
    return next((value for key, _, value in lines if key == "PCI_SLOT_NAME"), "")


def _address(folder: Path) -> tuple[int, ...]:
    try:
        return bus_address(_slot(folder))
    except QlockError:
        return ()


def _driver_version(root: Path) -> str:
    """AMD's own release of the driver has a version; the kernel's goes with the kernel."""
    version = _line(root / "sys/module/amdgpu/version")
    return f"amdgpu {version}" if version else f"amdgpu of Linux {_line(root / 'proc/sys/kernel/osrelease')}"


def _number(text: str, read: Callable[[str], int]) -> int | None:
    try:
        value = read(text)
    except ValueError:
        return None
    return value if value >= 0 else None


def _line(path: Path) -> str:
    """The only line of a file; empty where it cannot be read."""
    return _text(path).strip()


def _text(path: Path) -> str:
    try:
        return read_bounded(path, _MAX_BYTES, path.name).decode("utf-8", "replace")
    except QlockError:
        return ""
