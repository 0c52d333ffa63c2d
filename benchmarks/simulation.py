"""How often ``qlock diff`` errs where the truth is known.

Run: ``python benchmarks/simulation.py [--trials N] [--seed N] [--processes N]``. Runs are drawn from a known truth, written with their
records, grades and seal to a folder in memory, and compared by the flow behind ``qlock diff``; no formula of it is
repeated here. One trial is an exam of 20, 200 or 2,000 items, asked once or four times. The items are drawn anew in each:
half of them are answered right with a chance of 0.97, a quarter with 0.05, a quarter with 0.5. Repeats of an item share
its chance, so they are correlated. Three points are compared with a reference:

- ``alike``: a tenth of the items get their chance drawn anew, so that items differ and the means do not;
- ``worse``: the same, and each chance lowered by one factor, so that the mean is worse by the gate's margin exactly;
- ``losing``: the answers of the reference, but for items that it lost as a whole; worse by the margin exactly as well. All
  differences go one way and repeats say nothing new, which is the hardest case.

With it goes a text of as many windows: ``alike`` costs as much as the reference but for noise of both sides, ``worse``
costs more by an amount that is exponential. And the same windows held against a reference: the divergences of ``near`` are
on the mean of a window as they are a few times as large in some windows as in others (a gamma distribution of shape 4).

Printed: a row for each figure with its nominal value, what was seen for each number of items, the Monte-Carlo error (three
standard errors of the nominal value in so many trials), and a verdict. "At least" and "at most" are promises on one side: an
exact test, an interval of few differing items, and the farther ends of two intervals of few windows are more careful than
nominal; 20 items count as few. Exit code 1 when a figure lies outside; of some eighty that are as promised, one is seen
outside by chance in every fifth run. N trials are made of 2,000 items, four times as many of 200, ten times as many of 20; 100 where
nothing else is said, which takes some ten minutes of one core. Each trial is drawn from its own seed, so the figures are the
same in however many processes.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from drawn import FAR_NATS, MARGINS, MEAN, MORE_NATS, Drawn, Exam
from written import write_run

from qlock.core.comparison import Comparison, Distances
from qlock.core.distance import Distance
from qlock.core.scores import p_of
from qlock.core.stats import CannotTell, Interval
from qlock.flows.diff import Asked, diff
from qlock.world.real import real_world

TIMES_AS_MANY = {20: 10, 200: 4, 2_000: 1}
REPEATS = (1, 4)
ROWS_AT_ONCE = 60_000
LEVEL, ALPHA, ONE_SIDED = 0.95, 0.05, 0.025
WILSON_OF_FEW = 0.938
"""What Wilson's interval holds of 20 items with a chance of 0.6225 each, summed over all counts: it swings about its level
(Brown, Cai & DasGupta 2001, doi 10.1214/ss/1009213286)."""
ONE_SIDED_OF_FEW = 0.04
"""Of 20 windows that lean, with which a mean is passed at its margin more often than nominal."""

Way = Literal["at least", "at most", "about"]


def seen(exam: Exam, comparison: Comparison) -> Iterator[str]:
    """What came out, once for each trial in which it did."""
    assert comparison.state == "valid", comparison.why
    point = comparison.b.model
    for suite in comparison.suite:
        kind = suite.suite.partition("-")[0]
        match suite.distances:
            case Distances(b=Distance(figures=figures)):
                yield f"{kind} {point} {_held(figures.kld_nats.interval, FAR_NATS)}"
                continue
            case _:
                pass
        lowered = MORE_NATS if kind == "text" else -exam.margin
        yield f"{kind} {point} {_held(suite.score.difference, 0.0 if point == 'alike' else lowered)}"
        p_value = p_of(suite.score.test)
        if p_value is not None and p_value < ALPHA:
            yield f"{kind} {point} rejected"
        if any(isinstance(row.p_holm, float) and row.p_holm < ALPHA for row in suite.slices.row):
            yield f"{kind} {point} rejected in a slice"
        if kind == "exam":
            yield f"{kind} {point} level {_held(suite.score.a, MEAN)}"
    for gate in comparison.gate:
        # Undecided where the point did not sit the suite: each sits one kind of suite that has a gate.
        yield f"gate {point} {gate.verdict}"


def _held(interval: Interval | CannotTell, truth: float) -> str:
    """Whether the truth lies in the interval; where there is no interval it does not."""
    match interval:
        case Interval(low=low, high=high):
            return "held" if low <= truth <= high else "missed"
        case CannotTell():
            return "without an interval"


class Batch(NamedTuple):
    """Trials that are written to one run."""

    exam: Exam
    trials: range
    seed: int


def batches(exam: Exam, trials: int, seed: int) -> list[Batch]:
    """All trials of a kind of exam, some at a time."""
    at_once = max(ROWS_AT_ONCE // exam.rows, 1)
    starts = range(0, trials, at_once)
    return [Batch(exam, range(start, min(start + at_once, trials)), seed) for start in starts]


def simulated(batch: Batch) -> Counter[str]:
    """How many trials showed what."""
    with tempfile.TemporaryDirectory(dir=_memory()) as place:
        run = Path(place) / "run"
        write_run(run, batch.exam.lock(batch.trials), Drawn(batch.exam, batch.seed))
        compared = diff(real_world(), Asked(left=str(run)))
        return Counter(what for comparison in compared for what in seen(batch.exam, comparison))


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """Something that must happen in a certain share of trials."""

    what: str
    counted: str
    nominal: float
    way: Way
    way_of_few: Way
    """With 20 items."""
    nominal_of_few: float | None = None
    """The same; that of many items where there is none."""

    def expected(self, exam: Exam) -> tuple[float, Way]:
        """What should be seen in a kind of exam."""
        if exam.items != min(MARGINS):
            return self.nominal, self.way
        return self.nominal_of_few or self.nominal, self.way_of_few

    def error(self, exam: Exam, trials: int) -> float:
        """Three standard errors of the nominal value."""
        nominal, _ = self.expected(exam)
        return 3 * math.sqrt(nominal * (1 - nominal) / trials)

    def is_inside(self, exam: Exam, seen: int, trials: int) -> bool:
        """Whether what was seen is as it should be."""
        nominal, way = self.expected(exam)
        above, error = seen / trials - nominal, self.error(exam, trials)
        return not ((above < -error and way != "at most") or (above > error and way != "at least"))


def _figures() -> Iterator[Figure]:
    for point in ("alike", "worse", "losing"):
        way: Way = "at least" if point == "losing" else "about"
        what = f"the interval of the difference holds it: {point}"
        yield Figure(what=what, counted=f"exam {point} held", nominal=LEVEL, way=way, way_of_few="at least")
    yield Figure(
        what="the interval of the reference's share holds it",
        counted="exam alike level held",
        nominal=LEVEL,
        way="about",
        way_of_few="at least",
        nominal_of_few=WILSON_OF_FEW,
    )
    for what, counted in (
        ("p < 0.05", "rejected"),
        ("p < 0.05 in any of 20 slices (Holm)", "rejected in a slice"),
    ):
        yield Figure(
            what=f"{what}: alike",
            counted=f"exam alike {counted}",
            nominal=ALPHA,
            way="at most",
            way_of_few="at most",
        )
    for point in ("worse", "losing"):
        for verdict in ("pass", "fail"):
            what = f"`non-inferior` at its margin says {verdict}: {point}"
            counted = f"gate {point} {verdict}"
            yield Figure(what=what, counted=counted, nominal=ONE_SIDED, way="at most", way_of_few="at most")
    for point in ("alike", "worse"):
        yield Figure(
            what=f"text: the interval of the difference holds it: {point}",
            counted=f"text {point} held",
            nominal=LEVEL,
            way="about",
            way_of_few="at least",
        )
    yield Figure(
        what="text: p < 0.05: alike",
        counted="text alike rejected",
        nominal=ALPHA,
        way="at most",
        way_of_few="at most",
    )
    yield Figure(
        what="KL divergence: the interval of the mean holds it: near",
        counted="apart near held",
        nominal=LEVEL,
        way="about",
        way_of_few="about",
    )
    for verdict, few in (("pass", ONE_SIDED_OF_FEW), ("fail", ONE_SIDED)):
        yield Figure(
            what=f"KL divergence: `kld` at its margin says {verdict}: near",
            counted=f"gate near {verdict}",
            nominal=ONE_SIDED,
            way="at most",
            way_of_few="at most",
            nominal_of_few=few,
        )


def table(seen: dict[Exam, Counter[str]], trials: int) -> tuple[list[str], int]:
    """The lines of the table, and how many figures are outside."""
    lines = [
        f"| figure | repeats | promised | {' | '.join(f'{items:,} items' for items in MARGINS)} | verdict |",
        f"|---|---|---|{'---|' * len(MARGINS)}---|",
    ]
    outside = 0
    for repeats in REPEATS:
        for figure in _figures():
            exams = [Exam(items=items, repeats=repeats) for items in MARGINS]
            if not (exams[0].has_text or set(figure.counted.split()).isdisjoint({"text", "near"})):
                continue
            cells, verdict = [], "inside"
            for exam in exams:
                count, of = seen[exam][figure.counted], trials * TIMES_AS_MANY[exam.items]
                is_inside = figure.is_inside(exam, count, of)
                cells.append(f"{count / of:.1%} ± {figure.error(exam, of):.1%}{'' if is_inside else ' !'}")
                outside += not is_inside
                verdict = verdict if is_inside else "OUTSIDE"
            promised = f"{figure.way} {figure.nominal:.1%}"
            if figure.nominal_of_few not in (None, figure.nominal):
                promised += f", {figure.nominal_of_few:.1%} with {min(MARGINS)}"
            lines.append(f"| {figure.what} | {repeats} | {promised} | {' | '.join(cells)} | {verdict} |")
    return lines, outside


def main() -> int:
    """Print the table; exit code 1 when a figure is outside."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    began, seen = time.perf_counter(), {}
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        for items in MARGINS:
            for repeats in REPEATS:
                exam, trials = Exam(items=items, repeats=repeats), asked.trials * TIMES_AS_MANY[items]
                parts = pool.imap_unordered(simulated, batches(exam, trials, asked.seed))
                seen[exam] = sum(parts, Counter[str]())
                told = f"{trials:,} exams of {items:,} items, asked {repeats} times"
                print(f"{told}: {time.perf_counter() - began:.0f} s so far", flush=True)
    lines, outside = table(seen, asked.trials)
    print("", *lines, "", f"{outside} figures outside", sep="\n")
    return int(outside > 0)


if __name__ == "__main__":
    sys.exit(main())
