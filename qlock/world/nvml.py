"""NVIDIA's cards, through NVML. The only module that imports ``pynvml``, and only when it is asked.

Lives here: which cards this process may see, and what each is. Does not live here: power and energy over time,
whether a card is the locked one (``core.verify``).

Three outcomes are kept apart: cards were seen; there is nothing to ask (``Missing``: no library, no driver); the
driver is there and an answer failed (``AbsentError``). What a card does not support is ``Missing`` with the
reason, never 0.
"""

from __future__ import annotations

import contextlib
import importlib
from types import ModuleType
from typing import Any

from qlock.core.facts import Gpu
from qlock.errors import AbsentError
from qlock.world.interface import GpuSeen, Missing

_NO_DRIVER = {
    "NVMLError_LibraryNotFound": "the NVML library of the NVIDIA driver is not installed",
    "NVMLError_DriverNotLoaded": "the NVIDIA driver is not loaded",
    "NVMLError_NoPermission": "the NVIDIA driver may not be used by this user",
}
_UNSUPPORTED = ("NVMLError_NotSupported", "NVMLError_FunctionNotFound")
_NO_SUCH = ("NVMLError_NotFound", "NVMLError_InvalidArgument")
_MIG = " MIG "
"""Stands between the name of a card and the profile in the name of a slice (``NVIDIA A100 MIG 1g.5gb``)."""


def gpus(*, nvml: ModuleType | None = None) -> tuple[GpuSeen, ...] | Missing:
    """Every card that this process may see, in NVML's order; a card in MIG mode gives its slices instead.

    Args:
        nvml: Stands in for ``pynvml`` in tests.

    Returns:
        ``Missing`` when there is no driver to ask; an empty tuple when it knows no card.

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
        version = driver.text("the driver", "nvmlSystemGetDriverVersion")
        count = driver.ask("the driver", "nvmlDeviceGetCount")
        return tuple(seen for index in range(count) for seen in _card(driver, index, version))
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

    def ask_or_missing(self, whom: str, function: str, *handle: object) -> Any:
        """The answer; ``None`` when this card, driver or package does not have the question."""
        try:
            return getattr(self._nvml, function)(*handle)
        except AttributeError:
            return None
        except self._nvml.NVMLError as error:
            if type(error).__name__ in _UNSUPPORTED:
                return None
            raise AbsentError(
                f"{whom} does not answer `{function}`: {_words(error)}",
                hint="look at the GPU with `nvidia-smi`",
            ) from error

    def ask(self, whom: str, function: str, *handle: object) -> Any:
        """The answer, where a driver without one is of no use."""
        answer = self.ask_or_missing(whom, function, *handle)
        if answer is None:
            raise AbsentError(f"{whom} does not support `{function}`")
        return answer

    def text(self, whom: str, function: str, *handle: object) -> str:
        """An answer in words."""
        return _text(self.ask(whom, function, *handle))

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


def _card(driver: _Driver, index: int, driver_version: str) -> list[GpuSeen]:
    """A card, or the slices of a card in MIG mode."""
    whom = f"GPU `{index}`"
    card = driver.ask(whom, "nvmlDeviceGetHandleByIndex", index)
    mode = driver.ask_or_missing(whom, "nvmlDeviceGetMigMode", card)
    # The first of the two is the mode now, the second the one after the next reset.
    handles = driver.slices(whom, card) if mode is not None and mode[0] else [card]
    pci = driver.ask(whom, "nvmlDeviceGetPciInfo", card)
    return [
        GpuSeen(
            index=index,
            gpu=_gpu(driver, whom, (card, handle), pci.pciDeviceId),
            uuid=driver.text(whom, "nvmlDeviceGetUUID", handle),
            pci_bus_id=_text(pci.busId),
            driver_version=driver_version,
        )
        for handle in handles
    ]


def _gpu(driver: _Driver, whom: str, handles: tuple[object, object], pci_id: int) -> Gpu | Missing:
    """What a card, and the slice of it that is meant (else the card again), is."""
    card, part = handles
    memory = driver.ask_or_missing(whom, "nvmlDeviceGetMemoryInfo", part)
    capability = driver.ask_or_missing(whom, "nvmlDeviceGetCudaComputeCapability", card)
    power_limit_mw = driver.ask_or_missing(whom, "nvmlDeviceGetEnforcedPowerLimit", card)
    for name, answer in (
        ("memory", memory),
        ("compute capability", capability),
        ("power limit", power_limit_mw),
    ):
        if answer is None:
            return Missing(why=f"{whom} does not tell its {name}")
    return Gpu(
        gpu_name=driver.text(whom, "nvmlDeviceGetName", card),
        # NVML has the device's number in the upper half and the maker's in the lower one; lspci writes both.
        pci_device_id=f"{pci_id & 0xFFFF:04x}:{pci_id >> 16:04x}",
        memory_bytes=memory.total,
        compute_capability=f"{capability[0]}.{capability[1]}",
        mig_profile="" if part is card else driver.text(whom, "nvmlDeviceGetName", part).rpartition(_MIG)[2],
        power_limit_mw=power_limit_mw,
    )


def _text(answer: str | bytes) -> str:
    """Words, which older versions of the package give as bytes."""
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer


def _words(error: Exception) -> str:
    """The driver's own words; some of its sentences end in a full stop."""
    return str(error).rstrip(".")
