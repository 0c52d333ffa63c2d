"""The least memory of a point, from its header alone."""

from __future__ import annotations

import gguf as oracle
import pytest

from qlock.core.facts import CacheType
from qlock.core.footprint import BYTES_PER_VALUE, footprint
from qlock.core.gguf import Header, read_header
from tests.broken.make_gguf import STRING, U32, array, gguf, kv
from tests.fakes.documents import a_setting


def header(*, kv_heads: int | None = 3, extra: tuple[bytes, ...] = ()) -> Header:
    keys = [
        kv("general.architecture", STRING, "llama"),
        kv("llama.block_count", U32, 30),
        kv("llama.embedding_length", U32, 576),
        kv("llama.attention.head_count", U32, 9),
        *extra,
    ]
    if kv_heads is not None:
        keys.append(kv("llama.attention.head_count_kv", U32, kv_heads))
    data = gguf(keys, [])
    found = read_header(data, len(data))
    assert isinstance(found, Header)
    return found


def test_the_cache_of_smollm2_is_what_llama_cpp_logs() -> None:
    # llama.cpp: "size = 90.00 MiB (2048 cells, 30 layers, 2/2 seqs)" with f16 for two slots of 2048.
    setting = a_setting(context_tokens=2048, slots=2, cache_type_k="f16", cache_type_v="f16")
    needed = footprint(header(), 1000, setting)
    assert needed.cache_bytes == 90 * 1024 * 1024
    assert needed.total_bytes == 90 * 1024 * 1024 + 1000


def test_key_and_value_length_of_the_header_go_before_the_width_of_a_head() -> None:
    setting = a_setting(context_tokens=256, slots=1, cache_type_k="f32", cache_type_v="f16")
    extra = (kv("llama.attention.key_length", U32, 10), kv("llama.attention.value_length", U32, 20))
    assert footprint(header(extra=extra), 0, setting).cache_bytes == 256 * 30 * 3 * (10 * 4 + 20 * 2)


def test_without_its_own_count_every_head_is_cached() -> None:
    setting = a_setting(context_tokens=256, slots=1, cache_type_k="f16", cache_type_v="f16")
    assert footprint(header(kv_heads=None), 0, setting).cache_bytes == 256 * 30 * 9 * 64 * 4


def test_a_header_that_does_not_say_leaves_the_weights_as_lower_bound() -> None:
    data = gguf([kv("general.architecture", STRING, "llama"), array("llama.block_count", U32, [1, 2])], [])
    found = read_header(data, len(data))
    assert isinstance(found, Header)
    assert footprint(found, 7, a_setting()).total_bytes == 7


@pytest.mark.parametrize("kind", list(BYTES_PER_VALUE))
def test_bytes_per_value_are_those_of_the_type(kind: CacheType) -> None:
    values, size = oracle.GGML_QUANT_SIZES[oracle.GGMLQuantizationType[kind.upper()]]
    assert BYTES_PER_VALUE[kind] * values == size
