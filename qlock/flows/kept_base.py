"""Kept files of a reference's log-probabilities: where they lie, whether they are what they must be, and writing one.

They lie in ``runs/NAME@DEVICE/references``, named after their identity, and serve every run of a lock with an equal one.
A file is written part by part; what a killed run has written is gone on with, once its bytes are looked at.

Does not live here: the identity and the journal (``core.kept_base``), the format (``core.kept_logits``), loading the
reference and asking what is held against the file (``flows.held_against``).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from qlock.core.kept_base import (
    Identity,
    Log,
    PartLine,
    WholeLine,
    identity_of,
    layout_of,
    name_of,
    read_log,
)
from qlock.core.kept_logits import Layout, head_bytes
from qlock.core.lock import Lock, PromptsPin, SuitePin
from qlock.core.plan import Job, prompts_of
from qlock.core.record import line_bytes
from qlock.core.units import bytes_text
from qlock.core.verify import Finding, differences
from qlock.engines.interface import Broken, Keep, Kept
from qlock.errors import AbsentError, EngineError
from qlock.flows.references import is_stored
from qlock.flows.seat import Seat
from qlock.world.files import error_of, writing_error
from qlock.world.interface import HeldError, World
from qlock.world.scratch import free_bytes

FOLDER = "references"
"""Beside the folders of runs."""
HELD = ".held"
"""How the folder ends that whoever writes a kept file holds."""

DEATHS = 3
"""So often in a row an engine may die at writing parts before it is to blame."""
STALLED_S = 7_200.0
"""Whoever writes a file and adds no part for so long, be it to load the reference or to write one, is waited for no more."""
_LOOK_EVERY_S = 10.0
_CANNOT_RESERVE = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}
"""What a file system answers that gives room only to what is written."""
_AHEAD = 2
_MOST_JOURNAL_BYTES = 1 << 28


class KeptBase(msgspec.Struct, frozen=True, kw_only=True):
    """One kept file, there or not."""

    suite: str
    reference: str
    identity: Identity
    prompts: PromptsPin
    """The windows, as a point that is held against the file is asked them."""
    path: Path
    """Of the file; its journal lies beside it."""

    @property
    def where(self) -> str:
        """Its place in findings."""
        return f"suite.{self.suite}.reference.kept"

    @property
    def place(self) -> str:
        """What it is called in ``Segment.loaded``: suites may share it."""
        return f"{FOLDER}/{self.path.name}"

    @property
    def journal(self) -> Path:
        """Whose file it is, and which parts are there."""
        return self.path.with_suffix(".jsonl")

    @property
    def holding(self) -> Path:
        """The folder that whoever writes the file holds."""
        return self.path.with_suffix(HELD)

    @property
    def layout(self) -> Layout:
        """Where everything lies in the file."""
        return layout_of(self.identity)


def bases_of(lock: Lock, jobs: Iterable[Job], runs: Path) -> tuple[KeptBase, ...]:
    """The kept files that jobs need, each once; a reference held against itself needs none.

    Args:
        lock: Of the run.
        jobs: Those that are open.
        runs: The folder of all runs of the lock's spec.
    """
    found: dict[Path, KeptBase] = {}
    for job in jobs:
        base = base_of_job(lock, job, runs)
        if base is not None:
            found.setdefault(base.path, base)
    return tuple(found.values())


def base_of_job(lock: Lock, job: Job, runs: Path) -> KeptBase | None:
    """The kept file that a job reads; ``None`` where it reads none."""
    suite = next(suite for suite in lock.suite if suite.name == job.suite)
    if not is_stored(suite) or job.point == suite.reference:
        return None
    return base_of(lock, suite, job.point, runs)


def base_of(lock: Lock, suite: SuitePin, point: str, runs: Path) -> KeptBase:
    """The kept file that a point is held against in a suite."""
    pin = next(pin for pin in lock.point if pin.name == point)
    prompts = prompts_of(pin, suite.name)
    identity = identity_of(lock, suite, prompts)
    return KeptBase(
        suite=suite.name,
        reference=suite.reference,
        identity=identity,
        prompts=prompts,
        path=runs / FOLDER / f"{name_of(identity)}.kld",
    )


def holdings(runs: Path) -> list[Path]:
    """The folders that whoever writes a kept file holds, of all that were ever written.

    Args:
        runs: The folder of all runs of a lock's spec.
    """
    return sorted((runs / FOLDER).glob(f"*{HELD}"))


def check_room_on_disk(world: World, bases: Iterable[KeptBase], runs: Path) -> None:
    """Stop before anything is loaded where a file would not fit the disk.

    Raises:
        AbsentError: With what is needed and what there is.
    """
    needed = sum(
        base.layout.total_bytes - _bytes_on_disk(base.path) for base in bases if not is_whole(world, base)
    )
    place = next(folder for folder in (runs, *runs.parents) if folder.exists())
    free = free_bytes(place)
    if needed > free:
        raise AbsentError(
            f"the reference's log-probabilities need {bytes_text(needed)} more, "
            f"and `{place}` has {bytes_text(free)} left",
            hint="lower `windows` of the suite, or set `stored = false`: then nothing is written",
        )


def _bytes_on_disk(path: Path) -> int:
    """What a file takes already; one with holes takes less than it is long."""
    return path.stat().st_blocks * 512 if path.exists() else 0


def is_whole(world: World, base: KeptBase) -> bool:
    """Whether its journal says that every part is there."""
    log = _log(world, base)
    return log is not None and log.whole is not None and base.path.exists()


def _log(world: World, base: KeptBase) -> Log | None:
    if not base.journal.exists():
        return None
    # Not opened as a journal: whoever writes there now may be in the middle of a line.
    data = world.files.read_bounded(base.journal, _MOST_JOURNAL_BYTES, "journal")
    return read_log(data.split(b"\n")[:-1], name=base.journal.name)


def look_at(world: World, base: KeptBase) -> list[Finding]:
    """What is not as it must be in a file that is there: another model, text, window, KV type, engine, or other bytes.

    Raises:
        InputError: Its journal is none, or damaged.
        AbsentError: It cannot be read.
    """
    log = _log(world, base)
    if log is None:
        return []
    found = differences("suite-files", base.where, base.identity, log.identity)
    if found or log.whole is None or not base.path.exists():
        return found
    digest = world.digests.blake3_file(base.path, cache=world.cache_folder)
    if (digest.blake3, digest.size_bytes) == (log.whole.blake3, log.whole.size_bytes):
        return []
    return [
        Finding(
            rule="suite-files",
            where=f"{base.where}.blake3",
            expected=log.whole.blake3,
            found=digest.blake3,
            effect="output",
            why=f"`{base.path.name}` was changed after it was written; remove it to have it written again",
        )
    ]


@contextlib.contextmanager
def held(
    world: World, base: KeptBase, *, tell: Callable[[int], None], is_over: Callable[[], bool]
) -> Iterator[bool]:
    """Keep others from writing a file; gives whether it could be had before the time was up.

    Whoever writes it is waited for: another task of the same lock needs the same file.

    Args:
        world: The effects.
        base: The file.
        tell: Told how many parts are there while somebody else writes them.
        is_over: Whether the time is up.

    Raises:
        HeldError: Whoever holds it has added nothing for ``STALLED_S``.
        AbsentError: The folder cannot be written.
    """
    try:
        base.holding.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise writing_error(error, base.holding, "folder") from error
    with contextlib.ExitStack() as stack:
        there, since_s = -1, world.clock.monotonic_s()
        while True:
            try:
                stack.enter_context(world.folders.hold(base.holding))
            except HeldError:
                now_s, log = world.clock.monotonic_s(), _log(world, base)
                done = 0 if log is None else len(log.parts)
                if done != there:
                    there, since_s = done, now_s
                    tell(done)
                if now_s - since_s >= STALLED_S:
                    raise
            else:
                break
            if is_over():
                yield False
                return
            world.clock.sleep_s(_LOOK_EVERY_S)
        yield True


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A window that is to be kept."""

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
    layout, numbers = base.layout, sorted(log.parts)
    if base.path.stat().st_size != layout.total_bytes:
        return set()
    head = _head(base, parts)
    if world.files.read_prefix(base.path, len(head), "file").data != head:
        return set()
    spans = [(layout.offset(number), layout.part_bytes) for number in numbers]
    digests = world.digests.spans_digest(base.path, spans)
    return {number for number, digest in zip(numbers, digests, strict=True) if digest == log.parts[number]}


def _begin(base: KeptBase, parts: tuple[Part, ...]) -> None:
    """Everything in front of the rows, in a file that has its whole length and room on the disk."""
    try:
        with base.path.open("wb") as file:
            file.write(_head(base, parts))
            file.flush()
            _reserve(file.fileno(), base.layout.total_bytes)
            os.fsync(file.fileno())
    except OSError as error:
        raise error_of(error, base.path, "file") from error


def _head(base: KeptBase, parts: tuple[Part, ...]) -> bytes:
    import numpy as np

    return head_bytes(base.layout, np.array([part.tokens for part in parts], dtype=np.int32))


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
