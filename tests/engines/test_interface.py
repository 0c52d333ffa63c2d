"""What every engine shares."""

from __future__ import annotations

from qlock.engines.interface import tokenizing_s


def test_tokenizing_a_prompt_may_take_minutes_and_never_half_an_hour() -> None:
    assert tokenizing_s("") == 60.0
    assert tokenizing_s("a" * 4_000_000) == 100.0
