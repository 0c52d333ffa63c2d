"""``plan``: the tasks that a lock may be run in, where the lock may be run at all.

It looks at the lock and at the spec beside it, and at nothing of this machine: neither files of models nor a device.

Does not live here: what a task is (``core.tasks``), queueing tasks (``flows.submit``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from qlock.core.lock import renew_path
from qlock.core.tasks import Task
from qlock.flows.beside import why_stale
from qlock.flows.refusal import refuse_missing
from qlock.flows.submissions import known_tasks
from qlock.flows.tasks import place_of
from qlock.world.interface import World


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks of ``plan``."""

    lock_path: Path
    runs: Path | None = None
    frozen: bool = False
    """Trust the lock, whatever the spec beside it says."""
    shard_items: int | None = None
    """Most items of a task; as the spec beside the lock has it when not given."""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to do."""

    state: Literal["planned", "stale"]
    tasks: tuple[Task, ...] = ()
    why: str = ""


def plan(world: World, asked: Asked) -> Planned:
    """The tasks of a lock.

    Raises:
        InputError: The lock is unreadable or edited.
        RefusedError: The lock still misses pins.
    """
    place = place_of(world, asked.lock_path, asked.runs)
    stale = "" if asked.frozen else why_stale(world, asked.lock_path, place.lock, place.data)
    if stale:
        return Planned(state="stale", why=stale)
    refuse_missing(place.lock, asked.lock_path, renew=renew_path(place.data.decode()))
    return Planned(state="planned", tasks=known_tasks(place, shard_items=asked.shard_items))
