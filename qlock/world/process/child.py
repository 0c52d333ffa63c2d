"""What every child process has in common: how it is started, how its end is seen, how it and its log are ended.

Does not live here: talking to it (``lines``, ``server``).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from qlock.errors import AbsentError

_GUARD = Path(__file__).parent.with_name("guard.py")
_KILL_S = 10.0
"""A process that waits inside a driver cannot be killed; qlock does not wait for it for ever."""
LOOK_S = 0.05
"""The longest pause between two looks at whether a child is still there."""
_LOG_LOOK_S = 0.25
"""The pause between two looks at how long a log has grown."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a child is allowed, and each process it starts; ``None`` leaves a limit of the kernel as it is."""

    address_space_bytes: int | None = None
    """Mapped memory (``RLIMIT_AS``). Not for a program that maps large weight files."""

    cpu_s: int | None = None
    """Processor seconds of one process over its whole life (``RLIMIT_CPU``); then SIGKILL."""

    file_bytes: int | None = None
    """The longest file it may write (``RLIMIT_FSIZE``); pipes are not files."""

    open_files: int | None = None
    """Open file descriptors (``RLIMIT_NOFILE``)."""

    core_bytes: int = 0
    """The largest core dump; a dump of a model's memory would fill a disk."""

    log_bytes: int = 1 << 30
    """The longest its log may grow, give or take a quarter of a second of writing; then it is killed. Other files of
    its may be longer, so this is no limit of the kernel's."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The child will say nothing more."""

    how: str
    """``exit code 3``, ``signal SIGKILL``, ``closed its output``, or that it wrote too much."""


class Child:
    """A child process and its group. A context manager; not for use from several threads at once.

    Args:
        argv: The program by its absolute path, and its arguments.
        env: The whole environment; nothing else is inherited.
        cwd: The folder it runs in.
        limits: What the kernel allows it.
        log: A file that its stderr is appended to; ``None`` throws stderr away.

    Raises:
        AbsentError: The program or the folder is not there, or no process could be started.
    """

    def __init__(
        self,
        argv: tuple[str, ...],
        *,
        env: Mapping[str, str],
        cwd: Path,
        limits: Limits | None = None,
        log: Path | None = None,
    ) -> None:
        if not (Path(argv[0]).is_absolute() and os.access(argv[0], os.X_OK)):
            raise AbsentError(
                f"got no program at `{argv[0]}`, expected an executable file by its absolute path"
            )
        if not cwd.is_dir():
            raise AbsentError(f"got no folder at `{cwd}`, expected one to run `{argv[0]}` in")
        limits = limits or Limits()
        order = {
            "parent": os.getpid(),
            "limits": _limits_by_name(limits),
            "ctype": env.get("LC_CTYPE"),
            "argv": list(argv),
        }
        with contextlib.ExitStack() as stack:
            try:
                sink = subprocess.DEVNULL if log is None else stack.enter_context(log.open("ab")).fileno()
                self._process = self._popen(
                    [sys.executable, "-I", "-S", "-X", "utf8", str(_GUARD), json.dumps(order)],
                    env=dict(env),
                    cwd=cwd,
                    sink=sink,
                )
            except OSError as error:
                raise AbsentError(f"cannot start `{argv[0]}`: {error.strerror}") from error
        self._log_limit = limits.log_bytes
        self._wrote_too_much = False
        self._closing = threading.Event()
        self._watcher: threading.Thread | None = None
        if log is not None:
            self._watcher = threading.Thread(target=self._watch, args=(log,), daemon=True)
            self._watcher.start()

    def _popen(
        self, command: list[str], *, env: dict[str, str], cwd: Path, sink: int
    ) -> subprocess.Popen[bytes]:
        """Start it, with pipes or without."""
        raise NotImplementedError

    def _pipes(self) -> tuple[IO[bytes] | None, IO[bytes] | None]:
        """Its stdin and stdout, as far as they are pipes."""
        return self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        """The child's process id, also the id of its group and session."""
        return self._process.pid

    def close(self, grace_s: float = 2.0) -> str:
        """End the child and all of its group, and wait for it; says how it ended. May be called again.

        Its input is closed and SIGTERM sent; after ``grace_s`` seconds, or as soon as it has exited, SIGKILL
        goes to the whole group.
        """
        stdin, stdout = self._pipes()
        if self._process.returncode is None:
            if stdin is not None:
                stdin.close()
            self._signal_group(signal.SIGTERM)
            self._wait_exit(grace_s)
            # The child is not reaped yet, so its number cannot belong to another group.
            self._signal_group(signal.SIGKILL)
            if not self._wait_exit(_KILL_S):
                return "still there after SIGKILL"
            # The watcher names the child by its number too, so it ends before the child is reaped.
            self._closing.set()
            if self._watcher is not None:
                self._watcher.join()
            self._process.wait()
        if stdout is not None:
            stdout.close()
        return self._said(self._process.returncode)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _has_exited(self) -> bool:
        """Whether the child has exited; it is left unreaped, so that its group can still be named."""
        if self._process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _wait_exit(self, at_most_s: float) -> bool:
        until = time.monotonic() + at_most_s
        pause_s = 0.001
        while not self._has_exited():
            if time.monotonic() >= until:
                return False
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_S)
        return True

    def _how_exited(self) -> str | None:
        """How it ended; ``None`` while it has not."""
        if self._process.returncode is not None:
            return self._said(self._process.returncode)
        seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if seen is None:
            return None
        return self._said(seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status)

    def _said(self, code: int) -> str:
        """Its exit status in words, or why it was killed."""
        return (
            f"it wrote more than `{self._log_limit}` bytes into its log"
            if self._wrote_too_much
            else _how(code)
        )

    def _watch(self, log: Path) -> None:
        """Kill the child once its log has grown too long: nobody else looks at it while a child stands idle."""
        while not self._closing.wait(_LOG_LOOK_S):
            with contextlib.suppress(OSError):
                if log.stat().st_size > self._log_limit:
                    self._wrote_too_much = True
                    self._signal_group(signal.SIGKILL)
                    return

    def _signal_group(self, number: signal.Signals) -> None:
        # Before the guard has run there is a group already: the session is made before exec.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def _limits_by_name(limits: Limits) -> dict[str, int]:
    named = {
        "AS": limits.address_space_bytes,
        "CPU": limits.cpu_s,
        "FSIZE": limits.file_bytes,
        "NOFILE": limits.open_files,
        "CORE": limits.core_bytes,
    }
    return {name: number for name, number in named.items() if number is not None}


def _how(code: int) -> str:
    """An exit status in words; negative is the number of a signal, as ``subprocess`` has it."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
