from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.digest import blake3_of
from qlock.core.kept_logits import Layout, encoded, head_bytes
from qlock.core.kept_top import Sizes, top_head_bytes
from qlock.engines.interface import Broken, Contrast, Contrasted, Keep, Kept, Measure, Measured, Reading
from qlock.engines.llama_cpp_python import reading
from qlock.engines.llama_cpp_python.kept import Parts
from qlock.engines.llama_cpp_python.measure import NotFiniteError, divergences_of
from qlock.engines.llama_cpp_python.reading import Reader, Reference
from tests.fakes.decoder import SETTING, VOCAB_TOKENS, FakeDecoder

BOS = 1
TOKENS = (5, 6, 7, 8, 9, 10, 11, 12)
WINDOW = (BOS, *TOKENS[1:])
"""As it is decoded: BOS takes the place of the text's first token."""
SCORE_FROM = 5
MEASURE = Measure(id="m", tokens=WINDOW, score_from=SCORE_FROM)
CONTRAST = Contrast(id="c", tokens=WINDOW, score_from=SCORE_FROM, pieces=True)
TOP_ROW_BYTES = 8 + 20 * 6
LAYOUT = Layout(window_tokens=8, vocab_tokens=VOCAB_TOKENS, parts=2)


def read(work: Reading, decoder: FakeDecoder, reference: Reference | None = None, *, row: int = 2) -> object:
    reader = Reader(decoder, lambda: None)
    if reference is not None:
        reader.refer(reference)
    return reader.read(work, row)


def of(setting_batch: int = 64, *, weights: int = 0) -> FakeDecoder:
    return FakeDecoder(msgspec.structs.replace(SETTING, batch_tokens=setting_batch), weights=weights)


def contrasted(
    mine: FakeDecoder, reference: Reference, work: Contrast = CONTRAST, *, row: int = 2
) -> Contrasted:
    done = read(work, mine, reference, row=row)
    assert isinstance(done, Contrasted)
    return msgspec.structs.replace(done, elapsed_s=0.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of two parts, none of them written."""
    made = tmp_path / "a.kld"
    made.write_bytes(head_bytes(LAYOUT, np.array([TOKENS, TOKENS[::-1]], dtype=np.int32)))
    return made


@pytest.fixture
def whole(path: Path) -> Iterator[Parts]:
    """The same once the model of other weights has written both."""
    for part, tokens in enumerate((WINDOW, TOKENS[::-1])):
        done = read(
            Keep(id="k", tokens=tokens, score_from=SCORE_FROM, path=str(path), part=part), of(weights=9)
        )
        assert isinstance(done, Kept)
    with closing(Parts(str(path))) as parts:
        yield parts


def test_a_second_model_is_held_against_the_first_over_the_scored_tokens() -> None:
    mine, other = of(), of(weights=9)
    done = contrasted(mine, other)
    rows = [list(WINDOW[:place]) for place in range(SCORE_FROM, len(WINDOW))]
    expected = divergences_of(
        np.array([mine.logits(row) for row in rows]),
        np.array([other.logits(row) for row in rows]),
        np.array(WINDOW[SCORE_FROM:], dtype=np.int32),
    )
    assert done == Contrasted(
        id="c",
        nats=tuple(expected.nats.tolist()),
        reference_nats=tuple(expected.reference_nats.tolist()),
        kld_nats=tuple(expected.kld_nats.tolist()),
        reverse_kld_nats=tuple(expected.reverse_kld_nats.tolist()),
        same_top=tuple(expected.same_top.tolist()),
        kld_slack_nats=(),
        pieces=("k", "l", "m"),
        elapsed_s=0.0,
    )


def test_pieces_are_given_when_they_are_asked_for() -> None:
    assert contrasted(of(), of(weights=9), msgspec.structs.replace(CONTRAST, pieces=False)).pieces == ()


def test_bytes_that_are_no_text_alone_are_marked() -> None:
    class Bytes(FakeDecoder):
        def piece(self, token: int) -> bytes:
            return "é".encode()[:1]

    assert contrasted(Bytes(), of()).pieces == ("\ufffd",) * 3


def test_the_model_against_itself_is_decoded_once_and_exactly_zero_apart() -> None:
    mine = of()
    done = contrasted(mine, mine)
    assert mine.batches == [8]
    assert (set(done.kld_nats), set(done.reverse_kld_nats), set(done.same_top)) == ({0.0}, {0.0}, {True})
    assert done.nats == done.reference_nats


@pytest.mark.parametrize("row", range(SETTING.slots))
def test_other_rows_keep_what_they_hold(row: int) -> None:
    mine = of()
    mine.held = [[1, 2], [3], [4], [5]]
    contrasted(mine, mine, row=row)
    assert mine.held == [[] if index == row else held for index, held in enumerate([[1, 2], [3], [4], [5]])]


@given(st.lists(st.integers(0, VOCAB_TOKENS - 1), min_size=2, max_size=20), st.data())
def test_costs_are_those_of_a_measurement_however_each_model_cuts_the_tokens(
    tokens: list[int], data: st.DataObject
) -> None:
    first = data.draw(st.integers(1, len(tokens) - 1))
    mine, other = (of(data.draw(st.integers(1, 9)), weights=weights) for weights in (0, 9))
    work = Measure(id="m", tokens=tuple(tokens), score_from=first)
    alone = [read(work, one) for one in (mine, other)]
    asked = Contrast(id="c", tokens=tuple(tokens), score_from=first, pieces=False)
    done = contrasted(mine, other, asked)
    assert [one.nats for one in alone if isinstance(one, Measured)] == [done.nats, done.reference_nats]
    assert {len(column) for column in (done.kld_nats, done.reverse_kld_nats, done.same_top)} == {
        len(tokens) - first
    }


@pytest.mark.parametrize("share", [1, VOCAB_TOKENS, 2 * VOCAB_TOKENS, 1000])
@pytest.mark.parametrize("threads", [1, 3])
def test_neither_shares_nor_threads_change_a_bit(
    monkeypatch: pytest.MonkeyPatch, whole: Parts, share: int, threads: int
) -> None:
    expected = [contrasted(of(), reference) for reference in (of(weights=9), whole)]
    monkeypatch.setattr(reading, "_SHARE", share)
    mine = FakeDecoder(msgspec.structs.replace(SETTING, batch_threads=threads))
    assert [contrasted(mine, reference) for reference in (of(weights=9), whole)] == expected


def test_without_a_reference_there_is_no_divergence() -> None:
    assert read(CONTRAST, of()) == Broken(id="c", why="no reference was named")
    reader = Reader(of(), lambda: None)
    reader.refer(of(weights=9))
    reader.refer(None)
    assert reader.read(CONTRAST, 0) == Broken(id="c", why="no reference was named")


def test_tokens_that_do_not_fit_the_reference_are_told() -> None:
    small = FakeDecoder(msgspec.structs.replace(SETTING, context_tokens=4))
    assert read(CONTRAST, of(), small) == Broken(
        id="c", why="the reference: got `8` tokens to measure, expected at most the context of `4`"
    )


@pytest.mark.parametrize("work", [MEASURE, CONTRAST])
def test_logits_that_are_not_finite_break_the_work_and_leave_the_row_empty(work: Reading) -> None:
    class Broke(FakeDecoder):
        def logits(self, held: object) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
            return np.full(VOCAB_TOKENS, np.nan, dtype=np.float32)

    mine = Broke()
    assert read(work, mine, of()) == Broken(id=work.id, why="logits are not finite")
    assert mine.held[2] == []
    assert read(CONTRAST, of(), mine) == Broken(id="c", why="logits of the reference are not finite")


def test_nothing_reads_logits_any_more_when_there_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []

    def reduce(logits: np.ndarray[Any, Any], targets: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if targets[0] == WINDOW[SCORE_FROM]:
            raise NotFiniteError("the first share alone")
        time.sleep(0.02)
        ended.append(len(logits))
        return np.zeros(len(logits))

    monkeypatch.setattr(reading, "_SHARE", VOCAB_TOKENS)
    monkeypatch.setattr(reading, "nats_of", reduce)
    assert read(MEASURE, of()) == Broken(id="m", why="the first share alone")
    assert ended == [1, 1]


def test_the_threads_end_with_the_reader() -> None:
    before = set(threading.enumerate())
    reader = Reader(of(), lambda: None)
    reader.read(MEASURE, 0)
    mine = set(threading.enumerate()) - before
    assert mine
    del reader
    for thread in mine:
        thread.join(60)
        assert not thread.is_alive()


def test_every_decode_is_a_sign_of_life() -> None:
    said: list[int] = []
    reader = Reader(of(3), lambda: said.append(1))
    reader.refer(of(4, weights=9))
    reader.read(CONTRAST, 0)
    assert len(said) == 3 + 2


def test_a_part_that_is_kept_is_what_was_decoded(path: Path) -> None:
    mine = of(3)
    work = Keep(id="k", tokens=WINDOW, score_from=SCORE_FROM, path=str(path), part=0)
    done = read(work, mine)
    rows = encoded(np.array([mine.logits(WINDOW[:place]) for place in range(SCORE_FROM, 8)]))
    assert path.read_bytes()[LAYOUT.offset(0) :] == rows
    measured = read(MEASURE, mine)
    assert isinstance(measured, Measured)
    assert isinstance(done, Kept)
    assert (done.nats, done.blake3) == (measured.nats, blake3_of(rows))


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"part": 2}, "got part `2`, expected less than `2`"),
        ({"part": 1}, "part `1` of the kept file is of other tokens"),
        ({"tokens": (2, *WINDOW[1:])}, "part `0` of the kept file is of other tokens"),
        ({"tokens": WINDOW[:-1]}, "got `tokens = 7`, expected the kept file's `8`"),
        ({"score_from": 4}, "got `score_from = 4`, expected the kept file's `5`"),
    ],
)
def test_a_part_is_kept_in_its_own_place_alone(path: Path, changes: dict[str, object], why: str) -> None:
    before = path.read_bytes()
    plain = Keep(id="k", tokens=WINDOW, score_from=SCORE_FROM, path=str(path), part=0)
    assert read(msgspec.structs.replace(plain, **changes), of()) == Broken(id="k", why=why)
    assert path.read_bytes() == before


def test_a_file_of_another_vocabulary_is_not_written(path: Path) -> None:
    other = Layout(window_tokens=8, vocab_tokens=30, parts=1)
    path.write_bytes(head_bytes(other, np.array([TOKENS], dtype=np.int32)))
    work = Keep(id="k", tokens=WINDOW, score_from=SCORE_FROM, path=str(path), part=0)
    assert read(work, of()) == Broken(id="k", why="got `vocabulary = 24`, expected the kept file's `30`")


def test_a_file_that_is_not_there_is_not_written(tmp_path: Path) -> None:
    work = Keep(id="k", tokens=WINDOW, score_from=SCORE_FROM, path=f"{tmp_path}/x", part=0)
    assert read(work, of()) == Broken(id="k", why=f"cannot open `{tmp_path}/x`: no such file or directory")


def test_kept_rows_are_the_reference_to_their_rounding(whole: Parts) -> None:
    kept, beside = contrasted(of(3), whole), contrasted(of(), of(weights=9))
    assert kept.nats == pytest.approx(beside.nats, abs=2e-6)
    assert kept.reference_nats == pytest.approx(beside.reference_nats, abs=2e-4)
    assert kept.kld_nats == pytest.approx(beside.kld_nats, abs=2e-4)
    assert kept.reverse_kld_nats == pytest.approx(beside.reverse_kld_nats, abs=2e-4)
    assert (kept.same_top, kept.pieces) == (beside.same_top, beside.pieces)


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"tokens": (2, *WINDOW[1:])}, "the kept file has no part of these tokens"),
        ({"tokens": WINDOW[:-1]}, "the kept file has no part of these tokens"),
        ({"score_from": 4}, "got `score_from = 4`, expected the kept file's `5`"),
    ],
)
def test_what_was_not_kept_cannot_be_held_against(whole: Parts, changes: dict[str, object], why: str) -> None:
    assert read(msgspec.structs.replace(CONTRAST, **changes), of(), whole) == Broken(id="c", why=why)


TOP = Sizes(vocab_tokens=VOCAB_TOKENS, parts=2, kept_tokens=20)
SHORT = (3, 4, 5)


@pytest.fixture
def compact(tmp_path: Path) -> Path:
    """A compact file of two parts of different length, written by the model of other weights."""
    made = tmp_path / "a.top"
    made.write_bytes(top_head_bytes(TOP, [(TOKENS, SCORE_FROM), (SHORT, 1)]))
    for part, (tokens, first) in enumerate(((WINDOW, SCORE_FROM), (SHORT, 1))):
        work = Keep(id="k", tokens=tokens, score_from=first, path=str(made), part=part)
        assert isinstance(read(work, of(weights=9)), Kept)
    return made


def test_the_likeliest_tokens_bound_the_divergence_on_both_sides(compact: Path) -> None:
    for work in (CONTRAST, Contrast(id="s", tokens=SHORT, score_from=1, pieces=False)):
        beside = contrasted(of(), of(weights=9), work)
        with closing(Parts(str(compact))) as parts:
            kept = contrasted(of(3), parts, work)
        assert (kept.nats, kept.same_top, kept.pieces) == (beside.nats, beside.same_top, beside.pieces)
        assert kept.reference_nats == pytest.approx(beside.reference_nats, abs=1e-6)
        assert (len(kept.kld_slack_nats), beside.kld_slack_nats) == (len(kept.nats), ())
        for least, slack, true in zip(kept.kld_nats, kept.kld_slack_nats, beside.kld_nats, strict=True):
            assert least - 1e-6 <= true <= least + slack + 1e-6
            assert true - least < 0.2
        for least, true in zip(kept.reverse_kld_nats, beside.reverse_kld_nats, strict=True):
            assert least - 1e-6 <= true


def test_a_part_of_a_compact_file_is_kept_in_its_own_place_alone(compact: Path) -> None:
    plain = Keep(id="k", tokens=SHORT, score_from=1, path=str(compact), part=1)
    for changes, why in (
        ({"part": 0}, "got `tokens = 3`, expected the kept file's `8`"),
        ({"score_from": 2}, "got `score_from = 2`, expected the kept file's `1`"),
        ({"tokens": (3, 4, 6)}, "part `1` of the kept file is of other tokens"),
    ):
        work = msgspec.structs.replace(plain, **changes)
        assert read(work, of(weights=9)) == Broken(id="k", why=why)


def test_a_compact_part_that_was_never_written_is_no_reference(compact: Path) -> None:
    data = compact.read_bytes()
    compact.write_bytes(data[:-TOP_ROW_BYTES] + bytes(TOP_ROW_BYTES))
    with closing(Parts(str(compact))) as parts:
        assert isinstance(read(CONTRAST, of(), parts), Contrasted)
        work = Contrast(id="s", tokens=SHORT, score_from=1, pieces=False)
        assert read(work, of(), parts) == Broken(
            id="s", why="a kept row is none: its probabilities do not sum to 1"
        )


def test_a_part_that_was_never_written_is_no_reference(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(LAYOUT.total_bytes)
    with closing(Parts(str(path))) as parts:
        assert read(CONTRAST, of(), parts) == Broken(
            id="c", why="a kept row is none: its probabilities do not sum to 1"
        )
