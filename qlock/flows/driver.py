"""The one driver between suites and engines: many plays kept going, every finished item handed on as a row.

When the engine dies, the items that were under way are asked again one at a time, so that an item that kills it is
found out; after three deaths it is set aside as an error, and the others go on. Where one item after another kills it,
the engine is to blame, and the run stops. Nothing is scored here.

Does not live here: rendering and tokenizing (``flows.asking``), storing rows (``flows.run_folder``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import assert_never

import msgspec

from qlock.core.exchange import Completed, Diverged, Failed, Reply, Scored
from qlock.core.record import Row, Times
from qlock.engines.interface import Broken, Contrasted, Done, Generated, Kept, Measured, Work
from qlock.errors import EngineError
from qlock.flows.asking import Asker, Question
from qlock.flows.seat import Seat
from qlock.suites.interface import Play

DEATHS_OF_ONE_ITEM = 3
"""So often an item is asked alone of an engine that dies at it, before it is set aside."""
HOPELESS_ITEMS = 3
"""So many items set aside one after another, none answered in between, say that the engine is to blame."""
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
        is_over: Whether the time is up, so that nothing more is begun.
    """

    def __init__(
        self,
        seat: Seat,
        asker: Asker,
        *,
        repeat: int,
        segment: int,
        on_row: Callable[[Row], None],
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._seat = seat
        self._asker = asker
        self._repeat = repeat
        self._segment = segment
        self._on_row = on_row
        self._is_over = is_over
        self._under_way: dict[str, Turn] = {}
        self._suspects: deque[Question] = deque()
        self._deaths: dict[str, int] = {}
        """Of every suspect that has no row yet: how often the engine died while it was asked alone."""
        self._set_aside = 0

    def ask(self, questions: tuple[Question, ...], *, slots: int) -> None:
        """Ask every question; returns when each has a row, or when the time is up.

        Raises:
            EngineError: The engine does not come up again, or dies at item after item.
        """
        waiting = deque(questions)
        while self._goes_on(waiting):
            try:
                self._fill(waiting, slots)
                self._take(self._seat.next_done())
            except EngineError as error:
                self._bury(error)
                self._seat.restart()

    def _goes_on(self, waiting: deque[Question]) -> bool:
        if self._is_over():
            waiting.clear()
            self._suspects.clear()
        return bool(waiting or self._suspects or self._under_way)

    def _fill(self, waiting: deque[Question], slots: int) -> None:
        """Begin what may be under way now: suspects one at a time, with nothing beside them."""
        if any(item in self._deaths for item in self._under_way):
            return
        if self._suspects:
            if not self._under_way:
                self._begin(self._suspects.popleft())
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
            self._set_aside = 0
            return
        work = self._asker.work(turn.question.item, request, repeat=self._repeat)
        turn.prompt_tokens = len(work.tokens)
        self._seat.submit(_under(work, done.id))

    def _finish(self, turn: Turn) -> None:
        item = turn.question.item
        del self._under_way[item.id]
        self._deaths.pop(item.id, None)
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

    def _bury(self, error: EngineError) -> None:
        """Make suspects of what was under way; who was alone, and too often, gets a row that says so."""
        turns = list(self._under_way.values())
        if not turns:
            raise error
        alone = turns[0].question.item.id if len(turns) == 1 else None
        for turn in turns:
            turn.play.close()
            self._deaths.setdefault(turn.question.item.id, 0)
        if alone is not None:
            self._deaths[alone] += 1
            if self._deaths[alone] == DEATHS_OF_ONE_ITEM:
                why = f"the engine died {DEATHS_OF_ONE_ITEM} times at this item: {error.message}"
                turns[0].replies = [Failed(why=why)]
                self._finish(turns[0])
                self._set_aside += 1
                if self._set_aside == HOPELESS_ITEMS:
                    raise EngineError(
                        f"the engine died at {HOPELESS_ITEMS} items in a row: {error.message}",
                        hint="look at the engine; the items are asked again by the next run",
                    ) from error
                return
        self._under_way.clear()
        self._suspects.extend(turn.question for turn in turns)


def _under(work: Work, id_: str) -> Work:
    return msgspec.structs.replace(work, id=id_)


def _times(done: Done) -> tuple[float, float]:
    """Seconds of prefill and of decoding."""
    match done:
        case Generated(prefill_s=prefill_s, decode_s=decode_s):
            return prefill_s, decode_s
        case Measured(elapsed_s=elapsed_s) | Contrasted(elapsed_s=elapsed_s) | Kept(elapsed_s=elapsed_s):
            return elapsed_s, 0.0
        case Broken():
            return 0.0, 0.0


def reply_of(done: Done, *, prompt_tokens: int) -> Reply:
    """What the engine gave back, as a suite sees it."""
    match done:
        case Generated():
            return Completed(
                text=done.text,
                tokens=done.tokens,
                ending=done.ending,
                prompt_tokens=prompt_tokens,
                why=done.why,
            )
        case Measured(nats=nats):
            return Scored(nats=nats)
        case Contrasted():
            return Diverged(
                nats=done.nats,
                reference_nats=done.reference_nats,
                kld_nats=done.kld_nats,
                reverse_kld_nats=done.reverse_kld_nats,
                same_top=done.same_top,
                pieces=done.pieces,
                kld_slack_nats=done.kld_slack_nats,
            )
        case Kept():
            raise ValueError(f"`{done.id}` was written to a file, which is no reply")
        case Broken(why=why):
            return Failed(why=why)
        case _:
            assert_never(done)
