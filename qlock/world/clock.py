"""The real clock. Does not live here: deciding what a time means."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now() -> datetime:
    """The date, in UTC and with its zone."""
    return datetime.now(UTC)


def monotonic_s() -> float:
    """Seconds since some moment, never going back; also counts on while nothing runs."""
    return time.monotonic()


def sleep_s(duration_s: float) -> None:
    """Wait; a duration below zero does not wait."""
    time.sleep(max(0.0, duration_s))
