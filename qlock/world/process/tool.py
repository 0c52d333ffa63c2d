"""A tool of the system that is called, does one thing, and says what came of it.

Does not live here: children that stay (``lines``, ``server``), what a tool's output means (``world.slurm``).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping

import msgspec

from qlock.errors import AbsentError


class ToolEnded(msgspec.Struct, frozen=True, kw_only=True):
    """How a tool ended."""

    code: int
    """Its exit status; negative is the number of a signal."""
    out: str
    err: str


def call_tool(
    argv: tuple[str, ...], *, env: Mapping[str, str], limit_s: float, most_bytes: int = 1 << 26
) -> ToolEnded:
    """Call a tool by its name on the PATH of ``env``, and wait for its end.

    Args:
        argv: The tool's name and its arguments.
        env: The whole environment.
        limit_s: Then it and what it started are killed.
        most_bytes: Of its output.

    Raises:
        AbsentError: It is not on the PATH, did not end in time, or said too much.
    """
    name = argv[0]
    found = shutil.which(name, path=env.get("PATH", ""))
    if found is None:
        raise AbsentError(f"`{name}` is not on the PATH")
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                [found, *argv[1:]],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except OSError as error:
            raise AbsentError(f"cannot start `{found}`: {error.strerror}") from error
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AbsentError(f"`{name}` did not answer within {limit_s:g} s") from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        texts = []
        for stream in (out, err):
            if stream.tell() > most_bytes:
                raise AbsentError(f"`{name}` said more than {most_bytes} bytes")
            stream.seek(0)
            texts.append(stream.read(most_bytes).decode(errors="replace"))
    return ToolEnded(code=code, out=texts[0], err=texts[1])
