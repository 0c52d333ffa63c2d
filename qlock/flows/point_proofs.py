"""Proving the points of a spec with one engine, keeping what an older lock proves, falling back where needed.

One width holds for all points of a setting: when the probe of one of them says that rows are not independent, the
whole setting falls back to one row and its points are proved again.

Does not live here: the proof of a single point (``flows.proving``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import UNSET

from qlock.core import facts
from qlock.core.effects import what_changes_output
from qlock.core.lock import PointPin, PromptsPin
from qlock.core.spec import PointSpec, Spec, points
from qlock.core.verify import read_back_findings
from qlock.engines.interface import Engine
from qlock.errors import EngineError, InputError, QlockError
from qlock.flows import proving
from qlock.flows.asking import Asker, Question, respondent
from qlock.flows.device import card_findings
from qlock.flows.grading import try_grader
from qlock.flows.pinning import fallen_back
from qlock.flows.proving import Exam, Opener, Proof
from qlock.flows.refusal import FindingsError, refuse
from qlock.flows.room import check_room
from qlock.flows.weighing import Weighed, why_not_runnable
from qlock.world.interface import World
from qlock.world.render import Renderer


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """All that proving needs besides the settings."""

    world: World
    open_engine: Opener
    build: Path | None
    """Folder of the engine's libraries; ``None`` for those that come with it."""
    spec: Spec
    models: Mapping[str, Weighed]
    """By name."""
    exams: tuple[Exam, ...]
    device: str
    pci_bus_id: tuple[str, ...]
    """Where the cards sit that the engine is given."""


class Proofs(msgspec.Struct, frozen=True, kw_only=True):
    """Every point proved, or kept; or neither, where llama.cpp cannot run its model or the weights are not here."""

    engine: facts.Engine
    settings: tuple[facts.Setting, ...]
    points: tuple[PointPin, ...]
    exams: tuple[Exam, ...]
    """With ``items_limit`` as many as there are."""


def prove_points(
    bench: Bench,
    settings: tuple[facts.Setting, ...],
    kept: Mapping[str, PointPin],
    old_engine: facts.Engine | None,
) -> Proofs:
    """Prove every point that is not kept; with another engine than before, all of them.

    The engine's files are known only after a decode, so where all points are kept one of them is proved again.

    Raises:
        EngineError: The engine did not start, died, or maps other files for one point than for another.
        RefusedError: The engine does not do as it is told, or makes no sense of plain text.
    """
    kind = bench.spec.engine.kind
    chosen, idle = _runnable(bench)
    if old_engine is None:
        kept = {}
    if not chosen:
        return _proofs(bench, old_engine or no_engine(kind), settings, _idle(bench, idle, kept))
    engine = bench.open_engine(lib_folder=bench.build)
    try:
        with Renderer() as renderer:
            prover = _Prover(bench, engine, renderer)
            final, made = prover.all(chosen, settings, kept, old_engine)
            if old_engine is None or _is_another(old_engine, prover.engine_facts):
                kept = {}
            narrowed = {after.name for before, after in zip(settings, final, strict=True) if before != after}
            still = {name: pin for name, pin in kept.items() if pin.setting not in narrowed}
            return _proofs(bench, prover.engine_facts, final, made | _idle(bench, idle, still))
    finally:
        engine.close()


def _runnable(bench: Bench) -> tuple[dict[str, PointSpec], dict[str, PointSpec]]:
    """The points of the spec, and those that llama.cpp cannot run or whose weights are not here."""
    both: tuple[dict[str, PointSpec], dict[str, PointSpec]] = ({}, {})
    for name, point in points(bench.spec).items():
        model = bench.models[point.model]
        both[bool(why_not_runnable(model.pin)) or not model.is_here][name] = point
    return both


def _idle(bench: Bench, idle: Mapping[str, PointSpec], kept: Mapping[str, PointPin]) -> dict[str, PointPin]:
    """Points that nobody can prove here: as an older lock proves them, else without pins."""
    return {
        name: kept.get(name)
        or unproved_point(name, point, engine=bench.spec.engine.kind, device=bench.device)
        for name, point in idle.items()
    }


def _is_another(a: facts.Engine, b: facts.Engine) -> bool:
    return what_changes_output(a) != what_changes_output(b)


def _proofs(
    bench: Bench, engine: facts.Engine, settings: tuple[facts.Setting, ...], made: Mapping[str, PointPin]
) -> Proofs:
    return Proofs(
        engine=engine,
        settings=settings,
        points=tuple(made.values()),
        exams=tuple(counted(exam, made) for exam in bench.exams),
    )


def no_engine(kind: str) -> facts.Engine:
    """An engine that nobody looked at."""
    return facts.Engine(name=kind, kind=kind, label="", system_info="", file=())


def unproved_point(name: str, point: PointSpec, *, engine: str, device: str) -> PointPin:
    """A point without what only the engine knows."""
    return PointPin(
        name=name,
        model=point.model,
        setting=point.setting,
        engine=engine,
        device=device,
        repeatable_why="",
    )


class _Prover:
    def __init__(self, bench: Bench, engine: Engine, renderer: Renderer) -> None:
        self._bench = bench
        self._engine = engine
        self._renderer = renderer
        self._facts: facts.Engine | None = None

    @property
    def engine_facts(self) -> facts.Engine:
        """The engine as it was at the first point."""
        assert self._facts is not None
        return self._facts

    def all(
        self,
        chosen: Mapping[str, PointSpec],
        settings: tuple[facts.Setting, ...],
        keep: Mapping[str, PointPin],
        old: facts.Engine | None,
    ) -> tuple[tuple[facts.Setting, ...], dict[str, PointPin]]:
        """Settings as they came out, and the pin of each point."""
        first = next((name for name in chosen if name not in keep), next(iter(chosen)))
        made = {first: self._point(first, chosen[first], settings)}
        if old is None or _is_another(old, self.engine_facts):
            keep = {}
        final = list(settings)
        for index, setting in enumerate(settings):
            names = [name for name, point in chosen.items() if point.setting == setting.name]
            pins = {
                name: made.get(name) or keep.get(name) or self._point(name, chosen[name], settings)
                for name in names
            }
            why = _why_fall_back(setting, pins)
            if why:
                final[index] = fallen_back(setting, why)
                pins = {name: self._point(name, chosen[name], tuple(final)) for name in names}
            made |= pins
        return tuple(final), made

    def _point(self, name: str, point: PointSpec, settings: tuple[facts.Setting, ...]) -> PointPin:
        setting = next(setting for setting in settings if setting.name == point.setting)
        model = self._bench.models[point.model]
        try:
            check_room(self._bench.world, model.paths, setting)
            read_back = proving.load(self._engine, model.paths, setting)
            where = f"point.{name}"
            used = self._engine.devices()
            refuse(
                [
                    *read_back_findings(where, setting, read_back),
                    *card_findings(where, setting, given=self._bench.pci_bus_id, used=used),
                ]
            )
            prompts = tuple(self._prompts(name, point, read_back))
            proof = proving.proof(self._engine, read_back, setting=setting, prompts=prompts)
            if model.pin.trained:
                refuse(proving.insane(proof.behaviour, read_back, where=where))
            self._see_engine(name)
        except FindingsError:
            raise
        except QlockError as error:
            raise error.within(f"point.{name}") from None
        return self._pin(name, point, proof)

    def _prompts(self, name: str, point: PointSpec, read_back: facts.ReadBack) -> list[PromptsPin]:
        found = []
        template = self._bench.models[point.model].template
        for exam in self._bench.exams:
            if name in exam.pin.points:
                asker = proving.asker(
                    respondent(self._engine, read_back),
                    self._renderer,
                    exam,
                    model_template=None if template is UNSET else template,
                    frozen_date=self._bench.spec.frozen_date,
                )
                questions = proving.questions_of(asker, exam)
                _refuse_bad_graders(asker, questions, exam)
                found.append(asker.pin(questions))
        return found

    def _see_engine(self, name: str) -> None:
        spec = self._bench.spec.engine
        seen = proving.pinned(
            proving.engine_facts(self._bench.world, self._engine, name=spec.kind, kind=spec.kind)
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


def _refuse_bad_graders(asker: Asker, questions: tuple[Question, ...], exam: Exam) -> None:
    """Stop where a canned reply is not graded as its item says: a run of such a lock could measure nothing."""
    items = tuple(question.item for question in questions)
    failures = try_grader(asker.kind, items, asker.params, suite=exam.pin.name)
    if failures:
        first = failures[0]
        what = "gold" if first.expected == "right" else "bad"
        raise (
            InputError(
                f"the {what} reply must be graded as {first.expected}, got `{first.found}`",
                hint="mend the item's expected, gold or bad, or its grader",
            )
            .within(first.item)
            .within(f"suite.{exam.pin.name}")
        )


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
