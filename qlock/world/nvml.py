"""NVIDIA's cards, through NVML. The only module that imports ``pynvml``, and only when it is asked.

Lives here: which cards this process may see, and what each is. Does not live here: which cards are meant (``flows.device``), whether a card is the locked
one (``core.verify``).

Three outcomes are kept apart: cards were seen; there is nothing to ask (``Missing``: no library, no driver); the
driver is there and an answer failed (``AbsentError``). What a card does not tell is left unset, with the reason
beside it, never 0. A card that control groups or permissions keep from this process is no card.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from msgspec import UNSET

from qlock.core.facts import Gpu
from qlock.errors import AbsentError
from qlock.world.interface import GpuSeen, Missing

_NO_PERMISSION = "NVMLError_NoPermission"
_NO_DRIVER = {
    "NVMLError_LibraryNotFound": "the NVML library of the NVIDIA driver is not installed",
    "NVMLError_DriverNotLoaded": "the NVIDIA driver is not loaded",
    _NO_PERMISSION: "the NVIDIA driver may not be used by this user",
}
_UNTOLD = {
    "NVMLError_NotSupported": "the card does not tell it",
    "NVMLError_FunctionNotFound": "the driver is too old to tell it",
    _NO_PERMISSION: "the driver does not tell it to this user",
}
_NO_SUCH = ("NVMLError_NotFound", "NVMLError_InvalidArgument")
_MIG = " MIG "
"""Stands between the name of a card and the profile in the name of a slice (``NVIDIA A100 MIG 1g.5gb``)."""
_CORES_OF_SM = {
    (3, 0): 192, (3, 5): 192, (3, 7): 192,
    (5, 0): 128, (5, 2): 128, (5, 3): 128,
    (6, 0): 64, (6, 1): 128, (6, 2): 128,
    (7, 0): 64, (7, 2): 64, (7, 5): 64,
    (8, 0): 64, (8, 6): 128, (8, 7): 128, (8, 9): 128,
    (9, 0): 128,
    (10, 0): 128, (10, 3): 128, (12, 0): 128, (12, 1): 128,
}  # fmt: skip
"""CUDA cores of one multiprocessor, by compute capability: NVML counts cores alone, except for slices.
Source: CUDA Programming Guide, "Compute Capabilities"."""


def gpus(*, nvml: ModuleType | None = None) -> tuple[GpuSeen, ...] | Missing:
    """Every card that this process may see, in NVML's order; a card in MIG mode gives its slices instead.

    Args:
        nvml: Stands in for ``pynvml`` in tests.

    Returns:
        ``Missing`` when there is no driver to ask, or none of its cards may be used; an empty tuple when it knows
        no card.

    Raises:
        AbsentError: The driver is there and a question about a card failed.
    """
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return Missing(why="the package `nvidia-ml-py` is not installed")
    driver = _Driver(nvml)
    why = driver.start()
    if why:
        return Missing(why=why)
    try:
        return _cards(driver)
    finally:
        driver.stop()


class _Driver:
    """Asks NVML, and turns each of its errors into ours: the one place that knows them."""

    def __init__(self, nvml: ModuleType) -> None:
        self._nvml: Any = nvml

    def start(self) -> str:
        """Why there is nothing to ask; empty when there is."""
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            why = _NO_DRIVER.get(type(error).__name__)
            if why is None:
                raise AbsentError(f"the NVIDIA driver does not answer: {_words(error)}") from error
            return why
        return ""

    def stop(self) -> None:
        """Let the driver go; that it does not want to is nobody's concern any more."""
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def tell(self, whom: str, function: str, *handle: object) -> Any:
        """The answer; ``Missing`` when this card, driver, package or user does not have the question."""
        try:
            return getattr(self._nvml, function)(*handle)
        except AttributeError:
            return Missing(why="the package `nvidia-ml-py` is too old to ask for it")
        except self._nvml.NVMLError as error:
            if type(error).__name__ in _UNTOLD:
                return Missing(why=_UNTOLD[type(error).__name__])
            raise AbsentError(
                f"{whom} does not answer `{function}`: {_words(error)}",
                hint="look at the GPU with `nvidia-smi`",
            ) from error

    def ask(self, whom: str, function: str, *handle: object) -> Any:
        """The answer, where a driver without one is of no use."""
        answer = self.tell(whom, function, *handle)
        match answer:
            case Missing(why=why):
                raise AbsentError(f"{whom} does not answer `{function}`: {why}")
            case _:
                return answer

    def text(self, whom: str, function: str, *handle: object) -> str:
        """An answer in words."""
        return _text(self.ask(whom, function, *handle))

    def card(self, index: int) -> object | None:
        """The handle of a card; ``None`` when it is kept from this process."""
        try:
            handle: object = self._nvml.nvmlDeviceGetHandleByIndex(index)
        except self._nvml.NVMLError as error:
            if type(error).__name__ == _NO_PERMISSION:
                return None
            raise AbsentError(
                f"GPU `{index}` does not answer `nvmlDeviceGetHandleByIndex`: {_words(error)}",
                hint="look at the GPU with `nvidia-smi`",
            ) from error
        return handle

    def slices(self, whom: str, card: object) -> list[object]:
        """Handles of a card's MIG slices."""
        found: list[object] = []
        for index in range(self.ask(whom, "nvmlDeviceGetMaxMigDeviceCount", card)):
            try:
                found.append(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, index))
            except self._nvml.NVMLError as error:
                # Places for slices are numbered, and not all of them need be taken.
                if type(error).__name__ not in _NO_SUCH:
                    raise AbsentError(
                        f"{whom} does not show its MIG slice `{index}`: {_words(error)}"
                    ) from error
        return found


def _cards(driver: _Driver) -> tuple[GpuSeen, ...] | Missing:
    count = driver.ask("the driver", "nvmlDeviceGetCount")
    seen: list[GpuSeen] = []
    kept_away = 0
    for index in range(count):
        card = driver.card(index)
        if card is None:
            kept_away += 1
        else:
            seen += _card(driver, index, card)
    if not seen and kept_away:
        cards = "the only card" if kept_away == 1 else f"any of the {kept_away} cards"
        return Missing(why=f"this process may not use {cards} (permissions, or a control group)")
    return tuple(seen)


def _card(driver: _Driver, index: int, card: object) -> list[GpuSeen]:
    """A card, or the slices of a card in MIG mode."""
    whom = f"GPU `{index}`"
    mode = driver.tell(whom, "nvmlDeviceGetMigMode", card)
    match mode:
        case Missing():
            handles = [card]
        case _:
            # The first of the two is the mode now, the second the one after the next reset.
            handles = driver.slices(whom, card) if mode[0] else [card]
    return [_seen(driver, index, card, handle) for handle in handles]


def _seen(driver: _Driver, index: int, card: object, part: object) -> GpuSeen:
    """A card, or the slice of it that is meant (else the card again)."""
    whom = f"GPU `{index}`"
    pci = driver.ask(whom, "nvmlDeviceGetPciInfo", card)
    gpu, untold = _gpu(driver, whom, (card, part), pci.pciDeviceId)
    return GpuSeen(
        index=index,
        gpu=gpu,
        untold=untold,
        uuid=driver.text(whom, "nvmlDeviceGetUUID", part),
        card_uuid=driver.text(whom, "nvmlDeviceGetUUID", card),
        instance="" if part is card else _instance(driver, whom, part),
        pci_bus_id=_text(pci.busId),
        driver_version=driver.text("the driver", "nvmlSystemGetDriverVersion"),
    )


def _instance(driver: _Driver, whom: str, part: object) -> str:
    """The numbers by which older drivers name a slice."""
    numbers = [
        driver.ask(whom, function, part)
        for function in ("nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId")
    ]
    return "/".join(map(str, numbers))


def _gpu(
    driver: _Driver, whom: str, handles: tuple[object, object], pci_id: int
) -> tuple[Gpu | Missing, dict[str, str]]:
    """What a card or slice is, and why for what it does not tell."""
    card, part = handles
    capability = driver.tell(whom, "nvmlDeviceGetCudaComputeCapability", card)
    match capability:
        case Missing(why=why):
            return Missing(why=f"{whom} has no compute capability: {why}"), {}
        case _:
            pass
    told = {
        "memory_bytes": _of(driver.tell(whom, "nvmlDeviceGetMemoryInfo", part), lambda memory: memory.total),
        "sm_count": _sm_count(driver, whom, handles, tuple(capability)),
        "ecc": _of(driver.tell(whom, "nvmlDeviceGetEccMode", card), lambda modes: bool(modes[0])),
        "cuda_version": _of(driver.tell(whom, "nvmlSystemGetCudaDriverVersion_v2"), _cuda_version),
        "power_limit_mw": driver.tell(whom, "nvmlDeviceGetEnforcedPowerLimit", card),
    }
    untold = {name: answer.why for name, answer in told.items() if isinstance(answer, Missing)}
    gpu = Gpu(
        gpu_name=driver.text(whom, "nvmlDeviceGetName", card),
        # NVML has the device's number in the upper half and the maker's in the lower one; lspci writes both.
        pci_device_id=f"{pci_id & 0xFFFF:04x}:{pci_id >> 16:04x}",
        compute_capability=f"{capability[0]}.{capability[1]}",
        mig_profile="" if part is card else driver.text(whom, "nvmlDeviceGetName", part).rpartition(_MIG)[2],
        **{name: UNSET if name in untold else answer for name, answer in told.items()},
    )
    return gpu, untold


def _sm_count(
    driver: _Driver, whom: str, handles: tuple[object, object], capability: tuple[int, ...]
) -> int | Missing:
    card, part = handles
    if part is not card:
        count: int | Missing = _of(
            driver.tell(whom, "nvmlDeviceGetAttributes", part), lambda parts: parts.multiprocessorCount
        )
        return count
    cores = driver.tell(whom, "nvmlDeviceGetNumGpuCores", card)
    match cores, _CORES_OF_SM.get((capability[0], capability[1])):
        case (Missing() as missing, _):
            return missing
        case (int(), int() as of_one) if cores and cores % of_one == 0:
            return cores // of_one
        case _:
            return Missing(
                why=f"no multiprocessors can be worked out from {cores} cores of compute capability "
                f"{capability[0]}.{capability[1]}"
            )


def _of(answer: Any, part: Callable[[Any], Any]) -> Any:
    """A part of an answer, where there is one."""
    match answer:
        case Missing():
            return answer
        case _:
            return part(answer)


def _cuda_version(number: int) -> str:
    """``12.4`` out of 12040."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _text(answer: str | bytes) -> str:
    """Words, which older versions of the package give as bytes."""
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer


def _words(error: Exception) -> str:
    """The driver's own words; some of its sentences end in a full stop."""
    return str(error).rstrip(".")
