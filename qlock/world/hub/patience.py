"""How long a busy server is waited for: a bounded time, announced, and never by many at once.

Lives here: which answers mean "later", and the waiting that all requests to one server share: when one is told to wait,
none of the others asks meanwhile, and when one has given up, none begins again. Does not live here: the requests.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from qlock.errors import AbsentError
from qlock.world.interface import Clock

MOST_TRIES = 4
"""Of one request."""
MOST_WAIT_S = 120
"""A server that asks for more is not waited for."""

BUSY = frozenset({408, 429, 500, 502, 503, 504})
"""Answers that mean "not now"."""

_WORDS = {408: "it took too long", 429: "too many requests"}

_USED_UP = re.compile(r";\s*r\s*=\s*0\s*;\s*t\s*=\s*([0-9]{1,9})(?![0-9])")

_PROGRESS_BYTES = 8 << 20
"""A transfer that is cut after so much counts as one that works."""

_T = TypeVar("_T")


class BusyError(Exception):
    """The server cannot answer now, or the connection broke.

    Args:
        why: One line for people, without addresses.
        wait_s: What the server asked for; ``None`` when it did not say.
    """

    def __init__(self, why: str, *, wait_s: float | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.wait_s = wait_s


def busy(status: int, headers: Mapping[str, str]) -> BusyError:
    """The error for an answer of ``BUSY``, with the wait that its headers ask for.

    ``Retry-After`` in seconds (a date there is passed over, as the library does), else ``t=`` of a used-up ``RateLimit`` (the Hub sends ``"api";r=0;t=55``).
    """
    why = _WORDS.get(status, "it has a fault or is overloaded")
    asked = headers.get("retry-after", "").strip()
    wait_s: float | None = float(asked) if asked.isascii() and asked.isdigit() and len(asked) < 10 else None
    used_up = _USED_UP.search(headers.get("ratelimit", ""))
    if wait_s is None and used_up:
        wait_s = float(used_up[1])
    return BusyError(f"{why} ({status})", wait_s=wait_s)


class Patience:
    """The waiting for one server.

    Args:
        clock: Waiting goes through it.
        announce: Told about each wait, in one line.
        name: Of the server, in messages.
        remedy: What raises its limits; put behind a hint.
    """

    def __init__(self, clock: Clock, announce: Callable[[str], None], *, name: str, remedy: str = "") -> None:
        self._clock = clock
        self._announce = announce
        self._name = name
        self._remedy = remedy
        self._lock = threading.Lock()
        self._not_before_s = 0.0
        self._given_up: AbsentError | None = None

    def patiently(self, ask: Callable[[], _T]) -> _T:
        """What ``ask`` gives, after as many waits as are allowed.

        Raises:
            AbsentError: The server stays busy, asks for too long a wait, or was given up before.
        """
        tries = 0
        while True:
            self._take_turn()
            try:
                return ask()
            except BusyError as error:
                why = error
            tries += 1
            self._wait(why, tries)

    def transfer(self, read: Callable[[Callable[[Iterator[bytes]], Iterator[bytes]]], None]) -> None:
        """Let ``read`` hand on the bytes of an answer, passed through what it is given; again, where it must wait.

        A long transfer that is cut is gone on with by the caller, and is no sign of a busy server.
        """
        taken = 0

        def counted(pieces: Iterator[bytes]) -> Iterator[bytes]:
            nonlocal taken
            for piece in pieces:
                taken += len(piece)
                yield piece

        def attempt() -> None:
            nonlocal taken
            taken = 0
            try:
                read(counted)
                if taken == 0:
                    raise BusyError("it sent nothing")
            except BusyError:
                if taken < _PROGRESS_BYTES:
                    raise

        self.patiently(attempt)

    def _take_turn(self) -> None:
        """Wait until nobody has been asked to wait any more."""
        while True:
            with self._lock:
                if self._given_up is not None:
                    raise AbsentError(self._given_up.message, hint=self._given_up.hint)
                rest_s = self._not_before_s - self._clock.monotonic_s()
            if rest_s <= 0:
                return
            self._clock.sleep_s(rest_s)

    def _wait(self, error: BusyError, tries: int) -> None:
        """Put off every request for as long as it takes, or give up."""
        wait_s = float(2 ** (tries - 1)) if error.wait_s is None else error.wait_s
        with self._lock:
            if wait_s > MOST_WAIT_S:
                self._given_up = AbsentError(
                    f"{self._name} asks to wait {wait_s:.0f} s: {error.why}; at most {MOST_WAIT_S} s are waited",
                    hint="run it again later" + (f"; {self._remedy}" if self._remedy else ""),
                )
            elif tries >= MOST_TRIES:
                self._given_up = AbsentError(
                    f"{self._name} did not answer in {tries} tries: {error.why}", hint="run it again later"
                )
            if self._given_up is not None:
                raise self._given_up
            until_s = self._clock.monotonic_s() + wait_s
            if until_s > self._not_before_s:
                self._not_before_s = until_s
                self._announce(f"{self._name}: {error.why}; waiting {wait_s:.0f} s")
