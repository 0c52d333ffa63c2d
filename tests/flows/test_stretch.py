"""What is kept of a stretch of running while it goes on."""

from __future__ import annotations

from qlock.core.exchange import Failed
from qlock.core.verify import Finding
from qlock.flows.stretch import Stretch
from tests.fakes.documents import a_row


def a_finding(where: str, found: str = "x") -> Finding:
    return Finding(rule="after-the-run", where=where, expected="y", found=found, effect="output")


def test_two_stretches_have_nothing_in_common() -> None:
    one = Stretch()
    one.late.append(a_finding("engine.label"))
    one.taken["a"] = "b"
    assert Stretch() == Stretch(late=[], taken={})


def test_only_what_was_answered_is_counted() -> None:
    stretch = Stretch()
    for row in (a_row(), a_row(replies=(Failed(why="died"),)), a_row("order-2")):
        stretch.count(row)
    assert stretch.measured == 2


def test_what_rule_8_found_comes_last_and_each_place_once() -> None:
    stretch = Stretch(late=[a_finding("a", "late"), a_finding("b")])
    assert stretch.beside_late([a_finding("a")]) == (a_finding("a"), a_finding("b"))
    assert stretch.beside_late([]) == (a_finding("a", "late"), a_finding("b"))
