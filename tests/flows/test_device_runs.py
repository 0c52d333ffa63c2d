"""Locks and runs on cards: the real pynvml on a scripted library, a whole project, and an engine in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qlock.core.lock import read_lock
from qlock.core.visible import bus_text
from qlock.errors import AbsentError, RefusedError
from tests.fakes.nvml import A100_40, A100_80, SLICES, VGPU, StubbedNvml, script
from tests.fakes.project import Project, refusal, wheres
from tests.fakes.sysfs import XTX_FILES, XTX_NODE, SysfsAmd, add_card, driver, write
from tests.fakes.world import L4, ScriptedNvml, seen

GPU_TABLE = '\n[device]\nkind = "gpu"\n'


def addresses(nvml: Any, uuids: str) -> tuple[str, ...]:
    """Where the cards sit that an engine was given."""
    places = {card.uuid: bus_text(card.pci_bus_id) for card in nvml.gpus()}
    return tuple(places[uuid] for uuid in uuids.split(","))


def on_gpu(place: Path, nvml: Any, *, environment: Mapping[str, str] | None = None) -> Project:
    """A project whose spec asks for a GPU, and an engine that uses one."""
    project = Project(place)
    project.script.devices = lambda uuids: addresses(nvml, uuids)
    project.change_world(nvml=nvml, environment=environment or {})
    project.write_spec(lambda text: text.replace("slots = 4\n", "slots = 4\ngpu_layers = 99\n") + GPU_TABLE)
    project.script.read_back["layers_offloaded"] = 3
    return project


def lock_here(project: Project) -> Path:
    resolved = project.lock()
    assert read_lock(resolved.data, name="lock") == msgspec.structs.replace(
        resolved.lock, body_digest=read_lock(resolved.data, name="lock").body_digest
    )
    return resolved.path


def stubbed(library: Path, *cards: str, **more: Any) -> StubbedNvml:
    return StubbedNvml(library, script(*cards, **more))


def test_a_lock_of_a_card_runs_on_that_card_alone(tmp_path: Path, nvml_library: Path) -> None:
    nvml = stubbed(nvml_library, A100_40)
    project = on_gpu(tmp_path, nvml)
    lock = lock_here(project)
    assert lock.name == "small@gpu-nvidia-a100-sxm4-40gb.toml"
    ran = project.run(lock_path=lock)
    assert ran.state == "sealed"
    assert set(project.script.cards) == {"GPU-a1000040-0000-4000-8000-000000000001"}
    assert ran.folder is not None
    facts = msgspec.json.decode((ran.folder / "facts.json").read_bytes())
    assert facts["segment"][0]["gpu_uuid"] == ["GPU-a1000040-0000-4000-8000-000000000001"]
    nvml.script = script(A100_80)
    ran = project.run(lock_path=lock, repeat_lock=True)
    assert ran.state == "refused"
    assert [finding.where.rpartition(".")[2] for finding in ran.findings] == [
        "gpu_name",
        "pci_device_id",
        "memory_bytes",
    ]


@pytest.mark.parametrize(
    "other, where, values",
    [
        (script(A100_40, driver="551.00"), "driver_version", ("550.54.15", "551.00")),
        (script(A100_40, cuda=13_000), "gpu.0.cuda_version", ("12.4", "13.0")),
        (script(A100_40.replace("ecc 1", "ecc 0")), "gpu.0.ecc", ("true", "false")),
        (script(A100_40.replace("cores 6912", "cores 6272")), "gpu.0.sm_count", ("108", "98")),
    ],
)
def test_a_card_or_driver_that_changed_is_refused(
    tmp_path: Path, nvml_library: Path, other: str, where: str, values: tuple[str, str]
) -> None:
    nvml = stubbed(nvml_library, A100_40)
    project = on_gpu(tmp_path, nvml)
    lock = lock_here(project)
    nvml.script = other
    ran = project.run(lock_path=lock)
    (finding,) = ran.findings
    assert (ran.state, finding.where, finding.expected, finding.found) == (
        "refused",
        f"device.gpu-nvidia-a100-sxm4-40gb.{where}",
        *values,
    )


@pytest.mark.parametrize(
    "other, why",
    [
        (script(), "no GPU can be used: the NVIDIA driver shows no card"),
        (
            script(A100_40, before="fail nvmlInitWithFlags 9\n"),
            "no GPU can be used: the NVIDIA driver is not loaded",
        ),
        (
            script(A100_40, before="fail nvmlInitWithFlags 18\n"),
            "the NVIDIA driver does not answer: RM has detected an NVML/RM version mismatch",
        ),
        (
            script(A100_40, before="fail nvmlDeviceGetHandleByIndex_v2 4\n"),
            "no GPU can be used: this process may not use the only card (permissions, or a control group)",
        ),
    ],
)
def test_a_card_that_is_gone_is_refused_at_run(
    tmp_path: Path, nvml_library: Path, other: str, why: str
) -> None:
    nvml = stubbed(nvml_library, A100_40)
    project = on_gpu(tmp_path, nvml)
    lock = lock_here(project)
    nvml.script = other
    opened = project.script.opened
    ran = project.run(lock_path=lock)
    (finding,) = ran.findings
    assert (ran.state, finding.found, finding.why) == ("refused", "missing", why)
    assert project.script.opened == opened


def test_a_slice_is_locked_and_given_by_its_own_uuid(tmp_path: Path, nvml_library: Path) -> None:
    nvml = stubbed(nvml_library, A100_40 + SLICES)
    project = on_gpu(tmp_path, nvml, environment={"CUDA_VISIBLE_DEVICES": "MIG-1111"})
    lock = lock_here(project)
    assert lock.name == "small@gpu-nvidia-a100-sxm4-40gb-mig-3g.20gb.toml"
    assert set(project.script.cards) == {"MIG-11111111-0000-4000-8000-000000000012"}
    nvml.script = script(A100_40)
    project.change_world(environment={})
    ran = project.run(lock_path=lock)
    assert [(finding.where.rpartition("gpu.0.")[2], finding.expected) for finding in ran.findings] == [
        ("memory_bytes", "20937965568"),
        ("sm_count", "42"),
        ("mig_profile", "3g.20gb"),
    ]


def test_a_virtual_card_is_locked_with_what_it_does_not_tell(tmp_path: Path, nvml_library: Path) -> None:
    project = on_gpu(tmp_path, stubbed(nvml_library, VGPU))
    lock = lock_here(project)
    assert b'pin = "device.gpu-grid-a100-20c.gpu.0.power_limit_mw"' in lock.read_bytes()
    assert project.run(lock_path=lock).state == "sealed"


def test_resolve_refuses_where_no_card_is(tmp_path: Path) -> None:
    project = on_gpu(tmp_path, ScriptedNvml())
    assert refusal(project, AbsentError)[0] == (
        "device: no GPU can be used: the NVML library of the NVIDIA driver is not installed"
    )
    assert project.script.opened == 0


def test_an_engine_that_stays_on_the_cpu_is_refused_at_resolve(tmp_path: Path) -> None:
    project = on_gpu(tmp_path, ScriptedNvml(seen(L4)))
    project.script.read_back["layers_offloaded"] = 0
    assert refusal(project, RefusedError) == (
        "point.A@plain.layers_offloaded: got `0`, expected `3`",
        "the engine did not do as it was told; look at its log",
    )


@pytest.mark.parametrize(
    "used, found, why",
    [
        ((), "none", ""),
        (("0000:02:00.0",), "0000:02:00.0", ""),
        (("0000:01:00.0", "0000:02:00.0"), "0000:01:00.0, 0000:02:00.0", ""),
        (("Vulkan0",), "Vulkan0", "the engine tells no PCI address of `Vulkan0`"),
    ],
)
def test_an_engine_on_other_cards_than_it_was_given_is_refused(
    tmp_path: Path, used: tuple[str, ...], found: str, why: str
) -> None:
    project = on_gpu(tmp_path, ScriptedNvml(seen(L4)))
    lock = lock_here(project)
    project.script.devices = lambda _: used
    assert refusal(project, RefusedError)[0] == (
        f"point.A@plain.cards: got `{found}`, expected `0000:01:00.0`" + (f": {why}" if why else "")
    )
    ran = project.run(lock_path=lock)
    assert (ran.state, project.script.asked) == ("refused", [])
    assert [(one.rule, one.where, one.expected, one.found, one.why) for one in ran.findings] == [
        ("read-back", "point.A@plain.cards", "0000:01:00.0", found, why)
    ]


def test_a_card_that_no_lock_of_a_cpu_names_is_refused(tmp_path: Path) -> None:
    project = Project(tmp_path)
    lock = lock_here(project)
    project.script.devices = lambda _: ("0000:01:00.0",)
    ran = project.run(lock_path=lock)
    assert [(one.where, one.expected, one.found) for one in ran.findings] == [
        ("point.A@plain.cards", "none", "0000:01:00.0")
    ]


# --- cards of AMD --------------------------------------------------------------------------------------------------


def on_amd(place: Path, files: dict[str, str] = XTX_FILES, node: str = XTX_NODE) -> tuple[Project, Path]:
    """A project whose spec asks for a GPU, on a machine with one card of AMD; and its sysfs."""
    root = add_card(driver(place / "machine"), 0, files, node=node)
    project = Project(place)
    project.script.devices = lambda _: ("0000:03:00.0",)
    project.change_world(nvml=ScriptedNvml(), amd=SysfsAmd(root), environment={})
    project.write_spec(lambda text: text.replace("slots = 4\n", "slots = 4\ngpu_layers = 99\n") + GPU_TABLE)
    project.script.read_back["layers_offloaded"] = 3
    return project, root


def test_a_lock_of_a_card_of_amd_says_what_is_not_known_and_runs(tmp_path: Path) -> None:
    project, _ = on_amd(tmp_path)
    lock = lock_here(project)
    assert lock.name == "small@gpu-amd-1002-744c-rev-c8.toml"
    text = lock.read_text()
    for field, why in (
        ("ecc", "sysfs does not tell it"),
        ("cuda_version", "there is no CUDA without an NVIDIA card"),
    ):
        pin = f"device.gpu-amd-1002-744c-rev-c8.gpu.0.{field}"
        assert f'[[missing]]\npin = "{pin}"\nwhy = "{why}"\nuntil = "never"\n' in text
    assert project.run(lock_path=lock).state == "sealed"
    assert {tuple(one.items()) for one in project.script.variables} == {(("ROCR_VISIBLE_DEVICES", "0"),)}


def test_a_card_that_rocm_does_not_know_can_be_locked_for_vulkan(tmp_path: Path) -> None:
    project, _ = on_amd(tmp_path, node="")
    lock = lock_here(project)
    text = lock.read_text()
    for field, why in (
        ("compute_capability", "KFD does not know the card"),
        ("sm_count", "KFD does not tell its compute units"),
    ):
        pin = f"device.gpu-amd-1002-744c-rev-c8.gpu.0.{field}"
        assert f'[[missing]]\npin = "{pin}"\nwhy = "{why}"\nuntil = "never"\n' in text
    assert project.run(lock_path=lock).state == "sealed"
    assert {tuple(one.items()) for one in project.script.variables} == {()}


@pytest.mark.parametrize(
    "name, text, where",
    [
        ("revision", "0xcc\n", ["gpu_name", "pci_device_id"]),
        ("device", "0x7480\n", ["gpu_name", "pci_device_id"]),
        ("mem_info_vram_total", "21458059264\n", ["memory_bytes"]),
        ("product_name", "AMD Radeon PRO W7900\n", ["gpu_name"]),
    ],
)
def test_a_lock_of_one_card_of_amd_is_refused_on_another(
    tmp_path: Path, name: str, text: str, where: list[str]
) -> None:
    project, root = on_amd(tmp_path)
    lock = lock_here(project)
    write(root, f"sys/class/drm/card0/device/{name}", text)
    ran = project.run(lock_path=lock)
    assert (ran.state, project.script.asked) == ("refused", [])
    assert wheres(ran) == [("device", f"device.gpu-amd-1002-744c-rev-c8.gpu.0.{field}") for field in where]


def test_a_lock_of_a_card_of_amd_is_refused_where_the_driver_tells_too_little(tmp_path: Path) -> None:
    project, root = on_amd(tmp_path)
    lock = lock_here(project)
    (root / "sys/class/drm/card0/device/mem_info_vram_total").unlink()
    ran = project.run(lock_path=lock)
    (finding,) = ran.findings
    assert (finding.where, finding.found) == ("device.gpu-amd-1002-744c-rev-c8", "missing")
    assert finding.why.endswith("AMD GPU `0` cannot be told from others: sysfs does not tell its memory")


@pytest.mark.parametrize("used", ["ROCm0", "SYCL0", "MTL0"])
def test_a_card_of_amd_whose_address_the_engine_does_not_tell_is_refused(tmp_path: Path, used: str) -> None:
    project, _ = on_amd(tmp_path)
    project.script.devices = lambda _: (used,)
    assert refusal(project, RefusedError)[0] == (
        f"point.A@plain.cards: got `{used}`, expected `0000:03:00.0`: the engine tells no PCI address of `{used}`"
    )
