"""From numbers to places in a drawing.

Does not live here: drawing (``plots``, ``rungs``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from qlock.core.base import Base, Finite

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


class Scale(Base, frozen=True, kw_only=True):
    """From values to places, by their distance or, for positive ones, by their ratio."""

    low: Finite
    high: Finite
    start: Finite
    """Where ``low`` lies, in units of the drawing."""
    end: Finite
    is_by_ratio: bool = False

    def place(self, value: float) -> float:
        """Where a value lies; one beyond the scale lies at its end."""
        low, high, here = self.low, self.high, min(max(value, self.low), self.high)
        if self.is_by_ratio:
            low, high, here = math.log(low), math.log(high), math.log(here)
        return self.start + (here - low) / (high - low) * (self.end - self.start)


def spanning(values: Sequence[float], start: float, end: float) -> Scale:
    """A scale with a little room around every value; around 0 where there is none."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    room = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return Scale(low=low - room, high=high + room, start=start, end=end)


def by_ratio(values: Sequence[float], start: float, end: float) -> Scale:
    """A scale on which doubling is always as far, with a little room around every value.

    Args:
        values: At least one, each above 0.
        start: Where the scale begins, in units of the drawing.
        end: Where it ends.
    """
    low, high = min(values), max(values)
    room = max((high / low) ** 0.08, 1.02)
    return Scale(low=low / room, high=high * room, start=start, end=end, is_by_ratio=True)


def ticks(scale: Scale, most: int = 5) -> tuple[float, ...]:
    """Round values within the scale, at most one more than ``most`` of them."""
    rough = (scale.high - scale.low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in _STEPS if power * factor >= rough)
    first = math.ceil(scale.low / step)
    return tuple(index * step for index in range(first, math.floor(scale.high / step) + 1))


def rounds(scale: Scale, most: int = 6) -> tuple[float, ...]:
    """Round values within a scale by ratio, as many as fit; else those of a plain scale."""
    tens = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
    for factors in ((1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0), (1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        found = [factor * 10.0**ten for ten in tens for factor in factors]
        inside = tuple(value for value in found if scale.low <= value <= scale.high)
        if 2 <= len(inside) <= most:
            return inside
    return ticks(scale, 4)


def steps(scale: Scale, most: int = 7) -> tuple[float, ...]:
    """Powers of two within a scale by ratio and, where they are few, what lies between them; else round values."""
    powers = [
        2.0**power for power in range(math.ceil(math.log2(scale.low)), math.floor(math.log2(scale.high)) + 1)
    ]
    if len(powers) < 2:
        return ticks(scale, 4)
    between = [1.5 * power for power in (powers[0] / 2, *powers) if scale.low <= 1.5 * power <= scale.high]
    if len(powers) + len(between) <= most:
        return tuple(sorted(powers + between))
    return tuple(powers[:: -(-len(powers) // most)])
