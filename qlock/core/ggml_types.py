"""The tensor types and file types of GGML, by number.

Lives here: how many elements a block of each type holds and in how many bytes, and the labels of
``general.file_type``. Does not live here: what a model is made of (``core.recipe``).

A number that is not in these tables is kept as a number: forks of llama.cpp have types of their own, and one of
them must not make a file unreadable.

Source: llama.cpp b11434, ``ggml/include/ggml.h`` (``enum ggml_type``), ``ggml/src/ggml-common.h`` (the blocks)
and ``include/llama.h`` (``enum llama_ftype``). Numbers that upstream has withdrawn (4, 5, 31-33, 36-38) are
unknown on purpose.
"""

from __future__ import annotations

from types import MappingProxyType

from qlock.core.base import Base, Positive


class GgmlType(Base, frozen=True, kw_only=True):
    """One tensor type: its name and the layout of a block."""

    name: str
    block_elements: Positive
    block_bytes: Positive


def _type(name: str, block_elements: int, block_bytes: int) -> GgmlType:
    return GgmlType(name=name, block_elements=block_elements, block_bytes=block_bytes)


GGML_TYPES: MappingProxyType[int, GgmlType] = MappingProxyType(
    {
        0: _type("F32", 1, 4),
        1: _type("F16", 1, 2),
        2: _type("Q4_0", 32, 18),
        3: _type("Q4_1", 32, 20),
        6: _type("Q5_0", 32, 22),
        7: _type("Q5_1", 32, 24),
        8: _type("Q8_0", 32, 34),
        9: _type("Q8_1", 32, 36),
        10: _type("Q2_K", 256, 84),
        11: _type("Q3_K", 256, 110),
        12: _type("Q4_K", 256, 144),
        13: _type("Q5_K", 256, 176),
        14: _type("Q6_K", 256, 210),
        15: _type("Q8_K", 256, 292),
        16: _type("IQ2_XXS", 256, 66),
        17: _type("IQ2_XS", 256, 74),
        18: _type("IQ3_XXS", 256, 98),
        19: _type("IQ1_S", 256, 50),
        20: _type("IQ4_NL", 32, 18),
        21: _type("IQ3_S", 256, 110),
        22: _type("IQ2_S", 256, 82),
        23: _type("IQ4_XS", 256, 136),
        24: _type("I8", 1, 1),
        25: _type("I16", 1, 2),
        26: _type("I32", 1, 4),
        27: _type("I64", 1, 8),
        28: _type("F64", 1, 8),
        29: _type("IQ1_M", 256, 56),
        30: _type("BF16", 1, 2),
        34: _type("TQ1_0", 256, 54),
        35: _type("TQ2_0", 256, 66),
        39: _type("MXFP4", 32, 17),
        40: _type("NVFP4", 64, 36),
        41: _type("Q1_0", 128, 18),
        42: _type("Q2_0", 64, 18),
    }
)
"""Every tensor type of llama.cpp b11434."""

FILE_TYPES: MappingProxyType[int, str] = MappingProxyType(
    {
        0: "F32",
        1: "F16",
        2: "Q4_0",
        3: "Q4_1",
        7: "Q8_0",
        8: "Q5_0",
        9: "Q5_1",
        10: "Q2_K",
        11: "Q3_K_S",
        12: "Q3_K_M",
        13: "Q3_K_L",
        14: "Q4_K_S",
        15: "Q4_K_M",
        16: "Q5_K_S",
        17: "Q5_K_M",
        18: "Q6_K",
        19: "IQ2_XXS",
        20: "IQ2_XS",
        21: "Q2_K_S",
        22: "IQ3_XS",
        23: "IQ3_XXS",
        24: "IQ1_S",
        25: "IQ4_NL",
        26: "IQ3_S",
        27: "IQ3_M",
        28: "IQ2_S",
        29: "IQ2_M",
        30: "IQ4_XS",
        31: "IQ1_M",
        32: "BF16",
        36: "TQ1_0",
        37: "TQ2_0",
        38: "MXFP4_MOE",
        39: "NVFP4",
        40: "Q1_0",
        41: "Q2_0",
        1024: "guessed",
    }
)
"""What ``general.file_type`` says; a label only, since one label hides many recipes."""


def type_name(type_id: int) -> str:
    """``"Q4_K"``, or ``"type 156 (unknown)"`` for a number that is not in the table."""
    known = GGML_TYPES.get(type_id)
    return known.name if known is not None else f"type {type_id} (unknown)"


def file_type_name(file_type: int) -> str:
    """``"Q4_K_M"``, or ``"file type 99 (unknown)"`` for a number that is not in the table."""
    return FILE_TYPES.get(file_type, f"file type {file_type} (unknown)")
