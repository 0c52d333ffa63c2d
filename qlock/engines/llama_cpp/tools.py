"""The programs of a build that are run to their end, and what they print.

Does not live here: the server (``server``), what the words mean (``options``, ``perplexity``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from qlock.core.base import Base
from qlock.core.escape import for_message
from qlock.engines.llama_cpp.home import Home
from qlock.engines.llama_cpp.logbook import complaint
from qlock.errors import AbsentError, EngineError
from qlock.world.process import ServerChild

_PRINTED_BYTES = 1 << 24
_VERSION = "version: "


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
) -> str:
    """What a program prints, on stdout and stderr together.

    Args:
        program: By its absolute path.
        arguments: At least one.
        home: Where it runs.
        deadline_s: How long it may take.
        more: Variables beside those of the home.

    Raises:
        EngineError: It did not start, did not end in time, or did not end well.
    """
    log = home.server_folder() / "log"
    environment = home.environment() | dict(more or {})
    try:
        with ServerChild((str(program), *arguments), env=environment, cwd=home.work, log=log) as child:
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


def devices(text: str) -> tuple[str, ...]:
    """Names of the devices that ``--list-devices`` lists; the CPU is never among them."""
    _, mark, listed = text.partition("Available devices:\n")
    if not mark:
        raise EngineError("cannot verify the devices: `--list-devices` lists none")
    names = []
    for line in listed.split("\n"):
        name, colon, _ = line.strip().partition(":")
        if line.startswith("  ") and colon and name:
            names.append(for_message(name))
    return tuple(names)
