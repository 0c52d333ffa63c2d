"""Scores by slice, corrected for how many slices were looked at.

Does not live here: the score itself (``core.scores``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qlock.core import stats
from qlock.core.base import Base, Count, Share
from qlock.core.escape import for_message
from qlock.core.pairs import Pair
from qlock.core.scores import Levels, paired_scores
from qlock.core.stats import FEWEST_PAIRS, CannotTell, Interval

MOST_SLICES = 100
"""So many slices of a suite are tested and told; the largest ones, where there are more."""


class SliceRow(Base, frozen=True, kw_only=True):
    """One slice of a suite."""

    slice: str
    """``NAME=VALUE``."""
    pairs: Count
    levels: Levels
    """Of both sides over the slice's pairs, in the suite's measure."""
    difference: Interval | CannotTell
    p_value: Share | CannotTell
    p_holm: Share | CannotTell
    """The same, corrected for the number of slices that were tested."""


class Slices(Base, frozen=True, kw_only=True):
    """All slices of a suite."""

    row: tuple[SliceRow, ...]
    tested: Count
    left_out: Count
    """Slices that are not told, being smaller than those that are."""


def slices(pairs: Sequence[Pair], *, describe_only: str = "") -> Slices:
    """Every slice with its difference; a slice of fewer than ten pairs gets no test.

    Args:
        pairs: Scored ones.
        describe_only: Why no test may be made at all; empty where it may.
    """
    members = slices_of(pairs)
    kept = sorted(members, key=lambda name: (-len(members[name]), name))[:MOST_SLICES]
    rows = [_row(name, members[name], describe_only) for name in sorted(kept)]
    p_values = [row.p_value for row in rows if isinstance(row.p_value, float)]
    corrected = iter(stats.holm(p_values))
    return Slices(
        row=tuple(
            SliceRow(
                slice=row.slice,
                pairs=row.pairs,
                levels=row.levels,
                difference=row.difference,
                p_value=row.p_value,
                p_holm=next(corrected) if isinstance(row.p_value, float) else row.p_value,
            )
            for row in rows
        ),
        tested=len(p_values),
        left_out=len(members) - len(kept),
    )


def slices_of(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    """Pairs by ``NAME=VALUE``."""
    members: dict[str, list[Pair]] = {}
    for pair in pairs:
        for name, value in pair.a.row.slices.items():
            members.setdefault(f"{name}={value}", []).append(pair)
    return members


def slices_meant(known: Iterable[str], slice_: str) -> tuple[str, ...]:
    """Which of the known slices a gate means: the one of that name, else those whose value it is."""
    names = sorted(known)
    return (slice_,) if slice_ in names else tuple(name for name in names if name.partition("=")[2] == slice_)


def why_no_slice(slice_: str, meant: Sequence[str], *, of: str) -> str:
    """Why the name of a slice means none, or one of several.

    Args:
        slice_: As a gate says it.
        meant: What it could mean.
        of: What lies in slices: ``item``, ``scored pair``.
    """
    if not meant:
        return f"no {of} lies in the slice `{for_message(slice_)}`"
    return f"the slice `{for_message(slice_)}` could be any of {', '.join(map(for_message, meant[:5]))}"


def _row(name: str, pairs: list[Pair], describe_only: str) -> SliceRow:
    found = paired_scores(pairs, exact=False)
    p_value: float | CannotTell
    if describe_only:
        p_value = CannotTell(why=describe_only)
    elif len({pair.item for pair in pairs}) < FEWEST_PAIRS:
        p_value = CannotTell(why=f"fewer than {FEWEST_PAIRS} independent pairs")
    else:
        match found.test:
            case CannotTell():
                p_value = found.test
            case tested:
                p_value = tested.p_value
    assert isinstance(found.levels, Levels)  # no slice is without pairs
    return SliceRow(
        slice=for_message(name),
        pairs=len(pairs),
        levels=found.levels,
        difference=CannotTell(why=describe_only) if describe_only else found.difference,
        p_value=p_value,
        p_holm=CannotTell(why="not corrected yet"),
    )
