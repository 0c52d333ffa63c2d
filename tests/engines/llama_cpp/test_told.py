from __future__ import annotations

import msgspec
import pytest

from qlock.core.facts import Buffer, ReadBack
from qlock.engines.llama_cpp.logbook import Said
from qlock.engines.llama_cpp.server import Seen
from qlock.engines.llama_cpp.told import read_back_of
from tests.engines.llama_cpp.conftest import SETTING

SAID = Said(
    context_tokens=512,
    sequences=1,
    batch_tokens=64,
    ubatch_tokens=32,
    threads=3,
    batch_threads=4,
    cache_type_k="f16",
    cache_type_v="q8_0",
    flash_attention=True,
    layers=5,
    layers_offloaded=2,
    weights_buffer=(Buffer(place="CUDA0", use="model", size_bytes=1_572_864),),
    cache_buffer=(Buffer(place="CPU", use="KV", size_bytes=524_288),),
    is_kv_unified=False,
    trained_context_tokens=2048,
    vocab_tokens=320,
    bos_token=1,
    eos_token=2,
    end_tokens=(2, 7),
    expert_count=4,
    system_info="CPU",
    devices=(),
    memory=(),
)
SEEN = Seen(said=SAID, slots=1, context_tokens=512, bos_text="<s>", eos_text="</s>", deviations=())


def told(
    *, asked: int = 512, padded: int = 512, slot: int = 512, batch: int = 64, slots: int = 1
) -> ReadBack:
    said = msgspec.structs.replace(SAID, context_tokens=padded, batch_tokens=batch)
    seen = msgspec.structs.replace(SEEN, said=said, context_tokens=slot, slots=slots)
    setting = msgspec.structs.replace(SETTING, context_tokens=asked, batch_tokens=1024)
    return read_back_of(seen, setting, add_bos=True, add_eos=False)


def test_everything_that_is_said_is_read_back() -> None:
    setting = msgspec.structs.replace(SETTING, batch_tokens=64, ubatch_tokens=32)
    assert read_back_of(SEEN, setting, add_bos=True, add_eos=False) == ReadBack(
        context_tokens=512,
        slots=1,
        batch_tokens=64,
        ubatch_tokens=32,
        threads=3,
        batch_threads=4,
        cache_type_k="f16",
        cache_type_v="q8_0",
        flash_attention=True,
        layers=5,
        layers_offloaded=2,
        weights_buffer=SAID.weights_buffer,
        cache_buffer=SAID.cache_buffer,
        trained_context_tokens=2048,
        vocab_tokens=320,
        add_bos=True,
        add_eos=False,
        bos_token=1,
        eos_token=2,
        bos_text="<s>",
        eos_text="</s>",
        end_tokens=(2, 7),
        expert_count=4,
    )


@pytest.mark.parametrize(
    "asked, padded, slot, context",
    [
        pytest.param(500, 512, 512, 500, id="rounded up"),
        pytest.param(512, 512, 512, 512, id="as asked"),
        pytest.param(500, 512, 500, 500, id="a slot cut to what the model was trained with"),
        pytest.param(512, 256, 256, 256, id="less than asked"),
        pytest.param(512, 512, 300, 300, id="a slot with less than asked"),
        pytest.param(500, 1024, 1024, 1024, id="more than rounding"),
    ],
)
def test_rounding_of_the_context_is_no_difference(asked: int, padded: int, slot: int, context: int) -> None:
    assert told(asked=asked, padded=padded, slot=slot).context_tokens == context


def test_a_batch_cut_to_the_context_is_as_asked_and_a_smaller_one_is_not() -> None:
    assert told(batch=512).batch_tokens == 1024
    assert told(batch=511).batch_tokens == 511


def test_more_slots_than_sequences_are_seen() -> None:
    assert told(slots=2).slots == 2
