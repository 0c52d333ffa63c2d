"""Writing a kept file of a reference's log-probabilities, part by part.

What a killed run has written is gone on with, once its bytes are looked at.

Does not live here: the identity and the journal (``core.kept_base``), the formats (``core.kept_logits``,
``core.kept_top``), where the files lie and who may write one (``flows.kept_base``), loading the reference
(``flows.held_against``).
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from qlock.core.kept_base import Identity, Log, PartLine, WholeLine, head_of, layout_of, read_log
from qlock.core.kept_logits import Layout
from qlock.core.kept_top import TopLayout
from qlock.core.record import line_bytes
from qlock.engines.interface import Broken, Keep, Kept
from qlock.errors import AbsentError, EngineError
from qlock.flows.kept_base import KeptBase
from qlock.flows.seat import Seat
from qlock.world.files import error_of
from qlock.world.interface import World

DEATHS = 3
"""So often in a row an engine may die at writing parts before it is to blame."""
_CANNOT_RESERVE = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}
"""What a file system answers that gives room only to what is written."""
_AHEAD = 2


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A window or a trace that is to be kept."""

    number: int
    tokens: tuple[int, ...]
    score_from: int


def keep(
    world: World,
    seat: Seat,
    base: KeptBase,
    parts: tuple[Part, ...],
    *,
    tell: Callable[[int, int], None],
    is_over: Callable[[], bool],
) -> bool:
    """Write what a kept file still misses, with the reference loaded and the file held; gives whether it is whole now.

    Args:
        world: The effects.
        seat: With the reference at it.
        base: The file.
        parts: Every part of it, in order.
        tell: Told how many parts are there, and how many tokens were kept.
        is_over: Whether the time is up.

    Raises:
        AbsentError: The disk is full.
        EngineError: The engine died again and again, or cannot keep a part.
    """
    with world.journals.open_journal(base.journal) as journal:
        log = read_log(journal.rows(), name=base.journal.name)
        if log is None:
            journal.append(_row(base.identity))
        there = _sound(world, base, log, parts)
        if log is None or not there:
            _begin(base, parts)
        left = tuple(part for part in parts if part.number not in there)
        done = len(there)
        tell(done, 0)
        for part, digest in _kept(seat, base, left, is_over=is_over):
            journal.append(_row(PartLine(part=part.number, blake3=digest)))
            done += 1
            tell(done, len(part.tokens) - part.score_from)
        if done < len(parts):
            return False
        whole = world.digests.blake3_file(base.path, cache=world.cache_folder, rehash=True)
        journal.append(_row(WholeLine(blake3=whole.blake3, size_bytes=whole.size_bytes)))
        return True


def _row(line: Identity | PartLine | WholeLine) -> bytes:
    return line_bytes(line).removesuffix(b"\n")


def _sound(world: World, base: KeptBase, log: Log | None, parts: tuple[Part, ...]) -> set[int]:
    """The parts whose bytes are those that were written; none where what lies in front of them is not."""
    if log is None or not log.parts or not base.path.exists():
        return set()
    layout, numbers = _layout(base, parts), sorted(log.parts)
    if base.path.stat().st_size != layout.total_bytes:
        return set()
    head = _head(base, parts)
    if world.files.read_prefix(base.path, len(head), "file").data != head:
        return set()
    ends = [(layout.offset(number), layout.offset(number + 1)) for number in numbers]
    spans = [(start, end - start) for start, end in ends]
    digests = world.digests.spans_digest(base.path, spans)
    return {number for number, digest in zip(numbers, digests, strict=True) if digest == log.parts[number]}


def _layout(base: KeptBase, parts: tuple[Part, ...]) -> Layout | TopLayout:
    """Where everything lies in a file of these parts."""
    return layout_of(base.identity, tuple((len(part.tokens), part.score_from) for part in parts))


def _begin(base: KeptBase, parts: tuple[Part, ...]) -> None:
    """Everything in front of the rows, in a file that has its whole length and room on the disk."""
    try:
        with base.path.open("wb") as file:
            file.write(_head(base, parts))
            file.flush()
            _reserve(file.fileno(), _layout(base, parts).total_bytes)
            os.fsync(file.fileno())
    except OSError as error:
        raise error_of(error, base.path, "file") from error


def _head(base: KeptBase, parts: tuple[Part, ...]) -> bytes:
    return head_of(base.identity, [(part.tokens, part.score_from) for part in parts])


def _reserve(descriptor: int, size_bytes: int) -> None:
    """Take the room now, where the file system can; otherwise only the length."""
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    except OSError as error:
        if error.errno not in _CANNOT_RESERVE:
            raise
        os.ftruncate(descriptor, size_bytes)


def _order(base: KeptBase, part: Part) -> Keep:
    return Keep(
        id=f"part-{part.number}",
        tokens=part.tokens,
        score_from=part.score_from,
        path=str(base.path),
        part=part.number,
    )


def _kept(
    seat: Seat, base: KeptBase, parts: tuple[Part, ...], *, is_over: Callable[[], bool]
) -> Iterable[tuple[Part, str]]:
    """Each part that was written and synced, with its digest, in finishing order."""
    waiting, under_way, deaths = deque(parts), dict[str, Part](), 0
    slots = base.identity.setting.slots
    while under_way or (waiting and not is_over()):
        try:
            while waiting and len(under_way) < slots * _AHEAD and not is_over():
                part = waiting.popleft()
                order = _order(base, part)
                under_way[order.id] = part
                seat.submit(order)
            done = seat.next_done()
        except EngineError:
            deaths += 1
            if deaths == DEATHS:
                raise
            waiting.extendleft(under_way.values())
            under_way.clear()
            seat.restart()
            continue
        deaths = 0
        match done:
            case Kept(id=name, blake3=digest):
                yield under_way.pop(name), digest
            case Broken(why=why, is_disk_full=True):
                raise AbsentError(
                    f"the reference's log-probabilities could not be kept: {why}",
                    hint="free some space and run again; what is written is gone on with",
                )
            case Broken(why=why):
                raise EngineError(f"the reference's log-probabilities could not be kept: {why}")
            case _:
                raise EngineError(f"the engine answered something else to `{done.id}`: expected a kept part")
