from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.exchange import Complete as CompleteRequest
from qlock.core.exchange import Completed, Diverged, Failed, Outcome, Raw, Right, Score, Scored
from qlock.core.facts import Buffer, ProbeRow, ReadBack
from qlock.core.record import Row, is_done
from qlock.engines.interface import (
    Broken,
    Contrast,
    Contrasted,
    Deviation,
    Done,
    Generate,
    Generated,
    Keep,
    Kept,
    KeptFile,
    Load,
    Measure,
    Measured,
    Vocabulary,
    Work,
)
from qlock.errors import AbsentError, EngineError
from qlock.flows.asking import Asker, Prompt, Question, respondent
from qlock.flows.driver import DEATHS_OF_ONE_ITEM, HOPELESS_ITEMS, Driver, reply_of
from qlock.flows.kinds import SuiteKind
from qlock.flows.seat import Seat
from qlock.suites.interface import Answer, Item, Play
from qlock.world.interface import MappedFile
from qlock.world.render import Renderer
from tests.fakes.documents import a_read_back, a_suite


class Mortal:
    """Engines that finish in the order they are told and die when they are told."""

    def __init__(self, turns: Sequence[int], deaths: Sequence[int], killers: frozenset[str]) -> None:
        self.turns = list(turns)
        self.deaths = set(deaths)
        self.killers = killers
        self.answers = 0
        self.starts = 0
        self.submitted: Counter[str] = Counter()
        self.most_under_way = 0

    def start(self) -> MortalEngine:
        self.starts += 1
        return MortalEngine(self)


class MortalEngine:
    def __init__(self, fate: Mortal) -> None:
        self.fate = fate
        self.under_way: dict[str, Work] = {}

    def submit(self, work: Work) -> None:
        assert work.id not in self.under_way
        self.fate.submitted[work.id] += 1
        self.under_way[work.id] = work
        self.fate.most_under_way = max(self.fate.most_under_way, len(self.under_way))

    def next_done(self) -> Done:
        assert self.under_way, "asked for an answer with nothing under way"
        turn = self.fate.answers
        self.fate.answers += 1
        if turn in self.fate.deaths or self.under_way.keys() & self.fate.killers:
            raise EngineError("the engine died")
        names = list(self.under_way)
        chosen = self.fate.turns[turn % len(self.fate.turns)] % len(names) if self.fate.turns else 0
        return answered(self.under_way.pop(names[chosen]))

    def vocabulary(self, header: str) -> Vocabulary:
        raise AssertionError(header)

    def tokenize(
        self, texts: Sequence[str], *, add_special: bool, parse_special: bool
    ) -> list[tuple[int, ...]]:
        return [tuple(text.encode()) for text in texts]

    def close(self) -> None:
        self.under_way.clear()

    def load(self, load: Load) -> ReadBack:
        raise NotImplementedError

    def refer(self, reference: Load | KeptFile) -> ReadBack | None:
        raise NotImplementedError

    def probe(self, prompts: Sequence[tuple[int, ...]], *, steps: int) -> tuple[ProbeRow, ...]:
        raise NotImplementedError

    def mapped_files(self) -> tuple[MappedFile, ...]:
        raise NotImplementedError

    def devices(self) -> tuple[str, ...]:
        raise NotImplementedError

    def memory(self) -> tuple[Buffer, ...]:
        raise NotImplementedError

    def deviations(self) -> tuple[Deviation, ...]:
        raise NotImplementedError

    def label(self) -> str:
        return ""

    def system_info(self) -> str:
        return ""

    def log_tail(self) -> str:
        return ""


def answered(work: Work) -> Done:
    match work:
        case Measure():
            return Measured(id=work.id, nats=(1.0,), elapsed_s=0.5)
        case Contrast():
            return Contrasted(
                id=work.id,
                nats=(1.0,),
                reference_nats=(0.75,),
                kld_nats=(0.5,),
                reverse_kld_nats=(0.25,),
                same_top=(True,),
                pieces=("a",) if work.pieces else (),
                elapsed_s=0.5,
            )
        case Keep():
            return Kept(id=work.id, nats=(1.0,), blake3="blake3:" + "0" * 64, elapsed_s=0.5)
        case Generate():
            return Generated(
                id=work.id,
                tokens=work.tokens,
                text=bytes(work.tokens).decode(),
                ending="eos",
                why="",
                logprobs=(),
                logits_digest="",
                prefill_s=0.25,
                decode_s=0.5,
            )


def two_turns(item: Item, params: Any) -> Play:
    """Complete, then score: a play of two requests."""
    first = yield CompleteRequest(prompt=Raw(text=item.id))
    match first:
        case Completed():
            second = yield Score(tokens=(1, 2), score_from=1)
        case other:
            second = other
    match second:
        case Failed(why=why):
            return Answer(failed=why)
        case Scored(nats=nats):
            return Answer(nats=nats)
        case _:
            return Answer(failed="what?")


def right(item: Item, answer: Answer, params: Any) -> Outcome:
    return Right()


def driver(fate: Mortal, rows: list[Row]) -> Driver:
    kind = SuiteKind(
        kind="two-turns",
        ask_version=1,
        grade_version=1,
        sources=(),
        params=None,
        items=lambda data, params, tokens_of: (),
        ask=two_turns,
        grade=right,
        trials=lambda items, params: (),
    )
    seat = Seat(fate.start)
    asker = Asker(
        respondent=respondent(seat, a_read_back()),
        renderer=Renderer(),
        template=None,
        kind=kind,
        params=None,
        suite=a_suite(),
        frozen_date="2026-01-01",
    )
    return Driver(seat, asker, repeat=1, segment=7, on_row=rows.append)


def questions(count: int) -> tuple[Question, ...]:
    return tuple(
        Question(
            item=Item(id=f"i{number}", slices={"part": "a"}, body={}),
            digest=f"digest {number}",
            first=Prompt(text="", tokens=(65, number), uses_date=False),
            given=None,
        )
        for number in range(count)
    )


def ask(fate: Mortal, count: int, *, slots: int = 2) -> list[Row]:
    rows: list[Row] = []
    driver(fate, rows).ask(questions(count), slots=slots)
    return rows


def test_every_request_of_a_play_is_answered_and_timed() -> None:
    (row,) = ask(Mortal((), (), frozenset()), 1)
    assert (row.item, row.item_digest, row.slices, row.segment) == ("i0", "digest 0", {"part": "a"}, 7)
    assert row.replies == (
        Completed(text="A\0", tokens=(65, 0), ending="eos", prompt_tokens=2),
        Scored(nats=(1.0,)),
    )
    assert (row.times.prefill_s, row.times.decode_s) == (0.75, 0.5)


def test_nothing_to_ask_starts_no_engine() -> None:
    fate = Mortal((), (), frozenset())
    assert (ask(fate, 0), fate.starts) == ([], 0)


def test_an_item_that_always_kills_is_set_aside_after_three_deaths_alone() -> None:
    fate = Mortal((), (), frozenset({"i1"}))
    rows = {row.item: row for row in ask(fate, 4)}
    why = "the engine died 3 times at this item: the engine died"
    assert rows["i1"].replies == (Failed(why=why),)
    assert [item for item, row in rows.items() if is_done(row)] == ["i0", "i2", "i3"]
    assert fate.submitted["i1"] == 1 + DEATHS_OF_ONE_ITEM


def test_suspects_are_asked_alone() -> None:
    fate = Mortal((), (0,), frozenset())
    rows: list[Row] = []
    made = driver(fate, rows)
    watched: list[int] = []
    plain = MortalEngine.next_done

    def next_done(self: MortalEngine) -> Done:
        watched.append(len(self.under_way))
        return plain(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MortalEngine, "next_done", next_done)
        made.ask(questions(6), slots=2)
    # four die together, then each of them is asked alone in two turns, then the last two go side by side
    assert watched[:9] == [4] + [1] * 8
    assert watched[9] == 2
    assert len(rows) == 6


def test_an_engine_that_dies_at_item_after_item_is_to_blame() -> None:
    fate = Mortal((), (), frozenset(f"i{number}" for number in range(10)))
    rows: list[Row] = []
    with pytest.raises(EngineError) as caught:
        driver(fate, rows).ask(questions(10), slots=1)
    assert str(caught.value) == "the engine died at 3 items in a row: the engine died"
    assert len(rows) == HOPELESS_ITEMS


def test_killers_with_good_items_in_between_do_not_end_the_run() -> None:
    killers = frozenset(f"i{number}" for number in range(0, 10, 2))
    rows = ask(Mortal((), (), killers), 10, slots=1)
    assert {row.item for row in rows if not is_done(row)} == killers


def test_a_row_that_cannot_be_stored_ends_the_asking() -> None:
    def full(_: Row) -> None:
        raise AbsentError("no space left")

    fate = Mortal((), (), frozenset())
    made = driver(fate, [])
    made._on_row = full
    with pytest.raises(AbsentError) as caught:
        made.ask(questions(3), slots=1)
    assert (str(caught.value), fate.starts) == ("no space left", 1)


def test_a_broken_reply_ends_its_play_alone() -> None:
    plain = answered

    def some_broken(self: MortalEngine) -> Done:
        name = next(iter(self.under_way))
        work = self.under_way.pop(name)
        return Broken(id=name, why="NaN") if name == "i1" else plain(work)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MortalEngine, "next_done", some_broken)
        rows = {row.item: row for row in ask(Mortal((), (), frozenset()), 3)}
    assert rows["i1"].replies == (Failed(why="NaN"),)
    assert [is_done(rows[item]) for item in ("i0", "i1", "i2")] == [True, False, True]


@given(
    count=st.integers(0, 9),
    slots=st.integers(1, 4),
    turns=st.lists(st.integers(0, 7), max_size=12),
    deaths=st.lists(st.integers(0, 30), max_size=6, unique=True),
    killer=st.none() | st.integers(0, 8),
)
def test_whatever_the_order_and_whenever_it_dies_every_question_gets_exactly_one_row(
    count: int, slots: int, turns: list[int], deaths: list[int], killer: int | None
) -> None:
    killers = frozenset() if killer is None or killer >= count else frozenset({f"i{killer}"})
    fate = Mortal(turns, deaths, killers)
    rows: list[Row] = []
    ended = ""
    try:
        driver(fate, rows).ask(questions(count), slots=slots)
    except EngineError as error:
        ended = str(error)
    if ended:
        # Six chance deaths beside a killer can set three items in a row aside.
        assert ended == "the engine died at 3 items in a row: the engine died"
    else:
        assert {row.item for row in rows} == {f"i{number}" for number in range(count)}
        assert killers <= {row.item for row in rows if not is_done(row)}
    assert max(Counter(row.item for row in rows).values(), default=0) <= 1
    assert fate.most_under_way <= 2 * slots
    for row in rows:
        if is_done(row):
            assert row.replies == (
                Completed(
                    text=f"A{chr(int(row.item[1:]))}",
                    tokens=(65, int(row.item[1:])),
                    ending="eos",
                    prompt_tokens=2,
                ),
                Scored(nats=(1.0,)),
            )


def test_what_the_engine_gives_back_becomes_a_reply() -> None:
    done = Generated(
        id="q",
        tokens=(1,),
        text="a",
        ending="stop",
        why="\n",
        logprobs=(),
        logits_digest="",
        prefill_s=0.0,
        decode_s=0.0,
    )
    assert reply_of(done, prompt_tokens=5) == Completed(
        text="a", tokens=(1,), ending="stop", prompt_tokens=5, why="\n"
    )
    assert reply_of(Measured(id="q", nats=(1.0,), elapsed_s=0.0), prompt_tokens=5) == Scored(nats=(1.0,))
    assert reply_of(Broken(id="q", why="NaN"), prompt_tokens=5) == Failed(why="NaN")
    numbers = {
        "nats": (1.0,),
        "reference_nats": (2.0,),
        "kld_nats": (3.0,),
        "reverse_kld_nats": (4.0,),
        "same_top": (True,),
        "pieces": ("a",),
    }
    contrasted = msgspec.convert({"id": "q", "elapsed_s": 0.0, **numbers}, Contrasted)
    assert reply_of(contrasted, prompt_tokens=5) == msgspec.convert(numbers, Diverged)
    with pytest.raises(ValueError, match=r"^`q` was written to a file, which is no reply$"):
        reply_of(Kept(id="q", nats=(), blake3="", elapsed_s=0.0), prompt_tokens=5)
