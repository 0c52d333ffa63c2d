from __future__ import annotations

import msgspec
import pytest

from qlock.core.facts import Buffer, ProbeRow
from qlock.engines.interface import (
    Broken,
    Contrast,
    Contrasted,
    Generate,
    Generated,
    Keep,
    Kept,
    KeptFile,
    Load,
    Measure,
    Measured,
    Vocabulary,
)
from qlock.engines.llama_cpp_python import wire
from qlock.errors import EngineError
from tests.fakes.decoder import GREEDY, SETTING, read_back_of

ORDERS: tuple[wire.Order, ...] = (
    wire.LoadOrder(load=Load(weights=("/a b/ü.gguf",), setting=SETTING)),
    wire.VocabularyOrder(header="/a b/ü.gguf"),
    wire.TokenizeOrder(text="a\n\x00🦙", add_special=True, parse_special=False),
    wire.ProbeOrder(prompts=((1, 2), (3,)), steps=8),
    Generate(id="a", tokens=(1, 2), sampling=GREEDY, logprobs=True, logits_digest=False),
    Measure(id="b", tokens=(1, 2), score_from=1),
    wire.ReferOrder(load=Load(weights=("/a b/ü.gguf",), setting=SETTING)),
    wire.ReferFileOrder(file=KeptFile(path="/a b/ü.kld")),
    Contrast(id="c", tokens=(1, 2), score_from=1, pieces=True),
    Keep(id="d", tokens=(1, 2), score_from=1, path="/a b/ü.kld", part=0),
)

WORDS: tuple[wire.Word, ...] = (
    wire.Hello(label="l", system_info="CPU : AVX = 1"),
    wire.Loaded(
        read_back=read_back_of(SETTING),
        devices=("0000:18:00.0",),
        memory=(Buffer(place="CUDA0", use="KV", size_bytes=1),),
    ),
    Vocabulary(add_bos=True, bos_token=-1, bos_text="", eos_text="</s>"),
    wire.Tokens(tokens=(1, 2)),
    wire.Probed(
        rows=(
            ProbeRow(
                variation="repeat",
                rows=1,
                rows_bitwise=1,
                rows_tokens=1,
                logit_difference_max=0.0,
                kl_nats_mean=0.0,
            ),
        )
    ),
    wire.Alive(),
    wire.Refused(why="no"),
    Generated(
        id="a",
        tokens=(5,),
        text="\u2028",
        ending="stop",
        why="\n\n",
        logprobs=(-0.1,),
        logits_digest="",
        prefill_s=0.1,
        decode_s=0.2,
    ),
    Measured(id="b", nats=(0.1 + 0.2,), elapsed_s=1.0),
    Broken(id="c", why="w"),
    wire.Referred(read_back=None, devices=("0000:18:00.0",)),
    Contrasted(
        id="d",
        nats=(0.1,),
        reference_nats=(0.2,),
        kld_nats=(0.3,),
        reverse_kld_nats=(0.4,),
        same_top=(True,),
        pieces=("\u2028",),
        elapsed_s=1.0,
    ),
    Kept(id="e", nats=(0.1,), blake3="blake3:00", elapsed_s=1.0),
)


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_an_order_reads_back_as_it_was_written(order: wire.Order) -> None:
    line = wire.encode(order)
    assert b"\n" not in line
    assert wire.order_from(line) == order


@pytest.mark.parametrize("word", WORDS, ids=lambda word: type(word).__name__)
def test_a_word_reads_back_as_it_was_written(word: wire.Word) -> None:
    line = wire.encode(word)
    assert b"\n" not in line
    assert wire.word_from(line) == word


def test_every_order_and_every_word_is_tried_above() -> None:
    assert {type(order) for order in ORDERS} == set(wire.Order.__args__)
    assert {type(word) for word in WORDS} == set(wire.Word.__args__)


@pytest.mark.parametrize(
    "line, message",
    [
        (
            b"ggml: hello",
            "the engine answered nonsense: got `ggml: hello`, expected a word: JSON is malformed: invalid character (byte 0)",
        ),
        (
            b'{"kind":"tokens"}',
            'the engine answered nonsense: got `{"kind":"tokens"}`, expected a word: Object missing required field `tokens`',
        ),
        (
            b'{"kind":"moo"}',
            'the engine answered nonsense: got `{"kind":"moo"}`, expected a word: Invalid value \'moo\' - at `$.kind`',
        ),
        (
            b"\xff" * 200,
            f"the engine answered nonsense: got `{'�' * 80}`, expected a word: JSON is malformed: invalid character (byte 0)",
        ),
        (
            b'{"kind":"measured","id":"b","nats":[null],"elapsed_s":1}',
            (
                'the engine answered nonsense: got `{"kind":"measured","id":"b","nats":[null],"elapsed_s":1}`, expected a word: '
                "Expected `float`, got `null` - at `$.nats[0]`"
            ),
        ),
    ],
)
def test_what_is_no_word_is_nonsense(line: bytes, message: str) -> None:
    with pytest.raises(EngineError) as caught:
        wire.word_from(line)
    assert caught.value.message == message


def test_an_order_that_is_none_is_a_bug_of_ours() -> None:
    with pytest.raises(msgspec.ValidationError):
        wire.order_from(b'{"kind":"alive"}')
