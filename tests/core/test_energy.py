"""Energy between two readings: joules, or the reason why there are none; never negative, never 2^64."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.energy import NOT_AVAILABLE_MJ, energy_j
from qlock.core.stats import CannotTell

UNTOLD = CannotTell(why="the card does not tell it")
READINGS = st.integers(-(2**65), 2**65)


@pytest.mark.parametrize("before, after, joules", [(1_000, 3_500, 2.5), (7, 7, 0.0), (0, 1, 0.001)])
def test_joules_of_a_window(before: int, after: int, joules: float) -> None:
    assert energy_j(before, after) == joules


@pytest.mark.parametrize("before, after", [(UNTOLD, 5), (5, UNTOLD), (UNTOLD, UNTOLD)])
def test_a_counter_that_is_not_told_gives_its_reason(
    before: int | CannotTell, after: int | CannotTell
) -> None:
    assert energy_j(before, after) == UNTOLD


def test_a_counter_that_goes_back_gives_nothing() -> None:
    assert energy_j(9_000_000, 4_000) == CannotTell(
        why="the energy counter went back from 9000000 to 4000 mJ: the driver was loaded anew"
    )


@pytest.mark.parametrize("reading", [-1, NOT_AVAILABLE_MJ, 2**64])
def test_what_is_no_reading(reading: int) -> None:
    wrong = CannotTell(why=f"the energy counter gave `{reading}` mJ, which is no reading")
    assert energy_j(reading, 5) == wrong
    assert energy_j(0, reading) == wrong


@given(READINGS, READINGS)
def test_energy_is_never_negative_and_never_out_of_range(before: int, after: int) -> None:
    match energy_j(before, after):
        case CannotTell(why=why):
            assert why
        case joules:
            assert 0 <= joules < NOT_AVAILABLE_MJ / 1e3
            assert joules * 1e3 == pytest.approx(after - before)
