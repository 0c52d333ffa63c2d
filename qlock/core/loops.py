"""Degenerate loops: the same few tokens written again and again without anything between.

Lives here: finding them in token ids. Does not live here: stopping a generation, or calling an answer wrong; a loop is
a property beside the ending and the outcome.

A loop is a stretch of at least ``least_copies`` adjacent, exact copies of one period. Similar lines (a counter
that rises, a table, code) are no loop, since one differing token ends the stretch; so a damaged model that
counts while it repeats itself is not found. What an honest answer may repeat exactly (a row of zeros in JSON, a
wide table rule) is kept out by ``least_covered_tokens`` alone.

Source: the thresholds (at least three copies over at least 48 tokens) are those that
https://github.com/waybarrios/vllm-mlx/pull/723 measured; the periods reach further here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qlock.core.base import Base, Count, Positive, Share
from qlock.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ids = npt.NDArray[np.signedinteger]


class LoopRule(Base, frozen=True, kw_only=True):
    """What counts as a loop."""

    longest_period_tokens: Positive = 256
    """Periods of one token up to this many are looked for."""

    least_copies: Positive = 3
    """Whole adjacent copies, at least 2: two copies of a long paragraph may still be meant."""

    least_covered_tokens: Positive = 48
    """Tokens of the whole stretch; short repeats ("no no no no") are ordinary language."""


class Loop(Base, frozen=True, kw_only=True):
    """The longest loop of one output."""

    start: Count
    """Index of the stretch's first token, from 0."""

    period_tokens: Positive
    """Length of the repeated piece, the shortest that explains the stretch."""

    copies: Positive
    """Whole copies in the stretch."""

    covered_tokens: Positive
    """Tokens of the stretch, an unfinished last copy included."""

    share: Share
    """Part of the output's tokens that the stretch covers."""


DEFAULT_RULE = LoopRule()


def loop_in_tokens(tokens: Sequence[int], rule: LoopRule = DEFAULT_RULE) -> Loop | None:
    """The loop that covers most of an output, or None.

    Of equally long stretches the one with the shorter period counts, then the earlier one. A token before the
    first copy belongs to the stretch when it happens to continue the pattern backwards.

    Args:
        tokens: Token ids of one output, in order; at most what a 64-bit integer holds.
        rule: What counts as a loop.

    Returns:
        None when there is no loop, an empty or very short output included.

    Raises:
        InputError: The rule asks for fewer than two copies, which every output has.
    """
    import numpy as np

    if rule.least_copies < 2:
        raise InputError(
            f"a loop has copies: got `least_copies` `{rule.least_copies}`, expected at least `2`"
        )
    total = len(tokens)
    ids = _ids_of(tokens)
    best_start, best_covered, best_period = 0, 0, 0
    for period in range(1, min(rule.longest_period_tokens, total // rule.least_copies) + 1):
        if best_covered == total:
            break
        needed = max(rule.least_covered_tokens, rule.least_copies * period, best_covered + 1) - period
        same = ids[period:] == ids[:-period]
        if np.count_nonzero(same) < needed:
            continue
        start, matches = _longest_stretch(same)
        if matches >= needed:
            best_start, best_covered, best_period = start, matches + period, period
    if best_period == 0:
        return None
    return Loop(
        start=best_start,
        period_tokens=best_period,
        copies=best_covered // best_period,
        covered_tokens=best_covered,
        share=best_covered / total,
    )


def _ids_of(tokens: Sequence[int]) -> Ids:
    """The ids in as few bytes as they take: halving them halves the time."""
    import numpy as np

    ids: Ids = np.asarray(tokens, dtype=np.int64)
    narrow = np.iinfo(np.int32)
    fits = len(ids) and narrow.min <= ids.min() and ids.max() <= narrow.max
    return ids.astype(np.int32) if fits else ids


def _longest_stretch(same: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Start and length of the longest stretch of equal tokens, the earliest of equally long ones.

    With ``same`` saying of each token whether it is the one a period later, a stretch of L such tokens is L + period
    tokens with that period.
    """
    import numpy as np

    differs = np.flatnonzero(~same)
    borders = np.concatenate(([-1], differs, [len(same)]))
    lengths = np.diff(borders) - 1
    longest = int(np.argmax(lengths))
    return int(borders[longest]) + 1, int(lengths[longest])
