"""Conversions: known amounts, then laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core import units
from qlock.errors import InputError


@pytest.mark.parametrize(
    "size_bytes, text",
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1049, "1.0 kB"),
        (1050, "1.1 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (1_500_000_000, "1.5 GB"),
        (2**63, "9.2 EB"),
        (10**22, "10000.0 EB"),
    ],
)
def test_sizes_are_written_in_decimal_steps(size_bytes: int, text: str) -> None:
    assert units.bytes_text(size_bytes) == text


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        units.bytes_text(-1)
    assert str(caught.value) == "a size cannot be negative: got `-1` bytes, expected at least `0`"


def test_sizes_that_people_give_are_whole_bytes() -> None:
    assert (units.bytes_of_gb(1.5), units.bytes_of_gb(0.1)) == (1_500_000_000, 100_000_000)
    assert units.gb_of_bytes(5_733_000_000) == 5.733
    assert (units.bytes_of_mib(1.0), units.bytes_of_mib(98.87)) == (1_048_576, 103_672_709)
    assert [units.bytes_text(size) for size in units.BYTES_OF_STEP.values()] == [
        "1 B" if step == "B" else f"1.0 {step}" for step in units.BYTES_OF_STEP
    ]


def test_durations_and_powers() -> None:
    assert units.seconds_of_ms(250) == 0.25
    assert units.watts_of_mw(72_000) == 72.0


@pytest.mark.parametrize(
    "share, digits, text",
    [
        (0.0, 1, "0 %"),
        (1.0, 1, "100 %"),
        (0.047, 1, "4.7 %"),
        (0.0001, 1, "<0.1 %"),
        (0.9999, 1, ">99.9 %"),
        (0.9999, 2, "99.99 %"),
        (0.001, 0, "<1 %"),
        (1 / 3, 2, "33.33 %"),
    ],
)
def test_a_share_as_percent(share: float, digits: int, text: str) -> None:
    assert units.share_percent(share, digits=digits) == text


@pytest.mark.parametrize("share", [-0.01, 1.01, math.nan, math.inf])
def test_what_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(InputError) as caught:
        units.share_percent(share)
    assert str(caught.value) == f"a share lies between 0 and 1: got `{share}`"


@pytest.mark.parametrize(
    "difference, text",
    [
        (0.012, "+1.2 points"),
        (-0.012, "-1.2 points"),
        (0.0, "0.0 points"),
        (-0.0001, "0.0 points"),
        (-1.0, "-100.0 points"),
    ],
)
def test_a_difference_in_points(difference: float, text: str) -> None:
    assert units.share_points(difference) == text


@pytest.mark.parametrize("difference", [-1.01, 1.5, math.nan])
def test_what_is_no_difference_of_shares_is_refused(difference: float) -> None:
    with pytest.raises(InputError) as caught:
        units.share_points(difference)
    assert str(caught.value) == f"a difference of shares lies between -1 and 1: got `{difference}`"


@given(st.integers(min_value=1000, max_value=10**21))
def test_a_written_size_is_within_half_a_tenth(size_bytes: int) -> None:
    number, unit = units.bytes_text(size_bytes).split(" ")
    unit_bytes = 1000 ** ["B", "kB", "MB", "GB", "TB", "PB", "EB"].index(unit)
    tenths = int(number.replace(".", ""))
    assert abs(tenths * unit_bytes - 10 * size_bytes) * 2 <= unit_bytes
    assert tenths < 10_000 or unit == "EB"


@given(st.floats(min_value=0, max_value=1))
def test_only_none_and_all_are_written_as_none_and_all(share: float) -> None:
    assert (units.share_percent(share) == "0 %") == (share == 0)
    assert (units.share_percent(share) == "100 %") == (share == 1)


@pytest.mark.parametrize("count, text", [(0, "0 models"), (1, "1 model"), (2, "2 models")])
def test_one_has_no_plural(count: int, text: str) -> None:
    assert units.count_text(count, "model") == text
