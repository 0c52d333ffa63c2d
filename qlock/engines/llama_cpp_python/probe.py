"""The schedule probe."""

from __future__ import annotations

from collections.abc import Callable

from qlock.core.facts import ProbeRow
from qlock.engines.llama_cpp_python.lockstep import Decoder
from qlock.errors import EngineError


def probe(
    decoder: Decoder, prompts: tuple[tuple[int, ...], ...], *, steps: int, alive: Callable[[], None]
) -> tuple[ProbeRow, ...]:
    """One row for each variation."""
    raise EngineError(f"cannot probe `{len(prompts)}` prompts yet")
