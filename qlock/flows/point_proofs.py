"""Proving the points of a spec with one engine, keeping what an older lock proves, falling back where needed.

One width holds for all points of a setting: when the probe of one of them says that rows are not independent, the
whole setting falls back to one row and its points are proved again.

Does not live here: the proof of a single point (``flows.proving``).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core import facts
from qlock.core.effects import what_changes_output
from qlock.core.lock import PointPin, PromptsPin, named
from qlock.core.spec import EngineSpec, PointSpec, points
from qlock.core.verify import read_back_findings
from qlock.engines.interface import Engine, Load
from qlock.errors import EngineError, QlockError
from qlock.flows import proving
from qlock.flows.asking import respondent
from qlock.flows.bench import Bench, Note, prompted, told
from qlock.flows.keeping import Kept
from qlock.flows.obedience import said_findings
from qlock.flows.pinning import fallen_back
from qlock.flows.prompts_ahead import prompts_ahead
from qlock.flows.proving import Exam, Proof
from qlock.flows.references import is_beside, load_beside
from qlock.flows.refusal import FindingsError, refuse
from qlock.flows.room import check_room
from qlock.flows.weighing import why_not_runnable
from qlock.world.render import Renderer


class Proofs(msgspec.Struct, frozen=True, kw_only=True):
    """Every point proved, or kept; or neither, where llama.cpp cannot run its model or the weights are not here."""

    engine: facts.Engine
    settings: tuple[facts.Setting, ...]
    points: tuple[PointPin, ...]
    exams: tuple[Exam, ...]
    """With ``items_limit`` as many as there are."""
    why: Mapping[str, str] = {}
    """Why the prompts of a point are not known, by its name; in words that are the same on every machine."""
    notes: tuple[str, ...] = ()
    """What people should know besides."""


def prove_points(bench: Bench, settings: tuple[facts.Setting, ...], kept: Kept) -> Proofs:
    """Prove every point that is not kept; with another engine than before, all of them.

    The engine's files are known only after a decode, so where all points are kept one of them is proved again. Of
    points whose weights are not here, what they are asked is pinned; first, so that an item that cannot be asked costs
    no proof.

    Raises:
        EngineError: The engine did not start, died, or maps other files for one point than for another.
        RefusedError: The engine does not do as it is told, or makes no sense of plain text.
        InputError: An item cannot be asked, or a canned reply is not graded as its item says.
    """
    chosen, absent, broken = _runnable(bench)
    unproved = _without(absent, kept.points)
    ahead = prompts_ahead(bench, unproved, settings, known=kept.prompts)
    made = _made(bench, chosen, settings, kept)
    # Nobody has looked at an engine without files: it is no other one, and gave no proofs.
    is_another = kept.engine is not None and bool(kept.engine.file) and _is_another(kept.engine, made.engine)
    if is_another:
        kept = Kept()
    narrowed = {after.name for before, after in zip(settings, made.settings, strict=True) if before != after}
    still = {name: pin for name, pin in kept.points.items() if pin.setting not in narrowed}
    left = _without(absent, still)
    if is_another or left.keys() != unproved.keys():
        ahead = prompts_ahead(bench, left, made.settings, known=kept.prompts)
    pins = {
        name: still.get(name)
        or unproved_point(
            name,
            point,
            engine=bench.spec.engine.kind,
            device=bench.device,
            prompts=ahead.prompts.get(name, UNSET),
        )
        for name, point in (absent | broken).items()
    }
    pins |= made.points
    return Proofs(
        engine=made.engine,
        settings=made.settings,
        points=tuple(pins.values()),
        exams=tuple(counted(exam, pins) for exam in bench.exams),
        why=ahead.why,
        notes=told((*made.notes, *ahead.notes)),
    )


def _made(
    bench: Bench, chosen: Mapping[str, PointSpec], settings: tuple[facts.Setting, ...], kept: Kept
) -> _Made:
    """What comes of the points whose weights are here."""
    if not chosen:
        return _Made(engine=kept.engine or no_engine(bench.spec.engine), settings=settings)
    engine = bench.open_engine(lib_folder=bench.build)
    try:
        with Renderer() as renderer:
            return _Prover(bench, engine, renderer).all(chosen, settings, kept)
    finally:
        engine.close()


def _without(points: Mapping[str, PointSpec], proved: Mapping[str, PointPin]) -> dict[str, PointSpec]:
    return {name: point for name, point in points.items() if name not in proved}


def _runnable(bench: Bench) -> tuple[dict[str, PointSpec], dict[str, PointSpec], dict[str, PointSpec]]:
    """The points of the spec, those whose weights are not here, and those that llama.cpp cannot run."""
    chosen: dict[str, PointSpec] = {}
    absent: dict[str, PointSpec] = {}
    broken: dict[str, PointSpec] = {}
    for name, point in points(bench.spec).items():
        model = bench.models[point.model]
        where = broken if why_not_runnable(model.pin) else chosen if model.is_here else absent
        where[name] = point
    return chosen, absent, broken


def _is_another(a: facts.Engine, b: facts.Engine) -> bool:
    return what_changes_output(a) != what_changes_output(b)


def no_engine(spec: EngineSpec) -> facts.Engine:
    """An engine that nobody looked at."""
    return facts.Engine(
        name=spec.kind, kind=spec.kind, label="", system_info="", environment=spec.environment, file=()
    )


def unproved_point(
    name: str,
    point: PointSpec,
    *,
    engine: str,
    device: str,
    prompts: tuple[PromptsPin, ...] | UnsetType,
) -> PointPin:
    """A point without what only its weights tell."""
    return PointPin(
        name=name,
        model=point.model,
        setting=point.setting,
        engine=engine,
        device=device,
        repeatable_why="",
        prompts=prompts,
    )


class _Made(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the points whose weights are here."""

    engine: facts.Engine
    settings: tuple[facts.Setting, ...]
    points: dict[str, PointPin] = {}
    notes: tuple[Note, ...] = ()


class _Prover:
    def __init__(self, bench: Bench, engine: Engine, renderer: Renderer) -> None:
        self._bench = bench
        self._engine = engine
        self._renderer = renderer
        self._facts: facts.Engine | None = None
        self._notes: dict[tuple[str, str], Note] = {}
        self._made: dict[str, PointPin] = {}
        self._kept = Kept()

    def all(self, chosen: Mapping[str, PointSpec], settings: tuple[facts.Setting, ...], kept: Kept) -> _Made:
        """The engine as it was at the first point, settings as they came out, and the pin of each point.

        A reference is proved before the points that are held against it.
        """
        keep, self._kept = kept.points, kept
        references = {exam.pin.reference for exam in self._bench.exams}
        chosen = dict(sorted(chosen.items(), key=lambda entry: entry[0] not in references))
        first = next((name for name in chosen if name not in keep), next(iter(chosen)))
        made = {first: self._point(first, chosen[first], settings)}
        assert self._facts is not None
        if not self._is_kept_engine(self._facts):
            keep = {}
        final = list(settings)
        in_use = list(dict.fromkeys(point.setting for point in chosen.values()))
        for index, setting in sorted(enumerate(settings), key=lambda entry: _place(in_use, entry[1].name)):
            names = [name for name, point in chosen.items() if point.setting == setting.name]
            pins = {
                name: made.get(name) or keep.get(name) or self._point(name, chosen[name], settings)
                for name in names
            }
            why = _why_fall_back(setting, pins)
            if why:
                self._bench.tell(f"setting {setting.name}: one slot instead of {setting.slots}: {why}")
                final[index] = fallen_back(setting, why)
                pins = {name: self._point(name, chosen[name], tuple(final)) for name in names}
            made |= pins
        return _Made(
            engine=self._facts, settings=tuple(final), points=made, notes=tuple(self._notes.values())
        )

    def _is_kept_engine(self, seen: facts.Engine | None) -> bool:
        """Whether the engine is the one that proved what is kept."""
        old = self._kept.engine
        return old is not None and seen is not None and not _is_another(old, seen)

    def _point(self, name: str, point: PointSpec, settings: tuple[facts.Setting, ...]) -> PointPin:
        setting = named(settings, point.setting)
        model = self._bench.models[point.model]
        self._bench.tell(f"point {name}: loading and proving")
        try:
            load = Load(weights=model.paths, setting=setting)
            check_room(self._bench.world, load)
            read_back = self._engine.load(load)
            where = f"point.{name}"
            refuse(
                [
                    *read_back_findings(where, setting, read_back),
                    *said_findings(self._engine, where, setting, given=self._bench.pci_bus_id),
                ]
            )
            prompts = tuple(self._prompts(name, point, read_back))
            proof = proving.proof(self._engine, read_back, setting=setting, prompts=prompts)
            if model.pin.trained:
                refuse(proving.insane(proof.behaviour, read_back, where=where))
            self._see_engine(name)
            self._load_beside(name, load, settings)
        except FindingsError:
            raise
        except QlockError as error:
            raise error.within(f"point.{name}") from None
        self._made[name] = self._pin(name, point, proof)
        return self._made[name]

    def _load_beside(self, name: str, load: Load, settings: tuple[facts.Setting, ...]) -> None:
        """Try the point's reference beside it, where a suite needs that and the reference is known."""
        suites = [exam.pin for exam in self._bench.exams if name in exam.pin.points]
        reference = next((suite.reference for suite in suites if is_beside(suite)), "")
        kept = self._kept.points if self._is_kept_engine(self._facts) else {}
        pin = self._made.get(reference) or kept.get(reference)
        if pin is None or reference == name:
            return
        setting = named(settings, pin.setting)
        other = Load(weights=self._bench.models[pin.model].paths, setting=setting)
        bench = self._bench
        refuse(load_beside(bench.world, self._engine, load, other, pin, pci_bus_id=bench.pci_bus_id))

    def _prompts(self, name: str, point: PointSpec, read_back: facts.ReadBack) -> list[PromptsPin]:
        found = []
        template = self._bench.models[point.model].template
        for exam in self._bench.exams:
            if name in exam.pin.points:
                asked = prompted(
                    self._bench,
                    respondent(self._engine, read_back),
                    self._renderer,
                    exam,
                    model_template=template,
                )
                found.append(asked.pin)
                if asked.tight:
                    self._notes[name, exam.pin.name] = Note(point=name, told=asked.tight)
        return found

    def _see_engine(self, name: str) -> None:
        spec = self._bench.spec.engine
        seen = proving.pinned(
            proving.engine_facts(
                self._bench.world,
                self._engine,
                name=spec.kind,
                kind=spec.kind,
                environment=spec.environment,
            )
        )
        if self._facts is None:
            self._facts = seen
        elif what_changes_output(seen) != what_changes_output(self._facts):
            raise EngineError(f"the engine maps other files for `{name}` than for the points before")

    def _pin(self, name: str, point: PointSpec, proof: Proof) -> PointPin:
        return PointPin(
            name=name,
            model=point.model,
            setting=point.setting,
            engine=self._bench.spec.engine.kind,
            device=self._bench.device,
            repeatable=proof.repeatable,
            repeatable_why=proof.repeatable_why,
            plain_text_nats=proof.behaviour.plain_text_nats,
            read_back=proof.read_back,
            canary=proof.behaviour.canary,
            prompts=proof.prompts,
            probe=proof.probe,
        )


def _place(names: list[str], name: str) -> int:
    """Where a name stands in a list; behind all of them where it does not."""
    return names.index(name) if name in names else len(names)


def _why_fall_back(setting: facts.Setting, pins: Mapping[str, PointPin]) -> str:
    if setting.slots == 1:
        return ""
    shaky = [pin for pin in pins.values() if pin.repeatable != "bitwise"]
    return f"{shaky[0].name}: {shaky[0].repeatable_why}" if shaky else ""


def counted(exam: Exam, pins: Mapping[str, PointPin]) -> Exam:
    """The suite with as many items as the points were asked; as it was where none of them is proved."""
    asked = [
        prompts.items
        for pin in pins.values()
        for prompts in pin.prompts or ()
        if prompts.suite == exam.pin.name
    ]
    if not asked:
        return exam
    limit, most = exam.pin.items_limit, max(asked)
    pin = msgspec.structs.replace(exam.pin, items_limit=most, items_all=limit is UNSET or most < limit)
    return msgspec.structs.replace(exam, pin=pin)
