"""A comparison: two points side by side, as it is handed to reports and written as JSON.

Lives here: the outermost structs. Does not live here: working anything out (``core.compare``).

Side A is the reference, side B is what is judged; each difference is B − A. Text of models and files in it is already
shortened and safe to show; reports still pass it through ``core.escape`` for the place where they show it.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from qlock.core.agreement import Agreement
from qlock.core.base import Base, Count, Finite
from qlock.core.bridge import Bridge
from qlock.core.distance import Distance
from qlock.core.endings import Endings
from qlock.core.gates import Gate
from qlock.core.noise import Floor
from qlock.core.pairs import Loss
from qlock.core.scores import Score
from qlock.core.slices import Slices
from qlock.core.speed import Speed
from qlock.core.stats import CannotTell
from qlock.core.validity import Difference, Treatment
from qlock.errors import ExitCode

COMPARISON_VERSION = 1

State = Literal["valid", "invalid", "incomplete"]


class Shown(Base, frozen=True, kw_only=True):
    """One side, as it is named and described."""

    name: str
    point: str
    model: str
    setting: str
    engine: str
    device: str
    repeatable: str
    record: Literal["sealed", "open", "none"]
    """What there is of a run; ``none`` where locks alone are compared."""
    memory_bytes: Count | CannotTell
    """What the point took, by the engine's own account; on the cards, where the device has some."""
    warnings: tuple[str, ...]


class TypeRow(Base, frozen=True, kw_only=True):
    """How much of both models has one quantization type."""

    type: str
    tensors_a: Count
    tensors_b: Count
    bytes_a: Count | CannotTell
    bytes_b: Count | CannotTell


class Recipes(Base, frozen=True, kw_only=True):
    """What both models are made of."""

    bits_per_weight_a: Finite | CannotTell
    bits_per_weight_b: Finite | CannotTell
    file_bytes_a: Count
    """Of all weight files."""
    file_bytes_b: Count
    row: tuple[TypeRow, ...]


class Distances(Base, frozen=True, kw_only=True):
    """How far each side lies from the reference that the suite names."""

    a: Distance | CannotTell
    b: Distance | CannotTell


class Speeds(Base, frozen=True, kw_only=True):
    """How fast each side answered."""

    a: Speed | CannotTell
    b: Speed | CannotTell


class Suite(Base, frozen=True, kw_only=True):
    """One suite that both sides sat."""

    suite: str
    kind: str
    score: Score
    lost: Count
    """Items in no scored pair."""
    losses: tuple[Loss, ...]
    endings: Endings | CannotTell
    agreement: Agreement | CannotTell
    slices: Slices
    noise: tuple[Floor, ...]
    speeds: Speeds
    distances: Distances | UnsetType = UNSET
    """Unset where the suite is not about a reference."""


class Comparison(Base, frozen=True, kw_only=True):
    """Two points side by side."""

    comparison_version: int
    state: State
    why: tuple[str, ...]
    """Why it is not valid, one sentence each; empty where it is."""
    treatment: Treatment
    treatment_differs: bool
    """Whether anything of what is meant to differ does."""
    a: Shown
    b: Shown
    said_first: tuple[str, ...]
    """What must be known before any number is read."""
    difference: tuple[Difference, ...]
    suite: tuple[Suite, ...]
    only_a: tuple[str, ...]
    """Suites that only side A sat."""
    only_b: tuple[str, ...]
    noise_unmeasured: str
    """What is known of the noise where it was not measured; empty where it was."""
    recipes: Recipes
    gate: tuple[Gate, ...]
    bridge: Bridge | UnsetType = UNSET
    """The way from A to B through a point that was run on both devices; unset where none was asked for."""


def exit_code_of(comparisons: tuple[Comparison, ...]) -> ExitCode:
    """What the comparisons come to: invalid before incomplete, and that before a gate that did not pass.

    An incomplete run gives numbers and no verdict, so no gate of it can pass; running it to its end comes first.
    """
    states = {one.state for one in comparisons}
    if "invalid" in states:
        return ExitCode.INVALID
    if "incomplete" in states:
        return ExitCode.INCOMPLETE
    passed = all(gate.verdict == "pass" for one in comparisons for gate in one.gate)
    return ExitCode.YES if passed else ExitCode.NO
