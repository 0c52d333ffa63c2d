"""What is said of scores: one row a suite, and the sentences that belong beside it.

Does not live here: the verdicts themselves (``core.scores``).
"""

from __future__ import annotations

from collections.abc import Iterator

from qlock.core.comparison import Comparison, Suite
from qlock.core.perplexity import Perplexities
from qlock.core.scores import Levels, Score, Smallest, is_cost
from qlock.core.stats import CannotTell, Detectable, DetectableMean, Interval, PairedTest
from qlock.core.units import count_text, share_percent, share_points
from qlock.reports.interface.part import Part, Row
from qlock.reports.interface.words import MEASURES, VERDICTS, difference, interval_text, level, p_text

_LOSSES = {
    "absent": "no row",
    "error": "an error",
    "context": "no room in the context",
    "ungraded": "not graded",
    "excluded": "excluded",
    "another-item": "another item under the same id",
    "another-measure": "another kind of score",
}
_INTERVALS = "intervals tell of the choice of items alone, at 95 %"
_SIDES = {"a": "on side A", "b": "on side B", "both": "on both sides"}


def scores(comparison: Comparison) -> Part:
    """Scores, their difference and the verdict, suite by suite."""
    common = _common_reason(comparison)
    remarks = [f"no verdict: {common}"] if common else []
    remarks += [f"{suite.suite}: {text}" for suite in comparison.suite for text in _about(suite, common)]
    if comparison.noise_unmeasured and not common:
        remarks.append(f"noise between runs: {comparison.noise_unmeasured}")
    remarks.append("every item counts the same" + ("" if common else f"; {_INTERVALS}"))
    return Part(
        heading="Scores",
        columns=("suite", "measure", "pairs", "A", "B", "B - A", "interval", "p", "verdict"),
        rows=tuple(_score_row(suite.suite, suite.score) for suite in comparison.suite),
        remarks=tuple(remarks),
    )


def _score_row(suite: str, score: Score) -> Row:
    unknown = "-" if score.verdict == "withheld" else "cannot tell"
    measure, levels, interval = MEASURES[score.measure], ("-", "-", "-"), "-"
    match score.levels, score.perplexities:
        case _, Perplexities(a=a, b=b, ratio=ratio, ratio_low=low, ratio_high=high):
            measure, levels = "perplexity", (f"{a:.4f}", f"{b:.4f}", f"x{ratio:.4f}")
            match low, high:
                case float(), float():
                    interval = f"x{low:.4f} to x{high:.4f}"
                case _:
                    interval = unknown
        case Levels(a=a, b=b, change=change), _:
            levels = (level(score.measure, a), level(score.measure, b), difference(score.measure, change))
            interval = unknown
            match score.difference:
                case Interval():
                    interval = interval_text(score.measure, score.difference)
                case CannotTell():
                    pass
        case _:
            pass
    verdict = VERDICTS[score.verdict]
    return (suite, measure, str(score.pairs), *levels, interval, p_text(score.test), verdict)


def _common_reason(comparison: Comparison) -> str:
    """Why no suite has a verdict, where it is one reason for all of them."""
    reasons = {suite.score.why for suite in comparison.suite}
    return reasons.pop() if comparison.state != "valid" and len(reasons) == 1 else ""


def _about(suite: Suite, common: str) -> Iterator[str]:
    """Sentences about the score of one suite, but for what is said of all."""
    score = suite.score
    if not common:
        yield f"{VERDICTS[score.verdict]}: {score.why}"
    if score.verdict in ("no-difference-seen", "within-noise"):
        yield _smallest(score.smallest_detectable)
    match score.difference:
        case CannotTell(why=why) if score.verdict not in ("withheld", "cannot-tell"):
            yield f"there is no interval: {why}"
        case _:
            pass
    match score.test:
        case PairedTest(note=note) if note:
            yield note
        case _:
            pass
    match score.perplexities, score.levels:
        case Perplexities(), Levels(change=change):
            found = interval_text("nats-per-token", score.difference)
            yield f"{difference('nats-per-token', change)} a token ({found}); a lower perplexity is better"
        case _:
            pass
    if suite.lost:
        losses = (
            f"{loss.items} {_SIDES[loss.side]}: {_LOSSES[loss.why]}"
            + (
                f" ({', '.join(loss.examples)}{' ...' if loss.items > len(loss.examples) else ''})"
                if loss.examples
                else ""
            )
            for loss in suite.losses
        )
        yield f"in no scored pair: {'; '.join(losses)}"
        match score.bounds:
            case CannotTell():
                pass
            case bounds:
                yield (
                    "if all of these went one way, B - A would lie between "
                    f"{share_points(bounds.low)} and {share_points(bounds.high)}"
                )
    for floor in suite.noise:
        moved = (
            f"{floor.value:.6f} nats a token"
            if is_cost(floor.measure)
            else f"the marks of {share_percent(floor.value)} of {count_text(floor.pairs, 'item')}"
        )
        yield f"noise: between two runs of side {floor.side.upper()}, {moved} moved"


def _smallest(smallest: Smallest) -> str:
    match smallest:
        case Detectable(difference_share=share, n=n):
            return f"{count_text(n, 'pair')} would probably have shown a difference of {share_points(share).lstrip('+')}"
        case DetectableMean(difference=mean, n=n):
            return f"{count_text(n, 'independent pair')} would probably have shown a difference of {mean:.4f}"
        case CannotTell(why=why):
            return f"the smallest detectable difference is not known: {why}"
