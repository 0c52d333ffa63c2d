"""Energy between two readings of a card's own counter.

Lives here: which pairs of readings say something. Does not live here: reading the counter (``world.nvml``).
"""

from __future__ import annotations

from qlock.core.stats import CannotTell
from qlock.core.units import joules_of_mj

NOT_AVAILABLE_MJ = 2**64 - 1
"""What NVML answers instead of a number that it does not have (``NVML_VALUE_NOT_AVAILABLE``)."""


def energy_j(before_mj: int | CannotTell, after_mj: int | CannotTell) -> float | CannotTell:
    """Joules used between two readings of a counter that begins at 0 when the driver is loaded.

    Args:
        before_mj: The counter at the beginning, millijoules; or why it could not be read.
        after_mj: The same at the end.

    Returns:
        Never a negative number, and none across a reload of the driver, of which the counter knows nothing.
    """
    match before_mj, after_mj:
        case (CannotTell() as unknown, _) | (_, CannotTell() as unknown):
            return unknown
        case (int(), int()):
            pass
    for reading_mj in (before_mj, after_mj):
        if not 0 <= reading_mj < NOT_AVAILABLE_MJ:
            return CannotTell(why=f"the energy counter gave `{reading_mj}` mJ, which is no reading")
    if after_mj < before_mj:
        return CannotTell(
            why=f"the energy counter went back from {before_mj} to {after_mj} mJ: the driver was loaded anew"
        )
    return joules_of_mj(after_mj - before_mj)
