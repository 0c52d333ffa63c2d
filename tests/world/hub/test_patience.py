from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from qlock.errors import AbsentError
from qlock.world.hub.patience import BusyError, Patience, busy
from tests.fakes.world import SetClock


@pytest.mark.parametrize(
    "headers, wait_s",
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 7 ", "ratelimit": '"api";r=0;t=55'}, 7.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "٣"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"ratelimit": '"api";r=0;t=55'}, 55.0),
        ({"ratelimit": '"api"; r = 0 ; t = 55'}, 55.0),
        ({"ratelimit": '"api";r=3;t=55'}, None),
        ({"ratelimit": "nonsense;=;t"}, None),
    ],
)
def test_the_wait_is_what_the_headers_ask_for(headers: dict[str, str], wait_s: float | None) -> None:
    assert busy(429, headers).wait_s == wait_s


def test_a_success_after_waits_is_given_and_each_wait_is_said() -> None:
    clock, said = SetClock(), list[str]()
    errors = [BusyError("late"), BusyError("late", wait_s=30)]

    def ask() -> int:
        if errors:
            raise errors.pop(0)
        return 5

    assert Patience(clock, said.append, name="the Hub").patiently(ask) == 5
    assert said == ["the Hub: late; waiting 1 s", "the Hub: late; waiting 30 s"]
    assert clock.monotonic_s() == 31


def test_another_error_is_not_waited_for() -> None:
    said: list[str] = []

    def ask() -> None:
        raise AbsentError("gone")

    with pytest.raises(AbsentError, match=r"^gone$"):
        Patience(SetClock(), said.append, name="the Hub").patiently(ask)
    assert said == []


def test_nobody_begins_again_once_it_was_given_up() -> None:
    calls = 0
    patience = Patience(SetClock(), lambda _: None, name="the Hub")

    def ask() -> None:
        nonlocal calls
        calls += 1
        raise BusyError("late")

    for _ in range(3):
        with pytest.raises(AbsentError) as caught:
            patience.patiently(ask)
        assert caught.value.message == "the Hub did not answer in 4 tries: late"
    assert calls == 4


def test_one_wait_holds_for_all() -> None:
    """While one request waits, the others do not ask."""
    clock, said = SetClock(), list[str]()
    asked_s: list[float] = []
    patience = Patience(clock, said.append, name="the Hub")
    first = threading.Event()

    def ask() -> None:
        asked_s.append(clock.monotonic_s())
        if not first.is_set():
            first.set()
            raise BusyError("late", wait_s=10)

    patience.patiently(ask)
    threads = [threading.Thread(target=lambda: patience.patiently(ask)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked_s[0] == 0
    assert all(moment_s >= 10 for moment_s in asked_s[1:])
    assert said == ["the Hub: late; waiting 10 s"]


def test_a_server_that_asks_for_too_long_a_wait_is_given_up_with_what_helps() -> None:
    def ask() -> None:
        raise BusyError("late", wait_s=3_600)

    for remedy, hint in (("", "run it again later"), ("log in", "run it again later; log in")):
        patience = Patience(SetClock(), lambda _: None, name="`https://h`", remedy=remedy)
        with pytest.raises(AbsentError) as caught:
            patience.patiently(ask)
        assert (caught.value.message, caught.value.hint) == (
            "`https://h` asks to wait 3600 s: late; at most 120 s are waited",
            hint,
        )


@pytest.mark.parametrize("size, waits", [(8 << 20, 0), ((8 << 20) - 1, 1)])
def test_a_long_transfer_that_is_cut_is_no_sign_of_a_busy_server(size: int, waits: int) -> None:
    said: list[str] = []
    cuts = [True]

    def read(counted: Callable[[Iterator[bytes]], Iterator[bytes]]) -> None:
        assert sum(map(len, counted(iter([bytes(size)])))) == size
        if cuts:
            cuts.pop()
            raise BusyError("cut")

    Patience(SetClock(), said.append, name="the Hub").transfer(read)
    assert len(said) == waits


def test_a_transfer_of_nothing_is_tried_again() -> None:
    answers: list[list[bytes]] = [[], [b"x"]]
    said: list[str] = []

    def read(counted: Callable[[Iterator[bytes]], Iterator[bytes]]) -> None:
        list(counted(iter(answers.pop(0))))

    Patience(SetClock(), said.append, name="the Hub").transfer(read)
    assert said == ["the Hub: it sent nothing; waiting 1 s"]
