from __future__ import annotations

import pytest

from qlock.errors import AbsentError, InputError
from qlock.world.hub.account import Account
from qlock.world.hub.patience import BusyError
from qlock.world.hub.refusals import Asked, is_commit, offline_error, refusal, transport_error

ASKED = Asked(repository="o/m", revision="main", kind="model", path="m.gguf")
ACCOUNT = Account(endpoint="https://h", cache="/c", token="", is_offline=False)


def test_a_whole_commit_is_known_from_anything_shorter() -> None:
    assert is_commit("0123456789abcdef0123456789abcdef01234567")
    assert not is_commit("0123456")
    assert not is_commit("main")
    assert not is_commit("0123456789abcdef0123456789abcdef01234567\n")


def test_names_are_escaped_in_messages() -> None:
    asked = Asked(repository="o/\x1b[2J", revision="main", kind="dataset", path="")
    assert asked.name == "data set `o/\\x1b[2J`"
    assert offline_error(asked).message == (
        "data set `o/\\x1b[2J` is not in the Hub's cache, and no network may be used"
    )


def test_a_bug_of_ours_is_raised_and_not_turned_into_a_message() -> None:
    with pytest.raises(ZeroDivisionError):
        refusal(ZeroDivisionError(), ASKED, ACCOUNT)


def test_a_closed_session_and_a_broken_connection_mean_later() -> None:
    closed = refusal(RuntimeError("Cannot send a request, as the client has been closed."), ASKED, ACCOUNT)
    broken = refusal(transport_error()("https://h/x?Signature=1"), ASKED, ACCOUNT)
    assert isinstance(closed, BusyError)
    assert isinstance(broken, BusyError)
    assert (closed.why, broken.why) == ("the connection was closed", "cannot reach it (HTTPError)")


def test_errors_that_need_no_server_have_their_line() -> None:
    from huggingface_hub import errors

    offline = refusal(errors.OfflineModeIsEnabled("x"), ASKED, ACCOUNT)
    name = refusal(errors.HFValidationError("x"), ASKED, ACCOUNT)
    assert isinstance(offline, AbsentError)
    assert isinstance(name, InputError)
    assert offline.message == (
        "`m.gguf` of repository `o/m` is not in the Hub's cache, and no network may be used"
    )
    assert name.message == "`o/m` is no name of a repository, expected `OWNER/NAME`"
