"""Child processes: started with everything said, spoken to in lines, and never left behind.

Lives here: ``LineChild`` and what can be heard from one. It is the only module that imports ``subprocess``. Does
not live here: what the lines mean (``world.render``, the engines).

What a child is given is complete: its command line, its environment (nothing is inherited), its folder, its
limits. It leads a session of its own, so that a Ctrl-C at the terminal reaches qlock alone and one signal
reaches all that the child started. The kernel kills it when qlock dies, however qlock dies; for processes that the
child starts itself, the child must see to that.

NOTE: Linux sends that signal when the *thread* that started the child ends. Start children from a thread that
outlives them (the main thread).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from qlock.errors import AbsentError

_GUARD = Path(__file__).with_name("guard.py")
_PIECE_BYTES = 1 << 16
_AHEAD_BYTES = 1 << 20
_LOOK_S = 0.05
_KILL_S = 10.0
"""A process that waits inside a driver cannot be killed; qlock does not wait for it for ever."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel allows a child, and each process it starts; ``None`` leaves a limit as it is."""

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


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The child will say nothing more."""

    how: str
    """``exit code 3``, ``signal SIGKILL``, or ``closed its output``."""


class Silent(msgspec.Struct, frozen=True, kw_only=True):
    """The child did not answer, or did not take what was written, in the time it was given."""

    after_s: float


class Flooded(msgspec.Struct, frozen=True, kw_only=True):
    """The child sent a line longer than allowed; what follows cannot be trusted."""

    max_bytes: int


Heard = bytes | Ended | Silent | Flooded
"""A line without its newline, or why there is none."""


class LineChild:
    """A child process that reads and writes lines of bytes, each ended by a newline.

    Use it as a context manager, or call ``close``. Not for use from several threads at once.

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
        order = {
            "parent": os.getpid(),
            "limits": _limits_by_name(limits or Limits()),
            "ctype": env.get("LC_CTYPE"),
            "argv": list(argv),
        }
        with contextlib.ExitStack() as stack:
            try:
                sink = subprocess.DEVNULL if log is None else stack.enter_context(log.open("ab")).fileno()
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-X", "utf8", str(_GUARD), json.dumps(order)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=sink,
                    env=dict(env),
                    cwd=cwd,
                    bufsize=0,
                    start_new_session=True,
                )
            except OSError as error:
                raise AbsentError(f"cannot start `{argv[0]}`: {error.strerror}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin
        self._stdout = self._process.stdout
        os.set_blocking(self._stdin.fileno(), False)
        os.set_blocking(self._stdout.fileno(), False)
        self._unread = bytearray()
        self._searched = 0
        self._at_end = False
        self._torn: Silent | None = None

    @property
    def pid(self) -> int:
        """The child's process id, also the id of its group and session."""
        return self._process.pid

    def write_line(self, line: bytes, deadline_s: float) -> Ended | Silent | None:
        """Send a line; ``None`` when the child's pipe took all of it.

        What the child says meanwhile is kept for ``read_line`` (up to a bound), so that a child that answers
        while it is asked does not stand still. After ``Silent`` the line is half written: every later call
        answers ``Silent`` too, and the child can only be closed.

        Args:
            line: Without a newline; one is added.
            deadline_s: Seconds from now.

        Raises:
            ValueError: ``line`` holds a newline.
        """
        if b"\n" in line:
            raise ValueError("a line holds no newline")
        if self._torn or self._stdin.closed:
            return self._torn or self._ended()
        rest = memoryview(line + b"\n")
        until = time.monotonic() + deadline_s
        while rest:
            if self._has_exited():
                return self._ended()
            wait_s = until - time.monotonic()
            if wait_s <= 0:
                self._torn = Silent(after_s=deadline_s)
                return self._torn
            listening = not self._at_end and len(self._unread) <= _AHEAD_BYTES
            ready = _ready(self._stdout if listening else None, self._stdin, min(wait_s, _LOOK_S))
            if self._stdout in ready:
                self._take_piece()
            if self._stdin in ready:
                try:
                    rest = rest[os.write(self._stdin.fileno(), rest) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    return self._ended()
        return None

    def read_line(self, deadline_s: float, max_bytes: int) -> Heard:
        """The child's next line without its newline, or why there is none.

        Lines that it sent before it ended are all handed out first; an unfinished last line is dropped.

        Args:
            deadline_s: Seconds from now.
            max_bytes: The longest line that is accepted.
        """
        until = time.monotonic() + deadline_s
        while True:
            end = self._unread.find(b"\n", self._searched, max_bytes + 1)
            if end >= 0:
                line = bytes(self._unread[:end])
                del self._unread[: end + 1]
                self._searched = 0
                return line
            if len(self._unread) > max_bytes:
                return Flooded(max_bytes=max_bytes)
            self._searched = len(self._unread)
            if self._at_end:
                return self._ended()
            if self._torn:
                return self._torn
            wait_s = until - time.monotonic()
            # A process that the child left behind may hold the pipe open, so its end is looked for as well,
            # before the pipe is: what was written by then is in the pipe.
            exited = self._has_exited()
            if _ready(self._stdout, None, 0 if exited else max(0.0, min(wait_s, _LOOK_S))):
                self._take_piece()
            elif exited:
                self._at_end = True
            elif wait_s <= 0:
                return Silent(after_s=deadline_s)

    def close_input(self) -> None:
        """Tell the child that no more lines come; what it still says can be read."""
        self._stdin.close()

    def close(self, grace_s: float = 2.0) -> str:
        """End the child and all of its group, and wait for it; says how it ended. May be called again.

        Its input is closed and SIGTERM sent; after ``grace_s`` seconds, or as soon as it has exited, SIGKILL
        goes to the whole group.
        """
        if self._process.returncode is None:
            self._stdin.close()
            self._signal_group(signal.SIGTERM)
            self._wait_exit(grace_s)
            # The child is not reaped yet, so its number cannot belong to another group.
            self._signal_group(signal.SIGKILL)
            if not self._wait_exit(_KILL_S):
                return "still there after SIGKILL"
            self._process.wait()
        self._stdout.close()
        self._at_end = True
        return _how(self._process.returncode)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take_piece(self) -> None:
        piece = os.read(self._stdout.fileno(), _PIECE_BYTES)
        self._unread += piece
        self._at_end = not piece

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
            pause_s = min(2 * pause_s, _LOOK_S)
        return True

    def _ended(self) -> Ended:
        # The kernel closes the pipes of a dying process a moment before its exit can be seen.
        if not self._wait_exit(1.0):
            return Ended(how="closed its output")
        if self._process.returncode is not None:
            return Ended(how=_how(self._process.returncode))
        seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        assert seen is not None
        return Ended(how=_how(seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status))

    def _signal_group(self, number: signal.Signals) -> None:
        # Before the guard has run there is a group already: the session is made before exec.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def _ready(to_read: IO[bytes] | None, to_write: IO[bytes] | None, wait_s: float) -> list[IO[bytes]]:
    """Which of the two pipes can be used now; ``poll``, as ``select`` knows only the first 1,024 files."""
    poll = select.poll()
    pipes = {}
    for pipe, event in ((to_read, select.POLLIN), (to_write, select.POLLOUT)):
        if pipe is not None:
            poll.register(pipe, event)
            pipes[pipe.fileno()] = pipe
    # A pipe whose other end is closed counts as usable: using it is how that is found out.
    return [pipes[number] for number, _ in poll.poll(1000 * wait_s)]


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
