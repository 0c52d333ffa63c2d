"""When a stretch of running has to be over, and how much of that is kept for a clean end.

The limit is what the scheduler says (``SLURM_JOB_END_TIME``) or the user (``--max-time``), whichever is earlier. Of
the time that is left, a quarter, at most two minutes, is kept: when it begins, no item is begun any more, and those
under way are waited for; when half of it is gone, the rest is left, to be asked again by the next run; when another
quarter of it is gone, whatever still hangs is killed.

Does not live here: signals (``cli.leaving``).
"""

from __future__ import annotations

import msgspec

from qlock.errors import InputError
from qlock.world.interface import World

END_TIME = "SLURM_JOB_END_TIME"
"""Seconds since 1970; newer Slurm sets it in every job, and our batch script does where Slurm does not."""
_MOST_KEPT_S = 120.0
_KEPT_SHARE = 0.25


class Deadline(msgspec.Struct, frozen=True, kw_only=True):
    """Moments in seconds of the world's monotonic clock."""

    ask_until_s: float
    """From here on no item is begun."""
    leave_at_s: float
    """Items that are still under way are left."""
    kill_at_s: float
    """Whatever hangs is killed."""


def deadline(world: World, max_time_s: float | None) -> Deadline | None:
    """The deadline of a stretch that begins now; ``None`` when nobody set a limit.

    Raises:
        InputError: ``SLURM_JOB_END_TIME`` is no time.
    """
    limits = [] if max_time_s is None else [max_time_s]
    said = world.environment.get(END_TIME, "")
    if said:
        if not (said.isascii() and said.isdigit()):
            raise InputError(f"{END_TIME}: got `{said}`, expected seconds since 1970")
        limits.append(int(said) - world.clock.now().timestamp())
    if not limits:
        return None
    left_s = max(0.0, min(limits))
    kept_s = min(_MOST_KEPT_S, _KEPT_SHARE * left_s)
    end_s = world.clock.monotonic_s() + left_s
    return Deadline(ask_until_s=end_s - kept_s, leave_at_s=end_s - kept_s / 2, kill_at_s=end_s - kept_s / 4)
