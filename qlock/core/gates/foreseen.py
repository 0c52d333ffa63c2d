"""What is known of a gate before anything is measured: that it could not be decided.

Lives here: the sentences, from a number of items or a noise that is known. Does not live here: counting items and looking
for runs (``flows.foreseen``).
"""

from __future__ import annotations

from qlock.core import stats
from qlock.core.rules import (
    AgreementShare,
    EndingShare,
    GateSpec,
    Kld,
    NonInferior,
    ShareSpec,
    SpeedAtLeast,
    place_of,
    rule_of,
)
from qlock.core.speed import too_few_answers
from qlock.core.stats import FEWEST_PAIRS, CannotTell
from qlock.core.units import count_text, share_percent


def too_few(rule: GateSpec, items: int) -> str:
    """Why so many items cannot pass a gate even where nothing differs; empty where they can.

    Repeats of an item add nothing here: where nothing differs, they are all alike.
    """
    match rule:
        case Kld() if items < FEWEST_PAIRS:
            return _undecidable(rule, f"a verdict needs {FEWEST_PAIRS} items, got {items}")
        case NonInferior() | EndingShare() | AgreementShare():
            fewest = stats.fewest_to_pass(rule.margin_share)
        case _:
            return ""
    match fewest:
        case CannotTell(why=why):
            return _undecidable(rule, f"{why}; where nothing differs it stays undecided")
        case _ if items < fewest:
            return _undecidable(
                rule,
                f"{count_text(items, 'item')} cannot pass a margin of {share_percent(rule.margin_share)} even where "
                f"nothing differs, {fewest} or more can",
            )
        case _:
            return ""


def too_few_to_time(rule: SpeedAtLeast, answers: int, *, at_once: int) -> str:
    """Why a speed cannot be judged on so many answers, repeats counted; empty where it can."""
    why = too_few_answers(answers, at_once=at_once)
    return _undecidable(rule, why) if why else ""


def within_noise(rule: ShareSpec, noise_share: float, *, runs: str) -> str:
    """Why a gate is not decided within what two runs of one point differ by; empty where the margin is wider."""
    if rule.margin_share >= noise_share:
        return ""
    return _undecidable(
        rule,
        f"its margin of {share_percent(rule.margin_share)} lies under the noise of {share_percent(noise_share)} "
        f"between {runs}",
    )


def _undecidable(rule: GateSpec, why: str) -> str:
    return f"gate {rule_of(rule)} of {place_of(rule)}: undecidable: {why}"
