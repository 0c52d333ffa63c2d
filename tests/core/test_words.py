"""Lists of names and the nearest one, as messages tell them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.words import MOST_NAMES, did_you_mean, listed


@pytest.mark.parametrize(
    "names, told",
    [
        ([], ""),
        (["a"], "a"),
        (["b", "a"], "b, a"),
        (["a", "b", "c"], "a, b and 1 more"),
        (["a\n", "b"], "a↵, b"),
    ],
)
def test_names_are_listed_in_their_order(names: list[str], told: str) -> None:
    assert listed(names, most=2) == told
    assert listed(iter(names), most=2) == told


def test_names_stand_in_backticks_where_that_is_asked() -> None:
    assert listed("abc", most=2, in_backticks=True) == "`a`, `b` and 1 more"


@given(st.lists(st.sampled_from("abc"), max_size=3 * MOST_NAMES))
def test_every_name_is_told_or_counted(names: list[str]) -> None:
    told, _, more = listed(names).partition(" and ")
    assert len(told.split(", ")) * bool(told) + int(more.partition(" ")[0] or 0) == len(names)


@pytest.mark.parametrize(
    "name, hint",
    [
        ("Q4_KM", "did you mean `Q4_K_M`?"),
        ("Q4_K_M", "did you mean `Q4_K_M`?"),
        ("zzz", ""),
        ("", ""),
    ],
)
def test_the_nearest_name_is_the_hint(name: str, hint: str) -> None:
    assert did_you_mean(name, ["F16", "Q4_K_M"]) == hint
    assert did_you_mean(name, ()) == ""


def test_places_of_facts_are_names_too() -> None:
    known = ["device", "device.cpu.cpu_model", "device.cpu.cores"]
    assert did_you_mean("device.cpu.cpumodel", known) == "did you mean `device.cpu.cpu_model`?"
    assert did_you_mean("devic", known) == "did you mean `device`?"
    assert did_you_mean("??", known) == ""


def test_a_point_is_found_by_its_model_alone() -> None:
    points = ["F16@f16kv-32k", "Q4_K_M@f16kv-32k", "Q4_K_M@q8kv-32k"]
    assert did_you_mean("Q4_K", points) == "did you mean `Q4_K_M@f16kv-32k`?"
    assert did_you_mean("Q4_K_M@q8kv", points) == "did you mean `Q4_K_M@q8kv-32k`?"
    assert did_you_mean("f32kv", points) == ""


def test_the_hint_is_safe_to_show() -> None:
    assert did_you_mean("item\x1b[1m", ["item\x1b[0m"]) == "did you mean `item\\x1b[0m`?"
