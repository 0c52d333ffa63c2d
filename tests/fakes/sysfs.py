"""A made-up `/sys`, `/proc` and `/dev` with cards of AMD in it, as the amdgpu driver fills them."""

from __future__ import annotations

from pathlib import Path

from qlock.world import amd
from qlock.world.interface import GpuSeen, Missing

MI210_FILES = {
    "vendor": "0x1002\n",
    "device": "0x740f\n",
    "revision": "0x02\n",
    "uevent": "DRIVER=amdgpu\nPCI_CLASS=38000\nPCI_SLOT_NAME=0000:63:00.0\n",
    "unique_id": "a1b2c3d4e5f60718\n",
    "product_name": "AMD INSTINCT MI210\n",
    "mem_info_vram_total": "68702699520\n",
    "current_compute_partition": "SPX\n",
    "current_memory_partition": "NPS1\n",
    "hwmon/hwmon7/power1_cap": "300000000\n",
    "drm/renderD128/dev": "226:128\n",
}
MI210_NODE = "cpu_cores_count 0\nsimd_count 416\nsimd_per_cu 4\ngfx_target_version 90010\nlocation_id 25344\ndomain 0\n"
XTX_FILES = {
    "vendor": "0x1002\n",
    "device": "0x744c\n",
    "revision": "0xc8\n",
    "uevent": "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n",
    "mem_info_vram_total": "25753026560\n",
    "hwmon/hwmon3/power1_cap": "339000000\n",
    "drm/renderD129/dev": "226:129\n",
}
"""An RX 7900 XTX: cards for the desk tell neither a name nor a number of their own."""
XTX_NODE = "simd_count 192\nsimd_per_cu 2\ngfx_target_version 110000\nlocation_id 768\ndomain 0\n"
XT_FILES = XTX_FILES | {"revision": "0xcc\n", "mem_info_vram_total": "21458059264\n"}
XT_NODE = XTX_NODE.replace("192", "168")


def write(root: Path, name: str, text: str) -> None:
    """One file, with the folders above it."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def driver(root: Path) -> Path:
    """A machine with the driver and without a card; its CPU is a node of KFD's too."""
    write(root, "sys/module/amdgpu/version", "6.7.0\n")
    write(root, "sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 64\nsimd_count 0\n")
    return root


def add_card(root: Path, number: int, files: dict[str, str], *, node: str = "", place: int = 1) -> Path:
    """Put a card in: its files, its node under `/dev`, and what KFD knows of it as its node `place`."""
    for name, text in files.items():
        write(root, f"sys/class/drm/card{number}/device/{name}", text)
        if name.startswith("drm/renderD"):
            write(root, f"dev/dri/{name.split('/')[1]}", "")
    if node:
        write(root, f"sys/class/kfd/kfd/topology/nodes/{place}/properties", node)
    return root


class SysfsAmd:
    """AMD's cards as the real reader finds them under a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def gpus(self) -> tuple[GpuSeen, ...] | Missing:
        return amd.gpus(root=self.root)
