"""A file on its way into its place; through the Hub's cache, `test_blobs.py` tries the rest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.errors import AbsentError, InputError
from qlock.world.hub.partial import Answer, Parcel, Words, bring, place_in, read_span
from tests.world.hub.test_blobs import DATA, SHA256, Server, owner


def parcel(path: Path, *, size: int = len(DATA), digest: str = SHA256) -> Parcel:
    def wrong(what: str, got: str, expected: str) -> InputError:
        return InputError(f"{what}: got `{got}`, expected `{expected}`")

    words = Words(file="`m`", kind="thing", place=f"the shelf `{path.parent}`", variable="SHELF", wrong=wrong)
    return Parcel(path=path, size_bytes=size, digest=digest, new_hasher=hashlib.sha256, words=words)


def left(folder: Path) -> list[str]:
    return sorted(path.name.split(".qlock-")[0] for path in folder.iterdir())


@pytest.mark.parametrize(
    "status, headers, place",
    [
        (206, {"content-range": "bytes 5-9/20"}, (5, 20)),
        (200, {"content-length": "20"}, (0, 20)),
        (206, {}, None),
        (206, {"content-range": "bytes 6-9/20"}, None),
        (206, {"content-range": "items 5-9/20"}, None),
        (206, {"content-range": "bytes 5-9/*"}, None),
        (200, {}, None),
        (200, {"content-length": "many"}, None),
        (204, {"content-length": "0"}, None),
    ],
)
def test_an_answer_says_where_its_bytes_lie(
    status: int, headers: dict[str, str], place: tuple[int, int] | None
) -> None:
    assert place_in(status, headers, start=5) == place


@given(start=st.integers(0, len(DATA) - 1), length=st.integers(1, 2 * len(DATA)), ranges=st.booleans())
def test_a_span_is_read_whole_from_servers_with_and_without_ranges(
    start: int, length: int, *, ranges: bool
) -> None:
    def ask(span: Callable[[], tuple[int, int]], take: Callable[[Answer], None]) -> None:
        begin, end = span()
        first = begin if ranges else 0
        # Each answer is cut after some pieces; the rest is asked for again.
        pieces = (DATA[at : min(at + 999, end)] for at in range(first, min(end, begin + 4_000), 999))
        take(Answer(first, len(DATA), pieces))

    assert read_span(ask, start=start, length=length) == DATA[start : start + length]


def test_what_was_cut_is_gone_on_with_and_then_put_in_place(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "m"
    cut = Server()

    def ask(span: Callable[[], tuple[int, int]], take: Callable[[Answer], None]) -> None:
        begin, _ = span()
        take(Answer(begin, len(DATA), iter([DATA[begin : begin + 3_000]])))
        raise AbsentError("cut")

    with pytest.raises(AbsentError, match=r"^cut$"):
        bring(parcel(path), ask, lambda _: None)
    assert left(path.parent) == [SHA256]
    told: list[int] = []
    bring(parcel(path), cut.ask, told.append)
    assert (path.read_bytes(), cut.asked, told[0], told[-1]) == (DATA, [(3_000, len(DATA))], 3_000, len(DATA))
    assert left(path.parent) == ["m"]


@pytest.mark.parametrize(
    "data, message",
    [
        (DATA[:-1] + b"x", "other bytes: got `{got}`, expected `{expected}`"),
        (DATA[:-1], "another size: got `9999 bytes`, expected `10000 bytes`"),
        (DATA + b"x", "another size: got `10001 bytes`, expected `10000 bytes`"),
    ],
)
def test_what_is_not_the_file_is_not_put_in_place(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        bring(parcel(tmp_path / "m"), Server(data).ask, lambda _: None)
    assert caught.value.message == message.format(got=hashlib.sha256(data).hexdigest(), expected=SHA256)
    assert not (tmp_path / "m").exists()


def test_a_disk_without_room_is_named_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 9_999

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    server = Server()
    with pytest.raises(AbsentError) as caught:
        bring(parcel(tmp_path / "m"), server.ask, lambda _: None)
    assert (caught.value.message, caught.value.hint, server.asked) == (
        f"no space left for `m` in the shelf `{tmp_path}`: got `9999` bytes, expected `10000`",
        "free some space, or set SHELF to a folder on another disk",
        [],
    )


def test_the_name_of_a_partial_file_says_whose_it_is(tmp_path: Path) -> None:
    seen: list[str] = []
    bring(
        parcel(tmp_path / "m"), Server().ask, lambda _: seen.extend(path.name for path in tmp_path.iterdir())
    )
    assert seen[0].startswith(f"{SHA256}.qlock-{owner(os.getpid())}-")
