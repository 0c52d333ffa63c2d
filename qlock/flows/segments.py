"""``facts.json`` of a run: one segment for each time somebody ran it.

Lives here: the structs. Does not live here: where the file lies (``flows.run_folder``), and when a segment begins and ends
(``flows.sealing``).
"""

from __future__ import annotations

import msgspec

from qlock.core import facts
from qlock.core.base import Base, Count
from qlock.flows.loaded import LoadedFile

FACTS_VERSION = 1


class Segment(Base, frozen=True, kw_only=True):
    """One stretch of running: when, where, what was seen, what was forced."""

    started_utc: str
    ended_utc: str
    """Empty while it goes on, and for ever when it was killed with no time to say so."""
    host_name: str
    boot_id: str
    kernel: str
    python: str
    qlock: str
    engine_label: str
    """Version text; empty as long as ``engine_file`` is."""
    engine_file: tuple[facts.EngineFile, ...]
    """Every file that the engine mapped, also what no lock pins; empty while it goes on, and after a kill."""
    engine_log: str = ""
    """The last lines that an engine logged before it failed; of the last one that did, and empty where none did."""
    device: facts.Device
    """As it was seen."""
    gpu_uuid: tuple[str, ...] = ()
    """Which copies of the device's cards they were."""
    forced: tuple[str, ...]
    taken_over: dict[str, str]
    """Job to the sealed run beside this one that its record was copied from."""
    loaded: tuple[LoadedFile, ...] = ()
    """The models' files, as they were when it began, and each kept file, as it was before it was used."""
    memory: dict[str, tuple[facts.Buffer, ...]] = {}
    """What each point that was loaded took, as the engine told; of one whose records were taken over, as it told there."""
    other_timing: dict[str, str] = {}
    """Job that was taken over, to what can change its speed and was not there as it is here."""
    looked_again: bool = False
    """Whether what is still here of its rows was measured with files and an engine that were looked at afterwards
    (rule 8), by itself or by the next stretch."""


class EngineEnd(Base, frozen=True, kw_only=True):
    """What there is to tell of a stretch's engine when the stretch ends; as in ``Segment``."""

    label: str
    file: tuple[facts.EngineFile, ...]
    log: str


class RunFacts(Base, frozen=True, kw_only=True):
    """``facts.json``."""

    facts_version: Count
    segment: tuple[Segment, ...]


def with_segment(run_facts: RunFacts, number: int, segment: Segment) -> RunFacts:
    """The same facts with another segment of this number."""
    before = run_facts.segment
    return msgspec.structs.replace(run_facts, segment=(*before[:number], segment, *before[number + 1 :]))
