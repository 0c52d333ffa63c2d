"""What is asked, replied and graded: told apart by kind, and the same after a file."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.canon import from_json, json_bytes
from qlock.core.exchange import Completed, Failed, Nats, Outcome, Reply, Request, Right, Scored
from qlock.errors import InputError
from tests.strategies import strategy

REPLY: Any = Reply
UNIONS: list[Any] = [Request, Reply, Outcome]


def test_a_reply_in_its_file() -> None:
    reply = Completed(text="a\u2028b", tokens=(1, 2), ending="stop", prompt_tokens=3, why="\n\n")
    assert (
        json_bytes(reply)
        == (
            '{"kind":"completed","text":"a\u2028b","tokens":[1,2],"ending":"stop","prompt_tokens":3,"why":"\\n\\n"}'
        ).encode()
    )


@pytest.mark.parametrize(
    "data, message",
    [
        (
            b'{"kind":"guessed"}',
            "x: kind: got `guessed`, expected one of: `completed`, `scored`, `diverged`, `called`, `failed`",
        ),
        (b'{"why":"lost"}', "x: the key `kind` is missing"),
        (b'{"kind":"failed"}', "x: the key `why` is missing"),
        (
            b'{"kind":"completed","text":"","tokens":[],"ending":"tired","prompt_tokens":0}',
            "x: ending: got `tired`, expected one of: `budget`, `context`, `eos`, `error`, `stop`",
        ),
        (b'{"kind":"scored","nats":[1.5,null]}', "x: nats[1]: got null, expected a number"),
        (b'{"kind":"scored","nats":[1e999]}', "x: nats[0]: number out of range"),
        (b'{"kind":"completed","tokens":[0,-1]}', "x: tokens[1]: got `-1`, expected an integer >= 0"),
        (b'{"kind":"completed","prompt_tokens":-1}', "x: prompt_tokens: got `-1`, expected an integer >= 0"),
    ],
)
def test_a_reply_of_an_unexpected_shape_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        from_json(data, REPLY, name="x")
    assert str(caught.value) == message


@pytest.mark.parametrize("union", UNIONS, ids=["request", "reply", "outcome"])
@given(data=st.data())
def test_every_member_is_read_back_as_itself(union: Any, data: st.DataObject) -> None:
    value = data.draw(st.one_of([strategy(member) for member in union.__args__]))
    assert from_json(json_bytes(value), union, name="x") == value


@pytest.mark.parametrize("union", UNIONS, ids=["request", "reply", "outcome"])
def test_members_are_told_apart_by_their_kind(union: Any) -> None:
    members = union.__args__
    tags = [member.__struct_config__.tag for member in members]
    assert tags == [member.__name__.lower() for member in members]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_number_that_is_none_is_written(value: float) -> None:
    for thing in (Scored(nats=(value,)), Nats(nats_sum=value, nats_square_sum=1.0, scored_tokens=1)):
        with pytest.raises(ValueError) as caught:
            json_bytes(thing)
        assert str(caught.value) == f"{value} cannot be recorded"


def test_outcomes_without_a_reason_are_equal() -> None:
    assert Right() == Right()
    assert Failed(why="a") != Failed(why="b")
    assert msgspec.to_builtins(Right()) == {"kind": "right"}
