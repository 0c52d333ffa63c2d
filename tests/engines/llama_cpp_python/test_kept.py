from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from qlock.core.digest import blake3_of
from qlock.core.kept_logits import KeptRows, Layout, head_bytes
from qlock.engines.llama_cpp_python.kept import KeptFileError, Parts

LAYOUT = Layout(window_tokens=5, vocab_tokens=3, parts=2)
TOKENS = np.array([[1, 2, 0, 1, 2], [0, 0, 1, 1, 2]], dtype=np.int32)
BOS = 7


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with its head and no rows."""
    made = tmp_path / "a.kld"
    made.write_bytes(head_bytes(LAYOUT, TOKENS))
    return made


@pytest.fixture
def parts(path: Path) -> Iterator[Parts]:
    with closing(Parts(str(path), is_writable=True)) as parts:
        yield parts


def part_bytes(first: int) -> bytes:
    return bytes(range(first, first + LAYOUT.part_bytes))


def test_parts_may_be_written_in_any_order_and_piece_by_piece(path: Path, parts: Parts) -> None:
    last, first = part_bytes(100), part_bytes(1)
    assert parts.write(1, [last[:3], last[3:]]) == blake3_of(last)
    assert parts.write(0, [first]) == blake3_of(first)
    assert path.read_bytes() == head_bytes(LAYOUT, TOKENS) + first + last
    with closing(Parts(str(path))) as whole:
        assert whole.layout == LAYOUT
        rows = whole.rows(1, 1, 2)
    assert isinstance(rows, KeptRows)
    assert rows.steps.tolist() == [np.frombuffer(last[LAYOUT.row_bytes + 8 :], "<u2")[:3].tolist()]


def test_a_part_that_is_written_again_takes_the_place_of_the_old_one(path: Path, parts: Parts) -> None:
    parts.write(0, [part_bytes(1)])
    parts.write(0, [part_bytes(50)])
    assert path.read_bytes()[LAYOUT.offset(0) :] == part_bytes(50)


def test_a_part_is_found_by_its_tokens(parts: Parts) -> None:
    assert parts.part_of((1, 2, 0, 1, 2), bos_token=BOS) == 0
    assert parts.part_of((0, 0, 1, 1, 2), bos_token=BOS) == 1
    assert parts.part_of((1, 2, 0, 1, 1), bos_token=BOS) is None
    assert parts.part_of((1, 2, 0), bos_token=BOS) is None


def test_bos_may_stand_where_the_file_has_the_token_of_the_text(parts: Parts) -> None:
    assert parts.part_of((BOS, 0, 1, 1, 2), bos_token=BOS) == 1
    assert parts.part_of((2, 0, 1, 1, 2), bos_token=BOS) is None
    assert parts.is_of(1, (BOS, 0, 1, 1, 2), bos_token=BOS)
    assert parts.is_of(1, (0, 0, 1, 1, 2), bos_token=BOS)
    assert not parts.is_of(0, (BOS, 0, 1, 1, 2), bos_token=BOS)
    assert not parts.is_of(1, (2, 0, 1, 1, 2), bos_token=BOS)


def test_a_file_that_is_not_there_or_is_none_is_refused(tmp_path: Path) -> None:
    gone, other = tmp_path / "gone", tmp_path / "other"
    other.write_bytes(b"GGUF" + bytes(60))
    with pytest.raises(KeptFileError) as caught:
        Parts(str(gone))
    assert str(caught.value) == f"cannot open `{gone}`: no such file or directory"
    with pytest.raises(KeptFileError) as caught:
        Parts(str(other))
    assert str(caught.value).startswith(f"`{other}`: it holds no log-probabilities: got `b'GGUF")


@pytest.mark.parametrize("missing", [1, LAYOUT.part_bytes, 2 * LAYOUT.part_bytes + 4])
def test_a_file_that_is_cut_short_is_refused(path: Path, missing: int) -> None:
    whole = head_bytes(LAYOUT, TOKENS) + part_bytes(0) + part_bytes(100)
    path.write_bytes(whole[:-missing])
    with pytest.raises(KeptFileError) as caught:
        Parts(str(path))
    assert (
        str(caught.value)
        == f"`{path}` is not whole: got `{len(whole) - missing}` bytes, expected `{len(whole)}`"
    )


def test_a_file_with_more_than_it_says_is_refused(path: Path) -> None:
    path.write_bytes(head_bytes(LAYOUT, TOKENS) + bytes(2 * LAYOUT.part_bytes + 1))
    with pytest.raises(KeptFileError, match="is not whole: got"):
        Parts(str(path))


def test_a_file_without_its_head_cannot_be_written(path: Path) -> None:
    path.write_bytes(head_bytes(LAYOUT, TOKENS)[:-1])
    with pytest.raises(KeptFileError, match="is not whole: got `59` bytes, expected `60`"):
        Parts(str(path), is_writable=True)


@pytest.mark.parametrize("is_writable", [True, False])
def test_a_head_that_promises_the_earth_takes_no_memory(path: Path, *, is_writable: bool) -> None:
    path.write_bytes(b"_logits_" + np.array([2**14, 2**31 - 1, 2**14], dtype="<i4").tobytes())
    with pytest.raises(KeptFileError, match="is not whole: got `20` bytes, expected `"):
        Parts(str(path), is_writable=is_writable)


def test_closing_twice_does_nothing(parts: Parts) -> None:
    parts.close()
    parts.close()


def test_a_file_that_is_cut_between_two_looks_is_refused(
    path: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.write(0, [part_bytes(1)])
    # As if another process cut it while it was read and then put it back.
    monkeypatch.setattr(os, "pread", lambda *_: b"")
    with pytest.raises(KeptFileError) as caught:
        parts.rows(0, 0, 2)
    assert str(caught.value) == (
        f"`{path}` is not whole: got `{LAYOUT.offset(0)}` bytes, expected `{LAYOUT.offset(1)}`"
    )


@pytest.mark.parametrize("number, is_full", [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)])
def test_a_disk_that_is_full_is_told_from_one_that_is_broken(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, number: int, *, is_full: bool
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(KeptFileError) as caught:
        parts.write(0, [part_bytes(1)])
    assert caught.value.is_disk_full == is_full
