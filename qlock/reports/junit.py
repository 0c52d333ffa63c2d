"""Comparisons as JUnit XML, which build servers show: each gate and each statement on validity is one test case.

A gate that passes is a case that passes; one that fails is a failure; one that cannot be decided is an error, so that
it is never taken for a pass. Every sentence that says why a comparison is not valid is a failure. A step of a bridge
is a description, so it is shown as skipped.

Does not live here: judging (``core.gates``, ``core.validity``).
"""

from __future__ import annotations

from collections.abc import Iterator

from qlock.core.base import Base
from qlock.core.bridge import Bridge
from qlock.core.comparison import Comparison
from qlock.core.escape import for_xml
from qlock.core.gates import Gate
from qlock.core.ladder import Ladder, ladder
from qlock.reports.interface import headlines
from qlock.reports.interface.bridge import DESCRIBES, steps
from qlock.reports.interface.gates import asks, named, reason

SUFFIX = ".xml"

_TEXT = 600
_COUNTED = {"failures": "failure", "errors": "error", "skipped": "skipped"}


class _Case(Base, frozen=True, kw_only=True):
    group: str
    name: str
    outcome: str
    """Empty where it passes, otherwise ``failure`` or ``error``."""
    type: str
    message: str


def render(comparison: Comparison) -> str:
    """A document with one test suite."""
    return render_all(ladder([comparison]))


def render_all(found: Ladder) -> str:
    """A document with one test suite for each comparison."""
    names = headlines(found.comparison)
    suites = [(name, tuple(_cases(one))) for name, one in zip(names, found.comparison, strict=True)]
    every = [case for _, cases in suites for case in cases]
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="qlock diff" {_counts(every)}>',
        *(line for name, cases in suites for line in _suite(name, cases)),
        "</testsuites>",
    ]
    return "\n".join(lines) + "\n"


def _suite(name: str, cases: tuple[_Case, ...]) -> Iterator[str]:
    yield f'  <testsuite name="{_text(name)}" {_counts(cases)}>'
    for case in cases:
        opening = f'    <testcase classname="{_text(case.group)}" name="{_text(case.name)}"'
        if not case.outcome:
            yield f"{opening}/>"
            continue
        yield f"{opening}>"
        type_ = f' type="{case.type}"' if case.type else ""
        yield f'      <{case.outcome}{type_} message="{_text(case.message)}"/>'
        yield "    </testcase>"
    yield "  </testsuite>"


def _counts(cases: list[_Case] | tuple[_Case, ...]) -> str:
    outcomes = [case.outcome for case in cases]
    counts = {name: outcomes.count(word) for name, word in _COUNTED.items()}
    return " ".join(f'{name}="{count}"' for name, count in {"tests": len(outcomes), **counts}.items())


def _cases(comparison: Comparison) -> Iterator[_Case]:
    group = f"{comparison.b.point}.validity"
    if not comparison.why:
        yield _Case(group=group, name="the comparison is valid", outcome="", type="", message="")
    for why in comparison.why:
        yield _Case(
            group=group,
            name=why.partition(": A has")[0],
            outcome="error" if comparison.state == "incomplete" else "failure",
            type=comparison.state,
            message=why,
        )
    for gate in comparison.gate:
        yield _gate(comparison.b.point, gate)
    if isinstance(comparison.bridge, Bridge):
        yield from _steps(comparison, comparison.bridge)


def _steps(comparison: Comparison, bridge: Bridge) -> Iterator[_Case]:
    for span in bridge.span:
        for what, change in steps(comparison, span):
            yield _Case(
                group=f"{comparison.b.point}.bridge",
                name=f"{span.suite} through {bridge.point}: {what}",
                outcome="skipped",
                type="",
                message=f"{change}; {DESCRIBES}",
            )


def _gate(point: str, gate: Gate) -> _Case:
    outcomes = {"pass": "", "fail": "failure", "undecided": "error"}
    return _Case(
        group=f"{point}.gates",
        name=f"{named(gate)}: {asks(gate.asked)}",
        outcome=outcomes[gate.verdict],
        type=gate.verdict,
        message=f"{gate.verdict}: {reason(gate)}",
    )


def _text(written: str) -> str:
    return for_xml(written, limit=_TEXT)
