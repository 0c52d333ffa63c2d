from __future__ import annotations

import logging

import pytest

from qlock.errors import AbsentError
from qlock.world.hub.refusals import Asked
from qlock.world.hub.session import TIMEOUT_S, furnish, place_of

ASKED = Asked(repository="o/m", revision="main", kind="model", path="m.gguf")


def test_an_answer_that_says_no_place_is_none_of_the_hubs() -> None:
    assert place_of(206, {"content-range": "bytes 5-9/20"}, ASKED, start=5) == (5, 20)
    with pytest.raises(AbsentError) as caught:
        place_of(206, {}, ASKED, start=5)
    assert caught.value.message == "the server's answer about repository `o/m` is not one of the Hub's"
    assert caught.value.hint == "check HF_ENDPOINT"


def test_the_session_is_furnished_once_and_stays_so_when_it_is_made_anew() -> None:
    from huggingface_hub import close_session, constants, get_session

    furnish()
    session = get_session()
    furnish()
    assert get_session() is session
    close_session()
    again = get_session()
    assert again is not session
    for hooks in (session.event_hooks, again.event_hooks):
        assert [hook.__name__ for hook in hooks["request"]] == ["hf_request_event_hook", "_limit_time"]
        assert [hook.__name__ for hook in hooks["response"]] == ["_refuse_busy"]
    assert constants.HF_HUB_DISABLE_TELEMETRY is True
    assert logging.getLogger("huggingface_hub").level == logging.CRITICAL


def test_a_request_without_a_limit_gets_one_and_a_shorter_limit_stays() -> None:
    from huggingface_hub import get_session

    furnish()
    session = get_session()
    (limit,) = (hook for hook in session.event_hooks["request"] if hook.__name__ == "_limit_time")
    times = []
    for timeout in (None, 5):
        request = session.build_request("GET", "http://127.0.0.1/", timeout=timeout)
        limit(request)
        times.append(set(request.extensions["timeout"].values()))
    assert times == [{TIMEOUT_S}, {5}]
