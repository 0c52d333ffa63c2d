"""Journals that were cut at any byte, damaged, filled with strange text, or met a full disk."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.errors import AbsentError, InputError
from qlock.world import journal
from qlock.world.journal import open_journal, read_rows

ROWS = (b'{"item":"a","text":"\xe2\x80\xa8 \xc2\x85 \\u001c"}', b'{"item":"b"}', b"[1,2]", b'"plain"')
MEND = "put the file back as it was written; a record is never mended by hand"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "JOB.jsonl"


def test_rows_come_back_as_they_were_appended(path: Path) -> None:
    with open_journal(path) as written:
        for row in ROWS:
            written.append(row)
        assert tuple(written.rows()) == ROWS
    assert path.read_bytes() == b"".join(row + b"\n" for row in ROWS)
    assert tuple(read_rows(path)) == ROWS


def test_it_goes_on_where_it_ended(path: Path) -> None:
    for row in ROWS:
        with open_journal(path) as written:
            assert written.torn_bytes == 0
            written.append(row)
    assert tuple(read_rows(path)) == ROWS


def test_line_breaks_of_unicode_are_no_line_breaks(path: Path) -> None:
    rows = tuple(json.dumps(f"a{end}b", ensure_ascii=False).encode() for end in "\u2028\u2029\x85\x7f")
    with open_journal(path) as written:
        for row in rows:
            written.append(row)
    assert tuple(read_rows(path)) == rows


@pytest.mark.parametrize(
    "tail", [b"{", b'{"item":"c"}', b"\xff\xfe", b"\0\0\0\0", b"nonsense\n", b"\0\n", b"\n"]
)
def test_a_torn_last_line_is_dropped_and_counted(path: Path, tail: bytes) -> None:
    path.write_bytes(b"1\n2\n" + tail)
    assert tuple(read_rows(path)) == (b"1", b"2")
    with open_journal(path) as written:
        assert written.torn_bytes == len(tail)
        written.append(b"3")
    assert path.read_bytes() == b"1\n2\n3\n"


@pytest.mark.parametrize(
    "data, number, why",
    [
        (b"1\n{\n3\n", 2, "got no JSON, Input data was truncated"),
        (b"\n2\n", 1, "got no JSON, Input data was truncated"),
        (b"1\n2\n{x}\n4", 3, "got no JSON, JSON is malformed: object keys must be strings (byte 1)"),
    ],
)
def test_damage_elsewhere_is_refused_and_nothing_is_touched(
    path: Path, data: bytes, number: int, why: str
) -> None:
    path.write_bytes(data)
    for look in (lambda: open_journal(path), lambda: tuple(read_rows(path))):
        with pytest.raises(InputError) as caught:
            look()
        assert str(caught.value) == f"line `{number}` of journal `{path}` is damaged: {why}"
        assert caught.value.hint == MEND
    assert path.read_bytes() == data


def test_bytes_that_are_no_utf8_are_damage(path: Path) -> None:
    path.write_bytes(b'"\xff"\n2\n')
    with pytest.raises(InputError) as caught:
        open_journal(path)
    assert str(caught.value).startswith(f"line `1` of journal `{path}` is damaged: got no JSON, ")


def test_very_deep_json_is_damage(path: Path) -> None:
    path.write_bytes(b"[" * 100_000 + b"]" * 100_000 + b"\n2\n")
    with pytest.raises(InputError) as caught:
        open_journal(path)
    assert str(caught.value).startswith(f"line `1` of journal `{path}` is damaged: got no JSON, ")


def test_a_line_without_end_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_MAX_ROW_BYTES", 1000)
    path.write_bytes(b"x" * 3000)
    with pytest.raises(InputError) as caught:
        open_journal(path)
    assert str(caught.value) == f"journal `{path}` has a line of more than `1000` bytes, so it is none"


def test_rows_longer_than_a_piece(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_PIECE_BYTES", 7)
    rows = (b'"' + 50 * b"x" + b'"', b"1", b'"' + 6 * b"y" + b'"')
    path.write_bytes(b"".join(row + b"\n" for row in rows))
    assert tuple(read_rows(path)) == rows


@pytest.mark.parametrize("row", [b"1\n2", b"", b"{", b"NaN", b"\xff"])
def test_what_would_be_damage_is_not_appended(path: Path, row: bytes) -> None:
    with open_journal(path) as written:
        with pytest.raises(ValueError, match=r"^a row is one line of JSON: got "):
            written.append(row)
        written.append(b"1")
    assert path.read_bytes() == b"1\n"


def test_each_row_is_synced_unless_asked_otherwise(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    with open_journal(path) as written:
        monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(path.stat().st_size))
        written.append(b"1")
        assert synced == [2]
        written.append(b"2", sync=False)
        written.append(b"3", sync=False)
        assert synced == [2]
        written.sync()
        assert synced == [2, 6]
        written.sync()
        assert synced == [2, 6]
        written.append(b"4", sync=False)
    assert synced == [2, 6, 8]


def test_a_disk_that_is_full_halfway_leaves_whole_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    written = open_journal(path)
    written.append(b'"first"')

    def half_then_full(descriptor: int, data: memoryview) -> int:
        if len(data) > 5:
            return real(descriptor, data[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", half_then_full)
    with pytest.raises(AbsentError) as caught:
        written.append(b'"second"')
    assert str(caught.value) == f"no space left to write journal `{path}`"
    assert caught.value.hint == "free some space and run again"
    assert path.read_bytes() == b'"first"\n'
    with pytest.raises(AbsentError) as caught:
        written.append(b"3")
    assert str(caught.value) == f"journal `{path}` cannot be written any more"
    assert caught.value.hint == "run again to resume after its last whole row"
    written.close()


def test_a_row_that_does_not_reach_the_disk_is_taken_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with open_journal(path) as written:
        written.append(b"1")
        monkeypatch.setattr(os, "fsync", broken)
        with pytest.raises(AbsentError) as caught:
            written.append(b"2")
        assert str(caught.value) == f"journal `{path}` cannot be used: input/output error"
    assert path.read_bytes() == b"1\n"


def test_a_sync_that_fails_later_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    written = open_journal(path)
    written.append(b"1", sync=False)
    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(AbsentError) as caught:
        written.close()
    assert str(caught.value) == f"no space left to write journal `{path}`"
    written.close()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AbsentError) as caught:
        open_journal(tmp_path / "no/JOB.jsonl")
    assert str(caught.value) == f"folder `{tmp_path}/no` is not there"


def test_a_fifo_is_not_waited_for(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(InputError) as caught:
        open_journal(path)
    assert str(caught.value) == f"journal `{path}` is a FIFO, expected a regular file"


def test_a_journal_to_read_that_is_not_there(path: Path) -> None:
    with pytest.raises(AbsentError) as caught:
        tuple(read_rows(path))
    assert str(caught.value) == f"journal `{path}` is not there"


def test_closing_again_does_nothing_and_appending_is_refused(path: Path) -> None:
    written = open_journal(path)
    written.close()
    written.close()
    with pytest.raises(AbsentError) as caught:
        written.append(b"1")
    assert str(caught.value) == f"journal `{path}` cannot be written any more"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(rows=st.lists(VALUES, max_size=5), data=st.data())
def test_cut_at_any_byte_it_has_exactly_its_whole_rows_and_goes_on(
    rows: list[object], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = [json.dumps(row, ensure_ascii=data.draw(st.booleans())).encode() for row in rows]
    whole = b"".join(line + b"\n" for line in lines)
    cut = data.draw(st.integers(0, len(whole)))
    path = tmp_path_factory.mktemp("cut") / "JOB.jsonl"
    path.write_bytes(whole[:cut])
    kept = whole[:cut].count(b"\n")
    assert list(read_rows(path)) == lines[:kept]
    with open_journal(path) as written:
        assert written.torn_bytes == cut - sum(len(line) + 1 for line in lines[:kept])
        for line in lines[kept:]:
            written.append(line, sync=False)
    assert path.read_bytes() == whole


@given(data=st.binary(max_size=200))
def test_any_bytes_give_rows_or_an_input_error(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("any") / "JOB.jsonl"
    path.write_bytes(data)
    try:
        rows = list(read_rows(path))
    except InputError:
        return
    assert data.startswith(b"".join(row + b"\n" for row in rows))
