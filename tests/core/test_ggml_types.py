"""The table of types against gguf-py's, and the labels of numbers nobody knows."""

from __future__ import annotations

import gguf
import pytest

from qlock.core.ggml_types import FILE_TYPES, GGML_TYPES, file_type_name, type_name


def test_blocks_are_those_of_the_oracle() -> None:
    oracle = {int(key): (key.name, *layout) for key, layout in gguf.GGML_QUANT_SIZES.items()}
    # gguf-py 0.19.0 gives 40 bytes: the block of old, with its two scales in f32. llama.cpp stores them as f16.
    assert oracle.pop(9) == ("Q8_1", 32, 40)
    # Too new for gguf-py 0.19.0; later ones may have it.
    oracle.setdefault(42, ("Q2_0", 64, 18))
    ours = {
        number: (known.name, known.block_elements, known.block_bytes) for number, known in GGML_TYPES.items()
    }
    assert ours.pop(9) == ("Q8_1", 32, 36)
    assert ours == oracle


def test_file_types_are_those_of_the_oracle() -> None:
    oracle = {
        int(label): label.name.removeprefix("MOSTLY_").removeprefix("ALL_") for label in gguf.LlamaFileType
    }
    oracle[1024] = "guessed"
    oracle.setdefault(41, "Q2_0")
    assert dict(FILE_TYPES) == oracle


@pytest.mark.parametrize("number", [4, 5, 31, 32, 33, 36, 37, 38])
def test_withdrawn_numbers_are_unknown(number: int) -> None:
    assert type_name(number) == f"type {number} (unknown)"


def test_numbers_have_names() -> None:
    assert (type_name(12), type_name(42), type_name(156)) == ("Q4_K", "Q2_0", "type 156 (unknown)")
    assert (file_type_name(15), file_type_name(99)) == ("Q4_K_M", "file type 99 (unknown)")
