"""The code inside an ELF file, bounded.

Lives here: reading the headers of 64-bit little-endian ELF, the digest of the parts that hold code, the build id.
Does not live here: what a digest is compared with.

A whole file's digest says whether a file is the same; the code's digest beside it only serves to tell "the same
code, built elsewhere" from "other code". Code is every section marked executable, in the order of the section
table, and the sections in which compilers put code for GPUs; in a file without a section table it is every
executable segment. Constant tables are not code: a change of one alone reads as "built elsewhere", and the whole
file's digest still differs.

Source: System V ABI, chapters 4 and 5 (``elf(5)``); any bytes give a value, ``None``, or an ``InputError``.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from qlock.core.digest import StreamDigests, digest_of
from qlock.errors import InputError
from qlock.world.files import error_of, opened, shown

_MAGIC = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOTE = struct.Struct("<III")
_PT_LOAD, _PT_NOTE = 1, 4
_PF_X = 1
_SHT_NOTE, _SHT_NOBITS = 7, 8
_SHF_EXECINSTR = 4
_NT_GNU_BUILD_ID = 3
_GPU_CODE = (b".nv_fatbin", b"__nv_relfatbin", b".hip_fatbin")

_LONGEST_NAME = max(len(name) for name in _GPU_CODE)

_MAX_TABLE_BYTES = 4 << 20
_MAX_NOTES = 64
_PIECE_BYTES = 4 << 20
_MAX_NOTE_BYTES = 1 << 16
_MAX_NAMES_BYTES = 16 << 20

_Span = tuple[int, int]


def code_digest(path: Path) -> str | None:
    """``blake3:…`` over the code in a file; ``None`` when it is no 64-bit little-endian ELF or has no code.

    Raises:
        AbsentError: It is not there, or cannot be read.
        InputError: It begins as an ELF file and is broken, or was changed while it was read.
    """
    with opened(path, "file") as file:
        try:
            reader = _reader(path, file.fileno())
            return reader.code_digest() if reader else None
        except OSError as error:
            raise error_of(error, path, "file") from error


def build_id(path: Path) -> str | None:
    """The linker's build id in lower-case hex; ``None`` when there is none. Errors as ``code_digest``."""
    with opened(path, "file") as file:
        try:
            reader = _reader(path, file.fileno())
            return reader.build_id() if reader else None
        except OSError as error:
            raise error_of(error, path, "file") from error


def _reader(path: Path, descriptor: int) -> _Reader | None:
    """What reads an ELF file; ``None`` when it is none."""
    is_elf = os.pread(descriptor, len(_MAGIC), 0) == _MAGIC
    return _Reader(path, descriptor) if is_elf else None


class _Reader:
    """Reads the parts of one open ELF file, bounded."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._size_bytes = os.fstat(descriptor).st_size

    def code_digest(self) -> str | None:
        code, _ = self._parts()
        if not code:
            return None
        digests = StreamDigests()
        for offset, size in code:
            for at in range(offset, offset + size, _PIECE_BYTES):
                digests.feed_blake3(self._read((at, min(_PIECE_BYTES, offset + size - at)), _PIECE_BYTES))
        # The sizes are part of it, so that bytes cannot wander from one section to the next unseen.
        return digest_of("code", ([size for _, size in code], digests.blake3()))

    def build_id(self) -> str | None:
        _, notes = self._parts()
        small = [span for span in notes[:_MAX_NOTES] if span[1] <= _MAX_NOTE_BYTES]
        return next(filter(None, (_build_id_in(self._read(span, _MAX_NOTE_BYTES)) for span in small)), None)

    def _parts(self) -> tuple[list[_Span], list[_Span]]:
        """Spans that hold code, none of them empty, and spans that hold notes."""
        header = _HEADER.unpack(self._read((0, _HEADER.size), _HEADER.size))
        _, _, _, _, segments_at, sections_at, _, _, segment_size, segments, section_size, sections, names = (
            header
        )
        if sections_at and sections:
            rows = self._rows(sections_at, section_size, sections, _SECTION)
            code, notes = self._of_sections(rows, names)
        else:
            code, notes = _of_segments(self._rows(segments_at, segment_size, segments, _SEGMENT))
        code = [span for span in code if span[1]]
        # Sections of a real file do not overlap; without this, a small file could ask for hours of reading.
        if sum(size for _, size in code) > self._size_bytes:
            raise self._broken(f"got more code than its `{self._size_bytes}` bytes")
        return code, notes

    def _of_sections(self, rows: list[tuple[int, ...]], names_row: int) -> tuple[list[_Span], list[_Span]]:
        names = b""
        if 0 < names_row < len(rows):
            names = self._read((rows[names_row][4], rows[names_row][5]), _MAX_NAMES_BYTES)
        code: list[_Span] = []
        notes: list[_Span] = []
        for name_at, kind, flags, _, offset, size, _, _, _, _ in rows:
            if kind == _SHT_NOTE:
                notes.append((offset, size))
            elif kind != _SHT_NOBITS and (flags & _SHF_EXECINSTR or _name(names, name_at) in _GPU_CODE):
                code.append((offset, size))
        return code, notes

    def _rows(self, offset: int, row_size: int, count: int, row: struct.Struct) -> list[tuple[int, ...]]:
        if count and row_size < row.size:
            raise self._broken(f"got table rows of `{row_size}` bytes, expected at least `{row.size}`")
        data = self._read((offset, row_size * count), _MAX_TABLE_BYTES)
        return [row.unpack_from(data, row_size * number) for number in range(count)]

    def _read(self, span: _Span, max_bytes: int) -> bytes:
        """The bytes of a span; refused when it is too long or does not lie in the file."""
        offset, size = span
        if size > max_bytes:
            raise self._broken(f"got a table of `{size}` bytes, expected at most `{max_bytes}`")
        if offset + size > self._size_bytes:
            raise self._broken(f"got `{self._size_bytes}` bytes, expected at least `{offset + size}`")
        data = os.pread(self._descriptor, size, offset)
        if len(data) != size:
            raise self._broken("it was cut short while it was read")
        return data

    def _broken(self, why: str) -> InputError:
        return InputError(f"ELF file `{shown(self._path)}` is broken: {why}")


def _of_segments(rows: list[tuple[int, ...]]) -> tuple[list[_Span], list[_Span]]:
    code = [(row[2], row[5]) for row in rows if row[0] == _PT_LOAD and row[1] & _PF_X]
    notes = [(row[2], row[5]) for row in rows if row[0] == _PT_NOTE]
    return code, notes


def _name(names: bytes, at: int) -> bytes:
    """The name that begins at ``at`` in the table of names, as far as a name of interest can be long."""
    return names[at : at + _LONGEST_NAME + 1].partition(b"\0")[0]


def _build_id_in(data: bytes) -> str:
    """The build id among the notes of one section; empty when it is not there."""
    at = 0
    while at + _NOTE.size <= len(data):
        name_size, value_size, kind = _NOTE.unpack_from(data, at)
        name_at = at + _NOTE.size
        value_at = name_at + (name_size + 3) // 4 * 4
        if kind == _NT_GNU_BUILD_ID and data[name_at : name_at + name_size] == b"GNU\0":
            return data[value_at : value_at + value_size].hex()
        at = value_at + (value_size + 3) // 4 * 4
    return ""
