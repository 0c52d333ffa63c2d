"""How often ``qlock diff`` errs where the truth is known.

Run: ``python benchmarks/simulation.py [--trials N] [--seed N]``. Runs are drawn from a known truth, written with their
records, grades and seal to a folder in memory, and compared by the flow behind ``qlock diff``; no formula of it is
repeated here. One trial is an exam of 20, 200 or 2,000 items, asked once or four times. The items are drawn anew in each:
half of them are answered right with a chance of 0.97, a quarter with 0.05, a quarter with 0.5. Repeats of an item share
its chance, so they are correlated. Three points are compared with a reference:

- ``alike``: a tenth of the items get their chance drawn anew, so that items differ and the means do not;
- ``worse``: the same, and each chance lowered by one factor, so that the mean is worse by the gate's margin exactly;
- ``losing``: the answers of the reference, but for items that it lost as a whole; worse by the margin exactly as well. All
  differences go one way and repeats say nothing new, which is the hardest case.

With it goes a text of as many windows: ``alike`` costs as much as the reference but for noise of both sides, ``worse``
costs more by an amount that is exponential.

Printed: a row for each figure with its nominal value, what was seen for each number of items, the Monte-Carlo error (three
standard errors of the nominal value in so many trials), and a verdict. "At least" and "at most" are promises on one side: an
exact test, and an interval of few differing items, are more careful than nominal; 20 items count as few. Exit code 1
when a figure lies outside. N trials are made of 2,000 items, four times as many of 200, ten times as many of 20; 100 where
nothing else is said, which takes some ten minutes of one core.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from written import of_points, write_run

from qlock.core.comparison import Comparison
from qlock.core.exchange import Completed, Nats, Outcome, Right, Scored, Wrong
from qlock.core.lock import Lock
from qlock.core.plan import Job
from qlock.core.record import Row, Times, item_digest
from qlock.core.rules import NonInferior
from qlock.core.scores import p_of
from qlock.core.spec import CompareSpec
from qlock.core.stats import CannotTell, Interval
from qlock.flows.diff import Asked, diff
from qlock.world.interface import World
from qlock.world.real import real_world
from tests.fakes.documents import a_lock, a_suite, a_text_suite

MARGINS = {20: 0.1, 200: 0.05, 2_000: 0.02}
"""Margin of the gate, by number of items."""

TIMES_AS_MANY = {20: 10, 200: 4, 2_000: 1}
REPEATS = (1, 4)
SLICES = 20
ROWS_AT_ONCE = 60_000
SURE, LOST, COIN = 0.97, 0.05, 0.5
MEAN = (2 * SURE + LOST + COIN) / 4
MOVED_SHARE = 0.1
MORE_NATS = 0.02
LEVEL, ALPHA, ONE_SIDED = 0.95, 0.05, 0.025
REFERENCE = "F16"

Numbers = np.ndarray[Any, np.dtype[np.float64]]
Way = Literal["at least", "at most", "about"]


class Exam(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of exam: so many items, each asked so often."""

    items: int
    repeats: int

    @property
    def margin(self) -> float:
        """Of its gate."""
        return MARGINS[self.items]

    @property
    def has_text(self) -> bool:
        """Whether a text goes with it; its windows are read once."""
        return self.repeats == 1

    @property
    def rows(self) -> int:
        """Of all points in one trial."""
        return self.items * (4 * self.repeats + 3 * self.has_text)

    def lock(self, trials: range) -> Lock:
        """Each trial has its exam with a gate at the margin, and its text."""
        exams = {f"exam-{trial}": self.items for trial in trials}
        texts = {f"text-{trial}": self.items for trial in trials if self.has_text}
        lock = a_lock(
            suite=(
                *(a_suite(name, repeats=self.repeats) for name in exams),
                *(msgspec.structs.replace(a_text_suite(), name=name) for name in texts),
            ),
            compare=CompareSpec(reference=f"{REFERENCE}@f16kv"),
            gate=tuple(NonInferior(suite=name, margin_share=self.margin) for name in exams),
        )
        both = exams | texts
        return of_points(lock, {REFERENCE: both, "alike": both, "worse": both, "losing": exams})


class Drawn:
    """The answers of every job of a run; a trial is drawn from its own seed.

    Args:
        exam: The kind of exam.
        seed: Of the simulation.
    """

    def __init__(self, exam: Exam, seed: int) -> None:
        self._exam, self._seed = exam, seed
        self._slices = [{"part": f"{number % SLICES:02d}"} for number in range(exam.items)]
        self._digests = [
            item_digest(f"item-{number:04d}", slices, {"question": number})
            for number, slices in enumerate(self._slices)
        ]
        self._kept: tuple[str, dict[str, Numbers]] = ("", {})

    def __call__(self, job: Job) -> Iterator[tuple[Row, Outcome]]:
        """Rows and outcomes of a job."""
        point = job.point.partition("@")[0]
        if job.suite.startswith("text"):
            for number, cost in enumerate(self._of(job.suite)[point].tolist()):
                outcome = Nats(nats_sum=cost, nats_square_sum=cost * cost, scored_tokens=1)
                yield self._row(number, Scored(nats=(cost,))), outcome
        else:
            for number, right in enumerate(self._of(job.suite)[point][:, job.repeat - 1].tolist()):
                reply = Completed(text="yes" if right else "no", tokens=(7,), ending="eos", prompt_tokens=9)
                yield self._row(number, reply), Right() if right else Wrong(why="no")

    def _of(self, suite: str) -> dict[str, Numbers]:
        """What each point comes to in a suite."""
        if self._kept[0] != suite:
            kind, _, trial = suite.partition("-")
            seed = [self._seed, self._exam.items, self._exam.repeats, int(trial), kind == "text"]
            generator = np.random.default_rng(seed)
            drawn = costs if kind == "text" else marks
            self._kept = suite, drawn(generator, self._exam)
        return self._kept[1]

    def _row(self, number: int, reply: Completed | Scored) -> Row:
        return Row(
            item=f"item-{number:04d}",
            item_digest=self._digests[number],
            slices=self._slices[number],
            replies=(reply,),
            times=Times(prefill_s=0.1, decode_s=0.1),
            segment=0,
        )


def marks(generator: np.random.Generator, exam: Exam) -> dict[str, Numbers]:
    """Whether each item is right in each repeat, by point; shape (items, repeats)."""

    def chances() -> Numbers:
        return generator.choice([SURE, SURE, LOST, COIN], size=exam.items)

    def answered(chance: Numbers) -> Numbers:
        return generator.random((exam.items, exam.repeats)) < chance[:, None]

    def moved() -> Numbers:
        return np.where(generator.random(exam.items) < MOVED_SHARE, chances(), of_reference)

    of_reference = chances()
    reference = answered(of_reference)
    kept = generator.random(exam.items) >= exam.margin / MEAN
    return {
        REFERENCE: reference,
        "alike": answered(moved()),
        "worse": answered(moved() * (1 - exam.margin / MEAN)),
        "losing": reference & kept[:, None],
    }


def costs(generator: np.random.Generator, exam: Exam) -> dict[str, Numbers]:
    """Nats of each window, by point."""
    base = generator.normal(3.0, 0.5, exam.items)

    def noise() -> Numbers:
        return generator.gamma(2.0, 0.01, exam.items)

    return {
        REFERENCE: base + noise(),
        "alike": base + noise(),
        "worse": base + noise() + generator.exponential(MORE_NATS, exam.items),
    }


def seen(exam: Exam, comparison: Comparison) -> Iterator[str]:
    """What came out, once for each trial in which it did."""
    assert comparison.state == "valid", comparison.why
    point = comparison.b.model
    for suite in comparison.suite:
        kind = suite.suite.partition("-")[0]
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
        yield f"gate {point} {gate.verdict}"


def _held(interval: Interval | CannotTell, truth: float) -> str:
    """Whether the truth lies in the interval; where there is no interval it does not."""
    match interval:
        case Interval(low=low, high=high):
            return "held" if low <= truth <= high else "missed"
        case CannotTell():
            return "without an interval"


def simulated(world: World, exam: Exam, trials: int, seed: int) -> Counter[str]:
    """How many trials of a kind of exam showed what."""
    counts: Counter[str] = Counter()
    at_once = max(ROWS_AT_ONCE // exam.rows, 1)
    for start in range(0, trials, at_once):
        with tempfile.TemporaryDirectory(dir=_memory()) as place:
            run = Path(place) / "run"
            write_run(run, exam.lock(range(start, min(start + at_once, trials))), Drawn(exam, seed))
            for comparison in diff(world, Asked(left=str(run))):
                counts.update(seen(exam, comparison))
    return counts


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

    def error(self, trials: int) -> float:
        """Three standard errors of the nominal value."""
        return 3 * math.sqrt(self.nominal * (1 - self.nominal) / trials)

    def is_inside(self, exam: Exam, seen: int, trials: int) -> bool:
        """Whether what was seen is as it should be."""
        way = self.way_of_few if exam.items == min(MARGINS) else self.way
        above = seen / trials - self.nominal
        too_low = above < -self.error(trials) and way != "at most"
        too_high = above > self.error(trials) and way != "at least"
        return not (too_low or too_high)


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
            way_of_few="about",
        )
    yield Figure(
        what="text: p < 0.05: alike",
        counted="text alike rejected",
        nominal=ALPHA,
        way="at most",
        way_of_few="at most",
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
            if figure.counted.startswith("text") and not exams[0].has_text:
                continue
            cells, verdict = [], "inside"
            for exam in exams:
                count, of = seen[exam][figure.counted], trials * TIMES_AS_MANY[exam.items]
                is_inside = figure.is_inside(exam, count, of)
                cells.append(f"{count / of:.1%} ± {figure.error(of):.1%}{'' if is_inside else ' !'}")
                outside += not is_inside
                verdict = verdict if is_inside else "OUTSIDE"
            promised = f"{figure.way} {figure.nominal:.1%}"
            lines.append(f"| {figure.what} | {repeats} | {promised} | {' | '.join(cells)} | {verdict} |")
    return lines, outside


def main() -> int:
    """Print the table; exit code 1 when a figure is outside."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    world, seen = real_world(), {}
    for items in MARGINS:
        for repeats in REPEATS:
            exam, trials = Exam(items=items, repeats=repeats), asked.trials * TIMES_AS_MANY[items]
            seen[exam] = simulated(world, exam, trials, asked.seed)
            told = f"{trials:,} exams of {items:,} items, asked {repeats} times"
            print(f"{told}: {time.process_time():.0f} s of processor time so far", flush=True)
    lines, outside = table(seen, asked.trials)
    print("", *lines, "", f"{outside} figures outside", sep="\n")
    return int(outside > 0)


if __name__ == "__main__":
    sys.exit(main())
