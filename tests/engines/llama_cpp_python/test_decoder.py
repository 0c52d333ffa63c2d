from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.engines.interface import Contrast, Keep, Measure, Reading
from qlock.engines.llama_cpp_python.decoder import dummy_token, predictions, prefill, unfit
from tests.fakes.decoder import SETTING, VOCAB_TOKENS, FakeDecoder

MEASURE = Measure(id="m", tokens=(1, 5, 6, 7), score_from=2)
READINGS: tuple[Reading, ...] = (
    MEASURE,
    Contrast(id="c", tokens=MEASURE.tokens, score_from=2, pieces=True),
    Keep(id="k", tokens=MEASURE.tokens, score_from=2, path="/x", part=0),
)


@pytest.mark.parametrize("work", READINGS)
@pytest.mark.parametrize(
    "changes, why",
    [
        ({}, ""),
        ({"tokens": ()}, "got no tokens, expected at least one"),
        ({"tokens": (1, 24)}, f"got token `24`, expected one of `0` to `{VOCAB_TOKENS - 1}`"),
        ({"tokens": (-1, 2)}, f"got token `-1`, expected one of `0` to `{VOCAB_TOKENS - 1}`"),
        ({"tokens": (1,) * 257}, "got `257` tokens to measure, expected at most the context of `256`"),
        ({"score_from": 0}, "got `score_from = 0`, expected `1` to `3`"),
        ({"score_from": 4}, "got `score_from = 4`, expected `1` to `3`"),
    ],
)
def test_work_that_cannot_be_done_is_told_why(work: Reading, changes: dict[str, object], why: str) -> None:
    assert unfit(msgspec.structs.replace(work, **changes), FakeDecoder()) == why


def test_a_prompt_is_decoded_into_an_emptied_row() -> None:
    decoder = FakeDecoder(msgspec.structs.replace(SETTING, batch_tokens=2))
    decoder.held[1] = [9, 9]
    said: list[int] = []
    logits = prefill(decoder, 1, (1, 5, 6), lambda: said.append(len(decoder.batches)))
    assert decoder.held[1] == [1, 5, 6]
    assert logits.tolist() == decoder.logits([1, 5, 6]).tolist()
    assert (decoder.batches, said) == ([2, 1], [1, 2])


def test_the_next_batch_is_decoded_when_it_is_asked_for() -> None:
    decoder = FakeDecoder(msgspec.structs.replace(SETTING, batch_tokens=2))
    found = predictions(decoder, 0, MEASURE, lambda: None)
    logits, targets = next(found)
    assert (decoder.batches, targets.tolist()) == ([2], [6])
    assert logits.tolist() == [decoder.logits([1, 5]).tolist()]
    logits, targets = next(found)
    assert (decoder.batches, targets.tolist()) == ([2, 2], [7])
    assert next(found, None) is None


@given(st.lists(st.integers(0, VOCAB_TOKENS - 1), min_size=2, max_size=20), st.data())
def test_every_scored_token_is_predicted_once_from_all_before_it(
    tokens: list[int], data: st.DataObject
) -> None:
    first = data.draw(st.integers(1, len(tokens) - 1))
    size = data.draw(st.integers(1, 7))
    decoder = FakeDecoder(msgspec.structs.replace(SETTING, batch_tokens=size))
    work = Measure(id="m", tokens=tuple(tokens), score_from=first)
    found = [
        (row.tolist(), target)
        for logits, targets in predictions(decoder, 0, work, lambda: None)
        for row, target in zip(logits, targets.tolist(), strict=True)
    ]
    assert found == [
        (decoder.logits(tokens[:place]).tolist(), tokens[place]) for place in range(first, len(tokens))
    ]
    assert decoder.held[0] == tokens


def test_an_idle_row_decodes_bos_where_there_is_one() -> None:
    decoder = FakeDecoder()
    assert dummy_token(decoder) == 1
    decoder.read_back = msgspec.structs.replace(decoder.read_back, bos_token=-1)
    assert dummy_token(decoder) == 0
