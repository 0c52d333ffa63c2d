"""Answers of a server, as bytes, and what they mean."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.digest import StreamDigests
from qlock.engines.interface import Broken, Generate, Generated
from qlock.engines.llama_cpp.asked import Room, asked_of
from qlock.engines.llama_cpp.completion import Told, answered_at_once, body_of, done_of, forced_nats, told_of
from qlock.errors import EngineError
from tests.engines.llama_cpp.conftest import work

ROOM = Room(
    context_tokens=100, vocab_tokens=300, end_tokens=frozenset({2}), end_texts={2: "</s>"}, alias="nonce"
)
PROMPT = (1, 70, 80)


def step(token: int, logprob: float, *others: tuple[int, float]) -> dict[str, Any]:
    top = [{"id": one, "token": "", "bytes": [], "logprob": number} for one, number in others]
    return {"id": token, "token": "x", "bytes": [1], "logprob": logprob, "top_logprobs": top}


def answer(asked: Generate, *, forced: int | None = None, **changes: Any) -> bytes:
    """As a good server answers."""
    settings = asked_of(asked, ROOM, forced=forced)
    del settings["return_tokens"]
    settings["logit_bias"] = [] if forced is None else [{"token": forced, "bias": 1.0}]
    said: dict[str, Any] = {
        "content": "ab",
        "tokens": [97, 98],
        "model": "nonce",
        "tokens_predicted": 2,
        "tokens_evaluated": len(asked.tokens),
        "generation_settings": settings,
        "truncated": False,
        "stop_type": "limit",
        "stopping_word": "",
        "timings": {"cache_n": 0, "prompt_n": 3, "prompt_ms": 10.0, "predicted_ms": 20.0},
    }
    said |= changes
    said.setdefault("tokens_predicted", len(said["tokens"]))
    return json.dumps(said).encode()


def done(asked: Generate, **changes: Any) -> Generated | Broken:
    return done_of(asked, ROOM, status=200, data=answer(asked, **changes))


TWO = work("a", PROMPT, answer_tokens=2)


def test_a_budget_that_is_used_up() -> None:
    assert done(TWO) == Generated(
        id="a",
        tokens=(97, 98),
        text="ab",
        ending="budget",
        why="",
        logprobs=(),
        logits_digest="",
        prefill_s=0.01,
        decode_s=0.02,
    )


def test_the_end_token_is_no_part_of_the_answer() -> None:
    ended = done(TWO, tokens=[97, 2], content="a</s>", stop_type="eos")
    assert isinstance(ended, Generated)
    assert (ended.tokens, ended.text, ended.ending) == ((97,), "a", "eos")


def test_an_answer_may_end_at_once() -> None:
    ended = done(TWO, tokens=[2], tokens_predicted=1, content="", stop_type="eos")
    assert isinstance(ended, Generated)
    assert (ended.tokens, ended.ending) == ((), "eos")


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"tokens": [97]}, "got ids of `1` tokens for `2` tokens generated"),
        ({"tokens": [97, 300]}, "got ids of `2` tokens for `2` tokens generated"),
        ({"tokens": [97, -1]}, "got ids of `2` tokens for `2` tokens generated"),
        ({"stop_type": "eos"}, "got the ending `eos` without an end token"),
        (
            {"tokens": [], "tokens_predicted": 0, "stop_type": "eos"},
            "got the ending `eos` without an end token",
        ),
        ({"stop_type": "word", "stopping_word": ""}, "got the stop text ``, which was not asked for"),
        ({"stop_type": "\x1b[2K"}, r"got the ending `\x1b[2K`, expected `eos`, `word` or `limit`"),
        ({"tokens": [97], "tokens_predicted": 1}, "got an end at `1` tokens, expected one at `2`"),
    ],
)
def test_an_ending_that_cannot_be_is_nonsense(*, changes: dict[str, Any], why: str) -> None:
    assert done(TWO, **changes) == Broken(id="a", why=f"the server answered nonsense: {why}")


def test_an_end_token_is_no_ending_where_it_is_ignored() -> None:
    asked = work("a", PROMPT, answer_tokens=2, ignore_eos=True)
    settings = asked_of(asked, ROOM) | {"logit_bias": [{"token": 2, "bias": None}]}
    del settings["return_tokens"]
    data = answer(asked, tokens=[97, 2], stop_type="eos", generation_settings=settings)
    assert done_of(asked, ROOM, status=200, data=data) == Broken(
        id="a", why="the server answered nonsense: got the ending `eos` without an end token"
    )


def test_the_end_of_the_context_is_told_apart_from_the_budget() -> None:
    asked = work("a", (1,) * 98, answer_tokens=9)
    for changes in ({"truncated": True}, {}):
        full = done(asked, **changes)
        assert isinstance(full, Generated)
        assert (full.ending, full.why) == ("context", "prompt and answer fill the context of `100` tokens")


def test_log_probabilities_are_given_for_every_token_or_the_item_is_broken() -> None:
    asked = work("a", PROMPT, answer_tokens=2, logprobs=True)
    whole = done(asked, completion_probabilities=[step(97, -0.5), step(98, -1.25)])
    assert isinstance(whole, Generated)
    assert whole.logprobs == (-0.5, -1.25)
    for probabilities in ([step(98, -1.0)], [step(97, -1.0), step(99, -1.0)], []):
        assert done(asked, completion_probabilities=probabilities) == Broken(
            id="a",
            why="the server leaves out tokens that end within a character: got log-probabilities of `0` tokens,"
            " expected `2`",
        )


def digest(*steps: dict[str, Any], tokens: tuple[int, ...] = (97, 98)) -> str:
    asked = work("a", PROMPT, answer_tokens=2, digest=True)
    found = done(asked, tokens=list(tokens), completion_probabilities=list(steps))
    assert isinstance(found, Generated)
    return found.logits_digest


def test_a_digest_is_over_ids_and_numbers_as_printed() -> None:
    digests = StreamDigests()
    digests.feed_blake3(b"[97,98]\n97 -0.5 97 -0.5 5 -2.25\n98 -1.0")
    assert digest(step(97, -0.5, (97, -0.5), (5, -2.25)), step(98, -1.0)) == digests.blake3()


def test_anything_that_moves_changes_the_digest() -> None:
    plain = (step(97, -0.5, (97, -0.5), (5, -2.25)), step(98, -1.0))
    others = [
        digest(step(97, -0.5, (97, -0.5), (5, -2.250001)), plain[1]),
        digest(step(97, -0.5, (97, -0.5), (6, -2.25)), plain[1]),
        digest(step(97, -0.500001, (97, -0.5), (5, -2.25)), plain[1]),
        digest(plain[0]),
        digest(*plain, tokens=(97, 99)),
    ]
    assert len({digest(*plain), *others}) == 6


def test_what_is_told_of_the_steps() -> None:
    asked = work("a", PROMPT, answer_tokens=2, digest=True)
    steps = [step(97, -0.5, (97, -0.5), (5, -2)), step(98, -1.0)]
    told = told_of(asked, ROOM, status=200, data=answer(asked, completion_probabilities=steps))
    assert told == Told(tokens=(97, 98), steps=({97: -0.5, 5: -2.0}, {}), printed=digest(*steps))
    assert told_of(asked, ROOM, status=500, data=b"x") == Broken(
        id="a", why="the server answered nonsense: got HTTP status `500` and `x`"
    )


def test_a_refusal_is_quoted() -> None:
    data = b'{"error":{"code":400,"message":"Prompt contains \\u001b[2K","type":"invalid_request_error"}}'
    assert done_of(TWO, ROOM, status=400, data=data) == Broken(
        id="a", why=r"the server refused (HTTP status `400`): Prompt contains \x1b[2K"
    )


def test_work_that_needs_no_server() -> None:
    assert answered_at_once(TWO, ROOM) is None
    assert answered_at_once(work("a", ()), ROOM) == Broken(id="a", why="got no tokens, expected at least one")
    for token in (-1, 300):
        assert answered_at_once(work("a", (1, token)), ROOM) == Broken(
            id="a", why=f"got token `{token}`, expected one of `0` to `299`"
        )
    full = answered_at_once(work("a", (1,) * 100), ROOM)
    assert isinstance(full, Generated)
    assert (full.ending, full.why) == (
        "context",
        "a prompt of `100` tokens leaves no room in a context of `100`",
    )
    nothing = answered_at_once(work("a", PROMPT, answer_tokens=0), ROOM)
    assert isinstance(nothing, Generated)
    assert (nothing.ending, nothing.tokens, nothing.logits_digest) == ("budget", (), "")


def test_the_prompt_goes_as_token_ids_and_nothing_is_kept() -> None:
    body = json.loads(body_of(TWO, ROOM))
    assert (body["prompt"], body["cache_prompt"], body["id_slot"]) == ([1, 70, 80], False, 0)


ONE = work("a", PROMPT, answer_tokens=1, logprobs=True)


def cost(**changes: Any) -> float | Broken:
    data = answer(ONE, forced=9, tokens=[9], tokens_predicted=1, **changes)
    return forced_nats(ONE, 9, ROOM, status=200, data=data)


def test_a_forced_token_costs_what_the_model_says() -> None:
    assert cost(completion_probabilities=[step(9, -8.25)]) == 8.25
    assert cost(completion_probabilities=[step(9, 1e-7)]) == 0.0


@pytest.mark.parametrize(
    "changes, why",
    [
        (
            {"completion_probabilities": []},
            "the server leaves out tokens that end within a character: got no log-probability of token `9`",
        ),
        (
            {"completion_probabilities": [step(8, -1.0)]},
            "the server leaves out tokens that end within a character: got no log-probability of token `9`",
        ),
        ({}, "the server leaves out tokens that end within a character: got no log-probability of token `9`"),
        (
            {"completion_probabilities": [{"id": 9, "logprob": None, "top_logprobs": []}]},
            "the server answered nonsense: got the log-probability `None`",
        ),
    ],
)
def test_a_forced_token_without_a_number_is_broken(*, changes: dict[str, Any], why: str) -> None:
    assert cost(**changes) == Broken(id="a", why=why)


def test_a_forced_token_of_another_server_ends_the_engine() -> None:
    with pytest.raises(EngineError) as caught:
        cost(model="other")
    assert caught.value.message == "another server answered: got the model `other`, expected `nonce`"


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(msgspec.json.encode)
)
def test_any_bytes_give_a_broken_item(data: bytes) -> None:
    for status in (200, 400, 500):
        assert isinstance(done_of(TWO, ROOM, status=status, data=data), Broken)
    assert isinstance(forced_nats(ONE, 9, ROOM, status=200, data=data), Broken)
