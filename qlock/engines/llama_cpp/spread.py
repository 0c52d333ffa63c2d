"""Several one-slot servers with one queue in front: each takes the next piece of work when it is free.

A server with several slots would decode what happens to be under way together, and an answer would depend on its
neighbours; servers of one slot each give the same bytes however many there are. One thread for each server waits for
its answer; everything else happens on the caller's thread, also looking whether a server that is at work moves on.

Does not live here: what an answer means (``completion``), one server (``server``).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence

import msgspec

from qlock.engines.interface import Broken, Generate, Generated
from qlock.engines.llama_cpp.asked import Room
from qlock.engines.llama_cpp.completion import answered_at_once, body_of, done_of
from qlock.engines.llama_cpp.server import Answered, Lost, Server
from qlock.errors import EngineError

_LOOK_S = 1.0
_END_S = 5.0


class _At(msgspec.Struct):
    """What a busy server was last seen to do."""

    moved_s: float
    counters: str | None = None


class _Back(msgspec.Struct, frozen=True):
    """What came back from one server."""

    server: int
    work: Generate
    came: Answered | Lost | Generated | Broken


class Spread:
    """Work in, done out, over all servers.

    Args:
        servers: Ready ones, with the same model loaded the same way.
        rooms: Of each.
        progress_s: How long a server that is at work may show no progress.
    """

    def __init__(self, servers: Sequence[Server], rooms: Sequence[Room], *, progress_s: float) -> None:
        self._servers = tuple(servers)
        self._rooms = tuple(rooms)
        self._progress_s = progress_s
        self._inbox: queue.SimpleQueue[Generate | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[_Back] = queue.SimpleQueue()
        self._busy: dict[int, _At] = {}
        self._threads = [
            threading.Thread(target=self._serve, args=(number,), daemon=True)
            for number in range(len(servers))
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Generate) -> None:
        """Queue a piece of work."""
        self._inbox.put(work)

    def next_done(self) -> Generated | Broken:
        """Wait for the next finished piece.

        Raises:
            EngineError: A server died, shows no progress, or does not do as it is told.
        """
        while True:
            try:
                back = self._outbox.get(timeout=min(_LOOK_S, self._progress_s / 4))
            except queue.Empty:
                self._look()
                continue
            match back.came:
                case Answered(status=status, data=data):
                    return done_of(back.work, self._rooms[back.server], status=status, data=data)
                case Lost(why=why):
                    raise self._servers[back.server].no_answer(why)
                case Generated() | Broken() as done:
                    return done

    def close(self) -> None:
        """End the threads; the servers must have ended, so that nobody waits for an answer any more."""
        for _ in self._threads:
            self._inbox.put(None)
        for thread in self._threads:
            thread.join(_END_S)

    def _serve(self, number: int) -> None:
        """The life of one server's thread."""
        server, room = self._servers[number], self._rooms[number]
        while (work := self._inbox.get()) is not None:
            came: Answered | Lost | Generated | Broken | None = answered_at_once(work, room)
            if came is None:
                self._busy[number] = _At(moved_s=time.monotonic())
                came = server.ask("/completion", body_of(work, room), deadline_s=None)
                self._busy.pop(number, None)
            self._outbox.put(_Back(number, work, came))

    def _look(self) -> None:
        """Refuse a server that has ended, or that is at work and does not move."""
        for number, at in list(self._busy.items()):
            server = self._servers[number]
            how = server.how_ended()
            if how:
                raise EngineError(f"the engine died ({how})")
            counters = server.progress()
            now_s = time.monotonic()
            if counters is not None and counters != at.counters:
                at.counters, at.moved_s = counters, now_s
            if now_s - at.moved_s > self._progress_s:
                raise EngineError(
                    f"the engine gave no sign of life for {self._progress_s:g} s, asked to compute"
                )
