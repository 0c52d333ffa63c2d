"""What a model is, told from its header: facts, warnings, and digests that say what differs."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import UNSET

from qlock.core.digest import is_digest
from qlock.core.gguf import (
    GgufFacts,
    Header,
    RecipeRow,
    Split,
    describe,
    is_imatrix,
    metadata_digest,
    read_header,
    tensor_spans,
    tokenizer_digest,
)
from qlock.errors import InputError
from tests.broken import make_gguf as make

LLAMA = make.LLAMA
TOKENS = make.array("tokenizer.ggml.tokens", make.STRING, ["a", "b"])
PRE = make.kv("tokenizer.ggml.pre", make.STRING, "smollm")
GPT2 = make.kv("tokenizer.ggml.model", make.STRING, "gpt2")


def header_of(
    keys: list[bytes], tensors: tuple[tuple[str, tuple[int, ...], int], ...] = (), extra: bytes = b""
) -> Header:
    """A header with tensors of 128 bytes, whatever their type says."""
    rows = [
        make.tensor(name, shape, type_id, 128 * place) for place, (name, shape, type_id) in enumerate(tensors)
    ]
    content = make.gguf(keys, rows, make.ROW * len(rows) + extra)
    header = read_header(content, len(content))
    assert isinstance(header, Header)
    return header


def refusal(*keys: bytes) -> str:
    with pytest.raises(InputError) as caught:
        describe(header_of(list(keys)))
    return str(caught.value)


def test_a_bare_model_leaves_unset_what_it_does_not_say() -> None:
    header = header_of([LLAMA])
    assert describe(header) == GgufFacts(
        architecture="llama",
        parameters=0,
        recipe=(),
        bits_per_weight_why="there are no tensors",
        named_templates={},
        metadata_digest=metadata_digest(header),
        sampling={},
        imatrix={},
        warnings=(),
    )


def test_a_full_model_is_described() -> None:
    header = header_of(
        [
            LLAMA,
            make.kv("general.name", make.STRING, "Tiny"),
            make.kv("general.type", make.STRING, "model"),
            make.kv("general.file_type", make.U32, 15),
            make.kv("general.sampling.temp", make.F32, 0.6),
            make.kv("general.sampling.top_k", make.I32, 20),
            make.kv("general.sampling.sequence", make.STRING, "kfypmt"),
            make.kv("quantize.imatrix.file", make.STRING, "calib.dat"),
            make.kv("quantize.imatrix.chunks_count", make.I32, 128),
            make.array("quantize.imatrix.odd", make.I32, [1]),
            make.kv("quantize.imatrix.nan", make.F32, float("nan")),
            make.kv("llama.context_length", make.U32, 8192),
            make.kv("llama.block_count", make.U32, 2),
            make.kv("llama.expert_count", make.U32, 8),
            make.kv("llama.vocab_size", make.U32, 99),
            GPT2,
            PRE,
            TOKENS,
            make.kv("tokenizer.ggml.bos_token_id", make.U32, 0),
            make.kv("tokenizer.ggml.eos_token_id", make.U32, 1),
            make.kv("tokenizer.ggml.add_bos_token", make.BOOL, 0),
            make.kv("tokenizer.chat_template", make.STRING, "{{ x }}"),
            make.kv("tokenizer.chat_template.tool_use", make.STRING, "{{ y }}"),
            make.kv("split.no", make.U16, 0),
            make.kv("split.count", make.U16, 1),
        ],
        (("a.weight", (32,), 0), ("b.weight", (64,), 1)),
    )
    facts = describe(header)
    assert facts == GgufFacts(
        architecture="llama",
        name="Tiny",
        general_type="model",
        parameters=96,
        context_length_tokens=8192,
        block_count=2,
        vocab_size=2,
        expert_count=8,
        recipe=(
            RecipeRow(type="F16", tensors=1, elements=64, bytes=128),
            RecipeRow(type="F32", tensors=1, elements=32, bytes=128),
        ),
        bits_per_weight=256 * 8 / 96,
        bits_per_weight_why="",
        file_type="Q4_K_M",
        template="{{ x }}",
        named_templates={"tool_use": "{{ y }}"},
        template_digest=facts.template_digest,
        tokenizer_digest=tokenizer_digest(header),
        metadata_digest=metadata_digest(header),
        sampling={"sequence": "kfypmt", "temp": 0.6, "top_k": 20},
        imatrix={"chunks_count": 128, "file": "calib.dat"},
        bos_token=0,
        eos_token=1,
        add_bos=False,
        split=Split(no=0, count=1),
        warnings=(),
    )
    assert all(
        is_digest(str(d)) for d in (facts.template_digest, facts.tokenizer_digest, facts.metadata_digest)
    )


def test_a_real_model_is_described(smollm2_q4_1: Path) -> None:
    content = smollm2_q4_1.read_bytes()
    header = read_header(content, len(content))
    assert isinstance(header, Header)
    facts = describe(header)
    assert (facts.architecture, facts.name, facts.file_type) == (
        "llama",
        "Smollm2 135M 8k Lc100K Mix1 Ep2",
        "Q4_1",
    )
    assert (facts.parameters, facts.vocab_size, facts.context_length_tokens) == (134_515_008, 49_152, 8192)
    assert (facts.bos_token, facts.eos_token, facts.add_bos, facts.warnings) == (1, 2, False, ())
    assert str(facts.template).startswith("{% for message in messages %}")
    assert sum(size for _, _, size in tensor_spans(header)) == sum(
        int(row.bytes or 0) for row in facts.recipe
    )


def test_the_size_of_a_vocabulary_without_tokens_is_what_the_key_says() -> None:
    assert describe(header_of([LLAMA, make.kv("llama.vocab_size", make.U32, 99)])).vocab_size == 99


@pytest.mark.parametrize(
    "key, message",
    [
        (
            make.kv("llama.context_length", make.I32, -1),
            "`llama.context_length` is `-1`, expected a whole number",
        ),
        (
            make.kv("llama.block_count", make.BOOL, 1),
            "`llama.block_count` is `True`, expected a whole number",
        ),
        (
            make.array("llama.expert_count", make.U32, [8]),
            "`llama.expert_count` is an array of u32, expected a whole number",
        ),
        (
            make.kv("general.file_type", make.STRING, "7"),
            "`general.file_type` is `7`, expected a whole number",
        ),
        (
            make.kv("tokenizer.ggml.add_bos_token", make.U8, 1),
            "`tokenizer.ggml.add_bos_token` is `1`, expected a bool",
        ),
        (
            make.array("tokenizer.ggml.add_bos_token", make.BOOL, [1]),
            "`tokenizer.ggml.add_bos_token` is an array of bool, expected a bool",
        ),
        (
            make.kv("general.sampling.temp", make.F32, float("nan")),
            "`general.sampling.temp` is `nan`, expected one finite value",
        ),
        (
            make.kv("general.sampling.temp", make.F64, float("-inf")),
            "`general.sampling.temp` is `-inf`, expected one finite value",
        ),
        (
            make.array("general.sampling.sequence", make.STRING, ["k"]),
            "`general.sampling.sequence` is an array of string, expected one finite value",
        ),
        (
            make.kv("tokenizer.chat_template", make.U8, 1),
            "`tokenizer.chat_template` is `1`, expected a string",
        ),
        (
            make.array("tokenizer.chat_template.rag", make.STRING, ["x"]),
            "`tokenizer.chat_template.rag` is an array of string, expected a string",
        ),
        (make.kv("split.no", make.U16, 0), "`split.count` is absent, expected a whole number"),
    ],
)
def test_a_key_that_matters_must_be_of_its_type(key: bytes, message: str) -> None:
    assert refusal(LLAMA, key) == message


def test_a_model_has_an_architecture() -> None:
    assert refusal() == "`general.architecture` is absent, expected a string"
    assert (
        refusal(make.kv("general.architecture", make.U8, 3))
        == "`general.architecture` is `3`, expected a string"
    )


@pytest.mark.parametrize(
    "key",
    [
        make.kv("general.type", make.STRING, "imatrix"),
        make.kv("general.architecture", make.STRING, "imatrix"),
        make.kv("imatrix.chunk_count", make.U32, 10),
    ],
)
def test_an_imatrix_is_no_model(key: bytes) -> None:
    assert is_imatrix(header_of([key]))
    with pytest.raises(InputError) as caught:
        describe(header_of([key]))
    assert str(caught.value) == "the file is an imatrix, not a model"
    assert caught.value.hint == "name the model's own GGUF"


def test_a_model_made_with_an_imatrix_is_a_model() -> None:
    assert not is_imatrix(header_of([LLAMA, make.kv("quantize.imatrix.file", make.STRING, "imatrix.dat")]))


def test_unknown_types_leave_bits_per_weight_missing_with_a_reason() -> None:
    facts = describe(
        header_of([LLAMA], (("a", (256,), 156), ("b", (32,), 153), ("c", (32,), 156), ("d", (32,), 0)))
    )
    assert facts.bits_per_weight is UNSET
    assert (
        facts.bits_per_weight_why
        == "type 153 (unknown), type 156 (unknown): the size of its tensors is not known"
    )
    assert facts.parameters == 352
    assert facts.warnings == (
        "1 of 4 tensors have type 153 (unknown): only a fork of llama.cpp can load them",
        "2 of 4 tensors have type 156 (unknown): only a fork of llama.cpp can load them",
    )


def test_the_count_of_parameters_never_wraps() -> None:
    header = header_of([LLAMA], (("a", (2**62,), 156), ("b", (2**62,), 156)))
    with pytest.raises(InputError) as caught:
        describe(header)
    assert str(caught.value) == "the tensors together have more than 2^63 - 1 elements"


@pytest.mark.parametrize(
    "keys, effect",
    [
        ([GPT2], "llama.cpp falls back to its default and says that the quality will be degraded"),
        (
            [make.kv("tokenizer.ggml.model", make.STRING, "llama")],
            "llama.cpp needs it for BPE vocabularies only",
        ),
        (
            [GPT2, make.kv("tokenizer.ggml.pre", make.STRING, "")],
            "llama.cpp falls back to its default and says that the quality will be degraded",
        ),
    ],
)
def test_a_missing_pre_tokenizer_is_a_warning(keys: list[bytes], effect: str) -> None:
    assert describe(header_of([LLAMA, TOKENS, *keys])).warnings == (
        f"`tokenizer.ggml.pre` is missing: {effect}",
    )


def test_bytes_after_the_last_tensor_are_a_warning() -> None:
    facts = describe(header_of([LLAMA], (("a", (32,), 0),), extra=b"tail"))
    assert facts.warnings == ("file 1 has 4 bytes after its last tensor",)


def test_padding_after_the_last_tensor_is_none() -> None:
    assert describe(header_of([LLAMA], (("a", (31,), 0),))).warnings == ()


def test_shards_add_their_tensors() -> None:
    keys = [make.kv("split.no", make.U16, 0), make.kv("split.count", make.U16, 2)]
    first, second = header_of([LLAMA, *keys], (("a", (32,), 0),)), header_of([], (("b", (64,), 1),))
    facts = describe(first, second)
    assert (facts.parameters, len(facts.recipe), facts.warnings) == (96, 2, ())
    assert facts.split == Split(no=0, count=2)
    assert describe(first).warnings == ("the facts cover 1 of 2 shards",)
