from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.engines.interface import (
    Broken,
    Contrasted,
    Done,
    Generate,
    Generated,
    Kept,
    Measure,
    Measured,
    Sampling,
    Work,
)
from qlock.engines.llama_cpp_python.lockstep import Lockstep
from tests.fakes.decoder import GREEDY, SETTING, VOCAB_TOKENS, FakeDecoder


def generate(name: str, *tokens: int, sampling: Sampling = GREEDY) -> Generate:
    return Generate(id=name, tokens=tokens, sampling=sampling, logprobs=False, logits_digest=True)


def timeless(done: Done) -> Done:
    match done:
        case Generated():
            return msgspec.structs.replace(done, prefill_s=0.0, decode_s=0.0)
        case Measured() | Contrasted() | Kept():
            return msgspec.structs.replace(done, elapsed_s=0.0)
        case Broken():
            return done


def play(decoder: FakeDecoder, works: Sequence[Work]) -> dict[str, Done]:
    lockstep = Lockstep(decoder, lambda: None)
    for work in works:
        lockstep.submit(work)
    finished: list[Done] = []
    while lockstep.is_busy:
        finished += lockstep.advance()
    assert len(finished) == len(works)
    return {done.id: timeless(done) for done in finished}


def test_every_decode_has_exactly_as_many_rows_as_slots() -> None:
    decoder = FakeDecoder()
    play(decoder, [generate("a", 1, 5), generate("b", 1, 6, 7)])
    assert set(decoder.widths) == {SETTING.slots}


def test_a_prompt_is_prefilled_alone_in_batches() -> None:
    decoder = FakeDecoder(msgspec.structs.replace(SETTING, batch_tokens=4))
    play(decoder, [generate("a", *range(3, 13)), generate("b", *range(3, 11)), generate("c", 5)])
    assert decoder.batches == [4, 4, 2, 4, 4, 1]


def test_idle_rows_and_rows_that_ended_hold_no_more_than_a_dummy() -> None:
    decoder = FakeDecoder()
    play(decoder, [generate("a", 1, 5), generate("b", 1, 6, 7)])
    assert [len(held) <= 1 for held in decoder.held] == [True] * SETTING.slots


def test_new_work_enters_when_a_row_becomes_free() -> None:
    sampling = msgspec.structs.replace(GREEDY, ignore_eos=True)
    one = msgspec.structs.replace(sampling, answer_tokens=2)
    decoder = FakeDecoder(msgspec.structs.replace(SETTING, slots=2))
    play(
        decoder,
        [generate("long", 1, 3, sampling=sampling)]
        + [generate(f"{n}", 1, n, sampling=one) for n in (4, 5, 6)],
    )
    # Eight tokens of the long one need seven decodes; the short ones go along, one decode each.
    assert decoder.widths == [2] * 7


def test_with_one_slot_a_decode_is_one_row() -> None:
    decoder = FakeDecoder(msgspec.structs.replace(SETTING, slots=1))
    play(decoder, [generate("a", 1, 5), generate("b", 1, 6, 7)])
    assert set(decoder.widths) == {1}


def test_the_answer_is_the_greedy_continuation() -> None:
    decoder = FakeDecoder()
    held = [1, 5]
    expected: list[int] = []
    for _ in range(GREEDY.answer_tokens):
        token = int(np.argmax(decoder.logits(held)))
        if token in decoder.end_tokens:
            break
        expected.append(token)
        held.append(token)
    done = play(decoder, [generate("a", 1, 5)])["a"]
    assert isinstance(done, Generated)
    assert list(done.tokens) == expected


def test_the_context_is_filled_to_its_last_token_and_no_further() -> None:
    sampling = msgspec.structs.replace(GREEDY, ignore_eos=True, answer_tokens=1000)
    done = play(FakeDecoder(), [generate("a", *[5] * 250, sampling=sampling)])["a"]
    assert isinstance(done, Generated)
    assert (len(done.tokens), done.ending) == (6, "context")
    assert done.why == "prompt and answer fill the context of `256` tokens"


def test_a_prompt_that_does_not_fit_is_an_ending_and_is_not_decoded() -> None:
    decoder = FakeDecoder()
    done = play(decoder, [generate("a", *[5] * 300)])["a"]
    assert isinstance(done, Generated)
    assert (done.tokens, done.text, done.ending) == ((), "", "context")
    assert done.why == "a prompt of `300` tokens leaves no room in a context of `256`"
    assert (decoder.batches, decoder.widths) == ([], [])


def test_nats_are_those_of_each_position_given_all_before() -> None:
    decoder = FakeDecoder(msgspec.structs.replace(SETTING, batch_tokens=4))
    tokens = (1, 5, 9, 3, 7, 8, 4, 4, 4, 6)
    done = play(decoder, [Measure(id="m", tokens=tokens, score_from=3)])["m"]
    assert isinstance(done, Measured)
    expected = []
    for place in range(3, len(tokens)):
        logits = decoder.logits(tokens[:place]).astype(np.float64)
        expected.append(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[tokens[place]])
    assert done.nats == pytest.approx(expected, abs=1e-6)
    assert decoder.batches == [4, 4, 2]


@pytest.mark.parametrize(
    "work, why",
    [
        (generate("x"), "got no tokens, expected at least one"),
        (generate("x", 1, 24), "got token `24`, expected one of `0` to `23`"),
        (generate("x", -1, 4), "got token `-1`, expected one of `0` to `23`"),
        (Measure(id="x", tokens=(), score_from=1), "got no tokens, expected at least one"),
        (Measure(id="x", tokens=(1, 2), score_from=0), "got `score_from = 0`, expected `1` to `1`"),
        (Measure(id="x", tokens=(1, 2), score_from=2), "got `score_from = 2`, expected `1` to `1`"),
        (
            Measure(id="x", tokens=(1,) * 257, score_from=1),
            "got `257` tokens to measure, expected at most the context of `256`",
        ),
    ],
)
def test_work_that_cannot_be_done_is_broken_and_the_rest_goes_on(work: Work, why: str) -> None:
    done = play(FakeDecoder(), [work, generate("y", 1, 5)])
    assert done["x"] == Broken(id="x", why=why)
    assert isinstance(done["y"], Generated)


class Sick(FakeDecoder):
    def logits(self, held: list[int]) -> np.typing.NDArray[np.float32]:  # type: ignore[override]  # lists alone come here
        logits = super().logits(held)
        if held[0] == 9:
            logits[3] = np.nan if len(held) > 2 else logits[3]
        return logits


def test_logits_that_are_not_finite_break_one_item_and_leave_its_neighbours() -> None:
    well = play(FakeDecoder(), [generate("y", 1, 5)])
    done = play(
        Sick(), [generate("x", 9, 5), Measure(id="m", tokens=(9, 4, 5, 6), score_from=1), generate("y", 1, 5)]
    )
    assert done["x"] == Broken(id="x", why="logits are not finite at step `1`")
    assert done["m"] == Broken(id="m", why="logits are not finite")
    assert done["y"] == well["y"]


def test_a_sign_of_life_follows_every_decode() -> None:
    decoder = FakeDecoder(msgspec.structs.replace(SETTING, batch_tokens=2))
    signs: list[int] = []
    lockstep = Lockstep(decoder, lambda: signs.append(1))
    lockstep.submit(generate("a", 1, 5, 6))
    lockstep.submit(Measure(id="m", tokens=(1, 4, 5, 6), score_from=1))
    while lockstep.is_busy:
        lockstep.advance()
    assert len(signs) == len(decoder.batches) + len(decoder.widths)


tokens = st.lists(st.integers(0, VOCAB_TOKENS - 1), min_size=1, max_size=9).map(tuple)
samplings = st.builds(
    lambda temperature, seed, answer: msgspec.structs.replace(
        GREEDY, temperature=temperature, seed=seed, answer_tokens=answer
    ),
    st.sampled_from([0.0, 0.8]),
    st.integers(0, 3),
    st.integers(0, 9),
)
asked = st.one_of(
    st.builds(
        Generate,
        id=st.just(""),
        tokens=tokens,
        sampling=samplings,
        logprobs=st.booleans(),
        logits_digest=st.just(True),
    ),
    st.builds(Measure, id=st.just(""), tokens=tokens.filter(lambda t: len(t) > 1), score_from=st.just(1)),
)


@given(
    st.lists(asked, min_size=1, max_size=7),
    st.randoms(use_true_random=False),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_what_comes_of_a_piece_of_work_depends_on_it_alone(
    works: list[Work], random: Random, slots: int, split: int
) -> None:
    named: list[Work] = [msgspec.structs.replace(work, id=str(number)) for number, work in enumerate(works)]
    decoder = FakeDecoder(msgspec.structs.replace(SETTING, slots=slots))
    together = play(decoder, named)
    shuffled = list(named)
    random.shuffle(shuffled)
    apart = play(FakeDecoder(decoder.setting), shuffled[:split]) | play(
        FakeDecoder(decoder.setting), shuffled[split:]
    )
    assert together == apart
    assert all(width == slots for width in decoder.widths)
