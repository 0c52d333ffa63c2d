"""The bounded reader of GGUF headers: bytes in, a struct or one ``InputError`` out.

Lives here: the walk over the key-value section and the tensor table, and its limits. Does not live here: the
header as a struct (``core.gguf_header``), what its values mean (``core.gguf``), and reading files or ranges:
whoever has the bytes feeds a prefix, and is told when more are needed.

Order of the checks, each of which ends the reading:

1. magic, byte order, version
2. the counts of keys and tensors against what is left of the file
3. each key and value: length, UTF-8, type, no arrays of arrays, bools of 0 or 1, no key twice
4. ``general.alignment``
5. each tensor: name, dimensions, elements, row against block
6. each offset against the padded sum of those before it, and the end of the last tensor against the file

Nothing is allocated by a count that the file states, arrays stay bytes, and the same file gives the same answer
whatever prefix of it is fed.

Source: llama.cpp b11434, ``ggml/include/gguf.h`` and ``ggml/src/gguf.cpp``. Stricter than llama.cpp in four
points: a header has at most 128 MiB, text is UTF-8, bools are 0 or 1, alignment is at most 2 MiB.
"""

from __future__ import annotations

import codecs
import struct

from msgspec import UNSET, UnsetType

from qlock.core.ggml_types import GGML_TYPES
from qlock.core.gguf_header import (
    ARRAY,
    BOOL,
    SCALARS,
    STRING,
    Header,
    NeedMore,
    TensorInfo,
    ValueSpan,
    elements_of,
    shown,
    value_type_name,
)
from qlock.errors import InputError

MAX_HEADER_BYTES = 128 << 20
"""Four times the largest header known (262,144 tokens, their merges and a copy of the tokenizer's JSON)."""
MAX_KEYS = 65_536
MAX_TENSORS = 131_072
MAX_ALIGNMENT = 2 << 20
MAX_KEY_BYTES = 65_535
MAX_TENSOR_NAME_BYTES = 63
MAX_DIMENSIONS = 4

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_TYPE_AND_OFFSET = struct.Struct("<IQ")
_LAST_I64 = 2**63 - 1
_PIECE_BYTES = 1 << 20
_LEAST_KEY_BYTES = 14
_LEAST_TENSOR_BYTES = 25
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def read_header(data: bytes | memoryview, file_bytes: int, *, name: str = "") -> Header | NeedMore:
    """Read the header of a GGUF file from its first bytes.

    Args:
        data: A prefix of the file, or all of it; never copied beyond the header.
        file_bytes: Size of the whole file.
        name: What the file is called in messages; put in front of them.

    Returns:
        The header, or how many bytes are needed when ``data`` ends inside it and the file does not.

    Raises:
        InputError: The file is no GGUF, is cut, or contradicts itself; one line says how.
    """
    # Views are released at once: an error's traceback would keep the caller from closing a mapped file.
    with memoryview(data) as given, given.cast("B") as flat, flat[:file_bytes] as view:
        return _read(view, file_bytes, name)


def _read(view: memoryview, file_bytes: int, name: str) -> Header | NeedMore:
    try:
        return _header(_Cursor(view, file_bytes))
    except _PrefixTooShortError as end:
        return NeedMore(at_least_bytes=end.at_least_bytes)
    except InputError as error:
        raise (error.in_document(name) if name else error) from None


class _PrefixTooShortError(Exception):
    """The bytes given end here while the file goes on."""

    def __init__(self, at_least_bytes: int) -> None:
        super().__init__()
        self.at_least_bytes = at_least_bytes


class _Cursor:
    """A position in the prefix that cannot pass the end of the file, the prefix or the limit on headers."""

    def __init__(self, view: memoryview, file_bytes: int) -> None:
        self.view = view
        self.file_bytes = file_bytes
        self.position = 0

    def left(self) -> int:
        """Bytes from here to the end of the file."""
        return self.file_bytes - self.position

    def reach(self, end: int, problem: str) -> None:
        """Check that bytes up to ``end`` are there; ``problem`` is the message if the file is too short."""
        if end > self.file_bytes:
            raise InputError(problem, hint="the file is cut or damaged; download it again")
        if end > MAX_HEADER_BYTES:
            raise InputError(f"the header has more than `{MAX_HEADER_BYTES}` bytes")
        if end > len(self.view):
            raise _PrefixTooShortError(end)

    def take(self, count: int, label: str) -> int:
        """Where the next ``count`` bytes start; the position moves behind them."""
        start = self.position
        if start + count > len(self.view) or start + count > MAX_HEADER_BYTES:
            self.reach(start + count, f"{label} needs `{count}` bytes, the file has `{self.left()}` left")
        self.position = start + count
        return start

    def u32(self, label: str) -> int:
        found: int = _U32.unpack_from(self.view, self.take(4, label))[0]
        return found

    def u64(self, label: str) -> int:
        found: int = _U64.unpack_from(self.view, self.take(8, label))[0]
        return found

    def text(self, label: str, most_bytes: int) -> str:
        """A short string; the position is behind it."""
        start = self.string(label, most_bytes)
        return str(self.view[start : self.position], "utf-8")

    def string(self, label: str, most_bytes: int = MAX_HEADER_BYTES) -> int:
        """Where a string's bytes start, which are UTF-8; the position is behind them."""
        length = self.u64(label)
        if most_bytes < length <= self.left():
            raise InputError(f"{label} has `{length}` bytes, expected at most `{most_bytes}`")
        start = self.take(length, label)
        wrong = _not_utf8_at(self.view[start : self.position])
        if wrong is not None:
            raise InputError(f"{label} is not UTF-8 at its byte `{wrong}`")
        return start

    def skip_strings(self, count: int, label: str) -> None:
        """Step over ``count`` strings. The hot loop: a vocabulary has a quarter of a million."""
        unpack, view = _U64.unpack_from, self.view
        position = self.position
        try:
            for _ in range(count):
                position += 8 + unpack(view, position)[0]
        except (struct.error, OverflowError):
            if position <= min(self.file_bytes, MAX_HEADER_BYTES):
                position += 8
        self.reach(
            position, f"a string of {label} reaches to byte `{position}`, the file has `{self.file_bytes}`"
        )
        self.position = position


def _header(cursor: _Cursor) -> Header:
    version = _version(cursor)
    tensor_count = cursor.u64("the count of tensors")
    key_count = cursor.u64("the count of keys")
    least = key_count * _LEAST_KEY_BYTES + tensor_count * _LEAST_TENSOR_BYTES
    if least > cursor.left():
        raise InputError(
            f"`{key_count}` keys and `{tensor_count}` tensors need at least `{least}` bytes, "
            f"the file has `{cursor.left()}` left"
        )
    if key_count > MAX_KEYS or tensor_count > MAX_TENSORS:
        raise InputError(
            f"got `{key_count}` keys and `{tensor_count}` tensors, expected at most `{MAX_KEYS}` and `{MAX_TENSORS}`"
        )
    values: dict[str, ValueSpan] = {}
    for index in range(key_count):
        key = cursor.text(f"the key of KV `{index}`", MAX_KEY_BYTES)
        if not key:
            raise InputError(f"the key of KV `{index}` is empty")
        if key in values:
            raise InputError(
                f"the key {shown(key)} stands twice, at KV `{list(values).index(key)}` and KV `{index}`"
            )
        values[key] = _value(cursor, f"{shown(key)} (KV `{index}`)")
    alignment = _alignment(cursor, values.get("general.alignment"))
    names: set[str] = set()
    rows = [_tensor(cursor, index, names) for index in range(tensor_count)]
    data_offset = -(-cursor.position // alignment) * alignment
    return Header(
        version=version,
        alignment=alignment,
        data_offset_bytes=data_offset,
        file_bytes=cursor.file_bytes,
        tensors=_placed(rows, data_offset=data_offset, alignment=alignment, file_bytes=cursor.file_bytes),
        values=values,
        raw=bytes(cursor.view[: cursor.position]),
    )


def _not_utf8_at(content: memoryview) -> int | None:
    """Where ``content`` stops being UTF-8, looked at in pieces: one wide letter makes a long str four times as long."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(content), _PIECE_BYTES):
        waiting = len(decoder.getstate()[0])
        try:
            decoder.decode(content[start : start + _PIECE_BYTES], start + _PIECE_BYTES >= len(content))
        except UnicodeDecodeError as error:
            return start - waiting + error.start
    return None


def _version(cursor: _Cursor) -> int:
    if cursor.file_bytes == 0:
        raise InputError("the file is empty, expected a GGUF")
    head = bytes(cursor.view[: len(_LFS_POINTER)])
    if len(head) < min(len(_LFS_POINTER), cursor.file_bytes):
        raise _PrefixTooShortError(min(len(_LFS_POINTER), cursor.file_bytes))
    if head == _LFS_POINTER:
        raise InputError("the file is a git-LFS pointer, not the weights", hint="run `git lfs pull`")
    if head[:4] != b"GGUF":
        raise InputError(
            f"the file begins with the bytes `{head[:4].hex(' ')}`, expected `47 47 55 46` (GGUF)"
        )
    cursor.take(4, "the magic")
    version = cursor.u32("the version")
    if version & 0xFFFF == 0 and version != 0:
        raise InputError(
            "big-endian GGUF, this host is little-endian", hint="use the little-endian file of this model"
        )
    if version not in (2, 3):
        raise InputError(f"got GGUF version `{version}`, expected `2` or `3`")
    return version


def _value(cursor: _Cursor, label: str) -> ValueSpan:
    type_id = element_type_id = cursor.u32(label)
    count = 1
    if type_id == ARRAY:
        element_type_id = cursor.u32(label)
        count = cursor.u64(label)
        if element_type_id == ARRAY:
            raise InputError(f"{label} is an array of arrays, which llama.cpp does not read")
    if type_id == STRING:
        start = cursor.string(label)
    elif element_type_id == STRING:
        start = cursor.position
        cursor.reach(
            start + 8 * count,
            f"{label} cannot hold `{count}` strings, the file has `{cursor.left()}` bytes left",
        )
        cursor.skip_strings(count, label)
    elif element_type_id in SCALARS:
        start = cursor.take(count * SCALARS[element_type_id][1].size, label)
    else:
        raise InputError(f"{label} has the value type `{element_type_id}`, expected `0` to `12`")
    if element_type_id == BOOL:
        odd = bytes(cursor.view[start : cursor.position]).translate(None, b"\x00\x01")
        if odd:
            raise InputError(f"{label} is a bool, got `{odd[0]}` expected `0` or `1`")
    return ValueSpan(
        type_id=type_id, element_type_id=element_type_id, count=count, start=start, end=cursor.position
    )


def _alignment(cursor: _Cursor, span: ValueSpan | None) -> int:
    if span is None:
        return 32
    if span.type_id != 4:
        raise InputError(f"`general.alignment` is of type `{value_type_name(span)}`, expected `u32`")
    alignment: int = _U32.unpack_from(cursor.view, span.start)[0]
    if alignment.bit_count() != 1 or alignment > MAX_ALIGNMENT:
        raise InputError(
            f"`general.alignment` is `{alignment}`, expected a power of two up to `{MAX_ALIGNMENT}`"
        )
    return alignment


_Row = tuple[str, tuple[int, ...], int, int]
"""Name, shape, type and offset of a tensor as the table gives them."""


def _tensor(cursor: _Cursor, index: int, names: set[str]) -> _Row:
    name = cursor.text(f"the name of tensor `{index}`", MAX_TENSOR_NAME_BYTES)
    label = f"tensor {shown(name)}"
    if not name or "\0" in name:
        raise InputError(f"the name of tensor `{index}` is empty or contains a NUL")
    if name in names:
        raise InputError(f"{label} stands twice in the table, the second time as tensor `{index}`")
    names.add(name)
    dimensions = cursor.u32(label)
    if dimensions > MAX_DIMENSIONS:
        raise InputError(f"{label} has `{dimensions}` dimensions, expected at most `{MAX_DIMENSIONS}`")
    shape = struct.unpack_from(f"<{dimensions}Q", cursor.view, cursor.take(8 * dimensions, label))
    if elements_of(tuple(max(length, 1) for length in shape)) > _LAST_I64:
        raise InputError(f"{label} of shape `{list(shape)}` has more than 2^63 - 1 elements")
    type_id, offset = _TYPE_AND_OFFSET.unpack_from(cursor.view, cursor.take(12, label))
    known = GGML_TYPES.get(type_id)
    if known is not None and (shape[0] if shape else 1) % known.block_elements:
        raise InputError(
            f"{label} has rows of `{shape[0] if shape else 1}` elements, expected a multiple of "
            f"`{known.block_elements}` for {known.name}"
        )
    return name, shape, type_id, offset


def _placed(rows: list[_Row], *, data_offset: int, alignment: int, file_bytes: int) -> tuple[TensorInfo, ...]:
    tensors = []
    expected, exact, end = 0, True, 0
    for name, shape, type_id, offset in rows:
        # The size of a type that is not in the table is unknown, so the next offset can only be bounded.
        if offset != expected and (exact or offset < expected or offset % alignment):
            least = "" if exact else f"a multiple of `{alignment}`, at least "
            raise InputError(
                f"tensor {shown(name)} has the offset `{offset}`, expected {least}`{expected}` "
                "(the padded sum of the tensors before it)"
            )
        size: int | UnsetType = UNSET
        expected, exact, end = offset, False, offset
        known = GGML_TYPES.get(type_id)
        if known is not None:
            size = elements_of(shape) // known.block_elements * known.block_bytes
            end, exact = offset + size, True
            expected = -(-end // alignment) * alignment
        tensors.append(
            TensorInfo(
                name=name, shape=shape, type_id=type_id, offset_bytes=data_offset + offset, size_bytes=size
            )
        )
    if rows and data_offset + end > file_bytes:
        raise InputError(
            f"the tensor data are cut: expected `{data_offset + end}` bytes, have `{file_bytes}`",
            hint="download the file again",
        )
    return tuple(tensors)
