"""What a server says of itself, held against its command line."""

from __future__ import annotations

import msgspec
import pytest

from qlock.engines.interface import Deviation
from qlock.engines.llama_cpp.props import (
    CHAT_TEMPLATE,
    Expected,
    Props,
    context_tokens,
    deviations,
    props_of,
    refuse_another,
)
from qlock.errors import EngineError

EXPECTED = Expected(alias="nonce", model="/m.gguf", build_info="b7-abc", passed=("--chat-template",))
UNSAID = "the server does not say it"


def props(**changes: object) -> Props:
    plain: dict[str, object] = {
        "total_slots": 1,
        "model_alias": "nonce",
        "model_path": "/m.gguf",
        "bos_token": "",
        "eos_token": "",
        "default_generation_settings": {"n_ctx": 512, "params": {}},
        "chat_template": CHAT_TEMPLATE,
        "build_info": "b7-abc",
        "modalities": {"vision": False},
        "media_marker": "<__media__>",
    }
    told = plain | changes
    return props_of(msgspec.json.encode({name: value for name, value in told.items() if value is not None}))


def test_the_server_that_was_started_is_not_refused() -> None:
    refuse_another(props(), EXPECTED)
    assert context_tokens(props()) == 512
    assert deviations(props(), EXPECTED) == []


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"model_alias": "x\x1b"}, r"another server answered: got the model `x\x1b`, expected `nonce`"),
        ({"model_alias": None}, "cannot verify `model_alias`: the server does not say it"),
        ({"model_path": "/other"}, "got `model_path = /other`, expected `/m.gguf`"),
        ({"model_path": None}, "cannot verify `model_path`: the server does not say it"),
    ],
)
def test_another_server_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(EngineError) as caught:
        refuse_another(props(**changes), EXPECTED)
    assert caught.value.message == message


@pytest.mark.parametrize("settings", [None, {}, {"n_ctx": "512"}, {"n_ctx": None}])
def test_a_context_that_is_not_told_cannot_be_verified(settings: object) -> None:
    with pytest.raises(EngineError, match=r"^cannot verify `context_tokens`: the server does not say it$"):
        context_tokens(props(default_generation_settings=settings))


@pytest.mark.parametrize(
    "changes, expected",
    [
        (
            {"chat_template": "{{ messages }}"},
            Deviation(name="chat_template", expected=CHAT_TEMPLATE, found="{{ messages }}"),
        ),
        (
            {"chat_template": None},
            Deviation(name="chat_template", expected=CHAT_TEMPLATE, found="missing", why=UNSAID),
        ),
        ({"chat_template": ""}, Deviation(name="chat_template", expected=CHAT_TEMPLATE, found="none")),
        (
            {"chat_template_tool_use": "x"},
            Deviation(name="chat_template_tool_use", expected="none", found="x"),
        ),
        ({"build_info": "b8-abc"}, Deviation(name="build_info", expected="b7-abc", found="b8-abc")),
        (
            {"build_info": None},
            Deviation(name="build_info", expected="b7-abc", found="missing", why=UNSAID),
        ),
        (
            {"modalities": {"vision": True, "audio": True, "video": False}},
            Deviation(name="modalities", expected="none", found="audio, vision"),
        ),
    ],
)
def test_what_is_told_otherwise_is_a_deviation(changes: dict[str, object], expected: Deviation) -> None:
    assert deviations(props(**changes), EXPECTED) == [expected]


def test_what_the_build_has_no_option_for_is_not_expected_of_it() -> None:
    nothing = msgspec.structs.replace(EXPECTED, passed=(), build_info="")
    told = props(chat_template="{{ of_the_model }}", build_info=None, modalities=None)
    assert deviations(told, nothing) == []


@pytest.mark.parametrize("data", [b"", b"[]", b"<html>", b'{"total_slots": true}', b"\xff"])
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(EngineError, match=r"^cannot verify `model_alias`: `/props` holds "):
        props_of(data)
