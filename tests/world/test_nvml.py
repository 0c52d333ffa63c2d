"""NVML's answers and refusals, from a module that stands in for ``pynvml``; its error classes are the real ones."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml
import pytest

from qlock.core.facts import Gpu
from qlock.errors import AbsentError
from qlock.world.interface import GpuSeen, Missing
from qlock.world.nvml import gpus

H200 = {
    "name": "NVIDIA H200",
    "uuid": "GPU-11111111-2222-3333-4444-555555555555",
    "bus": "00000000:18:00.0",
    "pci": 0x233510DE,
    "memory": 150_754_820_096,
    "capability": (9, 0),
    "power": 700_000,
    "slices": None,
}
AS_SEEN = Gpu(
    gpu_name="NVIDIA H200",
    pci_device_id="10de:2335",
    memory_bytes=150_754_820_096,
    compute_capability="9.0",
    mig_profile="",
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
        }
        special = {
            "nvmlSystemGetDriverVersion": lambda: "550.54.15",
            "nvmlDeviceGetCount": lambda: len(self.cards),
            "nvmlDeviceGetHandleByIndex": lambda index: self.cards[index],
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
        uuid="GPU-11111111-2222-3333-4444-555555555555",
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
    "key, name", [("memory", "memory"), ("capability", "compute capability"), ("power", "power limit")]
)
def test_what_a_card_does_not_support_is_missing_and_not_zero(key: str, name: str) -> None:
    unsupported = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    seen = only(gpus(nvml=FakeNvml({**H200, key: unsupported})))
    assert seen.gpu == Missing(why=f"GPU `0` does not tell its {name}")
    assert seen.uuid == H200["uuid"]


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
    assert str(caught.value) == "GPU `0` does not support `nvmlDeviceGetUUID`"


def test_a_card_in_mig_mode_gives_its_slices() -> None:
    parts = {
        1: {"name": "NVIDIA H200 MIG 1g.18gb", "uuid": "MIG-1", "memory": 17 << 30},
        4: {"name": "NVIDIA H200 MIG 2g.35gb", "uuid": "MIG-4", "memory": 34 << 30},
    }
    seen = gpus(nvml=FakeNvml({**H200, "slices": parts}))
    assert isinstance(seen, tuple)
    assert [(one.index, one.uuid) for one in seen] == [(0, "MIG-1"), (0, "MIG-4")]
    profiles = [
        (one.gpu.gpu_name, one.gpu.mig_profile, one.gpu.memory_bytes)
        for one in seen
        if isinstance(one.gpu, Gpu)
    ]
    assert profiles == [("NVIDIA H200", "1g.18gb", 17 << 30), ("NVIDIA H200", "2g.35gb", 34 << 30)]


def test_a_card_that_could_be_sliced_and_is_not() -> None:
    assert only(gpus(nvml=FakeNvml({**H200, "slices": {}}))).gpu == AS_SEEN


def test_a_slice_that_cannot_be_looked_at_is_an_error() -> None:
    lost = {0: pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)}
    with pytest.raises(AbsentError) as caught:
        gpus(nvml=FakeNvml({**H200, "slices": lost}))
    assert str(caught.value) == "GPU `0` does not show its MIG slice `0`: GPU is lost"
