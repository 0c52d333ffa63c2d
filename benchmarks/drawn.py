"""Answers of exams whose truth is known, drawn at random; what ``simulation.py`` compares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from written import of_points

from qlock.core.exchange import (
    Completed,
    Diverged,
    Divergence,
    Nats,
    Outcome,
    Reply,
    Right,
    Scored,
    Wrong,
)
from qlock.core.lock import Lock
from qlock.core.plan import Job
from qlock.core.record import Row, Times, item_digest
from qlock.core.rules import Kld, NonInferior
from qlock.core.spec import CompareSpec
from tests.fakes.documents import a_kld_suite, a_lock, a_suite, a_text_suite

MARGINS = {20: 0.1, 200: 0.05, 2_000: 0.02}
"""Margin of the gate, by number of items."""

SLICES = 20
SURE, LOST, COIN = 0.97, 0.05, 0.5
MEAN = (2 * SURE + LOST + COIN) / 4
MOVED_SHARE = 0.1
MORE_NATS = 0.02
FAR_NATS, FAR_SHAPE = 0.05, 4.0
REFERENCE = "F16"

Numbers = np.ndarray[Any, np.dtype[np.float64]]


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
        return self.items * (4 * self.repeats + 5 * self.has_text)

    def lock(self, trials: range) -> Lock:
        """Each trial has its exam with a gate at the margin, its text, and its distance with a gate at the truth."""
        exams = {f"exam-{trial}": self.items for trial in trials}
        texts = {f"text-{trial}": self.items for trial in trials if self.has_text}
        apart = {f"apart-{trial}": self.items for trial in trials if self.has_text}
        lock = a_lock(
            suite=(
                *(a_kld_suite(name=name) for name in apart),
                *(a_suite(name, repeats=self.repeats) for name in exams),
                *(msgspec.structs.replace(a_text_suite(), name=name) for name in texts),
            ),
            compare=CompareSpec(reference=f"{REFERENCE}@f16kv"),
            gate=(
                *(NonInferior(suite=name, margin_share=self.margin) for name in exams),
                *(Kld(suite=name, margin_nats=FAR_NATS) for name in apart),
            ),
        )
        both = exams | texts
        points = {REFERENCE: both | apart, "alike": both, "worse": both, "losing": exams}
        return of_points(lock, points | ({"near": apart} if apart else {}))


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
        elif job.suite.startswith("apart"):
            for number, far in enumerate(self._of(job.suite)[point].tolist()):
                yield self._row(number, apart_reply(far)), apart_outcome(far)
        else:
            for number, right in enumerate(self._of(job.suite)[point][:, job.repeat - 1].tolist()):
                reply = Completed(text="yes" if right else "no", tokens=(7,), ending="eos", prompt_tokens=9)
                yield self._row(number, reply), Right() if right else Wrong(why="no")

    def _of(self, suite: str) -> dict[str, Numbers]:
        """What each point comes to in a suite."""
        if self._kept[0] != suite:
            kind, _, trial = suite.partition("-")
            seed = [self._seed, self._exam.items, self._exam.repeats, int(trial), list(DRAWN).index(kind)]
            self._kept = suite, DRAWN[kind](np.random.default_rng(seed), self._exam)
        return self._kept[1]

    def _row(self, number: int, reply: Reply) -> Row:
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


def distances(generator: np.random.Generator, exam: Exam) -> dict[str, Numbers]:
    """Mean divergence of each window from the reference, by point."""
    near = generator.gamma(FAR_SHAPE, FAR_NATS / FAR_SHAPE, exam.items)
    return {REFERENCE: np.zeros(exam.items), "near": near}


DRAWN = {"exam": marks, "text": costs, "apart": distances}
"""What draws the answers to a kind of suite."""


def _apart(far: float) -> dict[str, tuple[float, ...]]:
    """Two tokens of a window, one nearer than the other."""
    spread = (0.5 * far, 1.5 * far)
    ones = (1.0, 1.0)
    return {"nats": ones, "reference_nats": ones, "kld_nats": spread, "reverse_kld_nats": spread}


def apart_reply(far: float) -> Diverged:
    """What an engine says of a window that lies so far from the reference."""
    return Diverged(**_apart(far), same_top=(True, True), pieces=())


def apart_outcome(far: float) -> Divergence:
    """The same as a grade."""
    return Divergence(**_apart(far), same_top=(True, True), depth_tokens=256, token_kinds=())
