"""Signals that end qlock: held back while nothing could take them, then turned into one exception, once.

They are Ctrl-C, SIGTERM, SIGHUP, and SIGUSR1, which some schedulers send first.

The first one unwinds the verb: an engine is ended, a record closed. Another that comes meanwhile must not stop what
the first one set going, so none is heard while the exception of the first is being handled.

Does not live here: what is said and which code is given (``cli.main``).
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

from qlock.errors import ExitCode

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class TerminatedExit(SystemExit):
    """SIGTERM, SIGHUP or SIGUSR1 came: everything that is open is closed on the way out.

    Args:
        name: Of the signal.
    """

    def __init__(self, name: str = "SIGTERM") -> None:
        super().__init__(int(ExitCode.TERMINATED))
        self.name = name


class TimeUpExit(TerminatedExit):
    """The time that a run was given is up; an alarm of our own (``cli.leaving``)."""

    def __init__(self) -> None:
        super().__init__("SIGALRM")


def hold() -> None:
    """Keep the signals waiting; those that came are told at ``listen``."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)


def listen() -> None:
    """Turn signals into exceptions from now on, and any that waited at once.

    One that whoever started this process had it ignore (``nohup``, a job in the background) stays ignored; SIGTERM
    does not.

    Raises:
        KeyboardInterrupt: Ctrl-C was waiting.
        TerminatedExit: Another one was.
    """
    for number in HEARD:
        if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)


def stop_in(error: BaseException | None) -> KeyboardInterrupt | TerminatedExit | None:
    """The signal in an exception or in what was being handled when it was raised."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        match error:
            case KeyboardInterrupt() | TerminatedExit():
                return error
            case _:
                seen.add(id(error))
                error = error.__context__
    return None


def _stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as handlers are called
    if stop_in(sys.exception()) is not None:
        return
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise TerminatedExit(signal.Signals(number).name)
