"""GGUF headers of files here and elsewhere, of which no more is read than the header takes: mostly a few MB.

Does not live here: what a header means (``core.gguf``), and which files are asked for (``core.quants``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from qlock.core.gguf import Header, NeedMore, read_header
from qlock.world.interface import Hub, HubFile, Prefix, Remote, Snapshot, World

FIRST_BYTES = 4 << 20
"""Of each file. Most headers with a vocabulary have 2 to 10 MB, those of later shards a few kB."""
AT_ONCE = 8

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


def header_of(world: World, path: Path) -> Header:
    """The header of a file of this machine.

    Raises:
        InputError: It is no GGUF, or a damaged one.
        AbsentError: It cannot be read.
    """
    return _header(lambda wanted: world.files.read_prefix(path, wanted, "model"), name=path.name)


def _by_ranges(read: Callable[[int, int], bytes], size_bytes: int, *, name: str) -> Header:
    """The header of a file elsewhere. What is read is not read again when more of it is needed.

    Args:
        read: Gives so many bytes from a place on: ``read(start, length)``.
        size_bytes: Of the whole file.
        name: For messages.

    Raises:
        QlockError: As ``header_of``.
    """
    held = b""

    def longer(wanted: int) -> Prefix:
        nonlocal held
        held += read(len(held), min(wanted, size_bytes) - len(held))
        return Prefix(data=held, size_bytes=size_bytes)

    return _header(longer, name=name)


def _header(prefix: Callable[[int], Prefix], *, name: str) -> Header:
    """The header out of prefixes of a file, each longer than the one before."""
    wanted = FIRST_BYTES
    while True:
        seen = prefix(wanted)
        match read_header(seen.data, seen.size_bytes, name=name):
            case NeedMore(at_least_bytes=more):
                wanted = max(more, 2 * wanted)
            case Header() as header:
                return header


def header_at(hub: Hub, snapshot: Snapshot, path: str, size_bytes: int) -> Header:
    """The header of one file on the Hub.

    Raises:
        QlockError: As ``header_of``.
    """

    def read(start: int, length: int) -> bytes:
        return hub.read_range(snapshot, path, start=start, length=length)

    return _by_ranges(read, size_bytes, name=path)


def header_behind(remote: Remote, url: str, size_bytes: int, *, name: str) -> Header:
    """The header of a file behind an address; ``name`` is for messages.

    Raises:
        QlockError: As ``header_of``.
    """

    def read(start: int, length: int) -> bytes:
        return remote.read_range(url, start=start, length=length)

    return _by_ranges(read, size_bytes, name=name)


def headers_at(hub: Hub, files: Sequence[tuple[Snapshot, HubFile]]) -> tuple[Header, ...]:
    """The headers of many files on the Hub in their order, several at once; the first error ends it.

    Raises:
        QlockError: As ``header_of``.
    """
    return at_once(lambda place: header_at(hub, place[0], place[1].path, place[1].size_bytes), files)


def at_once(ask: Callable[[_Asked], _Answer], asked: Sequence[_Asked]) -> tuple[_Answer, ...]:
    """What ``ask`` gives for each, in their order, several at once; the first error ends it."""
    if len(asked) < 2:
        return tuple(ask(one) for one in asked)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="hub") as pool:
        waiting = [pool.submit(ask, one) for one in asked]
        try:
            return tuple(one.result() for one in waiting)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
