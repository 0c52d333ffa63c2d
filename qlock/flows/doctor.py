"""``doctor``: what this machine has, what it lacks, and which of it a run needs.

Nothing is changed and nothing is measured; the engine is started once, without a model, to see that it starts.

Does not live here: holding a machine against a lock (``flows.check``).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from msgspec import UNSET

from qlock import __version__
from qlock.core.base import Base
from qlock.core.facts import Gpu
from qlock.core.units import bytes_text, count_text, watts_of_mw
from qlock.engines.interface import Engine
from qlock.engines.llama_cpp.survey import Survey, standing
from qlock.errors import AbsentError, QlockError
from qlock.flows.proving import Opener
from qlock.world.interface import GpuSeen, Missing, World

_MOST_CACHED = 100_000
"""Files of the cache that are counted."""


class Row(Base, frozen=True, kw_only=True):
    """One thing that a machine has or lacks."""

    what: str
    state: Literal["ok", "absent"]
    says: str
    """What it is, or why it is not there."""
    is_needed: bool
    """Whether ``run`` needs it."""
    hint: str = ""
    more: str = ""
    """A long list of flags, for who asks for all of it."""


class Health(Base, frozen=True, kw_only=True):
    """Everything that was looked at."""

    rows: tuple[Row, ...]

    @property
    def is_fit(self) -> bool:
        """Whether all that a run needs is there."""
        return not any(row.is_needed and row.state == "absent" for row in self.rows)


def doctor(world: World, open_engine: Opener, *, build: Path | None = None) -> Health:
    """Look at this machine; what cannot be seen is a row with the reason.

    Args:
        world: The machine.
        open_engine: Of the embedded engine.
        build: A folder of llama.cpp's programs to look at too; the embedded engine is not needed then.
    """
    return Health(rows=tuple(_rows(world, open_engine, build)))


def _rows(world: World, open_engine: Opener, build: Path | None) -> Iterator[Row]:
    is_embedded = build is None
    yield Row(what="qlock", state="ok", says=__version__, is_needed=True)
    yield _row("python", lambda: world.host.surroundings().python)
    yield _row("kernel", lambda: world.host.surroundings().kernel)
    yield _row("/proc", lambda: _proc(world), hint="mount /proc; what an engine has loaded is read there")
    yield _flagged("cpu", lambda: _cpu(world))
    yield _row("memory", lambda: _memory(world))
    yield _row(
        "llama-cpp-python",
        _package,
        is_needed=is_embedded,
        hint="install it with `pip install qlock[embedded]`",
    )
    yield _flagged(
        "engine",
        lambda: _engine(open_engine),
        is_needed=is_embedded,
        hint="reinstall llama-cpp-python for this machine",
    )
    if build is not None:
        yield from _build(build)
    yield from _gpus(world)
    yield _row("temporary folder", lambda: _folder(Path(tempfile.gettempdir())), hint="set TMPDIR")
    yield _row("current folder", lambda: _folder(world.cwd), hint="change to a folder that you may write")
    yield _row("cache folder", lambda: _cache(world), is_needed=False, hint="set QLOCK_CACHE")


def _row(what: str, look: Callable[[], str], *, is_needed: bool = True, hint: str = "") -> Row:
    return _flagged(what, lambda: (look(), ""), is_needed=is_needed, hint=hint)


def _flagged(
    what: str, look: Callable[[], tuple[str, str]], *, is_needed: bool = True, hint: str = ""
) -> Row:
    """A row out of what it says and its flags."""
    try:
        says, more = look()
        return Row(what=what, state="ok", says=says, is_needed=is_needed, more=more)
    except QlockError as error:
        return Row(what=what, state="absent", says=str(error), is_needed=is_needed, hint=error.hint or hint)


def _proc(world: World) -> str:
    return f"readable, {count_text(len(world.maps.read_maps(os.getpid())), 'file')} mapped here"


def _cpu(world: World) -> tuple[str, str]:
    cpu = world.host.device()
    says = f"{cpu.cpu_model}, {count_text(cpu.cores, 'core')}, {len(cpu.instruction_sets)} instruction sets"
    return f"{says} ({cpu.name})", " ".join(cpu.instruction_sets)


def _memory(world: World) -> str:
    memory = world.host.memory()
    return (
        f"{bytes_text(memory.available_bytes)} of {bytes_text(memory.total_bytes)} available "
        f"({memory.limited_by})"
    )


def _package() -> str:
    """Where the embedded engine comes from, without importing it: that would load llama.cpp into qlock."""
    found = importlib.util.find_spec("llama_cpp")
    if found is None or found.origin is None:
        raise AbsentError("not installed")
    folder = Path(found.origin).parent / "lib"
    if not (folder / "libllama.so").exists():
        raise AbsentError(f"no `libllama.so` in `{folder}`")
    try:
        version = importlib.metadata.version("llama-cpp-python")
    except importlib.metadata.PackageNotFoundError:
        version = "of unknown version"
    return f"{version}, libraries in {folder}"


def _engine(open_engine: Opener) -> tuple[str, str]:
    engine: Engine = open_engine(lib_folder=None)
    try:
        return f"starts: {engine.label()}", engine.system_info()
    finally:
        engine.close()


def _build(folder: Path) -> Iterator[Row]:
    """A folder of llama.cpp's programs, as the engine `llama.cpp` would find it."""
    try:
        survey = Survey(folder)
    except QlockError as error:
        yield Row(what="build", state="absent", says=str(error), is_needed=True, hint=error.hint)
        return
    with survey:
        server = _row("build: llama-server", lambda: survey.program("llama-server"))
        yield server
        yield _row("build: llama-perplexity", lambda: survey.program("llama-perplexity"), is_needed=False)
        if server.state == "absent":
            return
        yield _row("build: version", survey.version)
        yield _row("build: options", lambda: f"{survey.options()}, each of them known")
        yield from _build_devices(survey)
        yield _row("build: scoring", lambda: _scoring(survey), is_needed=False)


def _build_devices(survey: Survey) -> Iterator[Row]:
    """What the build computes on besides the CPU, and what qlock can make of it."""
    try:
        devices = survey.devices()
    except QlockError as error:
        yield Row(what="build: devices", state="absent", says=str(error), is_needed=False)
        return
    if not devices:
        yield Row(what="build: devices", state="ok", says="none besides the CPU", is_needed=False)
    for device in devices:
        says = f"{device.description}, {device.memory_mib} MiB, {device.free_mib} MiB free"
        yield Row(
            what=f"build: {device.name}", state="ok", says=f"{says}; {standing(device)}", is_needed=False
        )


def _scoring(survey: Survey) -> str:
    why = survey.why_not_by_bindings()
    if why:
        raise AbsentError(
            f"not by llama-cpp-python ({why}); by llama-perplexity where the work fits it, else token by token"
        )
    return "by llama-cpp-python on the build's libraries, once they are held against the server"


def _gpus(world: World) -> Iterator[Row]:
    """NVIDIA's cards or why there is none, and AMD's where their driver is loaded."""
    try:
        seen = world.nvml.gpus()
    except QlockError as error:
        yield Row(what="gpu", state="absent", says=str(error), is_needed=False, hint=error.hint)
    else:
        match seen:
            case Missing(why=why):
                yield Row(what="gpu", state="absent", says=why, is_needed=False)
            case ():
                yield Row(what="gpu", state="absent", says="the driver shows no card", is_needed=False)
            case _:
                for card in seen:
                    yield _card("gpu", card)
    match world.amd.gpus():
        case Missing():
            pass
        case cards:
            for card in cards:
                yield _card("gpu amd", card)


def _card(what: str, card: GpuSeen) -> Row:
    what = f"{what} {card.index}"
    match card.gpu:
        case Missing(why=why):
            return Row(what=what, state="absent", says=why, is_needed=False)
        case gpu:
            return Row(what=what, state="ok", says=", ".join(_told(gpu, card)), is_needed=False)


def _told(gpu: Gpu, card: GpuSeen) -> Iterator[str]:
    """Everything that a lock would hold of a card, with the reason where it tells nothing."""
    shown: dict[str, tuple[str, Callable[[Any], str]]] = {
        "compute_capability": ("compute capability", "compute capability {}".format),
        "memory_bytes": ("memory", bytes_text),
        "sm_count": ("multiprocessors", "{} multiprocessors".format),
        "ecc": ("ECC", lambda is_on: f"ECC {'on' if is_on else 'off'}"),
        "power_limit_mw": ("power limit", lambda limit_mw: f"power limit {watts_of_mw(limit_mw):g} W"),
        "cuda_version": ("CUDA version", "CUDA {}".format),
    }
    yield f"{gpu.gpu_name} {gpu.mig_profile}".rstrip()
    yield f"{gpu.pci_device_id} at {card.pci_bus_id}"
    for field, (what, text) in shown.items():
        value = getattr(gpu, field)
        yield f"{what} missing ({card.untold.get(field, 'not told')})" if value is UNSET else text(value)
        if field == "compute_capability":
            yield f"driver {card.driver_version}"


def _folder(path: Path) -> str:
    """A folder that can be written, and the room in it."""
    if not os.access(path, os.W_OK | os.X_OK):
        raise AbsentError(f"`{path}` may not be written")
    return f"{path}, {bytes_text(shutil.disk_usage(path).free)} free"


def _cache(world: World) -> str:
    path = world.cache_folder
    if not path.exists():
        above = next(folder for folder in path.parents if folder.exists())
        return f"{path}, not made yet; {_folder(above)}"
    count, size_bytes = 0, 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # A fetch that runs meanwhile renames its files.
                size_bytes += os.lstat(Path(folder) / name).st_size
                count += 1
        if count > _MOST_CACHED:
            return f"{_folder(path)}, more than {_MOST_CACHED} files in it"
    return f"{_folder(path)}, {count_text(count, 'file')} of {bytes_text(size_bytes)} in it"
