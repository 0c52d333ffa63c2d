"""Leaving a verb when its time is up.

Does not live here: when it is up (``flows.deadline``), signals from outside (``cli.signals``), the exit (``cli.main``).
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType

from qlock.cli.signals import TimeUpExit, stop_in

_LEAST_S = 0.001
"""A timer of 0 seconds would never go off."""


@contextlib.contextmanager
def leaving(after_s: float | None, *, hang_s: float = 0.0) -> Iterator[None]:
    """Leave what goes on in the ``with`` after so many seconds.

    Args:
        after_s: ``None``: never.
        hang_s: So long the way out may take; then the kernel ends this process, and with it its children.

    Raises:
        TimeUpExit: In the midst of whatever goes on.
    """
    if after_s is None:
        yield
        return
    before = signal.signal(signal.SIGALRM, _time_up)
    signal.setitimer(signal.ITIMER_REAL, max(_LEAST_S, after_s), max(_LEAST_S, hang_s))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _time_up(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as handlers are called
    # The next alarm is not for us to see: it ends a process that hangs on its way out.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if stop_in(sys.exception()) is None:
        raise TimeUpExit
