"""Whether the gates of a spec can be decided at all, as far as that is known before anything is measured.

A gate that no run can ever decide would be a promise that nobody keeps: it is refused when the spec is resolved.

Does not live here: who sits a suite (``core.spec``), and what a gate comes to (``core.gates``).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET

from qlock.core.distance import floor_of
from qlock.core.escape import for_message
from qlock.core.rules import GateSpec, Kld, rule_of, slice_of, suite_of
from qlock.core.slices import slices_meant
from qlock.core.words import did_you_mean, listed
from qlock.errors import InputError
from qlock.flows.kinds import items_of, params_of, suite_kind
from qlock.flows.proving import Exam
from qlock.suites.interface import Item


def check_gates(gates: Iterable[GateSpec], exams: Iterable[Exam]) -> None:
    """Refuse a gate whose rule or margin its suite cannot decide, or whose slice holds no item.

    Raises:
        InputError: With the gate's path in front, and what there is.
    """
    by_name = {exam.pin.name: exam for exam in exams}
    slices: dict[str, frozenset[str]] = {}
    for gate in gates:
        suite = suite_of(gate)
        if not suite:
            continue
        exam = by_name[suite]
        _check_rule(gate, exam)
        if slice_of(gate):
            if suite not in slices:
                slices[suite] = _slices(exam)
            _check_slice(gate, slices[suite])


def _check_rule(gate: GateSpec, exam: Exam) -> None:
    rules = suite_kind(exam.pin.kind).gates
    rule = rule_of(gate)
    if rule not in rules:
        known = f"one of: {', '.join(rules)}" if rules else "no gate"
        raise InputError(
            f"got `{rule}`, expected {known}: a suite of the kind `{exam.pin.kind}` cannot decide it"
        ).within(f"gate.{exam.pin.name}.rule")
    match gate:
        case Kld(margin_nats=margin) if margin < floor_of(exam.pin):
            raise InputError(
                f"got `{margin:g}`, expected at least `{floor_of(exam.pin):g}`: "
                "a smaller divergence cannot be told from 0 as this suite measures it"
            ).within(f"gate.{exam.pin.name}.margin_nats")
        case _:
            pass


def items_asked(exam: Exam) -> tuple[Item, ...]:
    """The items that are asked, as far as they do not depend on a vocabulary."""
    kind = suite_kind(exam.pin.kind)
    params = params_of(kind, exam.pin, where=f"suite.{exam.pin.name}")
    items = items_of(kind, params, exam.pin, exam.data, _as_bytes)
    return items[: len(items) if exam.pin.items_limit is UNSET else exam.pin.items_limit]


def _slices(exam: Exam) -> frozenset[str]:
    """Every slice of the items that are asked, as ``NAME=VALUE``."""
    return frozenset(f"{name}={value}" for item in items_asked(exam) for name, value in item.slices.items())


def _as_bytes(text: str) -> tuple[int, ...]:
    """Tokens before there is a vocabulary: no slice depends on it."""
    return tuple(text.encode())


def _check_slice(gate: GateSpec, known: frozenset[str]) -> None:
    wanted = slice_of(gate)
    meant = slices_meant(known, wanted)
    if len(meant) == 1:
        return
    shown = for_message(wanted)
    if meant:
        message, hint = f"`{shown}` could be any of {listed(meant)}", "name the slice as NAME=VALUE"
    elif not known:
        message, hint = f"got `{shown}`, but the items have no slices", ""
    else:
        message = f"no item lies in the slice `{shown}`, expected one of: {listed(sorted(known))}"
        hint = did_you_mean(wanted, sorted(known))
    raise InputError(message, hint=hint).within(f"gate.{suite_of(gate)}.slice")
