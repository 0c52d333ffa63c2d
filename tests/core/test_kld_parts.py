"""Scored tokens taken apart: by slice, by kind, by depth."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.exchange import Divergence, Outcome, Right
from qlock.core.kld import Kld, kld_of
from qlock.core.kld_parts import MOST_PARTS, Parts, parts_of
from qlock.core.kld_tokens import Measured


def divergence(*kld: float, kinds: tuple[str, ...] = (), depth: int = 0) -> Divergence:
    costs = tuple(1.0 + number for number in range(len(kld)))
    return Divergence(
        nats=costs,
        reference_nats=costs,
        kld_nats=kld,
        reverse_kld_nats=kld,
        same_top=tuple(value < 0.5 for value in kld),
        depth_tokens=depth,
        token_kinds=kinds,
    )


def parted(items: Sequence[tuple[dict[str, str], Outcome]]) -> tuple[Parts, ...]:
    """The parts of items that were measured once each."""
    return parts_of(Measured(f"item-{number}", *item) for number, item in enumerate(items))


def told(parts: Parts) -> list[tuple[str, int, int, float, float]]:
    return [
        (row.name, row.tokens, row.items, round(row.kld_nats.value, 9), row.same_top_share)
        for row in parts.row
    ]


def test_by_slice() -> None:
    (parts,) = parted(
        [
            ({"bank": "A", "kind": "x"}, divergence(0.1, 0.3)),
            ({"bank": "B", "kind": "x"}, divergence(1.0)),
            ({"bank": "A", "kind": "x"}, divergence(0.8)),
        ]
    )
    assert (parts.by, parts.left_out) == ("slice", 0)
    assert told(parts) == [
        ("bank=A", 3, 2, 0.4, pytest.approx(2 / 3)),
        ("bank=B", 1, 1, 1.0, 0.0),
        ("kind=x", 4, 3, 0.55, 0.5),
    ]


def test_repeats_of_an_item_are_one_item_in_each_part() -> None:
    (parts,) = parts_of(
        [
            Measured("q1", {"bank": "A"}, divergence(0.1, 0.3)),
            Measured("q2", {"bank": "B"}, divergence(1.0)),
            Measured("q1", {"bank": "A"}, divergence(0.2, 0.4)),
            Measured("q2", {"bank": "B"}, divergence(0.5)),
        ]
    )
    assert told(parts) == [("bank=A", 4, 1, 0.25, 1.0), ("bank=B", 2, 1, 0.75, 0.0)]


def test_by_kind() -> None:
    (parts,) = parted(
        [
            ({}, divergence(0.1, 0.3, 0.5, kinds=("prose", "number", "prose"))),
            ({}, divergence(0.2, kinds=("number",))),
        ]
    )
    assert parts.by == "token-kind"
    assert told(parts) == [("number", 2, 2, 0.25, 1.0), ("prose", 2, 1, 0.3, 0.5)]


def test_by_depth_in_steps_that_double() -> None:
    (parts,) = parted([({}, divergence(0.1, 0.3, depth=254)), ({}, divergence(0.2, 0.4, depth=1023))])
    assert parts.by == "depth"
    assert [row.name for row in parts.row] == ["0-255", "512-1023", "1024-2047"]
    (edge,) = parted([({}, divergence(0.1, 0.3, depth=255))])
    assert told(edge) == [("0-255", 1, 1, 0.1, 1.0), ("256-511", 1, 1, 0.3, 1.0)]


def test_what_is_not_taken_apart_is_left_out() -> None:
    assert parted([({}, divergence(0.1, 0.2)), ({"one": "slice"}, divergence(0.3))]) == ()
    assert parted([]) == ()
    assert parted([({"a": "b"}, Right())]) == ()


def test_of_many_parts_the_largest_are_told_and_the_others_counted() -> None:
    items = [({"n": f"{number:03}"}, divergence(*[0.1] * (1 + number % 2))) for number in range(120)]
    (parts,) = parted(items)
    assert (len(parts.row), parts.left_out) == (MOST_PARTS, 70)
    assert {row.tokens for row in parts.row} == {2}
    assert [row.name for row in parts.row] == sorted(row.name for row in parts.row)


kinds = st.sampled_from(["prose", "number", "code"])
tokens = st.lists(st.tuples(st.floats(0, 5), kinds), min_size=1, max_size=8)


@given(st.lists(st.tuples(tokens, st.integers(0, 2000)), min_size=1, max_size=6))
def test_parts_of_one_way_make_up_the_whole(items: list[tuple[list[tuple[float, str]], int]]) -> None:
    made = [
        divergence(*[value for value, _ in rows], kinds=tuple(kind for _, kind in rows), depth=depth)
        for rows, depth in items
    ]
    whole = kld_of(made)
    assert isinstance(whole, Kld)
    for parts in parted([({}, one) for one in made]):
        assert sum(row.tokens for row in parts.row) == whole.tokens
        total = sum(row.kld_nats.value * row.tokens for row in parts.row)
        assert total / whole.tokens == pytest.approx(whole.kld_nats.value)
