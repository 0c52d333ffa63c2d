"""The real clock."""

from __future__ import annotations

from datetime import timedelta

from qlock.world import clock


def test_the_date_has_its_zone_and_it_is_utc() -> None:
    assert clock.now().utcoffset() == timedelta(0)


def test_a_wait_is_at_least_as_long_as_asked_for() -> None:
    before = clock.monotonic_s()
    clock.sleep_s(0.01)
    assert clock.monotonic_s() - before >= 0.01


def test_a_wait_below_zero_is_none() -> None:
    clock.sleep_s(-1.0)
