"""``resolve``: a spec made exact, as a lock.

In order: read the spec; weigh every model; digest every suite's files; look at the device; then, with the engine,
prove each point that an older lock does not already prove; put the lock together; say what moved unasked.

Does not live here: printing, exit codes, and running (``flows.run``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET

from qlock.core import facts
from qlock.core.base import Base
from qlock.core.effects import what_changes_output
from qlock.core.lock import LOCK_VERSION, Lock, Missing, PointPin, read_lock, unset_pins, write_lock
from qlock.core.spec import ModelSpec, PointSpec, Spec, points, read_spec, spec_digest
from qlock.errors import InputError
from qlock.flows import pinning
from qlock.flows.layout import lock_path, project_of, spec_label
from qlock.flows.moving import Move, moves
from qlock.flows.places import locate, shards
from qlock.flows.point_proofs import Bench, prove_points
from qlock.flows.proving import Exam, Opener
from qlock.flows.weighing import Weighed, weigh
from qlock.world.interface import World

MOST_SPEC_BYTES = 4 << 20
MOST_LOCK_BYTES = 64 << 20


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks of ``resolve``."""

    spec_path: Path
    upgrade: tuple[str, ...] = ()
    """Names of pins that may move."""
    prove: bool = True
    """Whether to use the engine; without it, what only the engine knows is listed missing."""
    rehash: bool = False


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A new lock, not yet written."""

    path: Path
    lock: Lock
    data: bytes
    before: bytes | None
    """Bytes of the lock that is there now."""
    moves: tuple[Move, ...]
    """Pins that moved and that ``--upgrade`` does not name: the lock must not be written."""

    @property
    def state(self) -> Literal["new", "same", "changed"]:
        """Against the lock that is there now."""
        if self.before is None:
            return "new"
        return "same" if self.before == self.data else "changed"


class Ground(Base, frozen=True, kw_only=True):
    """What is known without an engine."""

    spec: Spec
    device: facts.Device
    weighed: tuple[Weighed, ...]
    settings: tuple[facts.Setting, ...]


def resolve(world: World, asked: Asked, open_engine: Opener) -> Resolved:
    """A lock for this spec on this machine, keeping what an older lock already pins.

    Raises:
        InputError: The spec, a model or a data file is wrong, or the old lock is.
        AbsentError: A file is not there.
        EngineError: The engine did not start, or cannot load a point.
        RefusedError: The engine does not do as it is told, or makes no sense of plain text.
    """
    spec = read_spec(
        world.files.read_bounded(asked.spec_path, MOST_SPEC_BYTES, "spec"), name=asked.spec_path.name
    )
    device = pinning.device(world, spec)
    path = lock_path(asked.spec_path, spec, device.name)
    before = _old_bytes(world, path)
    old = None if before is None else read_lock(before, name=path.name)
    base = project_of(asked.spec_path)
    ground = Ground(
        spec=spec,
        device=device,
        weighed=tuple(_weigh(world, model, base, rehash=asked.rehash) for model in spec.model),
        settings=tuple(pinning.setting(setting, old) for setting in spec.setting),
    )
    exams = tuple(pinning.exam(world, spec, suite, base=base, rehash=asked.rehash) for suite in spec.suite)
    lock = _proved(world, ground, exams, old, open_engine) if asked.prove else _unproved(ground, exams)
    moved = (
        () if old is None else tuple(move for move in moves(old, lock) if not _allowed(move, asked.upgrade))
    )
    return Resolved(
        path=path,
        lock=lock,
        data=write_lock(lock, spec_path=spec_label(asked.spec_path)),
        before=before,
        moves=moved,
    )


def _allowed(move: Move, upgrade: tuple[str, ...]) -> bool:
    return move.name in upgrade or move.what in upgrade or "all" in upgrade


def _old_bytes(world: World, path: Path) -> bytes | None:
    return world.files.read_bounded(path, MOST_LOCK_BYTES, "lock") if path.exists() else None


def _weigh(world: World, model: ModelSpec, base: Path, *, rehash: bool) -> Weighed:
    return weigh(world, model, shards(locate(world, model.source, base=base)), rehash=rehash)


def _unproved(ground: Ground, exams: tuple[Exam, ...]) -> Lock:
    engine = facts.Engine(
        name=ground.spec.engine.kind, kind=ground.spec.engine.kind, label="", system_info="", file=()
    )
    pins = tuple(_point_pin(ground, name, point) for name, point in points(ground.spec).items())
    return _assemble(ground, exams, engine, ground.settings, pins)


def _point_pin(ground: Ground, name: str, point: PointSpec) -> PointPin:
    return PointPin(
        name=name,
        model=point.model,
        setting=point.setting,
        engine=ground.spec.engine.kind,
        device=ground.device.name,
        repeatable_why="",
    )


def _proved(
    world: World, ground: Ground, exams: tuple[Exam, ...], old: Lock | None, open_engine: Opener
) -> Lock:
    bench = Bench(
        world=world,
        open_engine=open_engine,
        spec=ground.spec,
        weights={weighed.pin.name: weighed.paths for weighed in ground.weighed},
        templates={
            weighed.pin.name: None if weighed.facts.template is UNSET else weighed.facts.template
            for weighed in ground.weighed
        },
        trained={weighed.pin.name: weighed.pin.trained for weighed in ground.weighed},
        exams=exams,
        device=ground.device.name,
    )
    kept = {} if old is None else _kept(ground, exams, old)
    proofs = prove_points(bench, ground.settings, kept, None if old is None else old.engine[0])
    return _assemble(ground, proofs.exams, proofs.engine, proofs.settings, proofs.points)


def _kept(ground: Ground, exams: tuple[Exam, ...], old: Lock) -> dict[str, PointPin]:
    """Points that the old lock proves on the same ground: same bytes, setting, suites and device."""
    if old.device[0] != ground.device or old.frozen_date != ground.spec.frozen_date:
        return {}
    models = {weighed.pin.name: weighed.pin for weighed in ground.weighed}
    before = {pin.name: pin for pin in old.model}
    settings = {setting.name: setting for setting in ground.settings}
    same_suites = _same_suites(exams, old)
    kept = {}
    for pin in old.point:
        model, setting = models.get(pin.model), settings.get(pin.setting)
        suites = {exam.pin.name for exam in exams if pin.name in exam.pin.points}
        if (
            model is not None
            and what_changes_output(model) == what_changes_output(before[pin.model])
            and setting in old.setting
            and suites == {prompts.suite for prompts in pin.prompts or ()}
            and suites <= same_suites
            and not any(name.startswith(f"point.{pin.name}.") for name in unset_pins(old))
        ):
            kept[pin.name] = pin
    return kept


def _same_suites(exams: tuple[Exam, ...], old: Lock) -> set[str]:
    before = {pin.name: pin for pin in old.suite}
    same = set()
    for exam in exams:
        pin = before.get(exam.pin.name)
        if pin is None:
            continue
        limit = min(exam.pin.items_limit, pin.items_limit)
        if msgspec.structs.replace(exam.pin, items_limit=limit, points=pin.points) == pin:
            same.add(exam.pin.name)
    return same


def _assemble(
    ground: Ground,
    exams: tuple[Exam, ...],
    engine: facts.Engine,
    settings: tuple[facts.Setting, ...],
    pins: tuple[PointPin, ...],
) -> Lock:
    lock = Lock(
        lock_version=LOCK_VERSION,
        spec_digest=spec_digest(ground.spec),
        body_digest="",
        frozen_date=ground.spec.frozen_date,
        name=ground.spec.name,
        engine=(engine,),
        device=(ground.device,),
        model=tuple(sorted((weighed.pin for weighed in ground.weighed), key=lambda pin: pin.name)),
        setting=tuple(sorted(settings, key=lambda setting: setting.name)),
        suite=tuple(sorted((exam.pin for exam in exams), key=lambda pin: pin.name)),
        point=tuple(sorted(pins, key=lambda pin: pin.name)),
        anchor=ground.spec.anchor,
        compare=ground.spec.compare,
        gate=ground.spec.gate,
        missing=(),
    )
    known = {entry.pin: entry for weighed in ground.weighed for entry in weighed.missing}
    missing = tuple(
        known.get(pin, Missing(pin=pin, why="the engine was not asked", until="prove"))
        for pin in sorted(unset_pins(lock))
    )
    return msgspec.structs.replace(lock, missing=missing)


def read_spec_file(world: World, path: Path) -> Spec:
    """The spec at ``path``.

    Raises:
        AbsentError: It is not there.
        InputError: It is no spec.
    """
    return read_spec(world.files.read_bounded(path, MOST_SPEC_BYTES, "spec"), name=path.name)


def read_lock_file(world: World, path: Path) -> tuple[Lock, bytes]:
    """The lock at ``path`` and its bytes.

    Raises:
        AbsentError: It is not there.
        InputError: It is no lock, of a newer version, or edited.
    """
    if path.is_dir():
        raise InputError(f"got the folder `{path.name}`, expected a lock file")
    data = world.files.read_bounded(path, MOST_LOCK_BYTES, "lock")
    return read_lock(data, name=path.name), data
