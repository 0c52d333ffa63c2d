"""What is said of the answers: endings, agreement, slices and flips.

Does not live here: finding any of it (``core``).
"""

from __future__ import annotations

from collections.abc import Iterator

from qlock.core.agreement import Agreement, Flip, Quartiles
from qlock.core.comparison import Comparison, Suite
from qlock.core.endings import Endings
from qlock.core.escape import for_terminal
from qlock.core.stats import CannotTell, Interval
from qlock.core.units import count_text, share_percent, share_points
from qlock.reports.interface.part import Part, Row
from qlock.reports.interface.readings import differs_in_parts, read_otherwise
from qlock.reports.interface.words import difference, interval_text, level, p_of, p_text

_ANSWER = 240
"""Characters of an answer in a table."""

_FLIP_COLUMNS = ("item", "slices", "parts at", "A", "answer of A", "B", "answer of B")

FLIPS_SHOWN = 10
"""So many flips are shown in each direction; a comparison holds more."""


def endings(comparison: Comparison) -> Part:
    """Why replies stopped, and loops, by side."""
    rows: list[Row] = []
    remarks: list[str] = []
    for suite in comparison.suite:
        match suite.endings:
            case Endings() as found:
                for row in found.row:
                    counts = (str(row.items_a), str(row.items_b))
                    rows.append((suite.suite, row.ending, *_beside(counts, row.share_a, row.share_b)))
                counts = (str(found.loops.items_a), str(found.loops.items_b))
                shares = (found.loops.share_a, found.loops.share_b)
                rows.append((suite.suite, "(with a loop)", *_beside(counts, *shares)))
                remarks += [f"{suite.suite}: {text}" for text in _gap(found)]
            case CannotTell():
                pass
    return Part(
        heading="Endings",
        columns=("suite", "ending", "A", "share", "interval", "B", "share", "interval"),
        rows=tuple(rows),
        remarks=tuple(remarks),
    )


def _beside(counts: tuple[str, str], a: Interval | CannotTell, b: Interval | CannotTell) -> Row:
    cells: list[str] = []
    for count, share in zip(counts, (a, b), strict=True):
        match share:
            case Interval(point=point):
                cells += [count, share_percent(point), interval_text("right-share", share, signed=False)]
            case CannotTell():
                cells += [count, "-", "-"]
    return tuple(cells)


def _gap(found: Endings) -> Iterator[str]:
    gap = found.gap
    if not gap.differs:
        return
    yield (
        f"unfinished replies lean to one side: only A in {count_text(gap.only_a, 'pair')}, only B in {gap.only_b} "
        f"(p {p_text(gap.test)}); they make {share_points(gap.from_unfinished)} of the difference"
    )
    match gap.among_finished:
        case float(among):
            yield f"among the {count_text(gap.finished, 'pair')} that both finished the difference is {share_points(among)}"
        case CannotTell(why=why):
            yield why


def agreement(comparison: Comparison) -> Part:
    """How alike the answers are."""
    rows = []
    for suite in comparison.suite:
        match suite.agreement:
            case Agreement() as found:
                equal = share_percent(found.equal / found.answers)
                interval = interval_text("right-share", found.equal_share, signed=False)
                rows.append(
                    (
                        suite.suite,
                        str(found.answers),
                        found.by,
                        f"{found.equal} ({equal})",
                        interval,
                        _quartiles(found.diverge_at),
                        str(found.worse),
                        str(found.better),
                    )
                )
            case CannotTell():
                pass
    return Part(
        heading="Agreement",
        columns=(
            "suite",
            "answers",
            "by",
            "equal",
            "interval",
            "first differing token (quartiles)",
            "B lower",
            "B higher",
        ),
        rows=tuple(rows),
    )


def _quartiles(found: Quartiles | CannotTell) -> str:
    match found:
        case Quartiles():
            return f"{found.least} / {found.lower} / {found.median} / {found.upper} / {found.most}"
        case CannotTell(why=why):
            return why


def slices(suite: Suite) -> Part:
    """Scores of a suite by slice."""
    measure = suite.score.measure
    rows = []
    for row in suite.slices.row:
        change = difference(measure, row.levels.change)
        levels = (level(measure, row.levels.a), level(measure, row.levels.b), change)
        interval = "-" if row.difference == row.p_value else interval_text(measure, row.difference)
        ps = (p_of(row.p_value), p_of(row.p_holm))
        rows.append((row.slice, str(row.pairs), *levels, interval, *ps))
    left = suite.slices.left_out
    return Part(
        heading=f"Slices of {suite.suite}",
        columns=("slice", "pairs", "A", "B", "B - A", "interval", "p", "p (Holm)"),
        rows=tuple(rows),
        remarks=(f"not shown: {count_text(left, 'smaller slice')}",) if left else (),
        is_detail=True,
    )


def flips(suite: Suite) -> Part:
    """Items of a suite whose mark changed, with both answers."""
    match suite.agreement:
        case CannotTell():
            return Part(heading="")
        case Agreement() as found:
            pass
    worse = [flip for flip in found.flip if flip.mark_b < flip.mark_a][:FLIPS_SHOWN]
    better = [flip for flip in found.flip if flip.mark_b > flip.mark_a][:FLIPS_SHOWN]
    hidden = found.worse + found.better - len(worse) - len(better)
    with_parts = differs_in_parts(found)
    return Part(
        heading=f"Flips of {suite.suite}",
        columns=(*_FLIP_COLUMNS, "read otherwise") if with_parts else _FLIP_COLUMNS,
        rows=tuple(
            (*_flip(flip), *(["; ".join(read_otherwise(flip))] if with_parts else []))
            for flip in (*worse, *better)
        ),
        remarks=(f"not shown here: {hidden} more; the JSON report has up to 50 each way",) if hidden else (),
        is_detail=True,
    )


def _answer(text: str) -> str:
    return for_terminal(text, limit=_ANSWER, newlines="arrow")


def _flip(flip: Flip) -> Row:
    diverge_at = "-" if isinstance(flip.diverge_at, CannotTell) else str(flip.diverge_at)
    repeat = "" if flip.repeat == 1 else f" (repeat {flip.repeat})"
    ends = (
        f", {ending}" if ending not in ("", "eos", "stop") else ""
        for ending in (flip.ending_a, flip.ending_b)
    )
    end_a, end_b = ends
    return (
        flip.item + repeat,
        ", ".join(flip.slices),
        diverge_at,
        flip.outcome_a + end_a,
        _answer(flip.text_a),
        flip.outcome_b + end_b,
        _answer(flip.text_b),
    )
