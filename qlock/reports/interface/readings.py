"""What was read otherwise out of two answers: calls and their arguments, fields.

Does not live here: finding it (``core.parts``), and answers as a whole (``answers``).
"""

from __future__ import annotations

from qlock.core.agreement import Agreement, Flip
from qlock.core.comparison import Suite
from qlock.core.parts import PartDifference
from qlock.core.stats import CannotTell
from qlock.core.units import count_text, share_percent
from qlock.reports.interface.part import Part


def readings(suite: Suite) -> Part:
    """Parts of the answers that are not the same on both sides, the most frequent first."""
    match suite.agreement:
        case Agreement(parts=found) if found.pairs:
            pass
        case _:
            return Part(heading="")
    same = share_percent(found.same / found.pairs)
    remarks = [f"alike in every part: {found.same} of {count_text(found.pairs, 'pair')} ({same})"]
    if found.left_out:
        remarks.append(f"not shown, and not the same either: {count_text(found.left_out, 'more part')}")
    return Part(
        heading=f"Read out of the answers of {suite.suite}",
        columns=("part", "pairs", "other value", "A alone", "B alone"),
        rows=tuple(
            (_label(row.thing, row.part), str(row.pairs), str(row.other), str(row.only_a), str(row.only_b))
            for row in found.row
        ),
        remarks=tuple(remarks),
        is_detail=True,
    )


def read_otherwise(flip: Flip) -> tuple[str, ...]:
    """A sentence for each part in which the answers of a flip differ."""
    return tuple(map(_sentence, flip.difference))


def differs_in_parts(found: Agreement | CannotTell) -> bool:
    """Whether any flip of a suite has parts that differ."""
    match found:
        case Agreement():
            return any(flip.difference for flip in found.flip)
        case CannotTell():
            return False


def _sentence(found: PartDifference) -> str:
    label = _label(found.thing, found.part)
    match found.on:
        case "both":
            return f"{label}: A {found.a}, B {found.b}"
        case "a":
            return f"{label}: A alone{f', {found.a}' if found.part else ''}"
        case "b":
            return f"{label}: B alone{f', {found.b}' if found.part else ''}"


def _label(thing: str, part: str) -> str:
    """``function`` or ``function: argument``, ``field`` where the answer is one thing."""
    return f"{thing}: {part}" if thing and part else thing or part or "(every field)"
