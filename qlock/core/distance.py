"""How far one point of a lock lies from its reference: the figures of a job of divergences, and how to take them.

Does not live here: the figures themselves (``core.kld``, ``core.kld_parts``), and two points side by side
(``core.compare``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from qlock.core.base import Base, Finite
from qlock.core.effects import what_changes_output
from qlock.core.exchange import Divergence, Outcome, Ungraded
from qlock.core.kept_logits import FLOOR_NATS
from qlock.core.kld import Kld, kld_of
from qlock.core.kld_parts import Parts, parts_of
from qlock.core.kld_tokens import Measured
from qlock.core.lock import Lock, SuitePin, named
from qlock.core.sides import Sitting
from qlock.core.stats import CannotTell

ROUNDING_FLOOR_NATS = 1e-6
"""The same for two models side by side, and where the likeliest tokens alone are kept, in float32: what that can do to a
sum over a vocabulary, with room to spare."""


class Distance(Base, frozen=True, kw_only=True, tag_field="kind", tag="distance"):
    """A point's distance from the reference of a suite."""

    reference: str
    is_identical: bool
    """Whether both are the same bytes under the same setting, and gave the same numbers: then there is no distance."""
    floor_nats: Finite
    """What the way of measuring cannot tell from 0."""
    figures: Kld
    parts: tuple[Parts, ...]

    @property
    def is_below_floor(self) -> bool:
        """Whether the mean divergence could be the way of measuring alone."""
        return not self.is_identical and abs(self.figures.kld_nats.value) < self.floor_nats

    @property
    def is_cut(self) -> bool:
        """Whether the reference was read from a file in 16 bits, which ends 16 nats below each likeliest token."""
        return self.floor_nats == FLOOR_NATS

    @property
    def is_lower_bound(self) -> bool:
        """Whether the divergences are the least that they can be, only the likeliest tokens having been kept."""
        return self.figures.kld_slack_nats is not UNSET


def measured_in(sittings: Iterable[Sitting]) -> list[Measured]:
    """What every item came to in every repeat; a row that was not graded has no divergence."""
    return [
        Measured(row.item, row.slices, sitting.outcomes.get(row.item, Ungraded(why="there is no grade")))
        for sitting in sittings
        for row in sitting.rows
    ]


def distance_of(lock: Lock, suite: SuitePin, point: str, items: Iterable[Measured]) -> Distance | CannotTell:
    """The distance of a point, or why there is none.

    Args:
        lock: Of the run.
        suite: With a reference.
        point: Its name.
        items: In every repeat; repeats of one item are one cluster.
    """
    every = list(items)
    figures = kld_of((measured.outcome for measured in every), [measured.item for measured in every])
    match figures:
        case CannotTell():
            return figures
        case Kld():
            return Distance(
                reference=suite.reference,
                is_identical=figures.is_zero and _ground(lock, point) == _ground(lock, suite.reference),
                floor_nats=floor_of(suite),
                figures=figures,
                parts=parts_of(every),
            )


def has_divergences(outcomes: Iterable[Outcome]) -> bool:
    """Whether any of them is one."""
    return any(isinstance(outcome, Divergence) for outcome in outcomes)


def floor_of(suite: SuitePin) -> float:
    """The mean divergence, in nats, that the way of measuring cannot tell from 0."""
    is_rounded = suite.params.get("stored") is True and "stored_tokens" not in suite.params
    return FLOOR_NATS if is_rounded else ROUNDING_FLOOR_NATS


def _ground(lock: Lock, point: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Bytes and setting of a point, without the names that people gave."""
    pin = named(lock.point, point)
    model = named(lock.model, pin.model)
    setting = named(lock.setting, pin.setting)
    plain = what_changes_output(setting)
    del plain["name"]
    return what_changes_output(model), plain
