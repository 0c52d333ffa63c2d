"""A header cut down to its vocabulary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.gguf_header import Header
from qlock.core.gguf_reader import read_header
from qlock.core.gguf_vocabulary import vocabulary_digest, vocabulary_file
from tests.broken.make_gguf import BOOL, F32, I32, LLAMA, STRING, U32, array, gguf, kv, tensor

NAME = kv("general.name", STRING, "ü 🦙")
TOKENS = array("tokenizer.ggml.tokens", STRING, ["a", "", "ü"])
BASE = [
    LLAMA,
    NAME,
    TOKENS,
    array("tokenizer.ggml.token_type", I32, [1, -1, 6]),
    kv("tokenizer.ggml.add_bos_token", BOOL, 1),
    kv("llama.context_length", U32, 4096),
]
WITHOUT = [
    kv("general.file_type", U32, 15),
    kv("general.sampling.temp", F32, 0.5),
    kv("quantize.imatrix.file", STRING, "x.dat"),
    kv("split.count", U32, 3),
    kv("tokenizer.chat_template", STRING, "{{ messages }}"),
    kv("tokenizer.chat_template.tool_use", STRING, "{{ tools }}"),
]


def header_of(keys: list[bytes], *, tensors: bool = True, version: int = 3) -> Header:
    rows = [tensor("token_embd.weight", (32,))] if tensors else []
    data = gguf(keys, rows, bytes(128) if tensors else b"", version=version)
    header = read_header(data, len(data))
    assert isinstance(header, Header)
    return header


def cut(header: Header) -> Header:
    """What comes back from the file."""
    data = vocabulary_file(header)
    read = read_header(data, len(data))
    assert isinstance(read, Header)
    return read


def test_the_file_holds_the_same_values_by_name_and_no_tensors() -> None:
    whole = header_of([*reversed(WITHOUT), *BASE])
    read = cut(whole)
    assert (read.tensors, list(read.values)) == ((), sorted(header_of(BASE).values))
    assert [read.row(key) for key in read.values] == [whole.row(key) for key in read.values]


@pytest.mark.parametrize("version", [2, 3])
def test_the_version_of_the_file_stays(version: int) -> None:
    assert cut(header_of(BASE, version=version)).version == version


@pytest.mark.parametrize(
    "more", WITHOUT, ids=["quant", "sampling", "imatrix", "split", "template", "named template"]
)
def test_what_differs_between_quants_of_one_model_does_not_count(more: bytes) -> None:
    assert vocabulary_digest(header_of([*BASE, more])) == vocabulary_digest(header_of(BASE))


@pytest.mark.parametrize(
    "more",
    [
        kv("tokenizer.ggml.pre", STRING, "smollm"),
        kv("tokenizer.ggml.bos_token_id", U32, 1),
        kv("tokenizer.huggingface.json", STRING, "{}"),
        kv("llama.vocab_size", U32, 3),
        kv("another.key", U32, 3),
    ],
    ids=["pre", "bos", "other tokenizer keys", "vocabulary size", "a key of somebody else"],
)
def test_everything_else_counts(more: bytes) -> None:
    assert vocabulary_digest(header_of([*BASE, more])) != vocabulary_digest(header_of(BASE))


def test_the_name_counts_since_llama_cpp_looks_at_it() -> None:
    other = [row for row in BASE if row != NAME]
    assert vocabulary_digest(header_of([*other, kv("general.name", STRING, "Phi-3")])) != vocabulary_digest(
        header_of(BASE)
    )


@given(st.permutations([*BASE, *WITHOUT]))
def test_the_order_of_keys_changes_neither_digest_nor_file(keys: list[bytes]) -> None:
    plain, other = header_of([*BASE, *WITHOUT]), header_of(keys)
    assert vocabulary_digest(other) == vocabulary_digest(plain)
    assert vocabulary_file(other) == vocabulary_file(plain)


def test_a_file_cut_again_is_the_same() -> None:
    header = header_of([*BASE, *WITHOUT])
    assert vocabulary_file(cut(header)) == vocabulary_file(header)
    assert vocabulary_digest(cut(header)) == vocabulary_digest(header)
