from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.errors import AbsentError
from qlock.world.hub.blobs import Shelf
from qlock.world.hub.partial import STALE_S, Answer
from qlock.world.interface import HubFile, Snapshot
from qlock.world.process import this_process

DATA = bytes(range(200)) * 50
SNAPSHOT = Snapshot(repository="o/m", commit="c" * 40, kind="model")
SHA256 = hashlib.sha256(DATA).hexdigest()
FILE = HubFile(path="m.gguf", size_bytes=len(DATA), oid="0" * 40, sha256=f"sha256:{SHA256}")


class Server:
    """Hands out the file in pieces, and notes what it was asked for."""

    def __init__(self, data: bytes = DATA) -> None:
        self.data = data
        self.asked: list[tuple[int, int]] = []

    def ask(self, span: Callable[[], tuple[int, int]], take: Callable[[Answer], None]) -> None:
        start, end = span()
        self.asked.append((start, end))
        pieces = (self.data[at : min(at + 999, end)] for at in range(start, end, 999))
        take(Answer(start, len(self.data), pieces))


def brought(cache: Path, server: Server, file: HubFile = FILE) -> bytes:
    shelf = Shelf(cache, SNAPSHOT, file)
    shelf.bring(server.ask, lambda _: None)
    return shelf.link().read_bytes()


def left_by(cache: Path, owner: str, data: bytes) -> Path:
    """What a download by ``owner`` (place, process and its start) has left."""
    path = cache / "models--o--m/blobs" / f"{SHA256}.qlock-{owner}-00000000.incomplete"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def owner(pid: int, *, later_ticks: int = 0) -> str:
    """A process here, by the name that a download of its own would have."""
    me = this_process()
    place = f"{me.boot_id} {me.pid_namespace} {me.machine_id}"
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except FileNotFoundError:
        ticks = 1
    return f"{hashlib.sha256(place.encode()).hexdigest()[:8]}-{pid}-{ticks + later_ticks}"


def ended_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_a_file_is_brought_and_linked(tmp_path: Path) -> None:
    server = Server()
    assert brought(tmp_path, server) == DATA
    assert server.asked == [(0, len(DATA))]
    link = tmp_path / "models--o--m/snapshots" / SNAPSHOT.commit / "m.gguf"
    assert link.readlink() == Path(f"../../blobs/{SHA256}")


def test_an_empty_file_is_brought_without_asking(tmp_path: Path) -> None:
    server = Server(b"")
    oid = hashlib.sha1(b"blob 0\0").hexdigest()
    assert brought(tmp_path, server, HubFile(path="empty", size_bytes=0, oid=oid)) == b""
    assert server.asked == []


def test_what_a_dead_process_left_is_gone_on_with(tmp_path: Path) -> None:
    left = left_by(tmp_path, owner(ended_process()), DATA[:3_000])
    server = Server()
    assert brought(tmp_path, server) == DATA
    assert server.asked == [(3_000, len(DATA))]
    assert not left.exists()


def test_a_later_process_of_the_same_number_is_another_one(tmp_path: Path) -> None:
    left_by(tmp_path, owner(os.getppid(), later_ticks=-1), DATA[:3_000])
    server = Server()
    assert brought(tmp_path, server) == DATA
    assert server.asked == [(3_000, len(DATA))]


def test_the_name_says_who_writes(tmp_path: Path) -> None:
    seen: list[str] = []
    shelf = Shelf(tmp_path, SNAPSHOT, FILE)
    shelf.bring(Server().ask, lambda _: seen.extend(path.name for path in shelf.blob.parent.iterdir()))
    assert seen[0].startswith(f"{SHA256}.qlock-{owner(os.getpid())}-")


def test_what_a_living_process_writes_is_left_alone(tmp_path: Path) -> None:
    others = [
        left_by(tmp_path, owner(os.getppid()), b"theirs"),
        left_by(tmp_path, owner(os.getpid()), b"another thread's"),
        left_by(tmp_path, f"ffffffff-{ended_process()}-1", b"another machine's"),
    ]
    server = Server()
    assert brought(tmp_path, server) == DATA
    assert server.asked == [(0, len(DATA))]
    assert [path.read_bytes() for path in others] == [b"theirs", b"another thread's", b"another machine's"]


def test_what_nobody_has_written_to_for_long_is_gone_on_with(tmp_path: Path) -> None:
    left = left_by(tmp_path, "ffffffff-1-1", DATA[:3_000])
    long_ago_s = time.time() - STALE_S - 1
    os.utime(left, (long_ago_s, long_ago_s))
    server = Server()
    assert brought(tmp_path, server) == DATA
    assert server.asked == [(3_000, len(DATA))]


def test_a_planted_link_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    left = left_by(tmp_path, "00000000-0-0", b"")
    left.unlink()
    left.symlink_to(victim)
    assert brought(tmp_path, Server()) == DATA
    assert victim.read_bytes() == b"mine"


def test_no_space_while_writing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("qlock.world.hub.partial.write_all", full)
    with pytest.raises(AbsentError) as caught:
        brought(tmp_path, Server())
    blob = tmp_path / "models--o--m/blobs" / SHA256
    assert caught.value.message == f"no space left to write file of the Hub's cache `{blob}`"
    assert not blob.exists()


def test_where_links_are_not_to_be_had_the_file_itself_is_put_in_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "symlink_to", no_links)
    assert brought(tmp_path, Server()) == DATA
    link = tmp_path / "models--o--m/snapshots" / SNAPSHOT.commit / "m.gguf"
    assert not link.is_symlink()


@given(st.integers(min_value=0, max_value=len(DATA) + 10), st.integers(min_value=0, max_value=3))
def test_any_true_beginning_leads_to_the_same_file(
    tmp_path_factory: pytest.TempPathFactory, have: int, extra: int
) -> None:
    cache = tmp_path_factory.mktemp("cache")
    left_by(cache, "00000000-0-0", DATA[:have] + (b"\0" * extra if have >= len(DATA) else b""))
    assert brought(cache, Server()) == DATA


def test_whoever_reads_the_file_of_another_process_keeps_it(tmp_path: Path) -> None:
    held: list[int] = []

    def ask(span: Callable[[], tuple[int, int]], take: Callable[[Answer], None]) -> None:
        Server().ask(span, take)
        brought(tmp_path, Server())
        held.append((tmp_path / "models--o--m/blobs" / SHA256).stat().st_ino)

    Shelf(tmp_path, SNAPSHOT, FILE).bring(ask, lambda _: None)
    assert (tmp_path / "models--o--m/blobs" / SHA256).stat().st_ino == held[0]
