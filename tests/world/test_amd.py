"""AMD's cards out of a made-up sysfs: what each file becomes, and what is missing without it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

from qlock.core.facts import Gpu
from qlock.world.amd import gpus
from qlock.world.interface import GpuSeen, Missing

MI210 = Gpu(
    gpu_name="AMD INSTINCT MI210",
    pci_device_id="1002:740f",
    memory_bytes=68_702_699_520,
    compute_capability="gfx90a",
    sm_count=104,
    mig_profile="SPX/NPS1",
    power_limit_mw=300_000,
)
FILES = {
    "vendor": "0x1002\n",
    "device": "0x740f\n",
    "uevent": "DRIVER=amdgpu\nPCI_CLASS=38000\nPCI_SLOT_NAME=0000:63:00.0\n",
    "unique_id": "a1b2c3d4e5f60718\n",
    "product_name": "AMD INSTINCT MI210\n",
    "mem_info_vram_total": "68702699520\n",
    "current_compute_partition": "SPX\n",
    "current_memory_partition": "NPS1\n",
    "hwmon/hwmon7/power1_cap": "300000000\n",
}
PROPERTIES = "cpu_cores_count 0\nsimd_count 416\nsimd_per_cu 4\ngfx_target_version 90010\nlocation_id 25344\ndomain 0\n"


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def machine(root: Path, *without: str, **other: str) -> Path:
    """One card, without some of its files or with another text in them."""
    write(root, "sys/module/amdgpu/version", "6.7.0\n")
    write(root, "sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 64\nsimd_count 0\n")
    write(root, "sys/class/kfd/kfd/topology/nodes/1/properties", PROPERTIES)
    for name, text in FILES.items():
        if name not in without:
            write(root, f"sys/class/drm/card1/device/{name}", other.get(name, text))
    write(root, "sys/class/drm/card1-DP-1/status", "connected\n")
    write(root, "sys/class/drm/card0/device/vendor", "0x1a03\n")
    write(root, "sys/class/drm/renderD128/device/vendor", "0x1002\n")
    return root


def only(root: Path) -> GpuSeen:
    seen = gpus(root=root)
    assert isinstance(seen, tuple)
    (one,) = seen
    return one


def test_a_card_as_sysfs_has_it(tmp_path: Path) -> None:
    assert only(machine(tmp_path)) == GpuSeen(
        index=1,
        gpu=MI210,
        untold={
            "ecc": "sysfs does not tell it",
            "cuda_version": "there is no CUDA without an NVIDIA card",
        },
        uuid="GPU-a1b2c3d4e5f60718",
        card_uuid="GPU-a1b2c3d4e5f60718",
        instance="",
        pci_bus_id="0000:63:00.0",
        driver_version="amdgpu 6.7.0",
    )


@pytest.mark.parametrize(
    "file, field, why",
    [
        ("mem_info_vram_total", "memory_bytes", "sysfs has no `mem_info_vram_total`"),
        ("hwmon/hwmon7/power1_cap", "power_limit_mw", "sysfs has no `power1_cap`"),
    ],
)
@pytest.mark.parametrize("text", [None, "", "-1", "much"])
def test_what_no_file_tells_is_unset_with_the_reason(
    tmp_path: Path, file: str, field: str, why: str, text: str | None
) -> None:
    root = machine(tmp_path, file) if text is None else machine(tmp_path, **{file: text})
    seen = only(root)
    assert seen.gpu == msgspec.structs.replace(MI210, **{field: UNSET})
    assert seen.untold[field] == why


def test_a_card_without_a_name_is_called_by_its_number(tmp_path: Path) -> None:
    assert only(machine(tmp_path, "product_name")).gpu == msgspec.structs.replace(
        MI210, gpu_name="AMD 1002:740f"
    )


def test_a_card_without_partitions_or_unique_id(tmp_path: Path) -> None:
    seen = only(machine(tmp_path, "unique_id", "current_compute_partition", "current_memory_partition"))
    assert (seen.uuid, seen.gpu) == ("", msgspec.structs.replace(MI210, mig_profile=""))


@pytest.mark.parametrize("slot", ["PCI_SLOT_NAME=0000:64:00.0\n", "PCI_SLOT_NAME=odd\n", ""])
def test_a_card_that_kfd_does_not_know_has_no_target(tmp_path: Path, slot: str) -> None:
    seen = only(machine(tmp_path, uevent=slot))
    assert seen.gpu == Missing(why="GPU `1` has no target: KFD does not know it")
    assert seen.untold["sm_count"] == "KFD does not tell its compute units"


@pytest.mark.parametrize(
    "number, target", [(90010, "gfx90a"), (110000, "gfx1100"), (90402, "gfx942"), (100306, "gfx1036")]
)
def test_targets_as_the_compiler_writes_them(tmp_path: Path, number: int, target: str) -> None:
    root = machine(tmp_path)
    write(root, "sys/class/kfd/kfd/topology/nodes/1/properties", PROPERTIES.replace("90010", str(number)))
    assert only(root).gpu == msgspec.structs.replace(MI210, compute_capability=target)


def test_the_kernels_own_driver_goes_with_the_kernel(tmp_path: Path) -> None:
    root = machine(tmp_path)
    (root / "sys/module/amdgpu/version").unlink()
    write(root, "proc/sys/kernel/osrelease", "6.8.0-31-generic\n")
    assert only(root).driver_version == "amdgpu of Linux 6.8.0-31-generic"


def test_without_a_driver_there_is_nothing_to_ask(tmp_path: Path) -> None:
    assert gpus(root=tmp_path) == Missing(why="the amdgpu driver is not loaded")
    (tmp_path / "sys/module/amdgpu").mkdir(parents=True)
    assert gpus(root=tmp_path) == ()


def test_this_machine_is_asked_without_an_error() -> None:
    match gpus():
        case Missing(why=why):
            assert why == "the amdgpu driver is not loaded"
        case seen:
            assert all(one.pci_bus_id for one in seen)
