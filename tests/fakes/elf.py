"""Small ELF files, written byte by byte, for the tests of ``world.maps``."""

from __future__ import annotations

import struct

EXECUTABLE = 4
ALLOCATED = 2


def note(value: bytes, *, kind: int = 3, name: bytes = b"GNU\0") -> bytes:
    """One note; kind 3 of GNU is the build id."""
    return struct.pack("<III", len(name), len(value), kind) + name + value + bytes(-len(value) % 4)


def with_sections(*sections: tuple[bytes, int, int, bytes], strip_names: bool = False) -> bytes:
    """An ELF file of sections ``(name, type, flags, bytes)``, in this order."""
    names = b"\0"
    body = b""
    rows = [bytes(64)]
    for name, kind, flags, data in sections:
        offset = 64 + len(body)
        rows.append(struct.pack("<IIQQQQIIQQ", len(names), kind, flags, 0, offset, len(data), 0, 0, 1, 0))
        names += name + b"\0"
        body += data
    names_row = 0
    if not strip_names:
        names_row = len(rows)
        rows.append(struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64 + len(body), len(names), 0, 0, 1, 0))
        body += names
    return header(sections_at=64 + len(body), sections=len(rows), names_row=names_row) + body + b"".join(rows)


def with_segments(*segments: tuple[int, int, bytes]) -> bytes:
    """An ELF file without a section table, of segments ``(type, flags, bytes)``."""
    at = 64 + 56 * len(segments)
    rows = body = b""
    for kind, flags, data in segments:
        rows += struct.pack("<IIQQQQQQ", kind, flags, at + len(body), 0, 0, len(data), len(data), 1)
        body += data
    return header(segments_at=64, segments=len(segments)) + rows + body


def header(
    *,
    segments_at: int = 0,
    segments: int = 0,
    sections_at: int = 0,
    sections: int = 0,
    names_row: int = 0,
    section_size: int = 64,
) -> bytes:
    """The first 64 bytes of a 64-bit little-endian ELF file."""
    return b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH",
        3,
        62,
        1,
        0,
        segments_at,
        sections_at,
        0,
        64,
        56,
        segments,
        section_size,
        sections,
        names_row,
    )
