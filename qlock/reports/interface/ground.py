"""What is said of the ground that a comparison stands on: both sides, recipes, and every fact that differs.

Does not live here: what a difference means (``core.validity``).
"""

from __future__ import annotations

from qlock.core.comparison import Comparison
from qlock.core.differing import brief
from qlock.core.units import bytes_text
from qlock.reports.interface.part import Part
from qlock.reports.interface.words import size_text


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
            (row.type, str(row.tensors_a), size_text(row.bytes_a), str(row.tensors_b), size_text(row.bytes_b))
            for row in found.row
        ),
    )


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
