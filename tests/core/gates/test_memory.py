from typing import Any

import msgspec

from qlock.core.facts import Buffer
from qlock.core.gates import Gate, MemorySeen
from qlock.core.gates.memory import judge
from qlock.core.rules import MemoryAtMost
from qlock.core.sides import Side
from qlock.core.stats import CannotTell
from tests.fakes.comparisons import a_card_lock, a_side

replace = msgspec.structs.replace
UNKNOWN = CannotTell(why="the run has no account of the engine's buffers")


def taking(size_bytes: int, place: str = "CPU", **changes: Any) -> Side:
    buffer = Buffer(place=place, use="model", size_bytes=size_bytes)
    return a_side("r", memory=(buffer,), **changes)


def test_what_b_takes_is_held_against_the_limit() -> None:
    rule = MemoryAtMost(at_most_bytes=1_000)
    seen = MemorySeen(of="cpu", a_bytes=5_000, b_bytes=1_000)
    assert judge(rule, taking(5_000), taking(1_000)) == Gate(asked=rule, verdict="pass", why="", seen=seen)
    over = judge(rule, taking(5_000), taking(1_001))
    assert (over.verdict, over.seen) == ("fail", replace(seen, b_bytes=1_001))


def test_on_cards_the_cards_count() -> None:
    b = taking(900, "CUDA0", model="Q4_K_M", lock=a_card_lock())
    assert judge(MemoryAtMost(at_most_bytes=1_000), b, b).seen == MemorySeen(
        of="gpu", a_bytes=900, b_bytes=900
    )


def test_without_an_account_it_is_undecided() -> None:
    rule = MemoryAtMost(at_most_bytes=1_000)
    found = judge(rule, taking(5_000), a_side("r"))
    assert (found.verdict, found.why) == ("undecided", UNKNOWN.why)
    assert found.seen == MemorySeen(of="cpu", a_bytes=5_000, b_bytes=UNKNOWN)
    assert judge(rule, a_side("r"), taking(1_000)).verdict == "pass"


def test_what_may_not_be_judged_is_not() -> None:
    found = judge(MemoryAtMost(at_most_bytes=1), taking(1), taking(1), withheld="it is open")
    assert (found.verdict, found.why, found.seen) == ("undecided", "it is open", CannotTell(why="it is open"))
