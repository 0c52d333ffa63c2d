"""The programs of a build that are run to their end, and what they print.

Does not live here: the server (``server``), what the words mean (``options``, ``perplexity``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from qlock.core.base import Base, Count
from qlock.core.escape import for_message
from qlock.engines.llama_cpp.home import Home
from qlock.engines.llama_cpp.logbook import complaint
from qlock.errors import AbsentError, EngineError
from qlock.world.process import Limits, ServerChild

_PRINTED_BYTES = 1 << 24
_WRITTEN_BYTES = 1 << 30
"""What a program that only says something may write, to any file: one that never stops must not fill the disk."""
_VERSION = "version: "
_BUILD = re.compile(r"\(build (\d+), commit (\w+)\)$| (\d+) \((\w+)\)$")
_DEVICE = re.compile(r"(\S+): (.*) \((\d+) MiB, (\d+) MiB free\)")
_ON_THE_CPU = ("BLAS",)


class Device(Base, frozen=True, kw_only=True):
    """One line of ``--list-devices``."""

    name: str
    """The backend's name and a number: ``CUDA0``, ``Vulkan1``, ``ROCm0``, ``SYCL0``, ``MTL0``."""
    description: str
    memory_mib: Count
    free_mib: Count


class Build(Base, frozen=True, kw_only=True):
    """A folder of llama.cpp's programs and libraries."""

    folder: str

    def program(self, name: str) -> Path:
        """One program, by its absolute path.

        Raises:
            AbsentError: It is not there.
        """
        path = self._path(name)
        if not self.has(name):
            raise AbsentError(
                f"got no program `{name}` in `{self.folder}`",
                hint="give the folder of a build of llama.cpp that holds llama-server",
            )
        return path

    def has(self, name: str) -> bool:
        """Whether a program is there."""
        path = self._path(name)
        return path.is_file() and os.access(path, os.X_OK)

    def _path(self, name: str) -> Path:
        return Path(os.path.realpath(self.folder)) / name


def printed(
    program: Path,
    *arguments: str,
    home: Home,
    deadline_s: float,
    more: Mapping[str, str] | None = None,
    file_bytes: int | None = _WRITTEN_BYTES,
) -> str:
    """What a program prints, on stdout and stderr together.

    Args:
        program: By its absolute path.
        arguments: At least one.
        home: Where it runs.
        deadline_s: How long it may take.
        more: Variables beside those of the home.
        file_bytes: The longest file that it may write, what it prints among them; ``None``: any.

    Raises:
        EngineError: It did not start, did not end in time, or did not end well.
    """
    log = home.server_folder() / "log"
    environment = home.environment() | dict(more or {})
    command, limits = (str(program), *arguments), Limits(file_bytes=file_bytes)
    try:
        with ServerChild(command, env=environment, cwd=home.work, log=log, limits=limits) as child:
            ended = child.wait_ended(deadline_s)
    except AbsentError as error:
        raise EngineError(f"`{program.name}` did not start: {error.message}") from error
    with log.open("rb") as file:
        text = file.read(_PRINTED_BYTES).decode(errors="replace")
    if ended is None:
        raise EngineError(f"`{program.name}` did not end within {deadline_s:g} s")
    if ended.how != "exit code 0":
        said = complaint(text.split("\n"))
        raise EngineError(f"`{program.name} {arguments[0]}` failed ({ended.how}): {said}")
    return text


def version(text: str) -> str:
    """The version line of a build, old (``9333 (35c9b1f39)``) or new (``0.6.0-dev (build 0, …)``): a label only."""
    lines = [line for line in text.split("\n") if line.startswith(_VERSION)]
    return f"llama.cpp {for_message(lines[0].removeprefix(_VERSION).strip())}" if lines else "llama.cpp"


def build_info(text: str) -> str:
    """What a server of this build says of it (``b9333-35c9b1f39``), out of its version text; empty where it does not tell."""
    match = _BUILD.search(version(text))
    return "" if match is None else "b{}-{}".format(*(one for one in match.groups() if one is not None))


def devices(text: str) -> tuple[Device, ...]:
    """The devices that ``--list-devices`` lists; the CPU and libraries that compute on it are none.

    Source: ``common_print_available_devices`` in llama.cpp's common/arg.cpp.

    Raises:
        EngineError: There is no list, or a line of it says something else.
    """
    _, mark, listed = text.partition("Available devices:\n")
    if not mark:
        raise EngineError("cannot verify the devices: `--list-devices` lists none")
    found = []
    for line in listed.split("\n"):
        if not line.startswith("  ") or line.strip() == "(none)":
            continue
        match = _DEVICE.fullmatch(line.strip())
        if match is None:
            raise EngineError(f"cannot verify the devices: got the line `{for_message(line.strip())}`")
        name, description, total, free = match.groups()
        if name not in _ON_THE_CPU:
            said = for_message(description)
            found.append(
                Device(name=for_message(name), description=said, memory_mib=int(total), free_mib=int(free))
            )
    return tuple(found)
