"""What points are asked whose weights are not here: prompts rendered and tokenized with the header alone.

The pins are those that the whole model gives, and it is held to them when it is here. Points that share a vocabulary, a
template and a context are asked once. Where the engine cannot, the pins stay missing, with why; what could not be
asked with the weights either stops the resolve.

Does not live here: prompts of points that are loaded (``flows.point_proofs``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.digest import Digest
from qlock.core.facts import Setting
from qlock.core.lock import PromptsPin
from qlock.core.spec import PointSpec
from qlock.core.units import count_text
from qlock.engines.interface import Vocabulary
from qlock.errors import AbsentError, EngineError, QlockError
from qlock.flows.asking import Respondent
from qlock.flows.bench import Bench, Note, Prompted, prompted
from qlock.flows.headers import at_once
from qlock.flows.origins import with_header
from qlock.flows.proving import Exam
from qlock.flows.seat import Seat
from qlock.flows.weighing import Weighed
from qlock.world.interface import Missing
from qlock.world.render import Renderer

NO_ENGINE = "no engine could be started to tell them without the weights"
NO_HEADER = "the header could not be read again"
CANNOT = "the engine could not tell them without the weights"


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of points without weights."""

    prompts: dict[str, tuple[PromptsPin, ...]]
    """By point; of all its suites."""
    why: dict[str, str]
    """Why the prompts of the other points are not known: the same words on every machine."""
    notes: tuple[Note, ...]
    """Why, in the words of whoever could not; and what may end answers."""


def prompts_ahead(
    bench: Bench,
    points: Mapping[str, PointSpec],
    settings: tuple[Setting, ...],
    *,
    known: Mapping[str, Mapping[str, PromptsPin]],
) -> Ahead:
    """Prompts of points whose weights are not here.

    Args:
        bench: What proving works with.
        points: By name.
        settings: Of the points.
        known: Prompts that an older lock pins, by point and suite; they are kept.

    Raises:
        InputError: An item cannot be asked, or a canned reply is not graded as its item says.
    """
    found = _Finder(bench, points, settings, known)
    open_points = [name for name in points if found.open_exams(name)]
    if open_points:
        with Seat(lambda: bench.open_engine(lib_folder=bench.build)) as seat:
            found.ask(seat, open_points)
    return found.ahead()


class _Finder:
    def __init__(
        self,
        bench: Bench,
        points: Mapping[str, PointSpec],
        settings: tuple[Setting, ...],
        known: Mapping[str, Mapping[str, PromptsPin]],
    ) -> None:
        self._bench = bench
        self._points = points
        self._contexts = {setting.name: setting.context_tokens for setting in settings}
        self._found = {name: dict(known.get(name, {})) for name in points}
        self._once: dict[tuple[Digest | UnsetType, str | UnsetType, str, int], Prompted] = {}
        self._why: dict[str, str] = {}
        self._notes: list[Note] = []

    def open_exams(self, name: str) -> list[Exam]:
        """Suites of a point whose prompts are not known yet."""
        return [exam for exam in self._exams(name) if exam.pin.name not in self._found[name]]

    def ahead(self) -> Ahead:
        """All that was found."""
        return Ahead(
            prompts={
                name: tuple(self._found[name][exam.pin.name] for exam in self._exams(name))
                for name in self._points
                if not self.open_exams(name)
            },
            why=self._why,
            notes=tuple(self._notes),
        )

    def ask(self, seat: Seat, names: list[str]) -> None:
        """Ask these points, vocabulary by vocabulary."""
        self._bench.tell(f"{count_text(len(names), 'point')} without weights: rendering and tokenizing")
        try:
            seat.label()
        except (AbsentError, EngineError) as error:
            self._miss(names, NO_ENGINE, error.message)
            return
        shared: dict[Digest, list[tuple[str, Weighed]]] = {}
        models = self._with_headers(names)
        for name in names:
            match models[self._points[name].model]:
                case Missing(why=why):
                    self._miss([name], NO_HEADER, why)
                case Weighed(vocabulary=str() as digest) as model:
                    shared.setdefault(digest, []).append((name, model))
                case model:
                    raise AssertionError(model)
        with Renderer() as renderer:
            for digest, asked in shared.items():
                try:
                    vocabulary = seat.vocabulary(str(self._bench.vocabularies.path(digest)))
                    for name, model in asked:
                        self._point(name, model, _Loaded(seat, vocabulary, renderer))
                except (AbsentError, EngineError) as error:
                    self._miss([name for name, _ in asked if self.open_exams(name)], CANNOT, error.message)
                    # What is left of the engine is of no use; the next vocabulary gets another one.
                    seat.close()

    def _with_headers(self, names: list[str]) -> dict[str, Weighed | Missing]:
        """The models of these points; of those that an older lock pins a header is read again, one for all alike.

        A header has megabytes, and a sweep has the same vocabulary in each quant. Where the one cannot be read, each of
        the others is.
        """
        models = {self._points[name].model: self._bench.models[self._points[name].model] for name in names}
        alike: dict[object, list[str]] = {}
        for name, model in models.items():
            alike.setdefault(self._asked_alike(model), []).append(name)
        found: dict[str, Weighed | Missing] = {}
        left: list[str] = []
        firsts = at_once(self._with_header, [models[same[0]] for same in alike.values()])
        for (first, *others), read in zip(alike.values(), firsts, strict=True):
            found[first] = read
            match read:
                case Weighed(template=template, vocabulary=vocabulary):
                    for name in others:
                        found[name] = msgspec.structs.replace(
                            models[name], template=template, vocabulary=vocabulary
                        )
                case Missing():
                    left += others
        return found | dict(
            zip(left, at_once(self._with_header, [models[name] for name in left]), strict=True)
        )

    def _asked_alike(self, model: Weighed) -> object:
        """Equal for models of equal tokenizer, templates and architecture to which all that is pinned came as the same tokens.

        What else a tokenizer may look at, such as a model's name, no lock pins; the whole model is held to the prompts.
        """
        pin = model.pin
        known = tuple(
            (point.setting, suite, asked)
            for name, point in self._points.items()
            if point.model == pin.name
            for suite, asked in sorted(self._found[name].items())
        )
        if model.vocabulary is not UNSET or not known:
            return pin.name
        return (pin.architecture, pin.tokenizer_digest, pin.template_digest, known)

    def _with_header(self, model: Weighed) -> Weighed | Missing:
        if model.vocabulary is not UNSET:
            return model
        try:
            return with_header(self._bench.world, model, self._bench.vocabularies)
        except QlockError as error:
            return Missing(why=str(error.within(f"model.{model.pin.name}")))

    def _point(self, name: str, model: Weighed, loaded: _Loaded) -> None:
        context_tokens = self._contexts[self._points[name].setting]
        for exam in self.open_exams(name):
            template = model.template if exam.template is None else exam.template
            key = (model.vocabulary, template, exam.pin.name, context_tokens)
            once = self._once.get(key)
            if once is None:
                once = self._once[key] = self._asked(name, model, exam, loaded)
            self._found[name][exam.pin.name] = once.pin
            if once.tight:
                self._notes.append(Note(point=name, told=once.tight))

    def _asked(self, name: str, model: Weighed, exam: Exam, loaded: _Loaded) -> Prompted:
        respondent = Respondent(
            engine=loaded.seat,
            vocabulary=loaded.vocabulary,
            context_tokens=self._contexts[self._points[name].setting],
        )
        try:
            return prompted(self._bench, respondent, loaded.renderer, exam, model_template=model.template)
        except EngineError:
            raise
        except QlockError as error:
            raise error.within(f"point.{name}") from None

    def _exams(self, name: str) -> list[Exam]:
        return [exam for exam in self._bench.exams if name in exam.pin.points]

    def _miss(self, names: list[str], why: str, told: str) -> None:
        for name in names:
            self._why[name] = why
            self._notes.append(Note(point=name, told=f"the prompts are not pinned yet: {told}"))


class _Loaded(NamedTuple):
    """An engine with a vocabulary, and what renders."""

    seat: Seat
    vocabulary: Vocabulary
    renderer: Renderer
