"""What of an older lock still holds: points that need no second proof, and suites that ask the same.

Does not live here: proving the others (``flows.point_proofs``), and what moved unasked (``flows.moving``).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET

from qlock.core import facts
from qlock.core.base import Base
from qlock.core.effects import what_changes_output
from qlock.core.lock import Lock, MissingPin, ModelPin, PointPin, PromptsPin, SuitePin, unset_pins
from qlock.core.spec import Spec, points
from qlock.flows.proving import Exam
from qlock.flows.weighing import Weighed


class Ground(Base, frozen=True, kw_only=True):
    """What is known without an engine."""

    spec: Spec
    device: facts.Device
    device_missing: tuple[MissingPin, ...]
    """Facts that the device's cards do not tell."""
    weighed: tuple[Weighed, ...]
    settings: tuple[facts.Setting, ...]


class Kept(Base, frozen=True, kw_only=True):
    """What holds of an older lock."""

    engine: facts.Engine | None = None
    """As it was seen then."""
    points: dict[str, PointPin] = {}
    """Proved points, by name."""
    prompts: dict[str, dict[str, PromptsPin]] = {}
    """What points are asked in a suite, by name of the point and of the suite; of points without a proof too."""


def what_holds(ground: Ground, exams: tuple[Exam, ...], old: Lock) -> Kept:
    """Points and prompts of an older lock that stand on the same ground; of its engine, only kind and environment are known here."""
    engine = ground.spec.engine
    if (old.engine[0].kind, old.engine[0].environment) != (engine.kind, engine.environment):
        return Kept()
    if old.frozen_date != ground.spec.frozen_date:
        return Kept(engine=old.engine[0])
    same = {exam.pin.name: exam.pin for exam in exams for pin in old.suite if asks_the_same(exam.pin, pin)}
    return Kept(
        engine=old.engine[0],
        points=_points(ground, exams, old, frozenset(same)),
        prompts=_prompts(ground, old, same),
    )


def _points(ground: Ground, exams: tuple[Exam, ...], old: Lock, same: frozenset[str]) -> dict[str, PointPin]:
    """Points that the old lock proves on the same ground: same bytes, setting, suites, device and day."""
    before = {device.name: device for device in old.device}.get(ground.device.name)
    if before is None or what_changes_output(before) != what_changes_output(ground.device):
        return {}
    models = {weighed.pin.name: weighed.pin for weighed in ground.weighed}
    models_before = {pin.name: pin for pin in old.model}
    settings = {setting.name: setting for setting in ground.settings}
    unset = unset_pins(old)
    kept = {}
    for pin in old.point:
        model, setting = models.get(pin.model), settings.get(pin.setting)
        suites = {exam.pin.name for exam in exams if pin.name in exam.pin.points}
        if (
            model is not None
            and what_changes_output(model) == what_changes_output(models_before[pin.model])
            and setting in old.setting
            and suites == {prompts.suite for prompts in pin.prompts or ()}
            and suites <= same
            and not any(name.startswith(f"point.{pin.name}.") for name in unset)
        ):
            kept[pin.name] = pin
    return kept


def _prompts(ground: Ground, old: Lock, same: Mapping[str, SuitePin]) -> dict[str, dict[str, PromptsPin]]:
    """Prompts under the same header and context; what model and point are called, and the device, does not matter."""
    headers = {pin.name: _header(pin) for pin in old.model}
    contexts = {setting.name: setting.context_tokens for setting in old.setting}
    asked = {
        (headers[pin.model], contexts[pin.setting], prompts.suite): prompts
        for pin in old.point
        for prompts in pin.prompts or ()
    }
    headers = {weighed.pin.name: _header(weighed.pin) for weighed in ground.weighed}
    contexts = {setting.name: setting.context_tokens for setting in ground.settings}
    kept: dict[str, dict[str, PromptsPin]] = {}
    for name, point in points(ground.spec).items():
        for suite in same.values():
            key = (headers[point.model], contexts[point.setting], suite.name)
            if name in suite.points and key in asked:
                kept.setdefault(name, {})[suite.name] = asked[key]
    return kept


def _header(pin: ModelPin) -> tuple[str, str, str]:
    return pin.tokenizer_digest, pin.template_digest, pin.metadata_digest


def asks_the_same(now: SuitePin, before: SuitePin) -> bool:
    """Whether a suite as the spec has it now asks what a lock's suite asks, whoever sits it and whatever it is held against.

    A higher limit than before asks the same only where the files hold no more.
    """
    limit = now.items_limit
    if limit is UNSET or (before.items_limit is not UNSET and limit > before.items_limit):
        if not before.items_all:
            return False
        limit = before.items_limit
    alike = msgspec.structs.replace(
        now,
        items_limit=before.items_limit,
        items_all=before.items_all,
        points=before.points,
        reference=before.reference,
        repeats=before.repeats,
        grade_version=before.grade_version,
    )
    return limit == before.items_limit and alike == before
