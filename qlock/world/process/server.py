"""Children that are spoken to over a socket of their own, or that only write: all they print goes into a file.

Does not live here: the requests (the engines).
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from qlock.world.process.child import Child, Ended, Limits


class ServerChild(Child):
    """A child process without pipes: stdin is empty, stdout and stderr are appended to ``log``; else as ``Child``."""

    def __init__(
        self,
        argv: tuple[str, ...],
        *,
        env: Mapping[str, str],
        cwd: Path,
        log: Path,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(argv, env=env, cwd=cwd, limits=limits, log=log)

    def _popen(
        self, command: list[str], *, env: dict[str, str], cwd: Path, sink: int
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )

    def ended(self) -> Ended | None:
        """How it ended; ``None`` while it runs."""
        how = self._how_exited()
        return None if how is None else Ended(how=how)

    def wait_ended(self, deadline_s: float) -> Ended | None:
        """Wait until it has ended, at most ``deadline_s`` seconds; ``None`` when it still runs then."""
        self._wait_exit(deadline_s)
        return self.ended()
