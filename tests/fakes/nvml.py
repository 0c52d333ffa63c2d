"""The real pynvml on a library that answers for cards that are not there (`nvml_stub.c`), in a process of its own.

Lives here: building that library, scripts of cards, and an `Nvml` that asks it. What is not here: cards without any
library (`tests/fakes/world.py`).
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from qlock.errors import AbsentError
from qlock.world.interface import GpuSeen, Missing

_ROOT = Path(__file__).resolve().parents[2]
_SOURCE = Path(__file__).with_name("nvml_stub.c")
_ASK = """
import pickle, sys
from qlock.errors import QlockError
from qlock.world import nvml

def told(question):
    try:
        return "told", question()
    except QlockError as error:
        return "error", (error.message, error.hint)

sys.stdout.buffer.write(pickle.dumps(told(nvml.gpus)))
"""

A100_40 = """\
name NVIDIA A100-SXM4-40GB
uuid GPU-a1000040-0000-4000-8000-000000000001
bus 00000000:07:00.0
pci 0x20b010de
memory 42949672960
capability 8 0
cores 6912
ecc 1
power 400000
"""
A100_80 = """\
name NVIDIA A100-SXM4-80GB
uuid GPU-a1000080-0000-4000-8000-000000000002
bus 00000000:0F:00.0
pci 0x20b210de
memory 85899345920
capability 8 0
cores 6912
ecc 1
power 400000
"""
H100_PCIE = """\
name NVIDIA H100 PCIe
uuid GPU-48000000-0000-4000-8000-000000000003
bus 00000000:17:00.0
pci 0x233110de
memory 85520809984
capability 9 0
cores 14592
ecc 1
power 350000
"""
H100_SXM = """\
name NVIDIA H100 80GB HBM3
uuid GPU-48000000-0000-4000-8000-000000000004
bus 00000000:18:00.0
pci 0x233010de
memory 85520809984
capability 9 0
cores 16896
ecc 1
power 700000
"""
VGPU = """\
name GRID A100-20C
uuid GPU-00000000-0000-4000-8000-000000000005
bus 00000000:02:00.0
pci 0x20b010de
memory 21474836480
capability 8 0
"""
SLICES = """\
slice
name NVIDIA A100-SXM4-40GB MIG 1g.5gb
uuid MIG-00000000-0000-4000-8000-000000000011
memory 5100273664
sms 14
instance 7 0
slice
name NVIDIA A100-SXM4-40GB MIG 3g.20gb
uuid MIG-11111111-0000-4000-8000-000000000012
memory 20937965568
sms 42
instance 2 0
"""


def script(*cards: str, driver: str = "550.54.15", cuda: int = 12040, before: str = "") -> str:
    """A machine with these cards."""
    return f"driver {driver}\ncuda {cuda}\n{before}" + "".join(f"card\n{card}" for card in cards)


def built(folder: Path) -> Path:
    """The folder in which the library lies, compiled first where it does not."""
    made = folder / "libnvidia-ml.so.1"
    if not made.exists():
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler `cc` to build the stand-in for NVML")
        command = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-O1", "-o", str(made), str(_SOURCE)]
        subprocess.run(command, check=True)
    return folder


class StubbedNvml:
    """An `Nvml` whose answers come from the real pynvml on the built library.

    Args:
        library: Folder of the library; an empty one for a machine without NVML.
        script: What the library answers; change it for another machine.
    """

    def __init__(self, library: Path, script: str) -> None:
        self.library = library
        self.script = script

    def gpus(self) -> tuple[GpuSeen, ...] | Missing:
        written = self.library / f"script-{os.getpid()}"
        written.write_text(self.script)
        environment = {"LD_LIBRARY_PATH": str(self.library), "NVML_STUB": str(written), "LC_ALL": "C"}
        done = subprocess.run(
            [sys.executable, "-c", _ASK], check=True, env=environment, stdout=subprocess.PIPE, cwd=_ROOT
        )
        kind, answer = pickle.loads(done.stdout)
        if kind == "error":
            raise AbsentError(answer[0], hint=answer[1])
        seen: tuple[GpuSeen, ...] | Missing = answer
        return seen
