"""The walk over a header: every way a file can be wrong has its message, and any bytes end in a struct or one of them."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET

from qlock.core.gguf_header import Header, NeedMore, TensorInfo, ValueSpan
from qlock.core.gguf_reader import MAX_HEADER_BYTES, read_header
from qlock.errors import InputError
from tests.broken import make_gguf as make
from tests.broken.gguf_messages import MESSAGES


def read(content: bytes) -> Header:
    header = read_header(content, len(content))
    assert isinstance(header, Header)
    return header


def outcome(prefix: bytes, file_bytes: int) -> Header | NeedMore | str:
    try:
        return read_header(prefix, file_bytes)
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("name", make.BROKEN)
def test_a_broken_file_gets_one_message_that_says_what_is_wrong(name: str) -> None:
    content = make.BROKEN[name]
    with pytest.raises(InputError) as caught:
        read_header(content, len(content))
    assert (str(caught.value), caught.value.hint) == MESSAGES[name]


def test_every_message_belongs_to_a_broken_file() -> None:
    assert MESSAGES.keys() == make.BROKEN.keys()


def test_the_name_of_the_file_stands_in_front_of_the_message() -> None:
    with pytest.raises(InputError) as caught:
        read_header(b"", 0, name="models/q4.gguf")
    assert str(caught.value) == "models/q4.gguf: the file is empty, expected a GGUF"


def test_a_whole_file_gives_its_table_and_where_its_values_lie() -> None:
    header = read(make.WHOLE)
    assert (header.version, header.alignment, header.data_offset_bytes, header.file_bytes) == (
        3,
        32,
        128,
        256,
    )
    assert header.tensors == (TensorInfo(name="t", shape=(32,), type_id=0, offset_bytes=128, size_bytes=128),)
    assert header.values == {
        "general.architecture": ValueSpan(type_id=8, element_type_id=8, count=1, start=64, end=69)
    }
    assert header.raw == make.WHOLE[:102]
    assert make.WHOLE[header.tensors[0].offset_bytes :] == make.ROW


def test_version_2_is_read_like_version_3() -> None:
    content = make.gguf([make.LLAMA], [make.tensor("t", (32,))], make.ROW, version=2)
    assert read(content).version == 2


def test_alignment_moves_the_data() -> None:
    keys = [make.kv("general.alignment", make.U32, 4096)]
    tensors = [make.tensor("a", (3,)), make.tensor("b", (1,), offset=4096)]
    header = read(make.gguf(keys, tensors, bytes(4100), alignment=4096))
    assert [(t.offset_bytes, t.size_bytes) for t in header.tensors] == [(4096, 12), (8192, 4)]


def test_a_file_of_keys_alone_needs_no_padding() -> None:
    content = make.gguf([make.LLAMA], [])
    assert read(content).data_offset_bytes == 96
    assert len(content) == 69


def test_the_last_tensor_needs_no_padding() -> None:
    content = make.gguf([make.LLAMA], [make.tensor("t", (3,))], bytes(12))
    assert read(content).tensors[0].size_bytes == 12


def test_bytes_after_the_last_tensor_are_allowed() -> None:
    assert read(make.WHOLE + b"tail").file_bytes == 260


@pytest.mark.parametrize("type_id", [4, 31, 43, 153, 156, 9999, 2**32 - 1])
def test_an_unknown_tensor_type_stays_a_number(type_id: int) -> None:
    tensors = [make.tensor("a", (256,), type_id), make.tensor("b", (32,), 0, 96)]
    header = read(make.gguf([make.LLAMA], tensors, bytes(224)))
    assert [(t.type_id, t.size_bytes) for t in header.tensors] == [(type_id, UNSET), (0, 128)]


def test_a_tensor_without_elements_or_dimensions_has_a_size() -> None:
    tensors = [make.tensor("none", (0, 5)), make.tensor("scalar", ())]
    header = read(make.gguf([make.LLAMA], tensors, bytes(4)))
    assert [(t.elements, t.size_bytes) for t in header.tensors] == [(0, 0), (1, 4)]


def test_escape_sequences_are_kept_as_text() -> None:
    key, name = "evil\x1b]52;c;ZWNobw==\x07", "blk.0.\x1b]8;;https://a.example\x1b\\attn"
    header = read(make.gguf([make.kv(key, make.STRING, "x\x1b[2K")], [make.tensor(name, (32,))], make.ROW))
    assert header.text(key) == "x\x1b[2K"
    assert header.tensors[0].name == name


def test_tokens_need_not_be_utf8() -> None:
    header = read(make.gguf([make.array("tokenizer.ggml.tokens", make.STRING, [b"\xff", b"", b"ab"])], []))
    span = header.values["tokenizer.ggml.tokens"]
    assert (span.count, header.raw[span.start : span.end]) == (
        3,
        make.string(b"\xff") + make.string("") + make.string("ab"),
    )


def test_a_long_name_is_cut_in_messages() -> None:
    with pytest.raises(InputError) as caught:
        read(make.gguf([make.kv("k" * 200, make.U8, 1)] * 2, []))
    assert str(caught.value) == f"the key `{'k' * 80}…` stands twice, at KV `0` and KV `1`"


@pytest.mark.parametrize("wrong_at", [0, 5, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (2 << 20) - 1])
def test_a_long_string_is_checked_in_pieces(wrong_at: int) -> None:
    text = bytearray(b"a" * (2 << 20))
    text[wrong_at] = 0xFF
    with pytest.raises(InputError) as caught:
        read(make.gguf([make.kv("k", make.STRING, bytes(text))], []))
    assert str(caught.value) == f"`k` (KV `0`) is not UTF-8 at its byte `{wrong_at}`"


@pytest.mark.parametrize("shift", range(5))
def test_a_letter_across_two_pieces_is_whole(shift: int) -> None:
    text = b"a" * ((1 << 20) - shift) + "🦙".encode() + b"a"
    assert read(make.gguf([make.kv("k", make.STRING, text)], [])).values["k"].count == 1


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_a_letter_that_breaks_off_behind_a_piece_is_found_where_it_begins(shift: int) -> None:
    begins = (1 << 20) - shift
    text = b"a" * begins + b"\xf0\x9f\xa6" + b"a"
    with pytest.raises(InputError) as caught:
        read(make.gguf([make.kv("k", make.STRING, text)], []))
    assert str(caught.value) == f"`k` (KV `0`) is not UTF-8 at its byte `{begins}`"


def test_a_header_longer_than_the_limit_is_refused_whatever_the_file_s_size() -> None:
    content = make.counted(0, 1, make.string("k") + struct.pack("<IQ", make.STRING, MAX_HEADER_BYTES))
    for file_bytes in (2 * MAX_HEADER_BYTES, 2**50):
        with pytest.raises(InputError) as caught:
            read_header(content, file_bytes)
        assert str(caught.value) == "the header has more than `134217728` bytes"


def test_more_bytes_are_asked_for_while_the_file_goes_on() -> None:
    content = make.counted(0, 1, make.string("k") + struct.pack("<IQ", make.STRING, 1000))
    assert read_header(content, 5000) == NeedMore(at_least_bytes=len(content) + 1000)
    assert read_header(b"", 5000) == NeedMore(at_least_bytes=40)
    assert read_header(b"GG", 3) == NeedMore(at_least_bytes=3)


def test_bytes_beyond_the_stated_size_do_not_count() -> None:
    with pytest.raises(InputError) as caught:
        read_header(make.WHOLE, 192)
    assert str(caught.value) == "the tensor data are cut: expected `256` bytes, have `192`"


@pytest.mark.parametrize(
    "name", ["array-u8-2-40", "array-string-2-40", "string-length-1-gib", "array-nested"]
)
def test_a_stated_length_allocates_nothing(name: str) -> None:
    content = make.BROKEN[name]
    tracemalloc.start()
    try:
        with pytest.raises(InputError):
            read_header(content, len(content))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000


def test_a_vocabulary_costs_its_bytes_and_no_objects() -> None:
    tokens = struct.pack("<Q", 4) + b"word"
    content = make.counted(
        0,
        1,
        make.string("tokenizer.ggml.tokens")
        + struct.pack("<IIQ", make.ARRAY, make.STRING, 50_000)
        + tokens * 50_000,
    )
    tracemalloc.start()
    try:
        header = read(content)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert header.values["tokenizer.ggml.tokens"].count == 50_000
    assert peak_bytes < len(content) + 100_000


def test_a_real_model_reads_like_its_oracle(smollm2_q4_1: Path) -> None:
    content = smollm2_q4_1.read_bytes()
    header = read(content)
    agrees_with_gguf_py(header, smollm2_q4_1)
    assert len(header.values) == 33
    assert len(header.tensors) == 272


def test_a_real_header_is_found_from_growing_prefixes(smollm2_q4_1: Path) -> None:
    content = smollm2_q4_1.read_bytes()
    wanted, asked = 1, 0
    found = read_header(content[:wanted], len(content))
    while isinstance(found, NeedMore):
        wanted = max(2 * wanted, found.at_least_bytes)
        asked += 1
        found = read_header(content[:wanted], len(content))
    assert found == read(content)
    assert asked < 20


def agrees_with_gguf_py(header: Header, path: Path) -> None:
    """The oracle sees the same tensors and single values, and arrays of the same lengths."""
    oracle = gguf.GGUFReader(path)
    assert [
        (t.name, tuple(int(n) for n in t.shape), int(t.tensor_type), int(t.data_offset), int(t.n_bytes))
        for t in oracle.tensors
    ] == [(t.name, t.shape, t.type_id, t.offset_bytes, t.size_bytes) for t in header.tensors]
    fields = {key: field for key, field in oracle.fields.items() if not key.startswith("GGUF.")}
    assert fields.keys() == header.values.keys()
    for key, field in fields.items():
        span = header.values[key]
        assert int(field.types[0]) == span.type_id
        if span.type_id == make.ARRAY:
            assert len(field.data) == span.count
        elif span.type_id == make.F32:
            assert np.float32(field.contents()) == np.float32(header.number(key))
        else:
            assert field.contents() == header.value(key)


# ---- laws

_WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
_NAMES = _WORDS.filter(lambda name: "\0" not in name)
_NUMBERS: dict[int, st.SearchStrategy[int] | st.SearchStrategy[float]] = {
    make.U8: st.integers(0, 2**8 - 1),
    make.I8: st.integers(-(2**7), 2**7 - 1),
    make.U16: st.integers(0, 2**16 - 1),
    make.I16: st.integers(-(2**15), 2**15 - 1),
    make.U32: st.integers(0, 2**32 - 1),
    make.I32: st.integers(-(2**31), 2**31 - 1),
    make.F32: st.floats(width=32, allow_nan=False),
    make.BOOL: st.integers(0, 1),
    make.U64: st.integers(0, 2**64 - 1),
    make.I64: st.integers(-(2**63), 2**63 - 1),
    make.F64: st.floats(allow_nan=False),
}


@st.composite
def keys(draw: st.DrawFn) -> list[bytes]:
    packed = []
    for key in draw(
        st.lists(_WORDS.filter(lambda key: not key.startswith("GGUF.")), unique=True, max_size=6)
    ):
        type_id = draw(st.sampled_from([*_NUMBERS, make.STRING]))
        text = st.text(st.characters(codec="utf-8"), max_size=20)
        value: str | float = draw(_NUMBERS[type_id]) if type_id in _NUMBERS else draw(text)
        if draw(st.booleans()):
            packed.append(make.array(key, type_id, [value] * draw(st.integers(1, 4))))
        else:
            packed.append(make.kv(key, type_id, value))
    return packed


@st.composite
def files(draw: st.DrawFn) -> bytes:
    table, offset = [], 0
    for name in draw(st.lists(_NAMES, unique=True, max_size=4)):
        type_id, block, size = draw(st.sampled_from([(0, 1, 4), (1, 1, 2), (2, 32, 18), (12, 256, 144)]))
        shape = (block * draw(st.integers(1, 3)), *draw(st.lists(st.integers(1, 3), max_size=3)))
        table.append(make.tensor(name, shape, type_id, offset))
        offset += -(-int(np.prod(shape)) // block * size // 32) * 32
    return make.gguf(draw(keys()), table, bytes(offset))


@given(content=files())
def test_law_a_whole_file_reads_like_its_oracle(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("oracle") / "m.gguf"
    path.write_bytes(content)
    agrees_with_gguf_py(read(content), path)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    content = bytearray(draw(st.one_of(files(), st.sampled_from([*make.BROKEN.values(), make.WHOLE]))))[
        :100_000
    ]
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, max(0, len(content) - 1)))
        content[place : place + draw(st.integers(0, 9))] = draw(st.binary(max_size=9))
    return bytes(content[: draw(st.integers(0, len(content)))]) if draw(st.booleans()) else bytes(content)


@given(
    content=st.one_of(
        st.binary(max_size=300), st.binary(max_size=300).map(b"GGUF\3\0\0\0".__add__), damaged()
    )
)
@example(content=b"GGUF\x03\x00\x00\x00")
def test_law_any_bytes_give_a_header_or_one_input_error(content: bytes) -> None:
    assert isinstance(outcome(content, len(content)), Header | str)


@given(content=damaged(), share=st.floats(0, 1))
def test_law_a_prefix_gives_what_the_file_gives_or_asks_for_more(content: bytes, share: float) -> None:
    prefix = content[: int(share * len(content))]
    found = outcome(prefix, len(content))
    if isinstance(found, NeedMore):
        assert len(prefix) < found.at_least_bytes <= len(content)
    else:
        assert found == outcome(content, len(content))


@given(content=damaged())
def test_law_asking_for_more_ends(content: bytes) -> None:
    length = 0
    while isinstance(found := outcome(content[:length], len(content)), NeedMore):
        assert found.at_least_bytes > length
        length = found.at_least_bytes
    assert found == outcome(content, len(content))
