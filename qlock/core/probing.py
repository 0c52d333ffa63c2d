"""What the schedule probe means, in one word and in a sentence.

The probe decodes a few prompts in the plain schedule and again with something around them changed. Where a row's
logits stay the same bits, its answer depends on nothing but itself, and a run may stop and resume anywhere. Two
variations are told but do not count: another number of threads and another width, since both are pinned.

Does not live here: running it (the engines), falling back to fewer slots (``flows.resolve``).
"""

from __future__ import annotations

from typing import Literal

from qlock.core.base import Base
from qlock.core.facts import ProbeRow

TOLD_ONLY = frozenset({"threads", "width"})


class Verdict(Base, frozen=True, kw_only=True):
    """How far a point repeats."""

    repeatable: Literal["bitwise", "tokens", "no"]
    why: str


def verdict(rows: tuple[ProbeRow, ...], *, slots: int) -> Verdict:
    """The word and the sentence for what the probe found.

    Args:
        rows: One per variation.
        slots: Rows of every decode while it was probed.
    """
    counted = [row for row in rows if row.variation not in TOLD_ONLY]
    if not counted:
        return Verdict(repeatable="no", why="the probe could vary nothing, so nothing is known")
    moved = [row for row in counted if row.rows_bitwise < row.rows]
    if not moved:
        beside = "whatever is decoded beside it" if slots > 1 else "every time"
        return Verdict(
            repeatable="bitwise",
            why=f"each answer is the same bits {beside}, so a run may stop and resume anywhere",
        )
    names = ", ".join(row.variation for row in moved)
    most = max(row.logit_difference_max for row in moved)
    drift = max(row.kl_nats_mean for row in moved)
    size = f"logits move by up to {most:.2g}, {drift:.2g} nats of KL divergence a token"
    if all(row.rows_tokens == row.rows for row in moved):
        return Verdict(
            repeatable="tokens",
            why=f"greedy tokens stay but logits do not when the schedule changes ({names}): {size}",
        )
    return Verdict(
        repeatable="no",
        why=f"what is decoded beside an answer changes it ({names}): {size}",
    )
