"""Code and build ids of ELF files: written ones, broken ones, the interpreter's own."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qlock.errors import InputError
from qlock.world.maps.elf import build_id, code_digest
from tests.fakes.elf import ALLOCATED, EXECUTABLE, header, note, with_sections, with_segments

TEXT = (b".text", 1, ALLOCATED | EXECUTABLE, b"\x90\x90\xc3")
INIT = (b".init", 1, ALLOCATED | EXECUTABLE, b"\xc3")
ROWS = (b".rodata", 1, ALLOCATED, b"tables")
BUILD = (b".note.gnu.build-id", 7, ALLOCATED, note(b"\xde\xad\xbe\xef"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "libggml-cpu.so"


def code(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    digest = code_digest(path)
    assert digest is not None
    return digest


class TestCode:
    def test_it_does_not_depend_on_what_is_no_code(self, path: Path) -> None:
        one = code(path, with_sections(TEXT, ROWS, BUILD))
        other = code(path, with_sections(ROWS, BUILD, (b".comment", 1, 0, b"other compiler"), TEXT))
        assert one == other

    @pytest.mark.parametrize(
        "sections",
        [
            ((b".text", 1, ALLOCATED | EXECUTABLE, b"\x90\x90\xc2"),),
            (TEXT, INIT),
            (
                (b".text", 1, ALLOCATED | EXECUTABLE, b"\x90\x90"),
                (b".fini", 1, ALLOCATED | EXECUTABLE, b"\xc3"),
            ),
            (TEXT, (b".nv_fatbin", 1, ALLOCATED, b"sm_90")),
            (TEXT, (b".hip_fatbin", 1, ALLOCATED, b"gfx942")),
        ],
    )
    def test_other_code_is_another_digest(
        self, path: Path, sections: tuple[tuple[bytes, int, int, bytes], ...]
    ) -> None:
        assert code(path, with_sections(TEXT)) != code(path, with_sections(*sections))

    def test_order_counts(self, path: Path) -> None:
        assert code(path, with_sections(TEXT, INIT)) != code(path, with_sections(INIT, TEXT))

    def test_a_section_without_bytes_is_passed_over(self, path: Path) -> None:
        nothing = (b".bss", 8, ALLOCATED | EXECUTABLE, b"xx")
        empty = (b".plt", 1, ALLOCATED | EXECUTABLE, b"")
        assert code(path, with_sections(TEXT)) == code(path, with_sections(nothing, TEXT, empty))

    def test_without_names_flags_still_tell_code(self, path: Path) -> None:
        assert code(path, with_sections(TEXT)) == code(path, with_sections(TEXT, strip_names=True))

    def test_without_sections_it_is_the_executable_segments(self, path: Path) -> None:
        one = code(path, with_segments((1, 5, b"code"), (1, 4, b"rows"), (4, 4, note(b"1"))))
        assert one == code(path, with_segments((1, 4, b"other"), (1, 5, b"code")))
        assert one != code(path, with_segments((1, 5, b"cOde")))

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"\x7fELF",
            b"#!/bin/sh\n",
            b"\x7fELF\x01\x01" + bytes(100),
            b"\x7fELF\x02\x02" + bytes(100),
            header(),
            with_sections(ROWS),
            with_segments((1, 4, b"rows")),
        ],
        ids=["empty", "magic", "script", "32-bit", "big-endian", "header", "no-code", "no-code-segment"],
    )
    def test_without_code_there_is_no_digest(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        assert code_digest(path) is None


class TestBuildId:
    def test_it_is_hex(self, path: Path) -> None:
        path.write_bytes(with_sections(TEXT, BUILD))
        assert build_id(path) == "deadbeef"

    def test_in_a_segment(self, path: Path) -> None:
        path.write_bytes(with_segments((4, 4, note(b"\x01\x02", kind=1) + note(b"\x03\x04"))))
        assert build_id(path) == "0304"

    @pytest.mark.parametrize(
        "data",
        [
            b"no ELF",
            with_sections(TEXT),
            with_sections((b".note", 7, 0, note(b"\x01", kind=1))),
            with_sections((b".note", 7, 0, note(b"\x01", name=b"Go\0\0"))),
            with_sections((b".note", 7, 0, struct.pack("<III", 2**32 - 1, 2**32 - 1, 3))),
            with_sections((b".note", 7, 0, b"short")),
            with_sections((b".note", 7, 0, note(b"\x01") + bytes(1 << 16))),
        ],
        ids=["text", "no-note", "other-kind", "other-name", "endless", "short", "large"],
    )
    def test_without_one_there_is_none(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        assert build_id(path) is None


@pytest.mark.parametrize(
    "data, why",
    [
        (header(sections_at=64, sections=1), "got `64` bytes, expected at least `128`"),
        (
            header(sections_at=2**64 - 1, sections=1),
            "got `64` bytes, expected at least `18446744073709551679`",
        ),
        (
            header(sections_at=64, sections=1, section_size=8),
            "got table rows of `8` bytes, expected at least `64`",
        ),
        (
            header(sections_at=64, sections=65535, section_size=65535),
            "got a table of `4294836225` bytes, expected at most `4194304`",
        ),
        (b"\x7fELF\x02\x01", "got `6` bytes, expected at least `64`"),
        (
            header(sections_at=64, sections=2)
            + 2 * struct.pack("<IIQQQQIIQQ", 0, 1, 4, 0, 0, 192, 0, 0, 1, 0),
            "got more code than its `192` bytes",
        ),
    ],
)
def test_a_broken_file_is_said(path: Path, data: bytes, why: str) -> None:
    path.write_bytes(data)
    for look in (code_digest, build_id):
        with pytest.raises(InputError) as caught:
            look(path)
        assert str(caught.value) == f"ELF file `{path}` is broken: {why}"


def test_code_beyond_the_end_is_said(path: Path) -> None:
    data = header(sections_at=64, sections=1) + struct.pack("<IIQQQQIIQQ", 0, 1, 4, 0, 100, 100, 0, 0, 1, 0)
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        code_digest(path)
    assert str(caught.value) == f"ELF file `{path}` is broken: got `128` bytes, expected at least `200`"


def test_the_interpreter_has_code() -> None:
    assert code_digest(Path(sys.executable)) is not None


WHOLE = with_sections(TEXT, ROWS, BUILD)


@given(edits=st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=8))
@example(edits=[(40, 0), (41, 0), (60, 255), (61, 255)])
def test_any_edit_gives_a_digest_nothing_or_an_input_error(
    edits: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(WHOLE)
    for place, value in edits:
        data[place] = value
    look_at(bytes(data), tmp_path_factory)


@given(data=st.binary(max_size=400))
def test_any_bytes_after_the_magic_do_too(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    look_at(b"\x7fELF\x02\x01" + data, tmp_path_factory)


@given(cut=st.integers(0, len(WHOLE)))
def test_a_file_cut_anywhere_does_too(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    look_at(WHOLE[:cut], tmp_path_factory)


def look_at(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("elf") / "f"
    path.write_bytes(data)
    for look in (code_digest, build_id):
        try:
            seen = look(path)
        except InputError:
            continue
        assert seen is None or set(seen.removeprefix("blake3:")) <= set("0123456789abcdef")
