"""Numbers of a comparison as people read them.

Does not live here: units that are not of comparisons (``core.units``).
"""

from __future__ import annotations

from qlock.core.scores import Measure, Verdict, is_cost
from qlock.core.stats import CannotTell, Interval, LargeSample, PairedTest
from qlock.core.units import bytes_text, share_percent, share_points

VERDICTS: dict[Verdict, str] = {
    "b-better": "B is better",
    "b-worse": "B is worse",
    "no-difference-seen": "no difference seen",
    "within-noise": "within the noise",
    "cannot-tell": "cannot tell",
    "withheld": "no verdict",
}
"""What is said of B."""

MEASURES: dict[Measure, str] = {
    "right-share": "right",
    "mean-mark": "mean mark",
    "nats-per-token": "nats per token",
    "kld": "KL divergence",
}


def level(measure: Measure, value: float) -> str:
    """A level in its measure's unit; an end of an interval beyond 0 or 1 is shown there."""
    if not is_cost(measure):
        return share_percent(min(max(value, 0.0), 1.0))
    written = f"{value:.{_digits(measure)}f}"
    return written.lstrip("-") if float(written) == 0 else written


def difference(measure: Measure, value: float) -> str:
    """A difference in its measure's unit, with its sign; one that rounds to zero has none.

    An end of an interval of few items may lie beyond what a difference of shares can be; it is shown at that border.
    """
    if not is_cost(measure):
        return share_points(min(max(value, -1.0), 1.0))
    written = f"{value:+.{_digits(measure)}f}"
    return f"{written.lstrip('+-') if float(written) == 0 else written} nats"


def _digits(measure: Measure) -> int:
    """As llama-perplexity prints them."""
    return 6 if measure == "kld" else 4


def share_text(share: float | CannotTell) -> str:
    """A share in percent; a dash where there is none."""
    match share:
        case CannotTell():
            return "-"
        case _:
            return share_percent(share)


def size_text(size: int | CannotTell) -> str:
    """A size in its unit; ``unknown`` where it is not known."""
    match size:
        case CannotTell():
            return "unknown"
        case _:
            return bytes_text(size)


def interval_text(measure: Measure, found: Interval | CannotTell, *, signed: bool = True) -> str:
    """Both ends of an interval: of a difference (``signed``), or of a level."""
    match found:
        case Interval(low=low, high=high):
            if signed:
                return f"{difference(measure, low).split()[0]} to {difference(measure, high)}"
            return f"{level(measure, low)} to {level(measure, high)}"
        case CannotTell():
            return "cannot tell"


def p_text(test: PairedTest | LargeSample | CannotTell) -> str:
    """A p-value, or a dash."""
    match test:
        case PairedTest(p_value=p_value) | LargeSample(p_value=p_value):
            return p_of(p_value)
        case CannotTell():
            return "-"


def p_of(p_value: float | CannotTell) -> str:
    """A p-value in four digits after the point, or a dash."""
    match p_value:
        case CannotTell():
            return "-"
        case _:
            return "<0.0001" if p_value < 0.0001 else f"{p_value:.4f}"
