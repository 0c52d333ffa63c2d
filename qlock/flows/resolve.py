"""``resolve``: a spec made exact, as a lock.

In order: read the spec; look at the device; weigh every model; digest every suite's files; stop where any of that moved
unasked. Then, with the engine, prove each point whose weights are here and that an older lock does not already prove,
and pin what the others are asked; put the lock together; say what moved unasked, and what moved upstream and stays
pinned.

Does not live here: printing, exit codes, and running (``flows.run``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core import facts
from qlock.core.again import Again, again
from qlock.core.canon import MOST_TOML_BYTES, json_bytes
from qlock.core.escape import for_message, visible
from qlock.core.kept_base import check_stored_tokens
from qlock.core.lock import (
    LOCK_VERSION,
    Lock,
    MissingPin,
    PointPin,
    PromptsPin,
    SuitePin,
    read_lock,
    renew_path,
    unset_pins,
)
from qlock.core.spec import Spec, SuiteSpec, points, read_spec, spec_digest
from qlock.core.words import did_you_mean, listed
from qlock.errors import InputError, UsageError
from qlock.flows import pinning
from qlock.flows.bench import Bench
from qlock.flows.device import Here, asked_device, opener
from qlock.flows.foreseen import items_too_few
from qlock.flows.gated import check_gates
from qlock.flows.keeping import Ground, Kept, what_holds
from qlock.flows.layout import lock_path, project_of, spec_beside, spec_label
from qlock.flows.locks import lock_bytes
from qlock.flows.moving import Move, moves, point_moves
from qlock.flows.origins import Order, gather
from qlock.flows.papers import check_readable
from qlock.flows.places import check_there
from qlock.flows.point_proofs import Proofs, counted, no_engine, prove_points, unproved_point
from qlock.flows.proving import Exam, Opener
from qlock.flows.references import check_tokenizers, vocab_tokens
from qlock.flows.upstream import upstream_notes
from qlock.flows.vocabularies import Vocabularies
from qlock.flows.weighing import NOT_HERE, why_not_runnable
from qlock.world.interface import World

NOT_ASKED = "the engine was not asked"
UNLOOKED = "no point was proved again, since what they stand on moved"
_KINDS = ("model", "suite", "engine", "device", "setting", "point")
MOST_SPEC_BYTES = 4 << 20


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks of ``resolve``."""

    spec_path: Path
    upgrade: tuple[str, ...] = ()
    """Names of pins that may move, or kinds of them (``model``), or ``all``."""
    prove: bool = True
    """Whether to use the engine; without it, what only the engine knows is listed missing."""
    rehash: bool = False
    models: tuple[Path, ...] = ()
    """Folders where files of the Hub may lie besides its cache."""
    tell: Callable[[str], None] = lambda _: None
    """Told of each step that may take its time."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A new lock, not yet written."""

    path: Path
    lock: Lock
    data: bytes
    before: bytes | None
    """Bytes of the lock that is there now."""
    moves: tuple[Move, ...]
    """Pins that moved and that ``--upgrade`` does not name: the lock must not be written."""
    notes: tuple[str, ...]
    """What people should know: of points, and what has moved upstream since it was pinned and stays as it is pinned."""
    again: Again | UnsetType
    """What has to be measured again; unset where there is no lock now."""

    @property
    def state(self) -> Literal["new", "same", "changed"]:
        """Against the lock that is there now."""
        if self.before is None:
            return "new"
        return "same" if self.before == self.data else "changed"


def resolve(world: World, asked: Asked, open_engine: Opener) -> Resolved:
    """A lock for this spec on this machine, keeping what an older lock already pins.

    Raises:
        InputError: The spec, a model or a data file is wrong, or the old lock is.
        AbsentError: A file is not there.
        EngineError: The engine did not start, or cannot load a point.
        RefusedError: The engine does not do as it is told, or makes no sense of plain text.
        UsageError: ``upgrade`` names no pin.
    """
    spec_path = world.cwd / asked.spec_path
    spec = read_spec_file(world, spec_path)
    here = asked_device(world, spec)
    _check_upgrade(spec, here.device, asked.upgrade)
    path = lock_path(spec_path, spec, here.device.name)
    before, old = _old_lock(world, path, spec_path, ignore_damage="all" in asked.upgrade)
    base, label = project_of(spec_path), spec_label(spec_path)
    with Vocabularies() as vocabularies:
        order = _order(spec, old, asked, base=base, vocabularies=vocabularies)
        ground = _ground(world, spec, here, order, asked)
        exams = _exams(world, spec, old, asked, base=base)
        check_tokenizers(exams, points(spec), {weighed.pin.name: weighed.pin for weighed in ground.weighed})
        kept = Kept() if old is None else what_holds(ground, exams, old)
        # What moved unasked is named at once: nothing is loaded for a lock that will not be written.
        proofs = _as_before(ground, exams, kept, old)
        ahead = _assemble(ground, proofs)
        check_stored_tokens(ahead.suite, vocab_tokens(ground.weighed, ahead.point))
        lock_bytes(ahead, spec_path=label, name=path.name)
        moved = _unasked(old, kept, ahead, asked)
        if not moved and asked.prove:
            open_here = opener(open_engine, spec.engine.environment | here.variables)
            bench = _bench(world, ground, exams, open_here, order=order, here=here)
            proofs = prove_points(bench, ground.settings, kept)
        elif not moved:
            proofs = _unproved(ground, exams, kept)
    lock = _assemble(ground, proofs)
    return Resolved(
        path=path,
        lock=lock,
        data=lock_bytes(lock, spec_path=label, name=path.name),
        before=before,
        moves=moved or _unasked(old, kept, lock, asked),
        notes=(
            *proofs.notes,
            *items_too_few(lock, exams),
            *([UNLOOKED] if moved and asked.prove else []),
            *(() if old is None else upstream_notes(world, old, lock)),
        ),
        again=UNSET if old is None else again(old, lock),
    )


def _sources(spec: Spec) -> dict[str, str]:
    """Everything that a spec names, by where it does."""
    models = {f"model.{model.name}": model.source for model in spec.model}
    return models | {
        f"suite.{suite.name}.{key}": source
        for suite in spec.suite
        for key, source in pinning.sources_of(suite).items()
    }


def _ground(world: World, spec: Spec, here: Here, order: Order, asked: Asked) -> Ground:
    check_there(_sources(spec), base=order.base)
    return Ground(
        spec=spec,
        device=here.device,
        device_missing=here.missing,
        weighed=gather(world, spec.model, order),
        settings=tuple(
            pinning.setting(
                setting,
                None if _is_named("setting", setting.name, asked.upgrade) else order.old,
                engine=spec.engine.kind,
            )
            for setting in spec.setting
        ),
    )


def _unasked(old: Lock | None, kept: Kept, new: Lock, asked: Asked) -> tuple[Move, ...]:
    """What moved although ``--upgrade`` does not name it."""
    if old is None:
        return ()
    moved = moves(old, new)
    moved += point_moves(kept, new, moved)
    return tuple(move for move in moved if not _is_named(move.what, move.name, asked.upgrade))


def _is_named(what: str, name: str, upgrade: tuple[str, ...]) -> bool:
    """Whether a pin may move: ``--upgrade`` takes its name, all of its kind, or ``all``."""
    return not {name, what, "all"}.isdisjoint(upgrade)


def _check_upgrade(spec: Spec, device: facts.Device, upgrade: tuple[str, ...]) -> None:
    """Refuse a name that no pin has: it would be an order that somebody believes in and nobody follows."""
    tables = (spec.model, spec.setting, spec.suite)
    names = [entry.name for table in tables for entry in table]
    known = ["all", *_KINDS, spec.engine.kind, device.name, *names, *points(spec)]
    for name in upgrade:
        if name not in known:
            raise UsageError(
                f"got `--upgrade {for_message(name)}`, expected the name of a pin",
                hint=did_you_mean(name, known) or f"one of {listed(known)}",
            )


def _old_lock(
    world: World, path: Path, spec_path: Path, *, ignore_damage: bool
) -> tuple[bytes | None, Lock | None]:
    """The lock that is there now, and its bytes; with ``ignore_damage`` one that cannot be read is as none."""
    if not path.exists():
        return None, None
    data = world.files.read_bounded(path, MOST_TOML_BYTES, "lock")
    _check_owner(path, data, spec_path)
    try:
        return data, read_lock(data, name=path.name)
    except InputError:
        if ignore_damage:
            return None, None
        raise


def _check_owner(path: Path, data: bytes, spec_path: Path) -> None:
    """Refuse to write over the lock of another spec that is still there; the lock of a renamed spec goes with it."""
    owner = renew_path(data.decode(errors="replace"))
    if owner != visible(spec_label(spec_path)) and spec_beside(path, owner).is_file():
        raise InputError(
            f"this lock belongs to `{for_message(owner)}`", hint="give one of the two specs another `name`"
        ).in_document(path.name)


def _order(spec: Spec, old: Lock | None, asked: Asked, *, base: Path, vocabularies: Vocabularies) -> Order:
    return Order(
        base=base,
        old=old,
        vocabularies=vocabularies,
        moving=frozenset(model.name for model in spec.model if _is_named("model", model.name, asked.upgrade)),
        folders=asked.models,
        rehash=asked.rehash,
        tell=asked.tell,
    )


def _exams(world: World, spec: Spec, old: Lock | None, asked: Asked, *, base: Path) -> tuple[Exam, ...]:
    """Every suite with its files; the gates of the spec can be decided by them."""
    exams = tuple(
        pinning.exam(world, spec, suite, base=base, rehash=asked.rehash, old=_kept_suite(old, suite, asked))
        for suite in spec.suite
    )
    check_readable(exams, () if old is None else old.suite)
    check_gates(spec.gate, exams)
    return exams


def _kept_suite(old: Lock | None, suite: SuiteSpec, asked: Asked) -> SuitePin | None:
    """The pin whose commits of the Hub are kept; ``None`` where there is none, or it may move."""
    if old is None or _is_named("suite", suite.name, asked.upgrade):
        return None
    return next((pin for pin in old.suite if pin.name == suite.name), None)


def _as_before(ground: Ground, exams: tuple[Exam, ...], kept: Kept, old: Lock | None) -> Proofs:
    """What an older lock says of the points, whether or not it still holds."""
    points_before = () if old is None else old.point
    kind = ground.spec.engine.kind
    return _without_engine(
        ground, exams, kept, {pin.name: pin for pin in points_before if pin.engine == kind}
    )


def _unproved(ground: Ground, exams: tuple[Exam, ...], kept: Kept) -> Proofs:
    """What was proved before and still holds; the rest is missing."""
    return _without_engine(ground, exams, kept, kept.points)


def _without_engine(
    ground: Ground, exams: tuple[Exam, ...], kept: Kept, pins: Mapping[str, PointPin]
) -> Proofs:
    kind = ground.spec.engine.kind
    made = {
        name: pins.get(name)
        or unproved_point(
            name, point, engine=kind, device=ground.device.name, prompts=_kept_prompts(name, exams, kept)
        )
        for name, point in points(ground.spec).items()
    }
    return Proofs(
        engine=kept.engine or no_engine(ground.spec.engine),
        settings=ground.settings,
        points=tuple(made.values()),
        exams=tuple(counted(exam, made) for exam in exams),
        why=dict.fromkeys(made, NOT_ASKED),
    )


def _kept_prompts(name: str, exams: tuple[Exam, ...], kept: Kept) -> tuple[PromptsPin, ...] | UnsetType:
    """Prompts of a point, where those of all its suites are pinned."""
    asked = kept.prompts.get(name, {})
    suites = [exam.pin.name for exam in exams if name in exam.pin.points]
    return tuple(asked[suite] for suite in suites) if asked.keys() >= set(suites) else UNSET


def _bench(
    world: World, ground: Ground, exams: tuple[Exam, ...], open_engine: Opener, *, order: Order, here: Here
) -> Bench:
    return Bench(
        world=world,
        open_engine=open_engine,
        build=order.base / ground.spec.engine.path if ground.spec.engine.path else None,
        spec=ground.spec,
        models={weighed.pin.name: weighed for weighed in ground.weighed},
        vocabularies=order.vocabularies,
        tell=order.tell,
        exams=exams,
        device=here.device.name,
        pci_bus_id=here.pci_bus_id,
    )


def _assemble(ground: Ground, proofs: Proofs) -> Lock:
    lock = Lock(
        lock_version=LOCK_VERSION,
        spec_digest=spec_digest(ground.spec),
        body_digest="",
        frozen_date=ground.spec.frozen_date,
        name=ground.spec.name,
        engine=(proofs.engine,),
        device=(ground.device,),
        model=tuple(sorted((weighed.pin for weighed in ground.weighed), key=lambda pin: pin.name)),
        setting=tuple(sorted(proofs.settings, key=lambda setting: setting.name)),
        suite=tuple(sorted((exam.pin for exam in proofs.exams), key=lambda pin: pin.name)),
        point=tuple(sorted(proofs.points, key=lambda pin: pin.name)),
        anchor=ground.spec.anchor,
        compare=ground.spec.compare,
        gate=ground.spec.gate,
        missing=(),
    )
    return msgspec.structs.replace(lock, missing=tuple(_missing(lock, ground, proofs)))


def _missing(lock: Lock, ground: Ground, proofs: Proofs) -> Iterator[MissingPin]:
    """Each pin that is not there, why, and until when."""
    known = [*ground.device_missing, *(entry for weighed in ground.weighed for entry in weighed.missing)]
    listed = {entry.pin: entry for entry in known}
    models = {weighed.pin.name: weighed for weighed in ground.weighed}
    weights = {point.name: models[point.model] for point in proofs.points}
    suites = {exam.pin.name: exam.pin.points for exam in proofs.exams}
    for pin in sorted(unset_pins(lock)):
        owner = pin.partition(".")[2].rpartition(".")[0]
        if pin in listed:
            yield listed[pin]
        elif pin.startswith("engine."):
            yield MissingPin(pin=pin, why="the file is no ELF file with code of its own", until="never")
        elif pin.startswith("suite."):
            reasons = [proofs.why[point] for point in suites[owner] if point in proofs.why]
            yield MissingPin(pin=pin, why=(*reasons, NOT_ASKED)[0], until="prove")
        elif why := why_not_runnable(weights[owner].pin):
            yield MissingPin(pin=pin, why=why, until="never")
        elif pin.endswith(".prompts"):
            yield MissingPin(pin=pin, why=proofs.why.get(owner, NOT_ASKED), until="prove")
        else:
            yield MissingPin(pin=pin, why=NOT_ASKED if weights[owner].is_here else NOT_HERE, until="prove")


def read_spec_file(world: World, path: Path) -> Spec:
    """The spec at ``path``, its tables in the order of their names.

    Raises:
        AbsentError: It is not there.
        InputError: It is no spec.
    """
    return in_name_order(read_spec(world.files.read_bounded(path, MOST_SPEC_BYTES, "spec"), name=path.name))


def in_name_order(spec: Spec) -> Spec:
    """The same spec, whatever the order of its tables was: a lock does not depend on it."""
    suites = [
        msgspec.structs.replace(suite, models=_in_order(suite.models), settings=_in_order(suite.settings))
        for suite in spec.suite
    ]
    return msgspec.structs.replace(
        spec,
        model=tuple(sorted(spec.model, key=lambda model: model.name)),
        setting=tuple(sorted(spec.setting, key=lambda setting: setting.name)),
        suite=tuple(sorted(suites, key=lambda suite: suite.name)),
        point=tuple(sorted(spec.point, key=lambda point: (point.model, point.setting))),
        anchor=tuple(sorted(spec.anchor, key=json_bytes)),
        gate=tuple(sorted(spec.gate, key=json_bytes)),
    )


def _in_order(names: tuple[str, ...] | UnsetType) -> tuple[str, ...] | UnsetType:
    return names if names is UNSET else tuple(sorted(names))
