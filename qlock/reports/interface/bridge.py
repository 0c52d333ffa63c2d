"""What is said of the way from A to B through a point that was run on both devices.

Does not live here: walking it (``core.bridge``).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UnsetType

from qlock.core.bridge import Bridge, Span
from qlock.core.comparison import Comparison
from qlock.core.units import count_text
from qlock.reports.interface.ladder import level_text, measure_text
from qlock.reports.interface.part import Part, Row
from qlock.reports.interface.words import difference, share_text

DESCRIBES = "a description: no step is tested, and no verdict and no gate rests on it"


def bridge(comparison: Comparison) -> Part:
    """The four points in the order of the way, suite by suite, each with its change from the one before."""
    match comparison.bridge:
        case UnsetType():
            return Part(heading="")
        case Bridge() as found:
            pass
    named = f"`{found.point}` was run on both devices"
    return Part(
        heading="Bridge",
        sentences=(f"{named}, so the way from A to B is shown in three steps; {DESCRIBES}", *found.unfit),
        columns=(
            "suite",
            "measure",
            "point",
            "device",
            "score",
            "change",
            "equal",
            "unfinished",
            "what the step shows",
        ),
        rows=tuple(row for span in found.span for row in _rows(comparison, span)),
        remarks=tuple(map(_remark, found.span)),
    )


def steps(comparison: Comparison, span: Span) -> Iterator[tuple[str, str]]:
    """Each step of a suite in words, and how far it goes."""
    meant = comparison.treatment
    words = (f"{meant}, on A's device", "device and engine alone", f"{meant}, on B's device")
    for what, stop in zip(words, span.stop[1:], strict=True):
        assert isinstance(stop.change, float)  # only the first stop has none before it
        yield what, difference(span.measure, stop.change)


def _rows(comparison: Comparison, span: Span) -> Iterator[Row]:
    if not span.stop:
        return
    words = [("A, where it begins", "-"), *steps(comparison, span)]
    for side, stop, (what, change) in zip("AABB", span.stop, words, strict=True):
        yield (
            span.suite,
            measure_text(span.measure),
            stop.point,
            f"{stop.device} ({side})",
            level_text(span.measure, stop.level),
            change,
            share_text(stop.equal_share),
            share_text(stop.unfinished_share),
            what,
        )


def _remark(span: Span) -> str:
    if not span.stop:
        return f"{span.suite}: no item has a score on all four"
    whole = difference(span.measure, span.stop[-1].level - span.stop[0].level)
    left = f"; left out, without one: {span.left_out}" if span.left_out else ""
    together = f"all three steps together are {whole}, over {count_text(span.items, 'item')}"
    return f"{span.suite}: {together} with a score on all four{left}"
