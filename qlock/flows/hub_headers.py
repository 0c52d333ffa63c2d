"""GGUF headers of files elsewhere, read by ranges: a few MB each, and only as much as the header takes.

Does not live here: what a header means (``core.gguf``), and which files are asked for (``core.quants``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from qlock.core.gguf import Header, NeedMore, read_header
from qlock.world.interface import Hub, HubFile, Snapshot

FIRST_BYTES = 4 << 20
"""Of each file. Most headers with a vocabulary have 2 to 10 MB, those of later shards a few kB."""
AT_ONCE = 8

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


def header_by_ranges(read: Callable[[int, int], bytes], size_bytes: int, *, name: str) -> Header:
    """The header of one file. What is read is not read again when more of it is needed.

    Args:
        read: Gives so many bytes from a place on: ``read(start, length)``.
        size_bytes: Of the whole file.
        name: For messages.

    Raises:
        InputError: It is no GGUF, or a damaged one.
        AbsentError: It cannot be read.
    """
    data = b""
    wanted = FIRST_BYTES
    while True:
        wanted = min(wanted, size_bytes)
        data += read(len(data), wanted - len(data))
        header = read_header(data, size_bytes, name=name)
        match header:
            case NeedMore(at_least_bytes=more):
                wanted = max(more, 2 * wanted)
            case Header():
                return header


def header_at(hub: Hub, snapshot: Snapshot, file: HubFile) -> Header:
    """The header of one file on the Hub.

    Raises:
        QlockError: As ``header_by_ranges``.
    """

    def read(start: int, length: int) -> bytes:
        return hub.read_range(snapshot, file.path, start=start, length=length)

    return header_by_ranges(read, file.size_bytes, name=file.path)


def headers_at(hub: Hub, files: Sequence[tuple[Snapshot, HubFile]]) -> tuple[Header, ...]:
    """The headers of many files on the Hub in their order, several at once; the first error ends it.

    Raises:
        QlockError: As ``header_by_ranges``.
    """
    return at_once(lambda place: header_at(hub, *place), files)


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
