"""Recipes: the table by type and by class, bits per weight, and the difference of two."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from qlock.core.ggml_types import GGML_TYPES
from qlock.core.gguf_header import Header, TensorInfo
from qlock.core.gguf_reader import read_header
from qlock.core.recipe import (
    ClassRow,
    RecipeDifference,
    RecipeRow,
    TypeChange,
    bits_per_weight,
    recipe_by_class,
    recipe_difference,
    recipe_of,
    tensor_class,
    unknown_types,
)


def tensor(name: str, type_id: int, *shape: int) -> TensorInfo:
    elements = 1
    for length in shape:
        elements *= length
    known = GGML_TYPES.get(type_id)
    size = UNSET if known is None else elements // known.block_elements * known.block_bytes
    return TensorInfo(name=name, shape=shape, type_id=type_id, offset_bytes=0, size_bytes=size)


MODEL = (
    tensor("token_embd.weight", 8, 256, 10),
    tensor("blk.0.attn_q.weight", 12, 256, 4),
    tensor("blk.1.attn_q.weight", 14, 256, 4),
    tensor("blk.1.attn_q.bias", 0, 4),
    tensor("output_norm.weight", 0, 256),
)


def test_the_table_by_type_is_in_name_order() -> None:
    assert recipe_of(MODEL) == (
        RecipeRow(type="F32", tensors=2, elements=260, bytes=1040),
        RecipeRow(type="Q4_K", tensors=1, elements=1024, bytes=576),
        RecipeRow(type="Q6_K", tensors=1, elements=1024, bytes=840),
        RecipeRow(type="Q8_0", tensors=1, elements=2560, bytes=2720),
    )


def test_the_table_by_class_joins_the_blocks() -> None:
    assert recipe_by_class(MODEL) == (
        ClassRow(tensor_class="attn_q", type="Q4_K", tensors=1, elements=1024, bytes=576),
        ClassRow(tensor_class="attn_q", type="Q6_K", tensors=1, elements=1024, bytes=840),
        ClassRow(tensor_class="attn_q.bias", type="F32", tensors=1, elements=4, bytes=16),
        ClassRow(tensor_class="output_norm", type="F32", tensors=1, elements=256, bytes=1024),
        ClassRow(tensor_class="token_embd", type="Q8_0", tensors=1, elements=2560, bytes=2720),
    )


def test_bits_per_weight_counts_every_tensor() -> None:
    assert bits_per_weight(MODEL) == (1040 + 576 + 840 + 2720) * 8 / (260 + 1024 + 1024 + 2560)
    assert bits_per_weight([tensor("t", 2, 32)]) == 4.5


def test_an_unknown_type_leaves_sizes_unknown() -> None:
    tensors = (tensor("a", 156, 256), tensor("b", 0, 4), tensor("c", 156, 256), tensor("d", 153, 32))
    assert recipe_of(tensors) == (
        RecipeRow(type="F32", tensors=1, elements=4, bytes=16),
        RecipeRow(type="type 153 (unknown)", tensors=1, elements=32, bytes=UNSET),
        RecipeRow(type="type 156 (unknown)", tensors=2, elements=512, bytes=UNSET),
    )
    assert bits_per_weight(tensors) is UNSET
    assert unknown_types(tensors) == ((153, 1), (156, 2))


def test_no_tensors_have_no_bits_per_weight() -> None:
    assert recipe_of(()) == ()
    assert bits_per_weight(()) is UNSET
    assert bits_per_weight([tensor("none", 0, 0)]) is UNSET


@pytest.mark.parametrize(
    "name, expected",
    [
        ("blk.0.attn_q.weight", "attn_q"),
        ("blk.31.ffn_down_exps.weight", "ffn_down_exps"),
        ("blk.0.attn_q.bias", "attn_q.bias"),
        ("token_embd.weight", "token_embd"),
        ("output.weight", "output"),
        ("v.blk.3.attn_q.weight", "v.attn_q"),
        ("blk.0.attn_q.weight.lora_a", "attn_q.weight.lora_a"),
        ("rope_freqs.weight", "rope_freqs"),
        ("blk.x.y", "blk.x.y"),
        ("weight", "weight"),
        ("blk.0", "blk.0"),
        (".", "."),
    ],
)
def test_the_class_of_a_tensor_has_no_block(name: str, expected: str) -> None:
    assert tensor_class(name) == expected


def test_a_difference_names_every_tensor() -> None:
    other = (
        tensor("token_embd.weight", 8, 256, 12),
        tensor("blk.0.attn_q.weight", 13, 256, 4),
        tensor("blk.1.attn_q.weight", 14, 256, 4),
        tensor("output.weight", 156, 256),
        tensor("output_norm.weight", 0, 256),
    )
    found = recipe_difference(MODEL, other)
    assert found == RecipeDifference(
        tensors_in_both=4,
        changed=(TypeChange(tensor="blk.0.attn_q.weight", type_a="Q4_K", type_b="Q5_K"),),
        reshaped=("token_embd.weight",),
        only_in_a=("blk.1.attn_q.bias",),
        only_in_b=("output.weight",),
    )
    assert found.sentence() == (
        "1 of 4 tensors has another type, 1 of 4 tensors has another shape, 1 is only in A, 1 is only in B"
    )
    assert not found.same


def test_several_differences_are_counted() -> None:
    types = [tensor(f"blk.{block}.ffn_up.weight", 12, 256) for block in range(310)]
    others = [tensor(t.name, 14 if block < 212 else 12, 256) for block, t in enumerate(types)]
    assert recipe_difference(types, others).sentence() == "212 of 310 tensors have another type"
    reshaped = [tensor(t.name, 12, 512) for t in types]
    assert recipe_difference(types, reshaped).sentence() == "310 of 310 tensors have another shape"
    assert recipe_difference(types, types[2:]).sentence() == "2 are only in A"
    assert recipe_difference(types[2:], types).sentence() == "2 are only in B"


def test_equal_recipes_say_so() -> None:
    assert recipe_difference(MODEL, MODEL).sentence() == "the same recipe in all 5 tensors"
    assert recipe_difference(MODEL[:1], MODEL[:1]).sentence() == "the same recipe in all 1 tensor"
    assert recipe_difference((), ()).sentence() == "the same recipe in all 0 tensors"


def test_a_real_recipe_is_not_what_its_name_says(smollm2_q4_1: Path) -> None:
    content = smollm2_q4_1.read_bytes()
    header = read_header(content, len(content))
    assert isinstance(header, Header)
    assert recipe_of(header.tensors) == (
        RecipeRow(type="F32", tensors=61, elements=35_136, bytes=140_544),
        RecipeRow(type="Q4_1", tensors=210, elements=106_168_320, bytes=66_355_200),
        RecipeRow(type="Q8_0", tensors=1, elements=28_311_552, bytes=30_081_024),
    )
    assert bits_per_weight(header.tensors) == (140_544 + 66_355_200 + 30_081_024) * 8 / 134_515_008


# ---- laws

_TENSORS = st.lists(
    st.builds(
        tensor,
        st.sampled_from(
            [f"blk.{block}.{part}.weight" for block in range(3) for part in ("attn_q", "ffn_up")]
        ),
        st.sampled_from([0, 2, 12, 42, 156]),
        st.sampled_from([256, 512]),
        st.integers(1, 3),
    ),
    unique_by=lambda tensor: tensor.name,
)


@given(tensors=_TENSORS)
def test_law_the_order_of_tensors_does_not_matter(tensors: list[TensorInfo]) -> None:
    mixed = sorted(tensors, key=lambda tensor: tensor.name)
    assert recipe_of(mixed) == recipe_of(tensors)
    assert recipe_by_class(mixed) == recipe_by_class(tensors)
    assert recipe_difference(mixed, tensors).same


@given(tensors=_TENSORS)
def test_law_rows_add_up_to_the_tensors(tensors: list[TensorInfo]) -> None:
    for rows in (recipe_of(tensors), recipe_by_class(tensors)):
        assert sum(row.tensors for row in rows) == len(tensors)
        assert sum(row.elements for row in rows) == sum(tensor.elements for tensor in tensors)
    known = [tensor for tensor in tensors if tensor.type_id != 156]
    sizes = [row.bytes for row in recipe_of(known) if row.bytes is not UNSET]
    assert sum(sizes) == sum(tensor.size_bytes for tensor in known if tensor.size_bytes is not UNSET)


@given(a=_TENSORS, b=_TENSORS)
def test_law_a_difference_the_other_way_round_is_its_mirror(a: list[TensorInfo], b: list[TensorInfo]) -> None:
    there, back = recipe_difference(a, b), recipe_difference(b, a)
    assert (there.only_in_a, there.only_in_b) == (back.only_in_b, back.only_in_a)
    assert [(c.tensor, c.type_a, c.type_b) for c in there.changed] == [
        (c.tensor, c.type_b, c.type_a) for c in back.changed
    ]
    assert there.reshaped == back.reshaped
    assert there.tensors_in_both + len(there.only_in_a) == len(a)
