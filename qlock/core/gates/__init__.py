"""Acceptance rules that were fixed before the run, and what was measured says about them.

A gate passes or fails only where the figures bear it out; otherwise it is undecided, with the reason. The gates of both
locks hold, so that none can be dropped by comparing with another lock.

One module, one kind of rule: ``shares`` (counts of pairs). Does not live here: the rules as a spec words them
(``core.rules``), the formulas (``core.stats``).
"""

from __future__ import annotations

from collections.abc import Sequence

from qlock.core.gates import shares
from qlock.core.gates.interface import GATE_VERDICTS, Gate, GateVerdict, PairsSeen, undecided
from qlock.core.pairs import Pairing
from qlock.core.rules import GateSpec

__all__ = ["GATE_VERDICTS", "Gate", "GateVerdict", "PairsSeen", "judge"]


def judge(
    rule: GateSpec,
    pairing: Pairing | None,
    *,
    withheld: str = "",
    same_tokenizer: bool = True,
    again: Sequence[Pairing] = (),
) -> Gate:
    """What was measured says of a rule.

    Args:
        rule: The gate.
        pairing: Of its suite; ``None`` where not both sides sat it.
        withheld: Why nothing may be judged; empty where it may.
        same_tokenizer: Whether answers are compared by their tokens.
        again: The suite of a point paired with another run of that point: what moves is noise.
    """
    if pairing is None:
        return undecided(rule, f"the suite `{rule.suite}` is not on both sides")
    return shares.judge(rule, pairing, withheld=withheld, same_tokenizer=same_tokenizer, again=again)
