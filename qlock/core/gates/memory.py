"""``memory-at-most``: what side B's point takes, by the engine's own account, is so many bytes or less.

Does not live here: the account (``core.memory``).
"""

from __future__ import annotations

from qlock.core.gates.interface import Gate, GateVerdict, MemorySeen, gate, undecided
from qlock.core.memory import memory_bytes
from qlock.core.rules import MemoryAtMost
from qlock.core.sides import Side, device_of
from qlock.core.stats import CannotTell


def judge(rule: MemoryAtMost, a: Side, b: Side, *, withheld: str = "") -> Gate:
    """What the engine said of its buffers.

    Args:
        rule: The gate.
        a: The reference, whose memory is shown beside.
        b: What is judged.
        withheld: Why nothing may be judged; empty where it may.
    """
    if withheld:
        return undecided(rule, withheld)
    taken = memory_bytes(b)
    seen = MemorySeen(of=device_of(b).kind, a_bytes=memory_bytes(a), b_bytes=taken)
    match taken:
        case CannotTell(why=why):
            return gate(rule, "undecided", why, seen)
        case int():
            verdict: GateVerdict = "pass" if taken <= rule.at_most_bytes else "fail"
            return gate(rule, verdict, "", seen)
