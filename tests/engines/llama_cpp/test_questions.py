"""Texts and tokens, asked of a server."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from qlock.errors import EngineError
from tests.engines.llama_cpp.conftest import Opener, load_of
from tests.fakes.llama_server import BOS


def test_texts_become_tokens_in_order(played: Opener, model: Path) -> None:
    engine = played()
    engine.load(load_of(model))
    assert engine.tokenize(["hi", "", "é"], add_special=True, parse_special=False) == [
        (BOS, 104, 105),
        (BOS,),
        (BOS, 0xC3, 0xA9),
    ]


def test_half_a_character_is_refused(played: Opener, model: Path) -> None:
    engine = played()
    engine.load(load_of(model))
    with pytest.raises(EngineError) as caught:
        engine.tokenize(["\ud800"], add_special=False, parse_special=False)
    assert caught.value.message == "cannot tokenize a text that is not Unicode: surrogates not allowed"
    assert engine.tokenize(["a"], add_special=False, parse_special=False) == [(97,)]


def test_a_server_that_has_died_is_an_error(played: Opener, model: Path) -> None:
    engine = played()
    engine.load(load_of(model))
    os.kill(engine.pids[0], signal.SIGKILL)
    os.waitid(os.P_PID, engine.pids[0], os.WEXITED | os.WNOWAIT)
    with pytest.raises(EngineError, match=r"^the engine died \(signal SIGKILL\): "):
        engine.tokenize(["a"], add_special=False, parse_special=False)


@pytest.mark.parametrize(
    "behaviour, message",
    [
        (
            {"tokenize_nonsense": True},
            "the engine answered nonsense to `/tokenize`: Expected `object`, got `array`",
        ),
        (
            {"tokenize_adds": "x"},
            "cannot verify `add_bos`: a text becomes other tokens with and without special ones",
        ),
        (
            {"tokenize_status": 501},
            'the engine answered nonsense to `/tokenize`: got HTTP status `501` and `{"tokens": [97, 32, 98]}`',
        ),
    ],
)
def test_what_is_no_answer_ends_the_start(
    played: Opener, model: Path, *, behaviour: dict[str, object], message: str
) -> None:
    with pytest.raises(EngineError) as caught:
        played(**behaviour).load(load_of(model))
    assert caught.value.message == message


def test_nothing_is_asked_before_a_model_is_loaded(played: Opener) -> None:
    engine = played()
    for question in (
        lambda: engine.tokenize(["a"], add_special=False, parse_special=False),
        engine.system_info,
    ):
        with pytest.raises(EngineError, match=r"^no model is loaded$"):
            question()
