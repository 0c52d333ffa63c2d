"""Where the processes of an engine live, and the environment that they get: nothing of qlock's own.

llama.cpp reads options from files in the folders of configuration of the system and of the user, and loads libraries
from the folder it runs in. The user's folder and the working folder are empty ones made here; a file of the system's
cannot be kept away from it, so it must not be there.

Does not live here: what runs (``server``, ``tools``).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from qlock.engines.interface import bare_environment
from qlock.errors import EngineError
from qlock.world.scratch import filling, scratch

SYSTEM_OPTIONS = Path("/etc/llama.cpp/config.ini")
"""Read by every tool of llama.cpp, and its options hold unless the command line says otherwise."""


class Home:
    """A temporary folder that only this user can enter.

    Args:
        variables: Of the processes' environment, beside qlock's own: what leaves them the cards of the device alone.
        system_options: Where llama.cpp looks for the system's options.

    Raises:
        AbsentError: ``/proc`` does not say which process this is, or there is no room for the folder.
        EngineError: The system has options of its own for llama.cpp.
    """

    def __init__(self, *, variables: Mapping[str, str], system_options: Path = SYSTEM_OPTIONS) -> None:
        if system_options.exists():
            raise EngineError(
                f"`{system_options}` sets options of llama.cpp that no lock knows",
                hint=f"remove `{system_options}`, or measure where it is not",
            )
        self.folder = scratch("qlock-llama-", folders=("work", "home"))
        self.work = self.folder / "work"
        self._home = self.folder / "home"
        self.variables = dict(variables)
        self._servers = 0

    def environment(self) -> dict[str, str]:
        """All that the environment of a process holds."""
        return bare_environment(self._home) | self.variables

    def server_folder(self) -> Path:
        """A new folder for one server, with an empty ``log``.

        Raises:
            AbsentError: There is no room for it.
        """
        self._servers += 1
        folder = self.folder / str(self._servers)
        with filling():
            folder.mkdir(mode=0o700)
            (folder / "log").touch()
        return folder

    def close(self) -> None:
        """Remove it all; safe to call twice."""
        shutil.rmtree(self.folder, ignore_errors=True)
