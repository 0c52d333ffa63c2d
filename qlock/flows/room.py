"""Whether a point fits the memory of this machine, asked before anything is loaded.

Does not live here: the estimate (``core.footprint``).
"""

from __future__ import annotations

from pathlib import Path

from qlock.core.footprint import footprint
from qlock.core.units import bytes_text
from qlock.engines.interface import Load
from qlock.errors import AbsentError
from qlock.flows.headers import header_of
from qlock.world.interface import World


def check_room(world: World, load: Load, *, beside: Load | None = None) -> None:
    """Stop where weights and KV cache alone are more than the memory of this machine, or of its control group.

    What is free now is no measure: the point before may still be loaded, and is dropped for this one.

    Args:
        world: The effects.
        load: The point.
        beside: Its reference, where both are loaded at the same time; files that both map are there once.

    Raises:
        AbsentError: With what is needed and what there is.
    """
    loads = (load,) if beside in (None, load) else (load, beside)
    weights = {load.weights: _weights_bytes(world, load) for load in loads}
    cache_bytes = sum(
        footprint(header_of(world, Path(load.weights[0])), 0, load.setting).cache_bytes
        * load.setting.replicas
        for load in loads
    )
    weights_bytes = sum(weights.values())
    needed = weights_bytes + cache_bytes
    memory = world.host.memory()
    if needed > memory.total_bytes:
        who = "the point needs" if beside is None else "the point and its reference beside it need"
        raise AbsentError(
            f"{who} at least {bytes_text(needed)} of memory "
            f"(weights {bytes_text(weights_bytes)}, KV cache {bytes_text(cache_bytes)}), "
            f"and there is {bytes_text(memory.total_bytes)} ({memory.limited_by})",
            hint="lower `slots`, `replicas` or `context_tokens` of the setting, or measure on a larger machine"
            if beside is None
            else "set `stored = true` in the suite, with `traces` also `stored_tokens`: "
            "then they are loaded one after the other",
        )


def _weights_bytes(world: World, load: Load) -> int:
    copies = 1 if load.setting.mmap else load.setting.replicas
    return copies * sum(world.files.read_prefix(Path(path), 1, "model").size_bytes for path in load.weights)
