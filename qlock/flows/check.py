"""``check``: hold this machine against a lock without measuring anything.

The numbered rules of ``core.verify``: 1 to 3 (files and device) always; with the engine, once for each point, 4
(engine files), 5 (read-back), 6 (prompts) and 7 (canaries). Unlike a run, one finding does not stop the looking:
everything that can be seen is seen, and all of it is given together.

Does not live here: measuring (``flows.run``), and the comparing itself (``core.verify``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from qlock.core import facts
from qlock.core.base import Count
from qlock.core.lock import Lock, PointPin, renew_path
from qlock.core.verify import Finding, refuses
from qlock.engines.interface import Engine
from qlock.flows.asking import respondent
from qlock.flows.beside import build_folder, spec_of, why_stale
from qlock.flows.kept_base import base_of, look_at
from qlock.flows.layout import project_of, runs_folder
from qlock.flows.locks import read_lock_file
from qlock.flows.look import Sight, look
from qlock.flows.papers import paper, template_of
from qlock.flows.places import Places
from qlock.flows.preparing import load_of, prepare_point
from qlock.flows.proving import Opener
from qlock.flows.references import is_beside, is_stored, load_beside
from qlock.flows.refusal import only_absent, refuse_missing
from qlock.flows.seat import Seat
from qlock.world.interface import World
from qlock.world.render import Renderer

State = Literal["verified", "stale", "refused", "absent"]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks of ``check``."""

    lock_path: Path
    models: tuple[Path, ...] = ()
    engine: Path | None = None
    """Folder of the engine's libraries, where it is not as the spec beside the lock says; the lock pins the files."""
    quick: bool = False
    """Leave the engine alone: rules 1 to 3."""
    rehash: bool = False
    tell: Callable[[str], None] = lambda _: None
    """Told of each step that may take its time."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen."""

    state: State
    why_stale: str
    """Why the lock does not fit the spec beside it; empty when it does, or when there is none."""
    findings: tuple[Finding, ...]
    points: tuple[str, ...]
    """Points that the engine was asked about."""
    left_out: tuple[str, ...]
    """Points that could not be loaded, since their files are not as locked."""
    cached_digests: Count


def check(world: World, asked: Asked, open_engine: Opener) -> Checked:
    """Everything on this machine that is not as locked.

    Raises:
        InputError: The lock is unreadable or edited.
        RefusedError: The lock still misses pins.
        EngineError: The engine did not start, died, or could not be asked.
    """
    lock, data = read_lock_file(world, asked.lock_path)
    stale = why_stale(world, asked.lock_path, lock, data)
    refuse_missing(lock, asked.lock_path, renew=renew_path(data.decode()))
    places = Places(world, base=project_of(asked.lock_path), folders=asked.models)
    sight = look(world, lock, places, rehash=asked.rehash)
    loadable = [] if asked.quick else [pin for pin in lock.point if pin.model in sight.weights]
    left_out = [] if asked.quick else [pin.name for pin in lock.point if pin.model not in sight.weights]
    findings = list(sight.findings)
    if loadable:
        build = asked.engine or build_folder(spec_of(world, asked.lock_path, data), asked.lock_path)
        open_here = sight.opener(open_engine)
        with Seat(lambda: open_here(lib_folder=build)) as seat, Renderer() as renderer:
            ground = _Ground(
                world=world,
                lock=lock,
                sight=sight,
                engine=seat,
                renderer=renderer,
                runs=runs_folder(asked.lock_path, lock),
            )
            for pin in loadable:
                asked.tell(f"point {pin.name}: loading and asking")
                findings += _point(ground, pin)
    unique = tuple(dict.fromkeys(findings))
    return Checked(
        state=_state(unique, stale),
        why_stale=stale,
        findings=unique,
        points=tuple(pin.name for pin in loadable),
        left_out=tuple(left_out),
        cached_digests=sight.cached,
    )


def _state(findings: tuple[Finding, ...], stale: str) -> State:
    """A refusal weighs more than a stale lock: the lock can be renewed, the machine is another one."""
    stopping = [finding for finding in findings if refuses(finding)]
    if not stopping:
        return "stale" if stale else "verified"
    return "absent" if only_absent(tuple(stopping)) else "refused"


class _Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What the points of one check share."""

    world: World
    lock: Lock
    sight: Sight
    engine: Engine
    renderer: Renderer
    runs: Path
    """The folder of all runs of the lock's spec."""


def _point(ground: _Ground, pin: PointPin) -> list[Finding]:
    """Rules 4 to 7 for one point."""
    lock, weights = ground.lock, ground.sight.weights[pin.model]
    found = prepare_point(ground.world, lock, pin, ground.engine, weights, pci_bus_id=ground.sight.pci_bus_id)
    assert isinstance(pin.read_back, facts.ReadBack)
    template = template_of(ground.world, weights)
    for exam in ground.sight.exams:
        if pin.name in exam.pin.points:
            found += paper(
                respondent(ground.engine, pin.read_back),
                ground.renderer,
                exam,
                model_template=template,
                frozen_date=lock.frozen_date,
            ).held(pin)
    return found + _beside(ground, pin)


def _beside(ground: _Ground, pin: PointPin) -> list[Finding]:
    """The same rules for what a suite needs beside the point."""
    suites = [exam.pin for exam in ground.sight.exams if pin.name in exam.pin.points]
    names = {suite.reference for suite in suites if is_beside(suite)}
    found: list[Finding] = []
    for reference in ground.lock.point:
        if reference.name in names and reference.model in ground.sight.weights:
            own, other = (
                load_of(ground.lock, point, ground.sight.weights[point.model]) for point in (pin, reference)
            )
            found += load_beside(
                ground.world,
                ground.engine,
                own,
                other,
                reference,
                pci_bus_id=ground.sight.pci_bus_id,
            )
    for suite in suites:
        if is_stored(suite) and suite.reference != pin.name:
            found += look_at(ground.world, base_of(ground.lock, suite, pin.name, ground.runs))
    return found
