"""What a server is given for requests that say nothing, and what it tells of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.engines.interface import Deviation
from qlock.engines.llama_cpp.samplers import DEFAULTS, deviations, option_value

PASSED = tuple(option for option, _, _ in DEFAULTS)
UNSAID = "the server does not say it"


def told(**changes: object) -> dict[str, object]:
    """As a server that does as it is told tells it."""
    plain: dict[str, object] = {
        name: list(value) if isinstance(value, tuple) else value for _, name, value in DEFAULTS
    }
    return plain | {"n_predict": -1, "max_tokens": -1, "n_probs": 0, "ignore_eos": False} | changes


def without(*names: str) -> dict[str, object]:
    return {name: value for name, value in told().items() if name not in names}


def test_values_are_written_as_the_command_line_takes_them() -> None:
    assert [option_value(value) for value in (("temperature",), ("a", "b"), 0, 2, 0.0, 1.0, 0.1, -1.0)] == [
        *("temperature", "a;b", "0", "2", "0", "1", "0.1", "-1"),
    ]


def test_a_server_that_does_as_it_is_told_deviates_in_nothing() -> None:
    assert deviations(told(), PASSED) == []
    # As the server keeps it, in 32 bits.
    assert deviations(told(xtc_threshold=0.10000000149011612), PASSED) == []
    # Younger and older servers tell more.
    more = {"lora": [], "stop": [], "logit_bias": [], "grammar": "", "speculative.types": "none"}
    assert deviations(told(**more), PASSED) == []


@pytest.mark.parametrize(
    "changes, name, expected, found, why",
    [
        ({"temperature": 0.8}, "temperature", "0.0", "0.8", ""),
        ({"seed": 4_294_967_295}, "seed", "0", "4294967295", ""),
        ({"samplers": ["top_k", "temperature"]}, "samplers", "temperature", "top_k, temperature", ""),
        ({"top_k": False}, "top_k", "0", "False", ""),
        ({"top_p": None}, "top_p", "1.0", "None", ""),
        ({"n_predict": 16}, "n_predict", "-1", "16", ""),
        ({"stop": ["x"]}, "stop", "", "x", ""),
        ({"speculative.types": "draft"}, "speculative.types", "none", "draft", ""),
        ({"reasoning_format": "auto"}, "reasoning_format", "none", "auto", ""),
        ({"turbo": 1}, "turbo", "absent", "1", "qlock does not know what it does"),
        ({"\x1b[2K": "\x07"}, r"\x1b[2K", "absent", r"\x07", "qlock does not know what it does"),
    ],
)
def test_what_is_told_otherwise_is_named(
    changes: dict[str, object], name: str, expected: str, found: str, why: str
) -> None:
    assert deviations(told(**changes), PASSED) == [
        Deviation(name=f"sampling.{name}", expected=expected, found=found, why=why)
    ]


@given(st.sets(st.sampled_from([name for _, name, _ in DEFAULTS])))
def test_every_default_that_was_given_and_is_not_told_cannot_be_verified(names: set[str]) -> None:
    found = deviations(without(*names), PASSED)
    assert [(one.name, one.found, one.why) for one in found] == [
        (f"sampling.{name}", "missing", UNSAID) for name in sorted(names)
    ]


def test_a_default_that_the_build_has_no_option_for_need_not_be_told() -> None:
    assert deviations(without("min_p"), [option for option in PASSED if option != "--min-p"]) == []


@pytest.mark.parametrize("nothing", [None, [], "temperature", 0])
def test_a_server_that_tells_no_defaults_cannot_be_verified(nothing: object) -> None:
    assert deviations(nothing, PASSED) == [
        Deviation(name="sampling", expected="a default for every sampler", found="missing", why=UNSAID)
    ]
