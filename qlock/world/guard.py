"""The few lines that run inside a new child process just before the program it was started for.

Lives here: asking the kernel to kill this process when the one that started it dies, and resource limits; then
the program takes the place of this one (``exec``), with the environment untouched. Does not live here: starting
and talking to the child (``world.process``).

It runs as a script of its own (``python -I -S -X utf8 guard.py``), not as a ``preexec_fn``: code between fork and exec
can deadlock in a process that has threads. So it imports nothing but the standard library, and nothing of qlock.

Argument: one JSON object with ``parent`` (process id), ``limits`` (name of a resource → number), ``ctype``
(the ``LC_CTYPE`` of the environment, or null) and ``argv``. In order:

1. Set the parent-death signal to SIGKILL (kept over ``exec``).
2. If the parent is no longer the one named, it died before step 1: leave.
3. Set each limit, soft and hard.
4. Put back ``LC_CTYPE``, the one variable that the interpreter itself sets (in the C locale, PEP 538).
5. Become the program.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1
"""From ``linux/prctl.h``."""

PARENT_GONE = 125
"""Exit code when nobody is left to work for."""

NOT_STARTED = 127
"""Exit code when a limit or the program was refused by the kernel; the reason is on stderr."""


def die_with_parent(parent: int) -> bool:
    """Have this process killed when its parent dies; false when the parent is not ``parent`` any more."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return os.getppid() == parent


def limit(limits: dict[str, int]) -> None:
    """Set each named limit (``"AS"`` for ``RLIMIT_AS``), soft and hard; an already lower hard limit stays."""
    for name, wanted in limits.items():
        which = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(which)
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(which, (allowed, allowed))


def main() -> int:
    """Guard this process, then become the program; returns an exit code only when that was not possible."""
    order = json.loads(sys.argv[1])
    argv: list[str] = order["argv"]
    try:
        if not die_with_parent(order["parent"]):
            return PARENT_GONE
        limit(order["limits"])
        environment = {name: text for name, text in os.environ.items() if name != "LC_CTYPE"}
        if order["ctype"] is not None:
            environment["LC_CTYPE"] = order["ctype"]
        os.execve(argv[0], argv, environment)  # noqa: S606 - no shell is meant
    except OSError as error:
        sys.stderr.write(f"cannot start `{argv[0]}`: {error.strerror}\n")
    return NOT_STARTED


if __name__ == "__main__":
    sys.exit(main())
