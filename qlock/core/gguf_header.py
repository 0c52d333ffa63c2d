"""What a GGUF header is, once it has been read and checked.

Lives here: the tensor table, where each value lies, and access to single values. Does not live here: the reading
and its limits (``core.gguf_reader``), and what the values mean (``core.gguf``).

Arrays stay bytes: a vocabulary as Python objects costs a thousand times the memory and nobody looks at it.
"""

from __future__ import annotations

import math
import struct

from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Count, Positive
from qlock.core.digest import blake3_of
from qlock.errors import InputError

MAX_TEXT_BYTES = 1 << 20

BOOL, STRING, ARRAY = 7, 8, 9
SCALARS: dict[int, tuple[str, struct.Struct]] = {
    0: ("u8", struct.Struct("<B")),
    1: ("i8", struct.Struct("<b")),
    2: ("u16", struct.Struct("<H")),
    3: ("i16", struct.Struct("<h")),
    4: ("u32", struct.Struct("<I")),
    5: ("i32", struct.Struct("<i")),
    6: ("f32", struct.Struct("<f")),
    BOOL: ("bool", struct.Struct("<?")),
    10: ("u64", struct.Struct("<Q")),
    11: ("i64", struct.Struct("<q")),
    12: ("f64", struct.Struct("<d")),
}
"""Name and layout of each GGUF value type of fixed size, by number."""

_F32 = struct.Struct("<f")
_F32_BEYOND = float.fromhex("0x1.ffffffp127")
"""From here on a number rounds to infinity as an f32."""


class NeedMore(Base, frozen=True, kw_only=True):
    """The prefix ends inside the header while the file goes on."""

    at_least_bytes: Positive
    """The next prefix must be at least this long; it may still be too short, so feed twice as much."""


class ValueSpan(Base, frozen=True, kw_only=True):
    """Where one value lies in ``Header.raw``."""

    type_id: Count
    """Number of the GGUF value type; 8 is a string, 9 an array."""
    element_type_id: Count
    """Type of an array's elements; else the same as ``type_id``."""
    count: Count
    """Elements of an array; 1 for anything else."""
    start: Count
    end: Count
    """Of the value's bytes, without its type, a string's own length, or an array's type and count."""


class TensorInfo(Base, frozen=True, kw_only=True):
    """One row of the tensor table."""

    name: str
    """As it stands in the file: untrusted, to be escaped wherever it is shown."""
    shape: tuple[int, ...]
    """In GGML's order: the first dimension is the row."""
    type_id: Count
    offset_bytes: Count
    """From the beginning of the file."""
    size_bytes: Count | UnsetType = UNSET
    """Without padding; unset when the type is unknown."""

    @property
    def elements(self) -> int:
        """Product of the dimensions; 1 for a tensor without any."""
        return elements_of(self.shape)


class Header(Base, frozen=True, kw_only=True):
    """Everything before the tensor data, checked."""

    version: Positive
    alignment: Positive
    data_offset_bytes: Count
    """Where the tensor data begin; beyond the file's end only if there are no tensors."""
    file_bytes: Count
    tensors: tuple[TensorInfo, ...]
    """In file order."""
    values: dict[str, ValueSpan]
    """By key, in file order."""
    raw: bytes
    """The header's own bytes, which the spans point into."""

    def value(self, key: str) -> str | float | bool | None:
        """The value under ``key``; None when it is absent or an array.

        An f32 is given with as few decimal digits as read back to the same f32 (``0.6``, not
        ``0.6000000238418579``).

        Raises:
            InputError: It is a string of more than 1 MiB, which no key has that is looked at.
        """
        span = self.values.get(key)
        if span is None or span.type_id == ARRAY:
            return None
        if span.type_id == STRING:
            if span.end - span.start > MAX_TEXT_BYTES:
                raise InputError(
                    f"{shown(key)} has `{span.end - span.start}` bytes, expected at most `{MAX_TEXT_BYTES}`"
                )
            return self.raw[span.start : span.end].decode()
        name, layout = SCALARS[span.type_id]
        found: float = layout.unpack_from(self.raw, span.start)[0]
        return _shortest(found) if name == "f32" else found

    def text(self, key: str) -> str | None:
        """The string under ``key``; None when it is absent or of another type."""
        found = self.value(key)
        return found if isinstance(found, str) else None

    def number(self, key: str) -> int | float | None:
        """The number under ``key``; None when it is absent, a bool, or of another type."""
        found = self.value(key)
        return None if isinstance(found, str | bool) else found

    def row(self, key: str) -> tuple[str, int, int, int, str]:
        """Key, type, element type, count and digest of the bytes: equal rows are equal values."""
        span = self.values[key]
        content = blake3_of(memoryview(self.raw)[span.start : span.end])
        return key, span.type_id, span.element_type_id, span.count, content

    def shown_value(self, key: str) -> str:
        """What stands under ``key``, for messages: the value, ``absent``, or the type of an array."""
        span = self.values.get(key)
        if span is None:
            return "absent"
        return f"an {value_type_name(span)}" if span.type_id == ARRAY else shown(str(self.value(key)))


def shown(text: str) -> str:
    """``text`` in backticks, cut after 80 characters so that a message stays one line."""
    return f"`{text}`" if len(text) <= 80 else f"`{text[:80]}…`"


def value_type_name(span: ValueSpan) -> str:
    """``"u32"``, ``"string"`` or ``"array of f32"``."""
    element = "string" if span.element_type_id == STRING else SCALARS[span.element_type_id][0]
    return f"array of {element}" if span.type_id == ARRAY else element


def elements_of(shape: tuple[int, ...]) -> int:
    """Product of the dimensions, as an int that never wraps."""
    return math.prod(shape)


def _shortest(number: float) -> float:
    """``number``, which is an f32, rounded to as few decimal digits as read back to the same f32."""
    for digits in range(1, 9):
        short = float(f"{number:.{digits}g}")
        # Rounding up can leave the range of f32, and NaN equals nothing: both end at the number itself.
        if abs(short) < _F32_BEYOND and _F32.unpack(_F32.pack(short))[0] == number:
            return short
    return float(f"{number:.9g}")
