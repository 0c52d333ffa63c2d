"""AMD's cards out of a made-up sysfs: what each file becomes, and what is missing without it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

from qlock.core.facts import Gpu
from qlock.world.amd import gpus
from qlock.world.interface import GpuSeen, Missing
from tests.fakes.sysfs import MI210_FILES, MI210_NODE, XTX_FILES, XTX_NODE, add_card, driver, write

MI210 = Gpu(
    gpu_name="AMD INSTINCT MI210",
    pci_device_id="1002:740f (rev 02)",
    memory_bytes=68_702_699_520,
    compute_capability="gfx90a",
    sm_count=104,
    mig_profile="SPX/NPS1",
    power_limit_mw=300_000,
)


def machine(root: Path, *without: str, **other: str) -> Path:
    """One card, without some of its files or with another text in them."""
    driver(root)
    files = {name: other.get(name, text) for name, text in MI210_FILES.items() if name not in without}
    add_card(root, 1, files, node=MI210_NODE)
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
        MI210, gpu_name="AMD 1002:740f (rev 02)"
    )


def test_a_card_without_partitions_or_unique_id(tmp_path: Path) -> None:
    seen = only(machine(tmp_path, "unique_id", "current_compute_partition", "current_memory_partition"))
    assert (seen.uuid, seen.gpu) == ("", msgspec.structs.replace(MI210, mig_profile=""))


def test_a_card_that_kfd_does_not_know_has_no_target(tmp_path: Path) -> None:
    seen = only(machine(tmp_path, uevent="PCI_SLOT_NAME=0000:64:00.0\n"))
    assert seen.gpu == msgspec.structs.replace(MI210, compute_capability=UNSET, sm_count=UNSET)
    assert seen.untold == {
        "compute_capability": "KFD does not know the card",
        "sm_count": "KFD does not tell its compute units",
        "ecc": "sysfs does not tell it",
        "cuda_version": "there is no CUDA without an NVIDIA card",
    }


@pytest.mark.parametrize(
    "without, other, why",
    [
        ("device", {}, "cannot be told from others: sysfs does not tell its PCI id and revision"),
        ("revision", {}, "cannot be told from others: sysfs does not tell its PCI id and revision"),
        ("mem_info_vram_total", {}, "cannot be told from others: sysfs does not tell its memory"),
        ("", {"mem_info_vram_total": "0\n"}, "cannot be told from others: sysfs does not tell its memory"),
        ("uevent", {}, "has no PCI address in sysfs"),
        ("", {"uevent": "PCI_SLOT_NAME=odd\n"}, "has no PCI address in sysfs"),
        (
            "",
            {"current_compute_partition": "CPX\n", "current_memory_partition": "NPS4\n"},
            "is cut into partitions (`CPX/NPS4`), which share one address",
        ),
        ("drm/renderD128/dev", {}, "has no render node"),
    ],
)
def test_a_card_that_could_be_taken_for_another_one_is_none(
    tmp_path: Path, without: str, other: dict[str, str], why: str
) -> None:
    assert only(machine(tmp_path, without, **other)).gpu == Missing(why=f"AMD GPU `1` {why}")


def test_a_card_that_this_process_may_not_open_is_none(tmp_path: Path) -> None:
    root = machine(tmp_path)
    (root / "dev/dri/renderD128").unlink()
    assert only(root).gpu == Missing(
        why="AMD GPU `1` may not be used by this process: `/dev/dri/renderD128`: No such file or directory"
    )


def test_cards_that_differ_in_their_revision_alone_are_different_cards(tmp_path: Path) -> None:
    root = driver(tmp_path)
    add_card(root, 0, XTX_FILES, node=XTX_NODE)
    other = XTX_FILES | {"revision": "0xcc", "uevent": "PCI_SLOT_NAME=0000:04:00.0\n"}
    add_card(root, 1, other, node=XTX_NODE.replace("768", "1024"), place=2)
    seen = gpus(root=root)
    assert isinstance(seen, tuple)
    names = [one.gpu.pci_device_id for one in seen if isinstance(one.gpu, Gpu)]
    assert names == ["1002:744c (rev c8)", "1002:744c (rev cc)"]
    assert len({one.gpu for one in seen}) == 2


def test_cards_come_in_the_order_of_rocm_and_those_that_it_does_not_know_last(tmp_path: Path) -> None:
    root = driver(tmp_path)
    add_card(root, 0, XTX_FILES)
    add_card(root, 1, MI210_FILES, node=MI210_NODE, place=10)
    second = MI210_FILES | {"uevent": "PCI_SLOT_NAME=0000:64:00.0\n", "unique_id": "b"}
    add_card(root, 2, second, node=MI210_NODE.replace("25344", "25600"), place=9)
    seen = gpus(root=root)
    assert isinstance(seen, tuple)
    assert [one.pci_bus_id for one in seen] == ["0000:64:00.0", "0000:63:00.0", "0000:03:00.0"]


@pytest.mark.parametrize(
    "number, target", [(90010, "gfx90a"), (110000, "gfx1100"), (90402, "gfx942"), (100306, "gfx1036")]
)
def test_targets_as_the_compiler_writes_them(tmp_path: Path, number: int, target: str) -> None:
    root = machine(tmp_path)
    write(root, "sys/class/kfd/kfd/topology/nodes/1/properties", MI210_NODE.replace("90010", str(number)))
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
