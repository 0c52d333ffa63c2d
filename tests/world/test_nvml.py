"""NVML's answers and refusals.

Most come from a module that stands in for ``pynvml``, with the real error classes; those that say so in their name go
through the real ``pynvml`` and a small library that stands in for the driver's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pynvml
import pytest

from qlock.core.facts import Gpu
from qlock.errors import AbsentError
from qlock.world.interface import GpuSeen, Missing
from qlock.world.nvml import gpus
from tests.fakes.nvml import A100_40, A100_80, H100_PCIE, H100_SXM, SLICES, VGPU, StubbedNvml, script

H200 = {
    "name": "NVIDIA H200",
    "uuid": "GPU-11111111-2222-3333-4444-555555555555",
    "bus": "00000000:18:00.0",
    "pci": 0x233510DE,
    "memory": 150_754_820_096,
    "capability": (9, 0),
    "power": 700_000,
    "cores": 16_896,
    "ecc": [1, 1],
    "slices": None,
}
AS_SEEN = Gpu(
    gpu_name="NVIDIA H200",
    pci_device_id="10de:2335",
    memory_bytes=150_754_820_096,
    compute_capability="9.0",
    sm_count=132,
    mig_profile="",
    ecc=True,
    cuda_version="12.4",
    power_limit_mw=700_000,
)


class FakeNvml(ModuleType):
    """Answers from plain tables. An answer that is an exception is raised; a function can be taken away."""

    def __init__(self, *cards: dict[str, Any]) -> None:
        super().__init__("pynvml")
        self.NVMLError = pynvml.NVMLError
        self.cards = cards
        self.start: Exception | None = None
        self.running = 0

    @staticmethod
    def _answer(value: Any) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's own name
        if self.start:
            raise self.start
        self.running += 1

    def nvmlShutdown(self) -> None:  # noqa: N802 - NVML's own name
        self.running -= 1

    def __getattr__(self, name: str) -> Any:
        keys = {
            "nvmlDeviceGetName": "name",
            "nvmlDeviceGetUUID": "uuid",
            "nvmlDeviceGetCudaComputeCapability": "capability",
            "nvmlDeviceGetEnforcedPowerLimit": "power",
            "nvmlDeviceGetNumGpuCores": "cores",
            "nvmlDeviceGetEccMode": "ecc",
            "nvmlDeviceGetGpuInstanceId": "gi",
            "nvmlDeviceGetComputeInstanceId": "ci",
        }
        special = {
            "nvmlSystemGetDriverVersion": lambda: "550.54.15",
            "nvmlDeviceGetCount": lambda: len(self.cards),
            "nvmlSystemGetCudaDriverVersion_v2": lambda: 12_040,
            "nvmlDeviceGetHandleByIndex": lambda index: self._answer(
                self.cards[index].get("handle", self.cards[index])
            ),
            "nvmlDeviceGetAttributes": lambda part: SimpleNamespace(
                multiprocessorCount=self._answer(part["sms"])
            ),
            "nvmlDeviceGetPciInfo": lambda card: SimpleNamespace(busId=card["bus"], pciDeviceId=card["pci"]),
            "nvmlDeviceGetMemoryInfo": lambda card: SimpleNamespace(total=self._answer(card["memory"])),
            "nvmlDeviceGetMigMode": self._mig_mode,
            "nvmlDeviceGetMaxMigDeviceCount": lambda card: 7,
            "nvmlDeviceGetMigDeviceHandleByIndex": self._slice,
        }
        if name in special:
            return special[name]
        if name in keys:
            return lambda card: self._answer(card[keys[name]])
        raise AttributeError(name)

    def _mig_mode(self, card: dict[str, Any]) -> list[int]:
        if card["slices"] is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [int(bool(card["slices"])), 1]

    def _slice(self, card: dict[str, Any], index: int) -> dict[str, Any]:
        if index not in card["slices"]:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        part: dict[str, Any] = self._answer(card["slices"][index])
        return part


def only(seen: tuple[GpuSeen, ...] | Missing) -> GpuSeen:
    assert isinstance(seen, tuple)
    (one,) = seen
    return one


def test_a_card_as_it_is_locked_and_what_belongs_to_this_copy_of_it() -> None:
    nvml = FakeNvml(H200)
    assert only(gpus(nvml=nvml)) == GpuSeen(
        index=0,
        gpu=AS_SEEN,
        untold={},
        uuid="GPU-11111111-2222-3333-4444-555555555555",
        card_uuid="GPU-11111111-2222-3333-4444-555555555555",
        instance="",
        pci_bus_id="00000000:18:00.0",
        driver_version="550.54.15",
    )
    assert nvml.running == 0


def test_several_cards_in_nvmls_order() -> None:
    seen = gpus(nvml=FakeNvml(H200, {**H200, "uuid": "GPU-2", "bus": "00000000:2A:00.0"}))
    assert isinstance(seen, tuple)
    assert [(one.index, one.uuid) for one in seen] == [(0, H200["uuid"]), (1, "GPU-2")]


def test_a_driver_that_knows_no_card() -> None:
    assert gpus(nvml=FakeNvml()) == ()


def test_bytes_of_older_packages_are_text() -> None:
    assert only(gpus(nvml=FakeNvml({**H200, "uuid": b"GPU-2", "name": b"NVIDIA H200"}))).uuid == "GPU-2"


@pytest.mark.parametrize(
    "code, why",
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "the NVML library of the NVIDIA driver is not installed"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "the NVIDIA driver is not loaded"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "the NVIDIA driver may not be used by this user"),
    ],
)
def test_without_a_driver_there_is_nothing_to_ask(code: int, why: str) -> None:
    nvml = FakeNvml(H200)
    nvml.start = pynvml.NVMLError(code)
    assert gpus(nvml=nvml) == Missing(why=why)


def test_without_the_package_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpus() == Missing(why="the package `nvidia-ml-py` is not installed")


def test_this_machine_is_asked_without_an_error() -> None:
    match gpus():
        case Missing(why=why):
            assert why.endswith(("not installed", "not loaded", "by this user"))
        case seen:
            assert len({one.uuid for one in seen}) == len(seen)


def test_a_driver_that_is_there_and_fails_is_an_error() -> None:
    nvml = FakeNvml(H200)
    nvml.start = pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    with pytest.raises(AbsentError) as caught:
        gpus(nvml=nvml)
    assert (
        str(caught.value) == "the NVIDIA driver does not answer: RM has detected an NVML/RM version mismatch"
    )


@pytest.mark.parametrize(
    "key, field",
    [("memory", "memory_bytes"), ("power", "power_limit_mw"), ("ecc", "ecc"), ("cores", "sm_count")],
)
@pytest.mark.parametrize(
    "code, why",
    [
        (pynvml.NVML_ERROR_NOT_SUPPORTED, "the card does not tell it"),
        (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, "the driver is too old to tell it"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "the driver does not tell it to this user"),
    ],
)
def test_what_a_card_does_not_tell_is_unset_with_the_reason_and_not_zero(
    key: str, field: str, code: int, why: str
) -> None:
    seen = only(gpus(nvml=FakeNvml({**H200, key: pynvml.NVMLError(code)})))
    assert seen.gpu == msgspec.structs.replace(AS_SEEN, **{field: msgspec.UNSET})
    assert seen.untold == {field: why}


def test_a_package_that_is_too_old_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    class Older(FakeNvml):
        def __getattr__(self, name: str) -> Any:
            if name == "nvmlSystemGetCudaDriverVersion_v2":
                raise AttributeError(name)
            return super().__getattr__(name)

    assert only(gpus(nvml=Older(H200))).untold == {
        "cuda_version": "the package `nvidia-ml-py` is too old to ask for it"
    }


@pytest.mark.parametrize("cores, capability", [(16_897, (9, 0)), (16_896, (99, 0)), (0, (9, 0))])
def test_multiprocessors_that_cannot_be_worked_out_are_no_guess(
    cores: int, capability: tuple[int, int]
) -> None:
    seen = only(gpus(nvml=FakeNvml({**H200, "cores": cores, "capability": capability})))
    assert seen.untold == {
        "sm_count": f"no multiprocessors can be worked out from {cores} cores of compute capability {capability[0]}.0"
    }


def test_a_card_without_a_compute_capability_is_not_known() -> None:
    unsupported = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    seen = only(gpus(nvml=FakeNvml({**H200, "capability": unsupported})))
    assert seen.gpu == Missing(why="GPU `0` has no compute capability: the card does not tell it")
    assert seen.uuid == H200["uuid"]


def test_a_card_that_is_kept_from_this_process_is_no_card() -> None:
    kept = {**H200, "handle": pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)}
    seen = only(gpus(nvml=FakeNvml(kept, {**H200, "uuid": "GPU-2"})))
    assert (seen.index, seen.uuid) == (1, "GPU-2")


@pytest.mark.parametrize("count, cards", [(1, "the only card"), (2, "any of the 2 cards")])
def test_no_card_that_may_be_used_is_said(count: int, cards: str) -> None:
    kept = {**H200, "handle": pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)}
    assert gpus(nvml=FakeNvml(*[kept] * count)) == Missing(
        why=f"this process may not use {cards} (permissions, or a control group)"
    )


def test_a_card_that_cannot_be_reached_is_an_error() -> None:
    lost = {**H200, "handle": pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)}
    with pytest.raises(AbsentError) as caught:
        gpus(nvml=FakeNvml(lost))
    assert str(caught.value) == "GPU `0` does not answer `nvmlDeviceGetHandleByIndex`: GPU is lost"


def test_a_question_that_fails_is_an_error_and_the_driver_is_let_go() -> None:
    nvml = FakeNvml({**H200, "power": pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)})
    with pytest.raises(AbsentError) as caught:
        gpus(nvml=nvml)
    assert str(caught.value) == "GPU `0` does not answer `nvmlDeviceGetEnforcedPowerLimit`: GPU is lost"
    assert caught.value.hint == "look at the GPU with `nvidia-smi`"
    assert nvml.running == 0


def test_a_question_that_no_card_can_do_without() -> None:
    unsupported = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    with pytest.raises(AbsentError) as caught:
        gpus(nvml=FakeNvml({**H200, "uuid": unsupported}))
    assert str(caught.value) == "GPU `0` does not answer `nvmlDeviceGetUUID`: the card does not tell it"


def test_a_card_in_mig_mode_gives_its_slices() -> None:
    parts = {
        1: {
            "name": "NVIDIA H200 MIG 1g.18gb",
            "uuid": "MIG-1",
            "memory": 17 << 30,
            "sms": 16,
            "gi": 7,
            "ci": 0,
        },
        4: {
            "name": "NVIDIA H200 MIG 2g.35gb",
            "uuid": "MIG-4",
            "memory": 34 << 30,
            "sms": 32,
            "gi": 3,
            "ci": 1,
        },
    }
    seen = gpus(nvml=FakeNvml({**H200, "slices": parts}))
    assert isinstance(seen, tuple)
    assert [(one.index, one.uuid) for one in seen] == [(0, "MIG-1"), (0, "MIG-4")]
    profiles = [
        (one.gpu.mig_profile, one.gpu.memory_bytes, one.gpu.sm_count, one.card_uuid, one.instance)
        for one in seen
        if isinstance(one.gpu, Gpu)
    ]
    assert profiles == [
        ("1g.18gb", 17 << 30, 16, H200["uuid"], "7/0"),
        ("2g.35gb", 34 << 30, 32, H200["uuid"], "3/1"),
    ]


def test_a_card_that_could_be_sliced_and_is_not() -> None:
    assert only(gpus(nvml=FakeNvml({**H200, "slices": {}}))).gpu == AS_SEEN


def test_a_slice_that_cannot_be_looked_at_is_an_error() -> None:
    lost = {0: pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)}
    with pytest.raises(AbsentError) as caught:
        gpus(nvml=FakeNvml({**H200, "slices": lost}))
    assert str(caught.value) == "GPU `0` does not show its MIG slice `0`: GPU is lost"


def machine(library: Path, *cards: str, **more: Any) -> StubbedNvml:
    return StubbedNvml(library, script(*cards, **more))


def known(seen: tuple[GpuSeen, ...] | Missing) -> list[Gpu]:
    assert isinstance(seen, tuple)
    return [one.gpu for one in seen if isinstance(one.gpu, Gpu)]


def test_cards_of_like_names_are_told_apart_through_the_real_package(nvml_library: Path) -> None:
    (small, large), (pcie, sxm) = (
        known(machine(nvml_library, *pair).gpus()) for pair in ((A100_40, A100_80), (H100_PCIE, H100_SXM))
    )
    assert (small.memory_bytes, large.memory_bytes) == (40 << 30, 80 << 30)
    assert (small.pci_device_id, large.pci_device_id) == ("10de:20b0", "10de:20b2")
    assert (pcie.memory_bytes, pcie.compute_capability) == (sxm.memory_bytes, sxm.compute_capability)
    assert (pcie.pci_device_id, pcie.sm_count, pcie.power_limit_mw) == ("10de:2331", 114, 350_000)
    assert (sxm.pci_device_id, sxm.sm_count, sxm.power_limit_mw) == ("10de:2330", 132, 700_000)


def test_slices_are_told_apart_from_their_card_through_the_real_package(nvml_library: Path) -> None:
    seen = machine(nvml_library, A100_40 + SLICES).gpus()
    (whole,) = known(machine(nvml_library, A100_40).gpus())
    assert [(gpu.gpu_name, gpu.mig_profile, gpu.sm_count) for gpu in [whole, *known(seen)]] == [
        ("NVIDIA A100-SXM4-40GB", "", 108),
        ("NVIDIA A100-SXM4-40GB", "1g.5gb", 14),
        ("NVIDIA A100-SXM4-40GB", "3g.20gb", 42),
    ]
    assert isinstance(seen, tuple)
    assert [one.instance for one in seen] == ["7/0", "2/0"]


def test_a_card_of_a_virtual_machine_tells_less(nvml_library: Path) -> None:
    seen = only(machine(nvml_library, VGPU).gpus())
    assert seen.untold == dict.fromkeys(("sm_count", "ecc", "power_limit_mw"), "the card does not tell it")


@pytest.mark.parametrize(
    "cards, before, answer",
    [
        ((), "", ()),
        ((), "fail nvmlInitWithFlags 9\n", Missing(why="the NVIDIA driver is not loaded")),
        (
            (A100_40,),
            "fail nvmlInitWithFlags 4\n",
            Missing(why="the NVIDIA driver may not be used by this user"),
        ),
        (
            (A100_40,),
            "fail nvmlDeviceGetHandleByIndex_v2 4\n",
            Missing(why="this process may not use the only card (permissions, or a control group)"),
        ),
    ],
)
def test_no_card_through_the_real_package(
    nvml_library: Path, cards: tuple[str, ...], before: str, answer: object
) -> None:
    assert machine(nvml_library, *cards, before=before).gpus() == answer


def test_no_library_through_the_real_package(tmp_path: Path) -> None:
    match StubbedNvml(tmp_path, "").gpus():
        case Missing(why=why):
            assert why == "the NVML library of the NVIDIA driver is not installed"
        case _:
            pytest.skip("this machine has an NVML library of its own")


@pytest.mark.parametrize(
    "before, message",
    [
        (
            "fail nvmlInitWithFlags 18\n",
            "the NVIDIA driver does not answer: RM has detected an NVML/RM version mismatch",
        ),
        ("fail nvmlInitWithFlags 999\n", "the NVIDIA driver does not answer: Unknown Error"),
        (
            "fail nvmlDeviceGetMemoryInfo 15\n",
            "GPU `0` does not answer `nvmlDeviceGetMemoryInfo`: GPU is lost",
        ),
    ],
)
def test_a_driver_that_fails_through_the_real_package(nvml_library: Path, before: str, message: str) -> None:
    with pytest.raises(AbsentError) as caught:
        machine(nvml_library, A100_40, before=before).gpus()
    assert str(caught.value) == message
