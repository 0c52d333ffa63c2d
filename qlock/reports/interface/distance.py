"""What is said of the distance from a reference: a sentence of it, and tables of all its figures.

Does not live here: the figures (``core.kld``), and what they are about (``core.distance``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import UNSET

from qlock.core.comparison import Distances, Suite
from qlock.core.distance import Distance
from qlock.core.escape import for_message
from qlock.core.kld_parts import By, Parts
from qlock.core.kld_tokens import Estimate
from qlock.core.stats import CannotTell, Interval
from qlock.core.units import count_text, share_percent
from qlock.core.words import listed
from qlock.reports.interface.part import Part, Row

LOWER_BOUNDS = (
    "only the likeliest tokens of the reference are stored: each divergence is the least that it can be, "
    "and two points are compared by what is seen of theirs"
)
_MOST_JOBS = 3
CUT = (
    "the stored file keeps no token more than 16 nats below the likeliest one: "
    "side by side, divergences and the reference's perplexity differ a little"
)
_SLACK = "  more at most"
_BY: dict[By, str] = {"slice": "slice", "token-kind": "part of", "depth": "tokens before"}


def nats_text(value: float) -> str:
    """Nats in six digits after the point, as llama-perplexity prints them; 0 has no sign."""
    written = f"{value:.6f}"
    return written.lstrip("-") if float(written) == 0 else written


def distance_text(found: Distance) -> str:
    """The distance in one sentence."""
    if found.is_identical:
        return f"identical bytes: it is {found.reference} itself, and nothing differs"
    figures = found.figures
    mean, ends = nats_text(figures.kld_nats.value), _ends(figures.kld_nats, nats_text)
    if figures.kld_slack_nats is UNSET:
        said = (
            f"{mean} nats from {found.reference} ({ends}), "
            f"99.9 % of tokens below {nats_text(figures.quantiles.at_999)}"
        )
    else:
        said = (
            f"at least {mean} nats from {found.reference} ({ends}), "
            f"{nats_text(figures.kld_slack_nats)} more at most"
        )
    said += (
        f"; the same likeliest token in {share_percent(figures.same_top_share.value)}; "
        f"perplexity {figures.perplexity.value:.4f}, x{figures.perplexity_ratio.value:.4f}"
    )
    if found.is_below_floor:
        said += f"; no more than this way of measuring cannot tell from 0, {found.floor_nats:g} nats"
    return said


def distances_brief(found: Iterable[tuple[str, Distance]]) -> Iterator[str]:
    """Distances of many jobs, a sentence for each kind of thing that is to be known of them.

    Args:
        found: Name of a job and its distance.
    """
    every = list(found)
    apart = [(job, one) for job, one in every if not one.is_identical]
    for reference in dict.fromkeys(one.reference for _, one in apart):
        means = [one.figures.kld_nats.value for _, one in apart if one.reference == reference]
        ends = " to ".join(dict.fromkeys(map(nats_text, (min(means), max(means)))))
        yield f"{count_text(len(means), 'distance')} from {reference}: {ends} nats; `qlock diff` shows all figures"
    kinds = {
        "the same bytes as the reference, so nothing differs": [
            job for job, one in every if one.is_identical
        ],
        "no more than this way of measuring cannot tell from 0": [
            job for job, one in apart if one.is_below_floor
        ],
        "the least that it can be, since only the likeliest tokens are stored": [
            job for job, one in apart if one.is_lower_bound
        ],
    }
    for kind, jobs in kinds.items():
        if jobs:
            yield f"{kind}: {listed(jobs, most=_MOST_JOBS)}"


def distances(suite: Suite) -> Iterator[Part]:
    """Every figure of a suite, a column for each side; then the tokens of each side taken apart."""
    match suite.distances:
        case Distances(a=a, b=b):
            sides = (("A", a), ("B", b))
        case _:
            return
    found = [(side, distance) for side, distance in sides if isinstance(distance, Distance)]
    told = [(side, distance) for side, distance in found if not distance.is_identical]
    yield Part(
        heading=f"Distance from the reference in {suite.suite}",
        sentences=tuple(f"{side}: {_sentence(distance)}" for side, distance in sides),
        columns=("figure", *(column for side, _ in told for column in (side, "interval", "±")))
        if told
        else (),
        rows=_figures([distance for _, distance in told]),
        remarks=_remarks([distance for _, distance in told]),
    )
    for side, distance in told:
        for parts in distance.parts:
            yield _parts(f"{side}, {suite.suite}", parts)


def _sentence(found: Distance | CannotTell) -> str:
    match found:
        case Distance():
            return distance_text(found)
        case CannotTell(why=why):
            return f"cannot tell: {why}"


def _remarks(found: Sequence[Distance]) -> tuple[str, ...]:
    if not found:
        return ()
    errors = "interval: 95 %, with items as clusters; ±: standard error with tokens taken for independent"
    bounds = (LOWER_BOUNDS,) if any(distance.is_lower_bound for distance in found) else ()
    cut = (CUT,) if any(distance.is_cut for distance in found) else ()
    return (errors, *bounds, *cut)


def _figures(found: Sequence[Distance]) -> tuple[Row, ...]:
    if not found:
        return ()
    columns = [_column(distance) for distance in found]
    if not any(distance.is_lower_bound for distance in found):
        for column in columns:
            del column[_SLACK]
    return tuple((name, *(cell for column in columns for cell in column[name])) for name in columns[0])


def _column(distance: Distance) -> dict[str, Row]:
    """Figure to value, interval and error."""
    figures, quantiles, slack = distance.figures, distance.figures.quantiles, distance.figures.kld_slack_nats
    correlation = figures.cost_correlation
    return {
        "mean KL divergence, nats": _nats(figures.kld_nats),
        _SLACK: ("-" if slack is UNSET else nats_text(slack), "", ""),
        "  the other direction": _nats(figures.reverse_kld_nats),
        "  maximum": (nats_text(quantiles.maximum), "", ""),
        "  99.9 %": (nats_text(quantiles.at_999), "", ""),
        "  99 %": (nats_text(quantiles.at_99), "", ""),
        "  95 %": (nats_text(quantiles.at_95), "", ""),
        "  90 %": (nats_text(quantiles.at_90), "", ""),
        "  median": (nats_text(quantiles.median), "", ""),
        "same likeliest token": _percent(figures.same_top_share),
        "change of probability, mean": _percent(figures.probability_change),
        "change of probability, RMS": _percent(figures.probability_change_rms),
        "perplexity": _plain(figures.perplexity),
        "perplexity of the reference": _plain(figures.reference_perplexity),
        "ratio of perplexities": _plain(figures.perplexity_ratio),
        "correlation of costs": (
            "cannot tell" if isinstance(correlation, CannotTell) else f"{100 * correlation:.2f} %",
            "",
            "",
        ),
        "tokens": (str(figures.tokens), "", ""),
        "items": (str(figures.items), "", ""),
    }


def _nats(found: Estimate) -> Row:
    return (nats_text(found.value), _ends(found, nats_text), _error(found, 6))


def _plain(found: Estimate) -> Row:
    return (f"{found.value:.6f}", _ends(found, lambda value: f"{value:.4f}"), _error(found, 6))


def _percent(found: Estimate) -> Row:
    return (
        f"{100 * found.value:.3f} %",
        _ends(found, lambda value: f"{100 * value:.2f} %"),
        _error(found, 3, times=100),
    )


def _ends(found: Estimate, written: Callable[[float], str]) -> str:
    match found.interval:
        case Interval(low=low, high=high):
            return f"{written(low)} to {written(high)}"
        case CannotTell():
            return "cannot tell"


def _error(found: Estimate, digits: int, *, times: float = 1.0) -> str:
    match found.token_error:
        case float() as error:
            return f"{times * error:.{digits}f}"
        case CannotTell():
            return "-"


def _parts(where: str, parts: Parts) -> Part:
    return Part(
        heading=f"Distance by {_BY[parts.by]} ({where})",
        columns=(_BY[parts.by], "tokens", "items", "mean KL, nats", "interval", "99 %", "same likeliest"),
        rows=tuple(
            (
                for_message(row.name),
                str(row.tokens),
                str(row.items),
                nats_text(row.kld_nats.value),
                _ends(row.kld_nats, nats_text),
                nats_text(row.at_99),
                share_percent(row.same_top_share),
            )
            for row in parts.row
        ),
        remarks=(f"not shown: {count_text(parts.left_out, 'smaller part')}",) if parts.left_out else (),
        is_detail=True,
    )
