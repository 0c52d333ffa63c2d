"""The digests of a model: each says one thing, whatever the order of keys, tensors and shards."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from qlock.core.digest import blake3_of
from qlock.core.gguf import describe
from qlock.core.gguf_digests import (
    is_template,
    metadata_digest,
    template_digest,
    tensor_spans,
    tensors_digest,
    tokenizer_digest,
)
from qlock.core.gguf_header import Header
from qlock.core.gguf_reader import read_header
from qlock.errors import InputError
from tests.broken import make_gguf as make

LLAMA = make.LLAMA
TOKENS = make.array("tokenizer.ggml.tokens", make.STRING, ["a", "b"])
PRE = make.kv("tokenizer.ggml.pre", make.STRING, "smollm")


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


def test_each_key_moves_its_own_digest() -> None:
    base = [LLAMA, TOKENS, PRE, make.kv("tokenizer.chat_template", make.STRING, "x")]
    before = describe(header_of(base))

    def moved(*keys: bytes) -> tuple[bool, bool, bool]:
        after = describe(header_of([*base, *keys]))
        return (
            after.template_digest != before.template_digest,
            after.tokenizer_digest != before.tokenizer_digest,
            after.metadata_digest != before.metadata_digest,
        )

    assert moved() == (False, False, False)
    assert moved(make.kv("tokenizer.chat_template.tool_use", make.STRING, "x")) == (True, False, False)
    assert moved(make.kv("tokenizer.ggml.eos_token_id", make.U32, 1)) == (False, True, False)
    assert moved(make.kv("llama.rope.freq_base", make.F32, 1e4)) == (False, False, True)
    assert moved(make.kv("tokenizer.huggingface.json", make.STRING, "{}")) == (False, False, True)
    assert moved(make.kv("split.no", make.U16, 0), make.kv("split.count", make.U16, 1)) == (
        False,
        False,
        False,
    )


def test_the_name_of_a_template_is_part_of_its_digest() -> None:
    default = describe(header_of([LLAMA, make.kv("tokenizer.chat_template", make.STRING, "x")]))
    nameless = describe(header_of([LLAMA, make.kv("tokenizer.chat_template.", make.STRING, "x")]))
    assert (nameless.template, nameless.named_templates) == (UNSET, {"": "x"})
    assert default.template_digest != nameless.template_digest


def test_a_key_that_only_begins_like_a_template_is_none() -> None:
    keys = [
        "tokenizer.chat_template",
        "tokenizer.chat_template.rag",
        "tokenizer.chat_templates",
        "tokenizer.chat",
    ]
    assert [is_template(key) for key in keys] == [True, True, False, False]
    assert template_digest({}) is UNSET
    assert tokenizer_digest(header_of([LLAMA])) is UNSET


def test_spans_hold_exactly_the_data() -> None:
    header = header_of([LLAMA], (("a", (31,), 0), ("b", (32,), 0)))
    assert tensor_spans(header) == (("a", 160, 124), ("b", 288, 128))


def test_spans_of_an_unknown_type_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        tensor_spans(header_of([LLAMA], (("t", (32,), 156),)))
    assert str(caught.value) == "tensor `t` has type 156 (unknown), so the size of its data is unknown"


DIGESTS = {name: blake3_of(name.encode()) for name in "abc"}


def test_the_tensors_digest_knows_neither_metadata_nor_order_nor_shards() -> None:
    a, b, c = ("a", (32,), 0), ("b", (64,), 1), ("c", (128,), 24)
    one = tensors_digest((header_of([LLAMA], (a, b, c)),), DIGESTS)
    assert tensors_digest((header_of([PRE], (c, b, a)),), DIGESTS) == one
    assert tensors_digest((header_of([], (c,)), header_of([LLAMA], (a, b))), DIGESTS) == one


def test_the_tensors_digest_knows_name_type_shape_and_data() -> None:
    digests = set()
    for tensors, by_name in (
        ((("a", (32,), 0),), DIGESTS),
        ((("b", (32,), 0),), DIGESTS),
        ((("a", (32,), 26),), DIGESTS),
        ((("a", (4, 8), 0),), DIGESTS),
        ((("a", (32,), 0),), {"a": blake3_of(b"other")}),
    ):
        digests.add(tensors_digest((header_of([LLAMA], tensors),), by_name))
    assert len(digests) == 5


def test_a_tensor_without_a_digest_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        tensors_digest((header_of([LLAMA], (("t", (32,), 0),)),), DIGESTS)
    assert str(caught.value) == "tensor `t` has no digest"


def test_tensors_of_one_name_are_refused() -> None:
    header = header_of([LLAMA], (("a", (32,), 0),))
    with pytest.raises(InputError) as caught:
        tensors_digest((header, header), DIGESTS)
    assert str(caught.value) == "two shards have tensors of one name"


def test_digests_stay_what_they_are() -> None:
    """A change here makes every lock stale: it needs a new version of what is digested, and a changelog entry."""
    header = header_of(
        [LLAMA, TOKENS, PRE, make.kv("tokenizer.chat_template", make.STRING, "x")], (("a", (32,), 0),)
    )
    facts = describe(header)
    written = f"{facts.template_digest} {facts.tokenizer_digest} {facts.metadata_digest} {tensors_digest((header,), DIGESTS)}"
    assert (
        hashlib.sha256(written.encode()).hexdigest()
        == "4f771417e046a44c7aa3a4064c0f8a2fa2e04fb66e2f211aca7b9aad73b8ea89"
    )


# ---- laws


def packed(key: str) -> st.SearchStrategy[bytes]:
    """The key with any value of three types."""
    return st.one_of(
        st.integers(0, 9).map(lambda value: make.kv(key, make.U32, value)),
        st.text(max_size=3).map(lambda value: make.kv(key, make.STRING, value)),
        st.lists(st.integers(0, 9), min_size=1, max_size=3).map(
            lambda value: make.array(key, make.U8, value)
        ),
    )


_KEYS = {key: packed(key) for key in ("x.a", "x.b", "tokenizer.ggml.a", "tokenizer.ggml.b", "general.a")}


@given(keys=st.fixed_dictionaries({}, optional=_KEYS), data=st.data())
def test_law_the_order_of_keys_does_not_change_a_digest(keys: dict[str, bytes], data: st.DataObject) -> None:
    mixed = data.draw(st.permutations(list(keys.values())))
    one, other = header_of([LLAMA, *keys.values()]), header_of([*mixed, LLAMA])
    assert tokenizer_digest(one) == tokenizer_digest(other)
    assert metadata_digest(one) == metadata_digest(other)


@given(keys=st.fixed_dictionaries(_KEYS), data=st.data())
def test_law_any_changed_value_changes_one_digest(keys: dict[str, bytes], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(list(keys)))
    changed = {**keys, key: data.draw(_KEYS[key].filter(lambda value: value != keys[key]))}
    one, other = header_of([*keys.values()]), header_of([*changed.values()])
    of_tokenizer = key.startswith("tokenizer.ggml.")
    assert (tokenizer_digest(one) != tokenizer_digest(other)) is of_tokenizer
    assert (metadata_digest(one) != metadata_digest(other)) is not of_tokenizer
