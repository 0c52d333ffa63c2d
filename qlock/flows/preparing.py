"""Making a point ready: what all points of one stretch of running share, loading one, and the questions of its suites.

Rules 4, 5 and 7 of ``core.verify`` are checked here. Does not live here: asking (``flows.run_point``), and what a point
is held against (``flows.held_against``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from qlock.core import facts
from qlock.core.base import Base, Count
from qlock.core.lock import Lock, PointPin, named
from qlock.core.record import Row
from qlock.core.verify import Finding, entries
from qlock.engines.interface import Engine, Load
from qlock.flows import proving
from qlock.flows.asking import respondent
from qlock.flows.conditions import note_memory
from qlock.flows.laps import Laps
from qlock.flows.loaded import LoadedFile
from qlock.flows.obedience import said_findings
from qlock.flows.papers import Paper, paper, template_of
from qlock.flows.proving import Exam
from qlock.flows.refusal import refuse
from qlock.flows.room import check_room
from qlock.flows.run_folder import RunFolder
from qlock.flows.seat import Seat
from qlock.world.interface import World
from qlock.world.render import Renderer


class Progress(Base, frozen=True, kw_only=True):
    """How far a job is."""

    job: str
    done: Count
    items: Count
    tokens: Count
    """Generated or scored since this stretch of running began."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the points of one stretch of running share."""

    world: World
    lock: Lock
    folder: RunFolder
    weights: dict[str, tuple[str, ...]]
    pci_bus_id: tuple[str, ...]
    """Where the cards sit that the engine is given."""
    exams: tuple[Exam, ...]
    seat: Seat
    renderer: Renderer
    segment: int
    allow: tuple[str, ...]
    talk: Callable[[Progress], None]
    on_row: Callable[[Row], None]
    """Told of each row that was stored."""
    on_ready: Callable[[Engine], None]
    """Told of each engine that has loaded a point and is as locked."""
    kept: dict[Path, LoadedFile]
    """Every kept file that was used, as it was when it was looked at; filled while points run."""
    is_over: Callable[[], bool] = lambda: False
    """Whether the time is up: then nothing more is asked."""


def rows_of(stage: Stage, point: str) -> int:
    """How many items of a point are done side by side, over all its processes."""
    pin = named(stage.lock.point, point)
    setting = load_of(stage.lock, pin, stage.weights[pin.model]).setting
    return setting.at_once


def prepare_point(
    world: World,
    lock: Lock,
    pin: PointPin,
    engine: Engine,
    weights: tuple[str, ...],
    *,
    pci_bus_id: tuple[str, ...],
) -> list[Finding]:
    """Rules 4, 5 and 7: load a point and give what is not as locked.

    Args:
        world: This machine.
        lock: Of the run.
        pin: The point.
        engine: One that is given the cards alone.
        weights: Paths of the point's files.
        pci_bus_id: Where those cards sit.
    """
    load = load_of(lock, pin, weights)
    where = f"point.{pin.name}"
    check_room(world, load)
    read_back = engine.load(load)
    found = proving.hold_read_back(where, pin.read_back, load.setting, read_back)
    found += said_findings(engine, where, load.setting, given=pci_bus_id)
    behaviour = proving.behave(engine, read_back)
    found += entries("canaries", f"{where}.canary", pin.canary or (), behaviour.canary)
    found += proving.hold_nats(where, pin.plain_text_nats, behaviour.plain_text_nats)
    engine_pin = named(lock.engine, pin.engine)
    return found + proving.see_engine(world, engine, engine_pin, rule="engine-files")[1]


def load_of(lock: Lock, pin: PointPin, weights: tuple[str, ...]) -> Load:
    """What is loaded for a point."""
    return Load(weights=weights, setting=named(lock.setting, pin.setting))


def take_point(stage: Stage, pin: PointPin, laps: Laps) -> None:
    """Have the seat take a point, now and after every restart, and refuse what is not as locked.

    Raises:
        FindingsError: Rules 4, 5 or 7 found something.
    """
    stage.seat.point(lambda engine: _prepare(stage, pin, engine, laps))


def papers(stage: Stage, pin: PointPin, suites: Collection[str]) -> dict[str, Paper]:
    """The papers of some suites at the loaded point, by the suites' names."""
    assert isinstance(pin.read_back, facts.ReadBack)
    template = template_of(stage.world, stage.weights[pin.model])
    return {
        exam.pin.name: paper(
            respondent(stage.seat, pin.read_back),
            stage.renderer,
            exam,
            model_template=template,
            frozen_date=stage.lock.frozen_date,
        )
        for exam in stage.exams
        if exam.pin.name in suites
    }


def _prepare(stage: Stage, pin: PointPin, engine: Engine, laps: Laps) -> None:
    weights = stage.weights[pin.model]
    found = prepare_point(stage.world, stage.lock, pin, engine, weights, pci_bus_id=stage.pci_bus_id)
    refuse(found, allow=stage.allow)
    note_memory(stage.folder, stage.segment, pin.name, engine.memory())
    stage.on_ready(engine)
    laps.begin()
