"""GGUF headers of files on the Hub, read by ranges: a few MB each, and only as much as the header takes.

Does not live here: what a header means (``core.gguf``), and which files are asked for (``core.quants``).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from qlock.core.gguf import Header, NeedMore, read_header
from qlock.world.interface import Hub, HubFile, Snapshot

FIRST_BYTES = 4 << 20
"""Of each file. Most headers with a vocabulary have 2 to 10 MB, those of later shards a few kB."""
AT_ONCE = 8


def header_at(hub: Hub, snapshot: Snapshot, file: HubFile) -> Header:
    """The header of one file. What is read is not read again when more of it is needed.

    Raises:
        InputError: It is no GGUF, or a damaged one.
        AbsentError: It cannot be read.
    """
    data = b""
    wanted = FIRST_BYTES
    while True:
        wanted = min(wanted, file.size_bytes)
        data += hub.read_range(snapshot, file.path, start=len(data), length=wanted - len(data))
        header = read_header(data, file.size_bytes, name=file.path)
        match header:
            case NeedMore(at_least_bytes=more):
                wanted = max(more, 2 * wanted)
            case Header():
                return header


def headers_at(hub: Hub, files: Sequence[tuple[Snapshot, HubFile]]) -> tuple[Header, ...]:
    """The headers of many files in their order, several at once; the first error ends it.

    Raises:
        QlockError: As ``header_at``.
    """
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="hub") as pool:
        waiting = [pool.submit(header_at, hub, snapshot, file) for snapshot, file in files]
        try:
            return tuple(one.result() for one in waiting)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
