"""How long a job was being answered, row by row.

Rows share the engine, so their own times overlap. A lap is the time since the row before was finished; all laps of a job
add up to the time in which an engine was there to answer it. What a restart takes is no part of that.

Does not live here: what speed follows from it (``core.speed``).
"""

from __future__ import annotations

import msgspec

from qlock.core.record import Row
from qlock.world.interface import Clock


class Laps:
    """A watch that is read at every finished row.

    Args:
        clock: Of the world.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """From now on something is asked."""
        self._since_s = self._clock.monotonic_s()

    def timed(self, row: Row) -> Row:
        """The row, finished now, with its lap."""
        now_s = self._clock.monotonic_s()
        lap_s, self._since_s = now_s - self._since_s, now_s
        return msgspec.structs.replace(row, times=msgspec.structs.replace(row.times, lap_s=lap_s))
