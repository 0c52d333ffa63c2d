"""Whether a point fits the memory of this machine, asked before anything is loaded.

Does not live here: the estimate (``core.footprint``).
"""

from __future__ import annotations

from pathlib import Path

from qlock.core.facts import Setting
from qlock.core.footprint import footprint
from qlock.core.units import bytes_text
from qlock.errors import AbsentError
from qlock.flows.headers import header_of
from qlock.world.interface import World


def check_room(world: World, weights: tuple[str, ...], setting: Setting) -> None:
    """Stop where weights and KV cache alone are more than the memory of this machine, or of its control group.

    What is free now is no measure: the point before may still be loaded, and is dropped for this one.

    Raises:
        AbsentError: With what is needed and what there is.
    """
    paths = tuple(Path(path) for path in weights)
    size = sum(world.files.read_prefix(path, 1, "model").size_bytes for path in paths)
    needed = footprint(header_of(world, paths[0]), size, setting)
    memory = world.host.memory()
    if needed.total_bytes > memory.total_bytes:
        raise AbsentError(
            f"the point needs at least {bytes_text(needed.total_bytes)} of memory "
            f"(weights {bytes_text(needed.weights_bytes)}, KV cache {bytes_text(needed.cache_bytes)}), "
            f"and there is {bytes_text(memory.total_bytes)} ({memory.limited_by})",
            hint="lower `slots` or `context_tokens` of the setting, or measure on a larger machine",
        )
