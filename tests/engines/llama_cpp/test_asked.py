"""Settings of a request, and what a server echoes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.engines.llama_cpp.asked import Room, asked_of, budget_tokens, check_echo
from qlock.errors import EngineError
from tests.engines.llama_cpp.conftest import work

ROOM = Room(context_tokens=100, vocab_tokens=300, end_tokens=frozenset({2, 7}), end_texts={}, alias="nonce")
FIXED = {"chat_format": "Content-only", "reasoning_format": "none", "speculative.types": "none,none"}


def echo(asked: dict[str, object], **changes: object) -> dict[str, object]:
    """As a good server echoes."""
    echoed = {name: value for name, value in asked.items() if name != "return_tokens"}
    bias = [2, 7] if asked["ignore_eos"] else []
    return {**echoed, **FIXED, "logit_bias": [{"bias": None, "token": token} for token in bias], **changes}


def refusal(asked: dict[str, object], echoed: dict[str, object]) -> str:
    with pytest.raises(EngineError) as caught:
        check_echo(asked, echoed, ROOM)
    return caught.value.message


def test_what_is_echoed_as_asked_passes() -> None:
    for ignore_eos in (False, True):
        asked = asked_of(work("a", (1, 2), ignore_eos=ignore_eos), ROOM)
        check_echo(asked, echo(asked, max_tokens=8), ROOM)


def test_fractions_are_compared_in_the_servers_32_bits() -> None:
    asked = asked_of(work("a", (1,), temperature=0.7, top_p=0.95, min_p=0.05), ROOM)
    as_kept = {"temperature": 0.699999988079071, "top_p": 0.949999988079071, "min_p": 0.05000000074505806}
    check_echo(asked, echo(asked, **as_kept), ROOM)
    assert refusal(asked, echo(asked, temperature=0.6999)) == (
        "the server does not do as it is told: got `temperature = 0.6999`, expected `0.7`"
    )


@given(st.floats(min_value=0, max_value=1e6, width=32), st.sampled_from([True, False, 1, 0, 1.0, "0", None]))
def test_a_word_of_another_kind_is_never_the_same(temperature: float, got: object) -> None:
    asked = asked_of(work("a", (1,), temperature=temperature), ROOM)
    is_number = isinstance(got, int | float) and not isinstance(got, bool)
    if is_number and got == temperature:
        check_echo(asked, echo(asked, temperature=got), ROOM)
    else:
        refusal(asked, echo(asked, temperature=got))


def test_a_switch_is_no_number() -> None:
    asked = asked_of(work("a", (1,)), ROOM)
    assert refusal(asked, echo(asked, stream=0)) == (
        "the server does not do as it is told: got `stream = 0`, expected `False`"
    )
    assert refusal(asked, echo(asked, top_k=False)) == (
        "the server does not do as it is told: got `top_k = False`, expected `0`"
    )


@pytest.mark.parametrize(
    "bias, got",
    [
        ([{"token": 5, "bias": 1.0}], "[5]"),
        ("all", "all"),
        ([{"bias": 1.0}], "[{'bias': 1.0}]"),
        ([5], "[5]"),
    ],
)
def test_a_bias_that_was_not_asked_for_is_refused(bias: object, got: str) -> None:
    asked = asked_of(work("a", (1,)), ROOM)
    assert refusal(asked, echo(asked, logit_bias=bias)) == (
        f"the server does not do as it is told: got `logit_bias = {got}`, expected `[]`"
    )


def test_end_tokens_are_biased_only_where_they_are_ignored() -> None:
    asked = asked_of(work("a", (1,), ignore_eos=True), ROOM)
    assert refusal(asked, echo(asked, logit_bias=[{"token": 2, "bias": None}])) == (
        "the server does not do as it is told: got `logit_bias = [2]`, expected `[2, 7]`"
    )


def test_a_forced_token_is_asked_for_with_a_bias() -> None:
    asked = asked_of(work("a", (1,)), ROOM, forced=9)
    assert asked["logit_bias"] == [[9, 10_000.0]]
    check_echo(asked, echo(asked, logit_bias=[{"token": 9, "bias": 10_000.0}]), ROOM)


def test_the_budget_is_the_cap_or_what_the_context_has_left() -> None:
    assert budget_tokens(work("a", (1,) * 10, answer_tokens=20), ROOM) == 20
    assert budget_tokens(work("a", (1,) * 90, answer_tokens=20), ROOM) == 10


@given(st.integers(min_value=0, max_value=1 << 130))
def test_a_seed_is_one_that_the_server_does_not_take_for_random(seed: int) -> None:
    asked = asked_of(work("a", (1,), seed=seed), ROOM)
    assert asked["seed"] in range((1 << 32) - 1)
    if seed < (1 << 32) - 1:
        assert asked["seed"] == seed


def test_a_negative_temperature_and_an_empty_stop_say_nothing() -> None:
    asked = asked_of(work("a", (1,), temperature=-1.0, stop=("", "x")), ROOM)
    assert (asked["temperature"], asked["stop"]) == (0.0, ["x"])
