"""Which cards a spec or a lock means, what is locked of them, and what is refused; the machine is scripted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from qlock.core.compare import compare
from qlock.core.facts import Gpu
from qlock.core.spec import DeviceSpec, SettingSpec
from qlock.core.verify import differences
from qlock.errors import AbsentError, InputError, QlockError
from qlock.flows.device import Here, asked_device, locked_device
from qlock.world.interface import GpuSeen, Missing, World
from tests.fakes.comparisons import a_plain_lock, a_side
from tests.fakes.documents import a_spec
from tests.fakes.nvml import A100_40, A100_80, StubbedNvml, script
from tests.fakes.sysfs import (
    MI210_FILES,
    MI210_NODE,
    XT_FILES,
    XT_NODE,
    XTX_FILES,
    XTX_NODE,
    SysfsAmd,
    add_card,
    driver,
    write,
)
from tests.fakes.world import CPU, L4, ScriptedNvml, fake_world, seen

T4 = msgspec.structs.replace(L4, gpu_name="Tesla T4", pci_device_id="10de:1eb8", compute_capability="7.5")
A100 = msgspec.structs.replace(
    L4, gpu_name="NVIDIA A100-SXM4-40GB", pci_device_id="10de:20b0", memory_bytes=40 << 30
)
SLICE = msgspec.structs.replace(A100, mig_profile="1g.5gb", memory_bytes=5 << 30, sm_count=14)
LARGE_SLICE = msgspec.structs.replace(A100, mig_profile="3g.20gb", memory_bytes=20 << 30, sm_count=42)
UUID = "GPU-00000000-0000-0000-0000-00000000000{}".format
ON_GPU = SettingSpec(name="f16kv", gpu_layers=99)


def sliced(*slices: Gpu) -> tuple[GpuSeen, ...]:
    """Slices of one card."""
    return tuple(
        msgspec.structs.replace(
            one, index=0, uuid=f"MIG-{index}", card_uuid=UUID(0), instance=f"{index}/0", pci_bus_id="01:00.0"
        )
        for index, one in enumerate(seen(*slices))
    )


def machine(
    place: Path, *cards: Gpu | GpuSeen, nvml: Any = None, environment: Mapping[str, str] | None = None
) -> World:
    whole = [card for card in cards if isinstance(card, Gpu)]
    parts = tuple(card for card in cards if isinstance(card, GpuSeen))
    return msgspec.structs.replace(
        fake_world(place),
        nvml=nvml or ScriptedNvml((*seen(*whole), *parts)),
        environment=environment or {},
    )


def asked(world: World, *, settings: tuple[SettingSpec, ...] = (ON_GPU,), **device: Any) -> Here:
    return asked_device(world, a_spec(device=DeviceSpec(**({"kind": "gpu"} | device)), setting=settings))


def why_not(world: World, error: type[QlockError] = AbsentError, **more: Any) -> tuple[str, str]:
    with pytest.raises(error) as caught:
        asked(world, **more)
    return str(caught.value), caught.value.hint


def test_without_a_gpu_the_cpu_is_the_device(tmp_path: Path) -> None:
    here = asked_device(machine(tmp_path, L4), a_spec())
    assert here == Here(device=CPU, gpu_uuid=(), variables={}, pci_bus_id=(), missing=())
    assert locked_device(machine(tmp_path, L4), CPU) == here


def test_a_card_with_its_driver_and_the_cpu_beside_it(tmp_path: Path) -> None:
    here = asked(machine(tmp_path, L4))
    assert here.device == msgspec.structs.replace(
        CPU, name="gpu-nvidia-l4", kind="gpu", driver_version="550.54.15", gpu=(L4,)
    )
    assert (here.gpu_uuid, here.pci_bus_id, here.missing) == ((UUID(0),), ("0000:01:00.0",), ())


@pytest.mark.parametrize(
    "cards, more, name",
    [
        ((L4, L4), {"count": 2}, "gpu-nvidia-l4-x2"),
        ((A100,), {}, "gpu-nvidia-a100-sxm4-40gb"),
        (sliced(SLICE), {}, "gpu-nvidia-a100-sxm4-40gb-mig-1g.5gb"),
        ((T4, L4), {"count": 2}, "gpu-tesla-t4+nvidia-l4-x2"),
        ((msgspec.structs.replace(L4, gpu_name="卡"),), {}, "gpu-unnamed"),
        ((msgspec.structs.replace(L4, gpu_name="x" * 96),), {}, "gpu-" + "x" * 70),
    ],
)
def test_a_device_is_named_by_its_cards(
    tmp_path: Path, cards: tuple[Gpu | GpuSeen, ...], more: dict[str, Any], name: str
) -> None:
    both = msgspec.structs.replace(ON_GPU, split_mode="layer")
    assert asked(machine(tmp_path, *cards), settings=(both,), **more).device.name == name


@pytest.mark.parametrize(
    "answer, why",
    [
        (
            Missing(why="the NVML library of the NVIDIA driver is not installed"),
            "the NVML library of the NVIDIA driver is not installed",
        ),
        ((), "the NVIDIA driver shows no card"),
        (
            tuple(
                msgspec.structs.replace(one, gpu=Missing(why="GPU `0` has no compute capability: too old"))
                for one in seen(L4)
            ),
            "GPU `0` has no compute capability: too old",
        ),
    ],
)
def test_no_usable_gpu_is_refused_with_the_reason(tmp_path: Path, answer: Any, why: str) -> None:
    assert why_not(machine(tmp_path, nvml=ScriptedNvml(answer))) == (
        f"device: no GPU can be used: {why}",
        "`qlock doctor` shows what this machine has; `nvidia-smi` and `rocm-smi` its cards",
    )


@pytest.mark.parametrize("text", ["", "-1", "GPU-nobody"])
def test_cards_that_the_environment_hides_are_no_cards(tmp_path: Path, text: str) -> None:
    world = machine(tmp_path, L4, environment={"CUDA_VISIBLE_DEVICES": text})
    assert why_not(world)[0] == f"device: no GPU can be used: CUDA_VISIBLE_DEVICES is `{text}`"


@pytest.mark.parametrize(
    "text, uuid",
    [("1", UUID(1)), (UUID(1), UUID(1)), (f"{UUID(1)},0", UUID(1)), (None, UUID(0))],
)
def test_the_card_that_the_environment_names_is_the_engines(
    tmp_path: Path, text: str | None, uuid: str
) -> None:
    environment = {} if text is None else {"CUDA_VISIBLE_DEVICES": text}
    assert asked(machine(tmp_path, L4, L4, environment=environment)).gpu_uuid == (uuid,)


def test_a_name_picks_the_card_wherever_it_is(tmp_path: Path) -> None:
    here = asked(machine(tmp_path, T4, L4), gpu_name="nvidia  l4")
    assert (here.device.gpu, here.gpu_uuid) == ((L4,), (UUID(1),))


def test_a_slice_and_its_whole_card_have_other_names(tmp_path: Path) -> None:
    world = machine(tmp_path, *sliced(SLICE, LARGE_SLICE))
    assert why_not(world, gpu_name="NVIDIA A100-SXM4-40GB")[0] == (
        "device.gpu_name: got `NVIDIA A100-SXM4-40GB MIG 1g.5gb`, `NVIDIA A100-SXM4-40GB MIG 3g.20gb`, "
        "expected `NVIDIA A100-SXM4-40GB`"
    )
    here = asked(world, gpu_name="NVIDIA A100-SXM4-40GB MIG 3g.20gb")
    assert (here.device.gpu, here.gpu_uuid) == ((LARGE_SLICE,), ("MIG-1",))


def test_two_slices_are_more_than_a_process_can_use(tmp_path: Path) -> None:
    both = msgspec.structs.replace(ON_GPU, split_mode="layer")
    world = machine(tmp_path, *sliced(SLICE, SLICE))
    assert why_not(world, settings=(both,), count=2)[0] == (
        "device.count: got MIG slices, of which CUDA uses one in a process, expected `1`"
    )


def test_cards_of_several_kinds_need_a_name(tmp_path: Path) -> None:
    assert why_not(machine(tmp_path, T4, L4), InputError) == (
        "device.gpu_name: got cards of several kinds: `Tesla T4`, `NVIDIA L4`, expected to be told which",
        "set `device.gpu_name`, or CUDA_VISIBLE_DEVICES (AMD: ROCR_VISIBLE_DEVICES) to UUIDs",
    )


def test_fewer_cards_than_asked(tmp_path: Path) -> None:
    both = (msgspec.structs.replace(ON_GPU, split_mode="layer"),)
    assert why_not(machine(tmp_path, L4), settings=both, count=2) == (
        "device.count: got `1` of `NVIDIA L4`, expected `2`",
        "set `device.count`",
    )
    hidden = machine(tmp_path, L4, L4, environment={"CUDA_VISIBLE_DEVICES": "1"})
    assert why_not(hidden, settings=both, count=2)[0] == (
        "device.count: got `1` of `NVIDIA L4` (CUDA_VISIBLE_DEVICES is `1`), expected `2`"
    )


@pytest.mark.parametrize(
    "setting, device, message",
    [
        (
            {"gpu_layers": 3},
            {"kind": "cpu"},
            'setting.s.gpu_layers: got `3` on the device kind "cpu", expected `0`',
        ),
        ({}, {}, "device.kind: the spec asks for a GPU, and no setting puts a layer on it"),
        (
            {"gpu_layers": 3, "main_gpu": 1},
            {},
            "setting.s.main_gpu: got `1`, expected less than device.count `1`",
        ),
        ({"gpu_layers": 3}, {"count": 2}, "device.count: got `2`, and no setting uses the card `1`"),
    ],
)
def test_settings_that_contradict_the_device(
    tmp_path: Path, setting: dict[str, Any], device: dict[str, Any], message: str
) -> None:
    settings = (SettingSpec(name="s", **setting),)
    assert why_not(machine(tmp_path, L4, L4), InputError, settings=settings, **device)[0] == message


def test_what_a_card_does_not_tell_is_listed_with_the_reason(tmp_path: Path) -> None:
    virtual = msgspec.structs.replace(L4, power_limit_mw=UNSET, ecc=UNSET)
    here = asked(machine(tmp_path, virtual))
    assert [(pin.pin, pin.why, pin.until) for pin in here.missing] == [
        (f"device.gpu-nvidia-l4.gpu.0.{field}", "the card does not tell it", "never")
        for field in ("ecc", "power_limit_mw")
    ]


def findings(place: Path, locked: tuple[Gpu, ...], *cards: Gpu | GpuSeen) -> list[tuple[str, str, str, str]]:
    device = msgspec.structs.replace(CPU, kind="gpu", driver_version="550.54.15", gpu=locked)
    here = locked_device(machine(place, *cards), device)
    found = differences("device", "d", device, here.device)
    return [(one.where, one.expected, one.found, one.effect) for one in found]


def test_the_locked_card_is_found_among_others(tmp_path: Path) -> None:
    assert findings(tmp_path, (L4,), T4, A100, L4) == []
    assert findings(tmp_path, (SLICE,), *sliced(LARGE_SLICE, SLICE)) == []
    assert findings(tmp_path, (L4, T4), T4, L4) == []


def test_another_card_is_a_finding_leaf_by_leaf(tmp_path: Path) -> None:
    other = msgspec.structs.replace(A100, gpu_name="NVIDIA A100-SXM4-80GB", pci_device_id="10de:20b2")
    other = msgspec.structs.replace(other, memory_bytes=80 << 30)
    assert findings(tmp_path, (A100,), other) == [
        ("d.gpu.0.gpu_name", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "output"),
        ("d.gpu.0.pci_device_id", "10de:20b0", "10de:20b2", "output"),
        ("d.gpu.0.memory_bytes", str(40 << 30), str(80 << 30), "output"),
    ]
    assert findings(tmp_path, (A100,), *sliced(SLICE)) == [
        ("d.gpu.0.memory_bytes", str(40 << 30), str(5 << 30), "output"),
        ("d.gpu.0.sm_count", "58", "14", "output"),
        ("d.gpu.0.mig_profile", "", "1g.5gb", "output"),
    ]
    assert findings(tmp_path, (L4, L4), L4) == [("d.gpu.1", "present", "absent", "output")]


def test_a_lower_power_limit_changes_the_time_alone(tmp_path: Path) -> None:
    capped = msgspec.structs.replace(L4, power_limit_mw=50_000)
    assert findings(tmp_path, (L4,), capped) == [("d.gpu.0.power_limit_mw", "72000", "50000", "timing")]


def test_runs_on_cards_of_two_sizes_are_not_compared(nvml_library: Path, tmp_path: Path) -> None:
    small, large = (
        asked(machine(tmp_path, nvml=StubbedNvml(nvml_library, script(card)))).device
        for card in (A100_40, A100_80)
    )
    locks = [
        a_plain_lock(device=(msgspec.structs.replace(device, name=CPU.name),)) for device in (small, large)
    ]
    comparison = compare(a_side("rrw", lock=locks[0]), a_side("rww", lock=locks[1], model="Q4_K_M"))
    assert comparison.state == "invalid"
    assert comparison.why[:3] == (
        "fatal: device.gpu.0.gpu_name: A has `NVIDIA A100-SXM4-40GB`, B has `NVIDIA A100-SXM4-80GB`",
        "fatal: device.gpu.0.pci_device_id: A has `10de:20b0`, B has `10de:20b2`",
        "fatal: device.gpu.0.memory_bytes: A has `42949672960`, B has `85899345920`",
    )


# --- cards of AMD --------------------------------------------------------------------------------------------------


def amd_machine(place: Path, *cards: str, **more: Any) -> World:
    """A machine with these cards of AMD, in this order, as the driver fills sysfs."""
    root = driver(place / "machine")
    kinds = {"MI210": (MI210_FILES, MI210_NODE), "XTX": (XTX_FILES, XTX_NODE), "XT": (XT_FILES, XT_NODE)}
    for number, kind in enumerate(cards):
        files, node = kinds[kind]
        bus = 0x10 + number
        at = {"uevent": f"PCI_SLOT_NAME=0000:{bus:02x}:00.0\n", f"drm/renderD{128 + number}/dev": ""}
        plain = {name: text for name, text in files.items() if not name.startswith("drm/")}
        if "unique_id" in files:
            plain["unique_id"] = f"{number:016x}\n"
        lines = [line for line in node.split("\n") if line and not line.startswith("location_id")]
        known = "\n".join([*lines, f"location_id {bus << 8}"])
        add_card(root, number, plain | at, node=known, place=number + 1)
    return msgspec.structs.replace(machine(place, **more), amd=SysfsAmd(root))


def test_a_card_of_amd_is_locked_with_what_it_does_not_tell(tmp_path: Path) -> None:
    here = asked(amd_machine(tmp_path, "MI210"))
    assert here.device == msgspec.structs.replace(
        CPU,
        name="gpu-amd-instinct-mi210",
        kind="gpu",
        driver_version="amdgpu 6.7.0",
        gpu=(
            Gpu(
                gpu_name="AMD INSTINCT MI210",
                pci_device_id="1002:740f (rev 02)",
                memory_bytes=68_702_699_520,
                compute_capability="gfx90a",
                sm_count=104,
                mig_profile="SPX/NPS1",
                power_limit_mw=300_000,
            ),
        ),
    )
    assert [(one.pin, one.why, one.until) for one in here.missing] == [
        ("device.gpu-amd-instinct-mi210.gpu.0.ecc", "sysfs does not tell it", "never"),
        (
            "device.gpu-amd-instinct-mi210.gpu.0.cuda_version",
            "there is no CUDA without an NVIDIA card",
            "never",
        ),
    ]
    assert here.variables == {"ROCR_VISIBLE_DEVICES": "GPU-0000000000000000"}
    assert (here.gpu_uuid, here.pci_bus_id) == (("GPU-0000000000000000",), ("0000:10:00.0",))


def test_a_card_without_a_name_and_a_uuid_is_told_by_id_and_given_by_number(tmp_path: Path) -> None:
    here = asked(amd_machine(tmp_path, "XT", "XTX"), gpu_name="AMD 1002:744c (rev c8)")
    assert here.device.name == "gpu-amd-1002-744c-rev-c8"
    assert here.variables == {"ROCR_VISIBLE_DEVICES": "1"}
    assert (here.gpu_uuid, here.pci_bus_id) == (("",), ("0000:11:00.0",))


def test_cards_of_amd_that_differ_are_not_taken_for_one_another(tmp_path: Path) -> None:
    message, hint = why_not(amd_machine(tmp_path, "XT", "XTX"), InputError)
    assert message == (
        "device.gpu_name: got cards of several kinds: `AMD 1002:744c (rev cc)`, `AMD 1002:744c (rev c8)`, "
        "expected to be told which"
    )
    assert hint == "set `device.gpu_name`, or CUDA_VISIBLE_DEVICES (AMD: ROCR_VISIBLE_DEVICES) to UUIDs"
    locked = asked(amd_machine(tmp_path / "xtx", "XTX")).device
    here = locked_device(amd_machine(tmp_path / "xt", "XT"), locked)
    found = differences("device", "d", locked, here.device)
    assert [(one.where, one.expected, one.found) for one in found] == [
        ("d.gpu.0.gpu_name", "AMD 1002:744c (rev c8)", "AMD 1002:744c (rev cc)"),
        ("d.gpu.0.pci_device_id", "1002:744c (rev c8)", "1002:744c (rev cc)"),
        ("d.gpu.0.memory_bytes", "25753026560", "21458059264"),
        ("d.gpu.0.sm_count", "96", "84"),
    ]


def test_of_several_cards_the_locked_one_is_taken(tmp_path: Path) -> None:
    locked = asked(amd_machine(tmp_path / "a", "XTX")).device
    here = locked_device(amd_machine(tmp_path / "b", "XT", "MI210", "XTX"), locked)
    assert differences("device", "d", locked, here.device) == []
    assert (here.pci_bus_id, here.variables) == (("0000:12:00.0",), {"ROCR_VISIBLE_DEVICES": "2"})


def test_another_driver_is_another_device(tmp_path: Path) -> None:
    locked = asked(amd_machine(tmp_path, "MI210")).device
    write(tmp_path / "machine", "sys/module/amdgpu/version", "6.8.0\n")
    here = locked_device(amd_machine_as_it_is(tmp_path), locked)
    found = differences("device", "d", locked, here.device)
    assert [(one.where, one.expected, one.found) for one in found] == [
        ("d.driver_version", "amdgpu 6.7.0", "amdgpu 6.8.0")
    ]


def amd_machine_as_it_is(place: Path) -> World:
    return msgspec.structs.replace(machine(place), amd=SysfsAmd(place / "machine"))


def test_beside_a_card_of_nvidia_one_of_amd_must_be_named(tmp_path: Path) -> None:
    world = amd_machine(tmp_path, "MI210", nvml=ScriptedNvml(seen(L4)))
    assert asked(world).device.name == "gpu-nvidia-l4"
    world = amd_machine(tmp_path, "MI210", nvml=ScriptedNvml(seen(L4)))
    assert asked(world, gpu_name="amd instinct mi210").device.name == "gpu-amd-instinct-mi210"


@pytest.mark.parametrize(
    "environment, why",
    [
        ({"ROCR_VISIBLE_DEVICES": ""}, "ROCR_VISIBLE_DEVICES is ``"),
        ({"HIP_VISIBLE_DEVICES": "-1"}, "HIP_VISIBLE_DEVICES is `-1`"),
    ],
)
def test_cards_of_amd_that_the_environment_hides_are_no_cards(
    tmp_path: Path, environment: dict[str, str], why: str
) -> None:
    world = amd_machine(tmp_path, "MI210", nvml=ScriptedNvml(), environment=environment)
    assert why_not(world)[0] == (
        f"device: no GPU can be used: the NVML library of the NVIDIA driver is not installed; {why}"
    )


def test_a_card_of_amd_that_cannot_be_told_from_others_is_refused_with_the_reason(tmp_path: Path) -> None:
    world = amd_machine(tmp_path, "MI210")
    (tmp_path / "machine/sys/class/drm/card0/device/revision").unlink()
    assert why_not(world)[0] == (
        "device: no GPU can be used: the NVIDIA driver shows no card; AMD GPU `0` cannot be told from others:"
        " sysfs does not tell its PCI id and revision"
    )
