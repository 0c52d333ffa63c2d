"""Children that are spoken to in lines of bytes, each ended by a newline, and what can be heard from one.

Does not live here: starting and ending them (``child``), and what the lines mean.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import msgspec

from qlock.world.process.child import LOOK_S, Child, Ended, Limits

_PIECE_BYTES = 1 << 16
_AHEAD_BYTES = 1 << 20


class Silent(msgspec.Struct, frozen=True, kw_only=True):
    """The child did not answer, or did not take what was written, in the time it was given."""

    after_s: float


class Flooded(msgspec.Struct, frozen=True, kw_only=True):
    """The child sent a line longer than allowed; what follows cannot be trusted."""

    max_bytes: int


Heard = bytes | Ended | Silent | Flooded
"""A line without its newline, or why there is none."""


class LineChild(Child):
    """A child process that reads and writes lines of bytes, each ended by a newline; made as ``Child`` says."""

    def __init__(
        self,
        argv: tuple[str, ...],
        *,
        env: Mapping[str, str],
        cwd: Path,
        limits: Limits | None = None,
        log: Path | None = None,
    ) -> None:
        super().__init__(argv, env=env, cwd=cwd, limits=limits, log=log)
        stdin, stdout = self._pipes()
        assert stdin is not None
        assert stdout is not None
        self._stdin = stdin
        self._stdout = stdout
        os.set_blocking(self._stdin.fileno(), False)
        os.set_blocking(self._stdout.fileno(), False)
        self._unread = bytearray()
        self._searched = 0
        self._at_end = False
        self._torn: Silent | None = None

    def _popen(
        self, command: list[str], *, env: dict[str, str], cwd: Path, sink: int
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            env=env,
            cwd=cwd,
            bufsize=0,
            start_new_session=True,
        )

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
            ready = _ready(self._stdout if listening else None, self._stdin, min(wait_s, LOOK_S))
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
            if _ready(self._stdout, None, 0 if exited else max(0.0, min(wait_s, LOOK_S))):
                self._take_piece()
            elif exited:
                self._at_end = True
            elif wait_s <= 0:
                return Silent(after_s=deadline_s)

    def close(self, grace_s: float = 2.0) -> str:
        """As ``Child.close``; nothing more is read afterwards."""
        how = super().close(grace_s)
        self._at_end = True
        return how

    def _take_piece(self) -> None:
        piece = os.read(self._stdout.fileno(), _PIECE_BYTES)
        self._unread += piece
        self._at_end = not piece

    def _ended(self) -> Ended:
        # The kernel closes the pipes of a dying process a moment before its exit can be seen.
        self._wait_exit(1.0)
        return Ended(how=self._how_exited() or "closed its output")


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
