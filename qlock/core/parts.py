"""Where two answers say otherwise, part by part: which function is called, which argument has which value.

What a grader read out of both answers is compared as text, whatever it is: a thing that one side does not have (a
function that it does not call), and parts of a thing that both have (its arguments). Whether that makes an answer wrong
is the grader's to say.

Does not live here: reading answers (the suites), and answers as a whole (``core.agreement``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from qlock.core.base import Base, Count
from qlock.core.escape import for_message
from qlock.core.exchange import Reading
from qlock.core.pairs import Pair

MOST_ROWS = 50
"""So many parts of a suite are told; those that differ most often."""

MOST_DIFFERENCES = 20
"""So many differences of one pair are told."""


class PartDifference(Base, frozen=True, kw_only=True):
    """A part of one pair that is not the same on both sides."""

    thing: str
    """Such as a function; empty where the answer has but one."""
    part: str
    """Such as an argument; empty where one side lacks the thing itself."""
    on: Literal["both", "a", "b"]
    """Which side has it."""
    a: str
    """Its value, shortened and safe to show; empty where A lacks it, or the thing itself is meant."""
    b: str


class PartRow(Base, frozen=True, kw_only=True):
    """How often a part is not the same."""

    thing: str
    part: str
    """Empty: the thing itself."""
    pairs: Count
    """In which at least one side has it."""
    other: Count
    """Both have it, with other values."""
    only_a: Count
    only_b: Count


class Parts(Base, frozen=True, kw_only=True):
    """Parts of the answers of a suite."""

    pairs: Count
    """In which both answers were read part by part."""
    same: Count
    """Of them, those in which nothing differs."""
    row: tuple[PartRow, ...]
    """Parts that differ in any pair, the most frequent first."""
    left_out: Count
    """Further parts that differ."""


def parts(pairs: Sequence[Pair]) -> Parts:
    """How often which part of the answers differs."""
    read = [(pair.a.read, pair.b.read) for pair in pairs]
    both = [(a, b) for a, b in read if a is not None and b is not None]
    seen: Counter[tuple[str, str]] = Counter()
    found: dict[str, Counter[tuple[str, str]]] = {on: Counter() for on in ("both", "a", "b")}
    same = 0
    for a, b in both:
        seen.update(_parts_of(a) | _parts_of(b))
        differing = list(_differing(a, b))
        same += not differing
        for thing, part, on in differing:
            found[on][thing, part] += 1
    differ = found["both"] + found["a"] + found["b"]
    ordered = sorted(differ, key=lambda key: (-differ[key], key))
    return Parts(
        pairs=len(both),
        same=same,
        row=tuple(
            PartRow(
                thing=for_message(thing),
                part=for_message(part),
                pairs=seen[thing, part],
                other=found["both"][thing, part],
                only_a=found["a"][thing, part],
                only_b=found["b"][thing, part],
            )
            for thing, part in ordered[:MOST_ROWS]
        ),
        left_out=len(ordered[MOST_ROWS:]),
    )


def part_differences(pair: Pair) -> tuple[PartDifference, ...]:
    """The first parts in which the answers of a pair differ; none where not both were read part by part."""
    a, b = pair.a.read, pair.b.read
    if a is None or b is None:
        return ()
    return tuple(
        PartDifference(
            thing=for_message(thing),
            part=for_message(part),
            on=on,
            a=for_message(a.get(thing, {}).get(part, "")),
            b=for_message(b.get(thing, {}).get(part, "")),
        )
        for thing, part, on in list(_differing(a, b))[:MOST_DIFFERENCES]
    )


def _parts_of(read: Reading) -> set[tuple[str, str]]:
    return {(thing, part) for thing, parts_read in read.items() for part in ("", *parts_read)}


def _differing(a: Reading, b: Reading) -> Iterator[tuple[str, str, Literal["both", "a", "b"]]]:
    """Things of one side alone, and parts that differ of things that both have; by name."""
    for thing in sorted(a.keys() | b.keys()):
        if thing not in a or thing not in b:
            yield thing, "", "a" if thing in a else "b"
            continue
        mine, theirs = a[thing], b[thing]
        for part in sorted(mine.keys() | theirs.keys()):
            if part not in mine or part not in theirs:
                yield thing, part, "a" if part in mine else "b"
            elif mine[part] != theirs[part]:
                yield thing, part, "both"
