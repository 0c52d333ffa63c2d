"""What can be told of a build before anything is loaded: its programs, options and devices, and how it scores.

Does not live here: showing it (``flows.doctor``), and proving a loaded point (``llama_cpp``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from qlock.core.facts import Setting
from qlock.engines.llama_cpp import tools
from qlock.engines.llama_cpp.agreement import disagreement
from qlock.engines.llama_cpp.home import SYSTEM_OPTIONS, Home
from qlock.engines.llama_cpp.options import Place, arguments, for_server, options_of

_DEADLINE_S = 60.0

_BY_ADDRESS = (
    "llama.cpp tells its PCI address when it loads a model, and qlock holds it against the card, if it is one of"
    " NVIDIA's or AMD's"
)
_NO_ADDRESS = "cannot be locked: llama.cpp tells no PCI address of it"
_OTHER_MAKER = "cannot be locked: qlock knows NVIDIA's and AMD's cards alone"

_BACKENDS: dict[str, tuple[str, str]] = {
    "CUDA": ("CUDA", _BY_ADDRESS),
    "ROCm": ("ROCm", _BY_ADDRESS),
    "MUSA": ("MUSA", _OTHER_MAKER),
    "Vulkan": ("Vulkan", _BY_ADDRESS),
    "SYCL": ("SYCL", _NO_ADDRESS),
    "MTL": ("Metal", _NO_ADDRESS),
    "Metal": ("Metal", _NO_ADDRESS),
    "CANN": ("CANN", _NO_ADDRESS),
    "GPUOpenCL": ("OpenCL", _NO_ADDRESS),
    "RPC": ("another machine (RPC)", "cannot be locked: it is not this machine's"),
}
"""What names of devices begin with, what that stands for, and what qlock can make of such a device."""

_ANY_SETTING = Setting(
    name="any",
    context_tokens=512,
    slots=1,
    slots_requested=1,
    slots_why="",
    replicas=1,
    batch_tokens=512,
    ubatch_tokens=512,
    threads=1,
    batch_threads=1,
    cache_type_k="f16",
    cache_type_v="f16",
    flash_attention=False,
    gpu_layers=0,
    split_mode="none",
    main_gpu=0,
    kv_offload=True,
    op_offload=True,
    swa_full=False,
    repack=True,
    mmap=True,
)


class Survey:
    """A look at a build; a context manager.

    Args:
        folder: Of the build.
        system_options: Where llama.cpp looks for the system's options.

    Raises:
        EngineError: The system has options of its own for llama.cpp.
    """

    def __init__(self, folder: Path, *, system_options: Path = SYSTEM_OPTIONS) -> None:
        self._build = tools.Build(folder=str(folder))
        self._home = Home(variables={}, system_options=system_options)

    def program(self, name: str) -> str:
        """Where a program lies.

        Raises:
            AbsentError: It is not there.
        """
        return str(self._build.program(name))

    def version(self) -> str:
        """The version that llama-server says it is.

        Raises:
            AbsentError: It is not there.
            EngineError: It does not say.
        """
        return tools.version(self._printed("--version"))

    def options(self) -> int:
        """How many options llama-server has, once qlock knows each of them.

        Raises:
            AbsentError: It is not there.
            RefusedError: One is not known, or one is missing without which nothing can be promised.
        """
        options = options_of(self._printed("--help"))
        place = Place(model="/model.gguf", alias="qlock", host="/s.sock")
        arguments(for_server(_ANY_SETTING, place, devices=0), options)
        return len(options)

    def devices(self) -> tuple[tools.Device, ...]:
        """What llama-server lists besides the CPU.

        Raises:
            AbsentError: It is not there.
            EngineError: It lists nothing.
        """
        return tools.devices(self._printed("--list-devices"))

    def why_not_by_bindings(self) -> str:
        """Why llama-cpp-python cannot score tokens on the build's libraries; empty when it can."""
        return disagreement(Path(self._build.folder).resolve(), home=self._home)

    def close(self) -> None:
        """Remove what was needed for looking; safe to call twice."""
        self._home.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _printed(self, argument: str) -> str:
        program = self._build.program("llama-server")
        return tools.printed(program, argument, home=self._home, deadline_s=_DEADLINE_S)


def standing(device: tools.Device) -> str:
    """Through what a device is reached, and what qlock can make of it."""
    for beginning, (backend, says) in _BACKENDS.items():
        if device.name.startswith(beginning):
            return f"through {backend}; {says}"
    return "cannot be locked: qlock does not know devices of this name"
