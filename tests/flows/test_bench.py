from __future__ import annotations

from qlock.flows.bench import Note, told


def test_points_of_which_the_same_is_told_share_a_line() -> None:
    notes = [Note(point=f"P{number}", told="it rains") for number in range(5)]
    notes += [Note(point="Q", told="it snows")]
    assert told(notes) == ("points P0, P1, P2 and 2 more: it rains", "point Q: it snows")
    assert told(notes[:2]) == ("points P0, P1: it rains",)
    assert told([]) == ()
