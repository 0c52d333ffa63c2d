from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.facts import ProbeRow
from qlock.core.probing import TOLD_ONLY, Verdict, verdict
from tests.strategies import strategy

ALONE = "each answer is the same bits every time, so a run may stop and resume anywhere"
BESIDE = "each answer is the same bits whatever is decoded beside it, so a run may stop and resume anywhere"


def a_row(variation: str = "permute", *, bitwise: int = 4, tokens: int = 4, moved: float = 0.0) -> ProbeRow:
    return ProbeRow(
        variation=variation,
        rows=4,
        rows_bitwise=bitwise,
        rows_tokens=tokens,
        logit_difference_max=moved,
        kl_nats_mean=moved / 100,
    )


@pytest.mark.parametrize("slots, why", [(1, ALONE), (8, BESIDE)])
def test_equal_bits_everywhere_are_bitwise(slots: int, why: str) -> None:
    assert verdict((a_row("repeat"), a_row()), slots=slots) == Verdict(repeatable="bitwise", why=why)


def test_other_threads_and_another_width_are_told_but_do_not_count() -> None:
    rows = (a_row("repeat"), *(a_row(name, bitwise=0, tokens=0, moved=9.0) for name in sorted(TOLD_ONLY)))
    assert verdict(rows, slots=8).repeatable == "bitwise"


def test_moved_logits_with_equal_tokens_are_tokens() -> None:
    rows = (a_row("repeat"), a_row("permute", bitwise=3, moved=0.125), a_row("copies", bitwise=0, moved=0.5))
    assert verdict(rows, slots=8) == Verdict(
        repeatable="tokens",
        why="greedy tokens stay but logits do not when the schedule changes (permute, copies): logits move by up to "
        "0.5, 0.005 nats of KL divergence a token",
    )


def test_moved_tokens_are_no() -> None:
    rows = (a_row("permute", bitwise=3, tokens=3, moved=0.25),)
    assert verdict(rows, slots=8) == Verdict(
        repeatable="no",
        why="what is decoded beside an answer changes it (permute): logits move by up to 0.25, 0.0025 nats of KL "
        "divergence a token",
    )


@pytest.mark.parametrize("rows", [(), (a_row("width"), a_row("threads"))])
def test_a_probe_that_varied_nothing_proves_nothing(rows: tuple[ProbeRow, ...]) -> None:
    why = "the probe could vary nothing, so nothing is known"
    assert verdict(rows, slots=8) == Verdict(repeatable="no", why=why)


@given(st.lists(strategy(ProbeRow), max_size=4), st.integers(1, 64))
def test_bitwise_is_said_only_where_every_counted_row_kept_its_bits(rows: list[ProbeRow], slots: int) -> None:
    counted = [row for row in rows if row.variation not in TOLD_ONLY]
    is_bitwise = bool(counted) and all(row.rows_bitwise >= row.rows for row in counted)
    assert (verdict(tuple(rows), slots=slots).repeatable == "bitwise") == is_bitwise
