"""Conversions of units and the written form of amounts, nothing else.

Lives here: every factor between two units, and how an amount is written for people. Does not live here:
measuring anything, or deciding what an amount means.
"""

from __future__ import annotations

import math

from qlock.errors import InputError

_BYTE_STEPS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
BYTES_OF_STEP = {step: 1000**index for index, step in enumerate(_BYTE_STEPS)}
"""How many bytes each unit holds that ``bytes_text`` writes."""


def seconds_of_ms(duration_ms: float) -> float:
    """Seconds in a duration of milliseconds."""
    return duration_ms / 1e3


def watts_of_mw(power_mw: float) -> float:
    """Watts in a power of milliwatts (what NVML reports)."""
    return power_mw / 1e3


def bytes_of_mib(size_mib: float) -> int:
    """Whole bytes nearest to a size in MiB of 2^20 bytes (what llama.cpp prints)."""
    return round(size_mib * (1 << 20))


def bytes_of_gb(size_gb: float) -> int:
    """Whole bytes nearest to a size in GB of 10^9 bytes."""
    return round(size_gb * 1e9)


def gb_of_bytes(size_bytes: int) -> float:
    """A size in GB of 10^9 bytes."""
    return size_bytes / 1e9


def bytes_text(size_bytes: int) -> str:
    """A size for people, in decimal steps of a thousand: ``999 B``, ``1.5 GB``.

    One digit after the point, rounded half up. It is never the only place where a size is kept.

    Raises:
        InputError: The size is negative.
    """
    if size_bytes < 0:
        raise InputError(f"a size cannot be negative: got `{size_bytes}` bytes, expected at least `0`")
    if size_bytes < 1000:
        return f"{size_bytes} B"
    step, unit_bytes = 1, 1000
    # Whole numbers throughout: a float would write 2**63 bytes and its neighbours wrongly near a step.
    tenths = (size_bytes * 10 + unit_bytes // 2) // unit_bytes
    while tenths >= 10_000 and step < len(_BYTE_STEPS) - 1:
        step, unit_bytes = step + 1, unit_bytes * 1000
        tenths = (size_bytes * 10 + unit_bytes // 2) // unit_bytes
    return f"{tenths // 10}.{tenths % 10} {_BYTE_STEPS[step]}"


def count_text(count: int, noun: str) -> str:
    """How many of something: ``1 model``, ``0 models``; for nouns whose plural only takes an ``s``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def share_percent(share: float, *, digits: int = 1) -> str:
    """A share of 0 to 1 as percent: ``4.7 %``.

    ``0 %`` and ``100 %`` are written for exactly none and exactly all; a share that only rounds to them is
    ``<0.1 %`` or ``>99.9 %`` (with ``digits`` digits), because "none" and "hardly any" are different findings.

    Raises:
        InputError: The share is not between 0 and 1.
    """
    if not 0 <= share <= 1:
        raise InputError(f"a share lies between 0 and 1: got `{share}`")
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    step = 10.0**-digits
    written = f"{100 * share:.{digits}f}"
    if float(written) == 0:
        return f"<{step:.{digits}f} %"
    if float(written) == 100:
        return f">{100 - step:.{digits}f} %"
    return f"{written} %"


def share_points(difference: float, *, digits: int = 1) -> str:
    """A difference of two shares (−1 to 1) in percentage points, always with its sign: ``-1.2 points``.

    A difference that rounds to zero is written without a sign: ``0.0 points``.

    Raises:
        InputError: The difference is not between −1 and 1.
    """
    if math.isnan(difference) or abs(difference) > 1:
        raise InputError(f"a difference of shares lies between -1 and 1: got `{difference}`")
    written = f"{100 * difference:+.{digits}f}"
    return f"{written.lstrip('+-') if float(written) == 0 else written} points"
