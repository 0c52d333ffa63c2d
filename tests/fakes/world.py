"""A world for tests: a clock that is set, a fixed machine, scripted cards; files are real, below one folder.

Each class keeps the protocol of ``qlock.world.interface`` that it stands in for; mypy and
``tests/world/test_interface.py`` hold them to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from qlock.core.digest import Digest, sha256_of
from qlock.core.facts import Device, EngineFile, Gpu
from qlock.errors import AbsentError, InputError
from qlock.world import digests, files, folder, journal, maps
from qlock.world.hub import open_hub
from qlock.world.hub.remote import RealRemote
from qlock.world.interface import (
    FileDigest,
    GpuSeen,
    MappedFile,
    Memory,
    Missing,
    SlurmTask,
    Surroundings,
    World,
)

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)

CPU = Device(
    name="cpu-amd-1a-02",
    kind="cpu",
    cpu_model="AMD EPYC",
    cpu_family=0x1A,
    cpu_model_number=2,
    cpu_stepping=1,
    instruction_sets=("avx", "avx2", "avx512f", "f16c", "fma"),
    cores=2,
    driver_version="",
    gpu=(),
)
MEMORY = Memory(total_bytes=16 << 30, available_bytes=12 << 30, limited_by="machine")
SURROUNDINGS = Surroundings(
    host_name="node-1", boot_id="b0a7b0a7-0000-4000-8000-000000000001", kernel="Linux 6.1.0", python="3.11.9"
)
L4 = Gpu(
    gpu_name="NVIDIA L4",
    pci_device_id="10de:27b8",
    memory_bytes=24_152_899_584,
    compute_capability="8.9",
    sm_count=58,
    mig_profile="",
    ecc=True,
    cuda_version="12.4",
    power_limit_mw=72_000,
)
NO_DRIVER = Missing(why="the NVML library of the NVIDIA driver is not installed")


class SetClock:
    """A clock that stands still, except that waiting moves it on."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._passed_s = 0.0

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._passed_s)

    def monotonic_s(self) -> float:
        return self._passed_s

    def sleep_s(self, duration_s: float) -> None:
        self._passed_s += max(0.0, duration_s)

    def pass_s(self, duration_s: float) -> None:
        """Let time pass."""
        self._passed_s += duration_s


class FixedHost:
    """A machine of fixed facts; set an attribute to change one during a test."""

    def __init__(
        self, cpu: Device = CPU, memory: Memory = MEMORY, surroundings: Surroundings = SURROUNDINGS
    ) -> None:
        self.cpu = cpu
        self.memory_now = memory
        self.surroundings_now = surroundings

    def device(self, name: str = "") -> Device:
        return msgspec.structs.replace(self.cpu, name=name or self.cpu.name)

    def memory(self) -> Memory:
        return self.memory_now

    def surroundings(self) -> Surroundings:
        return self.surroundings_now


class ScriptedNvml:
    """Cards as the test wants them; without any, a machine without a driver. Errors are raised."""

    def __init__(self, *answers: tuple[GpuSeen, ...] | Missing | AbsentError) -> None:
        self._answers = list(answers) or [NO_DRIVER]

    def gpus(self) -> tuple[GpuSeen, ...] | Missing:
        """The next answer; the last one stays."""
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        match answer:
            case AbsentError():
                raise answer
            case _:
                return answer


class ScriptedAmd:
    """AMD cards as the test wants them; without any, a machine without their driver."""

    def __init__(self, answer: tuple[GpuSeen, ...] | Missing | None = None) -> None:
        self._answer = answer or Missing(why="the amdgpu driver is not loaded")

    def gpus(self) -> tuple[GpuSeen, ...] | Missing:
        return self._answer


def seen(*cards: Gpu, driver_version: str = "550.54.15") -> tuple[GpuSeen, ...]:
    """Cards in the places of one machine."""
    return tuple(
        GpuSeen(
            index=index,
            gpu=card,
            untold={
                name: "the card does not tell it"
                for name in card.__struct_fields__
                if getattr(card, name) is msgspec.UNSET
            },
            uuid=f"GPU-00000000-0000-0000-0000-{index:012x}",
            card_uuid=f"GPU-00000000-0000-0000-0000-{index:012x}",
            instance="",
            pci_bus_id=f"00000000:{index + 1:02X}:00.0",
            driver_version=driver_version,
        )
        for index, card in enumerate(cards)
    )


class ScriptedMaps:
    """Maps of processes that do not run; the files in them are real."""

    def __init__(self, by_pid: Mapping[int, tuple[MappedFile, ...]] | None = None) -> None:
        self.by_pid = dict(by_pid or {})

    def read_maps(self, pid: int) -> tuple[MappedFile, ...]:
        if pid not in self.by_pid:
            raise AbsentError(f"memory map `/proc/{pid}/maps` is not there")
        return self.by_pid[pid]

    def engine_files(
        self,
        mapped: Sequence[MappedFile],
        *,
        build_folders: Sequence[Path],
        digest: Callable[[Path], FileDigest],
    ) -> tuple[EngineFile, ...]:
        return maps.engine_files(mapped, build_folders=build_folders, digest=digest)


class ScriptedWheels:
    """Files of packages that are not installed."""

    def __init__(self, by_source: Mapping[str, Path] | None = None) -> None:
        self.by_source = dict(by_source or {})

    def member(self, source: str) -> Path:
        if source not in self.by_source:
            name, _, _ = source.partition("==")
            raise AbsentError(f"package `{name}` is not installed")
        return self.by_source[source]


class ScriptedRemote:
    """Files behind addresses; ``asked`` counts requests. What is fetched lies in ``folder``."""

    def __init__(self, folder: Path, by_url: Mapping[str, bytes] | None = None) -> None:
        self.folder = folder
        self.by_url = dict(by_url or {})
        self.asked: list[str] = []
        self.is_offline = False

    def _data(self, url: str) -> bytes:
        if self.is_offline or url not in self.by_url:
            raise AbsentError(f"`{url}` is not there, or not for everybody (404)")
        self.asked.append(url)
        return self.by_url[url]

    def size_bytes(self, url: str) -> int:
        return len(self._data(url))

    def read_range(self, url: str, *, start: int, length: int) -> bytes:
        return self._data(url)[start : start + length]

    def cached(self, url: str, sha256: Digest) -> Path | None:
        path = self._place(url, sha256)
        return path if path.is_file() else None

    def fetch(self, url: str, *, sha256: Digest, progress: Callable[[int], None] | None = None) -> Path:
        path = self._place(url, sha256)
        if not path.is_file():
            data = self._data(url)
            if sha256_of(data) != sha256:
                raise InputError(f"`{url}` has other bytes than the spec says, and is not used")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return path

    def offline(self) -> ScriptedRemote:
        found = ScriptedRemote(self.folder, self.by_url)
        found.is_offline, found.asked = True, self.asked
        return found

    def _place(self, url: str, sha256: Digest) -> Path:
        return self.folder / sha256.partition(":")[2] / url.rpartition("/")[2]


class ScriptedSlurm:
    """A queue as the test wants it; what is submitted and cancelled is kept."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Path, str]] = []
        """Each script's path and text."""
        self.cancelled: list[str] = []
        self.queued: list[SlurmTask] = []
        self.ended: tuple[SlurmTask, ...] | Missing = Missing(why="Slurm keeps no accounts here")
        self.absent: AbsentError | None = None
        self.most_elements: int | Missing = 1001
        self.on_look: Callable[[], None] = lambda: None
        """Called each time the queue is asked for, before it answers."""

    def submit(self, script: Path) -> str:
        self.submitted.append((script, script.read_text()))
        return str(100 + len(self.submitted))

    def queue(self) -> tuple[SlurmTask, ...]:
        self.on_look()
        if self.absent is not None:
            raise self.absent
        return tuple(self.queued)

    def array_limit(self) -> int | Missing:
        return self.most_elements

    def accounts(self, jobs: Sequence[str]) -> tuple[SlurmTask, ...] | Missing:
        return self.ended

    def cancel(self, jobs: Sequence[str]) -> None:
        self.cancelled += jobs


def fake_world(place: Path) -> World:
    """A world in the folder ``place``: work in ``place/work``, caches in ``place``, no environment, no GPU, no network.

    Change parts of it with ``msgspec.structs.replace(world, nvml=ScriptedNvml(seen(L4)))``.
    """
    (place / "work").mkdir(parents=True, exist_ok=True)
    clock = SetClock()
    no_network = {"HF_HOME": str(place / "hf"), "HOME": str(place), "HF_HUB_OFFLINE": "1"}
    return World(
        clock=clock,
        files=files,
        digests=digests,
        journals=journal,
        folders=folder,
        maps=ScriptedMaps(),
        host=FixedHost(),
        nvml=ScriptedNvml(),
        amd=ScriptedAmd(),
        wheels=ScriptedWheels(),
        hub=open_hub(no_network, clock=clock),
        remote=RealRemote(no_network, folder=place / "cache" / "qlock" / "url", clock=clock),
        slurm=ScriptedSlurm(),
        environment={},
        cwd=place / "work",
        cache_folder=place / "cache" / "qlock",
    )
