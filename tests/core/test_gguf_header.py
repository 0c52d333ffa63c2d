"""Single values out of a header."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qlock.core.gguf_header import Header, shown, value_type_name
from qlock.core.gguf_reader import read_header
from qlock.errors import InputError
from tests.broken import make_gguf as make


def header_of(*keys: bytes) -> Header:
    content = make.gguf(list(keys), [])
    header = read_header(content, len(content))
    assert isinstance(header, Header)
    return header


@pytest.mark.parametrize(
    "type_id, value, name",
    [
        (make.U8, 255, "u8"),
        (make.I8, -128, "i8"),
        (make.U16, 65535, "u16"),
        (make.I16, -32768, "i16"),
        (make.U32, 2**32 - 1, "u32"),
        (make.I32, -(2**31), "i32"),
        (make.F32, 0.6, "f32"),
        (make.BOOL, True, "bool"),
        (make.STRING, "ünï 🦙", "string"),
        (make.U64, 2**64 - 1, "u64"),
        (make.I64, -(2**63), "i64"),
        (make.F64, 0.1, "f64"),
    ],
)
def test_a_value_comes_back_as_what_it_is(type_id: int, value: str | float, name: str) -> None:
    header = header_of(make.kv("k", type_id, value))
    assert header.value("k") == value
    assert type(header.value("k")) is type(value)
    assert value_type_name(header.values["k"]) == name
    assert header.shown_value("k") == f"`{value}`"


def test_text_and_number_take_nothing_else() -> None:
    header = header_of(
        make.kv("text", make.STRING, "3"),
        make.kv("number", make.I32, -3),
        make.kv("truth", make.BOOL, 1),
        make.array("list", make.I32, [1]),
    )
    assert [header.text(key) for key in ("text", "number", "truth", "list", "absent")] == [
        "3",
        None,
        None,
        None,
        None,
    ]
    assert [header.number(key) for key in ("text", "number", "truth", "list", "absent")] == [
        None,
        -3,
        None,
        None,
        None,
    ]
    assert header.value("list") is None
    assert header.shown_value("list") == "an array of i32"
    assert header.shown_value("absent") == "absent"


def test_a_text_of_more_than_a_mebibyte_is_not_given() -> None:
    header = header_of(
        make.kv("most", make.STRING, "x" * 2**20), make.kv("more", make.STRING, "x" * (2**20 + 1))
    )
    assert header.text("most") == "x" * 2**20
    with pytest.raises(InputError) as caught:
        header.text("more")
    assert str(caught.value) == "`more` has `1048577` bytes, expected at most `1048576`"


def test_equal_rows_are_equal_values() -> None:
    header = header_of(
        make.kv("a", make.U32, 1),
        make.kv("b", make.I32, 1),
        make.array("c", make.U32, [1]),
        make.array("d", make.U8, [1, 0, 0, 0]),
    )
    rows = {header.row(key)[1:] for key in "abcd"}
    assert len(rows) == 4
    assert header.row("a") == header_of(make.kv("x", make.U8, 0), make.kv("a", make.U32, 1)).row("a")


def test_shown_text_is_in_backticks_and_short() -> None:
    assert shown("k") == "`k`"
    assert shown("k" * 81) == f"`{'k' * 80}…`"


@given(number=st.floats(width=32))
@example(number=struct.unpack("<f", b"\xff\xff\x7f\x7f")[0])
@example(number=2.0**90)
@example(number=-0.0)
def test_law_an_f32_reads_back_from_few_digits(number: float) -> None:
    found = header_of(make.kv("k", make.F32, number)).number("k")
    assert found is not None
    if math.isnan(number):
        assert math.isnan(found)
        return
    assert struct.pack("<f", found) == struct.pack("<f", number)
    # Beside a power of two, rounding is not always the shortest way to write a number, and numpy's may be shorter.
    if abs(math.frexp(number)[0]) != 0.5:
        assert found == float(str(np.float32(number)))
