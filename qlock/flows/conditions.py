"""Under which conditions the answers of a point came about: the memory that it took, and what can change its speed.

Does not live here: judging by it (``core.gates``), answers that are taken over (``flows.taking_over``).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from qlock.core import facts
from qlock.core.lock import Lock, named, read_lock
from qlock.core.plan import Job
from qlock.core.record import Record
from qlock.core.timing import timing_changes
from qlock.errors import InputError
from qlock.flows.run_folder import RunFolder
from qlock.flows.segments import Segment, with_segment


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """Of one point of a run."""

    device: tuple[facts.Device, ...]
    """As it was seen, once for each way in which it was."""
    memory: tuple[facts.Buffer, ...]
    other_timing: tuple[str, ...]
    """What was otherwise where answers were taken over from."""


def conditions_of(folder: RunFolder, point: str, segments: dict[str, frozenset[int]]) -> Conditions:
    """The conditions of a point.

    Args:
        folder: The run.
        point: Its name.
        segments: Each of the point's jobs, and the numbers of the segments that its rows are of.
    """
    every = folder.facts().segment
    told = [segment.memory[point] for segment in every if point in segment.memory]
    used = {
        (job, number): every[number]
        for job, numbers in segments.items()
        for number in sorted(numbers)
        if number < len(every)
    }
    others = (segment.other_timing.get(job, "") for (job, _), segment in used.items())
    return Conditions(
        device=tuple(dict.fromkeys(segment.device for segment in used.values())),
        memory=told[-1] if told else (),
        other_timing=tuple(dict.fromkeys(filter(None, others))),
    )


def note_memory(folder: RunFolder, number: int, point: str, memory: tuple[facts.Buffer, ...]) -> None:
    """Write what a point took into the segment that goes on; nothing where the engine tells nothing."""
    if memory:
        _change(folder, number, memory={point: memory}, other_timing={})


def keep_conditions(
    folder: RunFolder, lock: Lock, number: int, job: Job, sources: Iterable[tuple[RunFolder, Record]]
) -> None:
    """Note the conditions of answers that are taken over, before they are: a kill must not make them look like our own.

    Args:
        folder: The run.
        lock: Of the run.
        number: The segment in which they are taken over.
        job: Whose answers they are.
        sources: Where they lie, with the records there; several where shards did the job.
    """
    here = folder.facts().segment[number].device
    setting = _setting(lock, job.point)
    memory: dict[str, tuple[facts.Buffer, ...]] = {}
    others: list[str] = []
    for source, record in sources:
        name = record.header.job
        segments = {name: frozenset(row.segment for row in record.rows)}
        theirs = conditions_of(source, record.header.point, segments)
        theirs_setting = _setting(_lock_of(source.read("lock.toml"), source.path.name), record.header.point)
        differs = list(timing_changes("setting", theirs_setting, setting))
        if theirs.memory and not differs:
            memory[job.point] = theirs.memory
        for device in theirs.device:
            differs += timing_changes("device", device, here)
        others += [*theirs.other_timing, *differs]
    told = "; ".join(dict.fromkeys(others))
    _change(folder, number, memory=memory, other_timing={job.name: told} if told else {})


def _setting(lock: Lock, point: str) -> facts.Setting:
    return named(lock.setting, named(lock.point, point).setting)


@lru_cache(maxsize=2)
def _lock_of(data: bytes, run: str) -> Lock:
    """A lock that many jobs are taken over from, read once."""
    try:
        return read_lock(data, name=f"{run}/lock.toml")
    except InputError as error:
        error.hint = f"move the folder `{run}` away to measure anew what would be taken over from it"
        raise


def _change(
    folder: RunFolder,
    number: int,
    *,
    memory: dict[str, tuple[facts.Buffer, ...]],
    other_timing: dict[str, str],
) -> None:
    """Add to a segment."""
    before = folder.facts()
    segment: Segment = before.segment[number]
    after = msgspec.structs.replace(
        segment,
        memory=segment.memory | memory,
        other_timing=segment.other_timing | other_timing,
    )
    if after != segment:
        folder.write_facts(with_segment(before, number, after))
