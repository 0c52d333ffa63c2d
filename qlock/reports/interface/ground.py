"""What is said of the ground that a comparison stands on: both sides, recipes, gates, and every fact that differs.

Does not live here: what a difference means (``core.validity``).
"""

from __future__ import annotations

from qlock.core.comparison import Comparison
from qlock.core.differing import brief
from qlock.core.gates import Gate
from qlock.core.stats import CannotTell, PairsNeeded
from qlock.core.units import bytes_text, share_percent
from qlock.reports.interface.part import Part


def sides(comparison: Comparison) -> Part:
    """Both sides, why they may not be compared, and what must be known first."""
    sentences = list(comparison.why)
    if comparison.state == "valid" and not comparison.treatment_differs:
        sentences.append("nothing of what is meant to differ does")
    sentences += [f"before any number: {text}" for text in comparison.said_first]
    for which, suites in (("A", comparison.only_a), ("B", comparison.only_b)):
        if suites:
            sentences.append(f"on side {which} alone, and not compared: {', '.join(suites)}")
    return Part(
        heading="",
        sentences=tuple(sentences),
        columns=("side", "run and point", "engine", "device", "repeatable", "record"),
        rows=tuple(
            (which, side.name, side.engine, side.device, side.repeatable, side.record)
            for which, side in (("A", comparison.a), ("B", comparison.b))
        ),
    )


def recipes(comparison: Comparison) -> Part:
    """What both models are made of."""
    found = comparison.recipes
    bits = [
        f"{bits:.2f}" if isinstance(bits, float) else "unknown"
        for bits in (found.bits_per_weight_a, found.bits_per_weight_b)
    ]
    sentence = (
        f"bits per weight: A {bits[0]}, B {bits[1]}; weight files: A {bytes_text(found.file_bytes_a)}, "
        f"B {bytes_text(found.file_bytes_b)}"
    )
    return Part(
        heading="Recipe",
        sentences=(sentence,),
        columns=("type", "tensors A", "bytes A", "tensors B", "bytes B"),
        rows=tuple(
            (row.type, str(row.tensors_a), _bytes(row.bytes_a), str(row.tensors_b), _bytes(row.bytes_b))
            for row in found.row
        ),
    )


def _bytes(size: int | CannotTell) -> str:
    return bytes_text(size) if isinstance(size, int) else "unknown"


def gates(comparison: Comparison) -> Part:
    """Acceptance rules and their answers."""
    return Part(
        heading="Gates",
        columns=(
            "suite",
            "slice",
            "rule",
            "margin",
            "noise",
            "pairs",
            "errors A",
            "errors B",
            "verdict",
            "why",
        ),
        rows=tuple(
            (
                gate.suite,
                gate.slice or "(all)",
                gate.rule,
                share_percent(gate.margin_share),
                "-" if isinstance(gate.noise_share, CannotTell) else share_percent(gate.noise_share),
                str(gate.pairs),
                str(gate.errors_a),
                str(gate.errors_b),
                gate.verdict,
                gate.why,
            )
            for gate in comparison.gate
        ),
        remarks=tuple(filter(None, map(_needed, comparison.gate))),
    )


def _needed(gate: Gate) -> str:
    match gate.needed:
        case PairsNeeded(more=more, pairs=pairs, verdict=verdict) if more:
            name = f"{gate.suite} {gate.slice}".strip()
            return f"{name}: if what was seen is true, {pairs} pairs ({more} more) would decide: {verdict}"
        case _:
            return ""


def differences(comparison: Comparison) -> Part:
    """Every pinned fact that differs."""
    return Part(
        heading="What is not the same on both sides",
        columns=("fact", "means", "A", "B", "why"),
        rows=tuple(
            (one.path, one.standing, brief(one.a), brief(one.b), one.why) for one in comparison.difference
        ),
        is_detail=True,
    )
