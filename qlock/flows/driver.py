"""The one driver between suites and engines: many plays kept going, every finished item handed on as a row.

When the engine dies, the items that were under way are asked again one at a time, so that an item that kills it is
found out; after three deaths it is set aside as an error, and the others go on. Nothing is scored here.

Does not live here: rendering and tokenizing (``flows.asking``), storing rows (``flows.run_folder``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from qlock.core.exchange import Failed, Reply
from qlock.core.record import Row, Times
from qlock.engines.interface import Broken, Done, Generated, Measured, Work
from qlock.errors import EngineError
from qlock.flows.asking import Asker, Question, reply_of
from qlock.flows.seat import Seat
from qlock.suites.interface import Play

DEATHS_OF_ONE_ITEM = 3
_AHEAD = 2


class Turn(msgspec.Struct, kw_only=True):
    """One item under way."""

    question: Question
    play: Play
    replies: list[Reply]
    prefill_s: float = 0.0
    decode_s: float = 0.0
    prompt_tokens: int


class Driver:
    """Asks questions of the engine in a seat.

    Args:
        seat: The engine, at its point.
        asker: The suite at this point.
        repeat: Which repeat this is; goes into the seeds.
        segment: Number of this stretch of running, for the rows.
        on_row: Takes each finished row; it is stored when this returns.
    """

    def __init__(
        self, seat: Seat, asker: Asker, *, repeat: int, segment: int, on_row: Callable[[Row], None]
    ) -> None:
        self._seat = seat
        self._asker = asker
        self._repeat = repeat
        self._segment = segment
        self._on_row = on_row
        self._under_way: dict[str, Turn] = {}
        self._deaths: dict[str, int] = {}

    def ask(self, questions: tuple[Question, ...], *, slots: int) -> None:
        """Ask every question; returns when each has a row.

        Raises:
            EngineError: The engine does not come up again.
        """
        waiting = deque(questions)
        suspects: deque[Question] = deque()
        while waiting or suspects or self._under_way:
            try:
                self._fill(waiting, suspects, slots)
                self._take(self._seat.next_done())
            except EngineError as error:
                suspects.extend(self._bury(error))
                self._seat.restart()

    def _fill(self, waiting: deque[Question], suspects: deque[Question], slots: int) -> None:
        if suspects:
            if not self._under_way:
                self._begin(suspects.popleft())
            return
        if any(self._deaths.get(item) for item in self._under_way):
            return
        while waiting and len(self._under_way) < slots * _AHEAD:
            self._begin(waiting.popleft())

    def _begin(self, question: Question) -> None:
        play = self._asker.play(question.item)
        next(play)
        work = self._asker.first_work(question, repeat=self._repeat)
        self._under_way[question.item.id] = Turn(
            question=question, play=play, replies=[], prompt_tokens=len(question.first.tokens)
        )
        self._seat.submit(work)

    def _take(self, done: Done) -> None:
        turn = self._under_way[done.id]
        prefill_s, decode_s = _times(done)
        turn.prefill_s += prefill_s
        turn.decode_s += decode_s
        reply = reply_of(done, prompt_tokens=turn.prompt_tokens)
        turn.replies.append(reply)
        try:
            request = turn.play.send(reply)
        except StopIteration:
            self._finish(turn)
            return
        work = self._asker.work(turn.question.item, request, repeat=self._repeat)
        turn.prompt_tokens = len(work.tokens)
        self._seat.submit(_under(work, done.id))

    def _finish(self, turn: Turn) -> None:
        item = turn.question.item
        del self._under_way[item.id]
        self._on_row(
            Row(
                item=item.id,
                item_digest=turn.question.digest,
                slices=item.slices,
                replies=tuple(turn.replies),
                times=Times(prefill_s=turn.prefill_s, decode_s=turn.decode_s),
                segment=self._segment,
            )
        )

    def _bury(self, error: EngineError) -> list[Question]:
        """Take what was under way off; what has to be asked again comes back, alone one after another."""
        turns = list(self._under_way.values())
        self._under_way.clear()
        again = []
        for turn in turns:
            turn.play.close()
            item = turn.question.item.id
            if len(turns) == 1:
                self._deaths[item] = self._deaths.get(item, 0) + 1
            if self._deaths.get(item, 0) >= DEATHS_OF_ONE_ITEM:
                turn.replies = [
                    Failed(why=f"the engine died {DEATHS_OF_ONE_ITEM} times at this item: {error.message}")
                ]
                self._under_way[item] = turn
                self._finish(turn)
            else:
                again.append(turn.question)
        if not turns:
            raise error
        return again


def _under(work: Work, id_: str) -> Work:
    return msgspec.structs.replace(work, id=id_)


def _times(done: Done) -> tuple[float, float]:
    """Seconds of prefill and of decoding."""
    match done:
        case Generated(prefill_s=prefill_s, decode_s=decode_s):
            return prefill_s, decode_s
        case Measured(elapsed_s=elapsed_s):
            return elapsed_s, 0.0
        case Broken():
            return 0.0, 0.0
