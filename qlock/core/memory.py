"""How much memory a loaded point takes, by the engine's own account of its buffers.

On a device with cards, what lies on the cards counts; on one without, all of it. The part of a driver that is in no buffer
(a CUDA context) is not in it.

Does not live here: the account itself (``engines``), a lower bound before anything is loaded (``core.footprint``).
"""

from __future__ import annotations

from qlock.core.base import Count
from qlock.core.facts import Buffer
from qlock.core.sides import Side, device_of
from qlock.core.stats import CannotTell

_HOST = ("CPU", "AMX", "BLAS")


def memory_bytes(side: Side) -> Count | CannotTell:
    """What a side's point took on its device; cannot tell where the engine gave no account."""
    if not side.memory:
        return CannotTell(why="the run has no account of the engine's buffers")
    is_of_cards = device_of(side).kind == "gpu"
    return sum(buffer.size_bytes for buffer in side.memory if not is_of_cards or is_on_card(buffer))


def is_on_card(buffer: Buffer) -> bool:
    """Whether a buffer lies in the memory of a card; pinned memory of the machine (``CUDA_Host``) does not."""
    return not buffer.place.startswith(_HOST) and not buffer.place.endswith("Host")
