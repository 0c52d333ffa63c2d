"""Anchors: published scores that must come out here before anything else is measured.

Does not live here: scores (``flows.scores``), and what follows when one is off (``flows.run``).
"""

from __future__ import annotations

from msgspec import UNSET

from qlock.core.base import Base, Finite
from qlock.core.lock import Lock, named
from qlock.core.plan import Job
from qlock.core.spec import AnchorSpec
from qlock.errors import InputError
from qlock.flows.run_folder import RunFolder
from qlock.flows.scores import score_of


class AnchorCheck(Base, frozen=True, kw_only=True):
    """A published score and what came out here."""

    model: str
    suite: str
    published: Finite
    tolerance: Finite
    found: Finite
    holds: bool


class Anchors:
    """The anchors of one run, as far as their jobs are closed.

    Args:
        folder: The run.
        lock: What it runs.
    """

    def __init__(self, folder: RunFolder, lock: Lock) -> None:
        self._folder = folder
        self._lock = lock
        self.checks: list[AnchorCheck] = []

    def of(self, point: str) -> list[AnchorSpec]:
        """The anchors that a point is to hold."""
        pin = named(self._lock.point, point)
        return [
            anchor
            for anchor in self._lock.anchor
            if anchor.model == pin.model and anchor.setting in (UNSET, pin.setting)
        ]

    def check(self, job: Job) -> None:
        """Hold the score of a closed job against what was published for it; a shard of it has none.

        Raises:
            InputError: It has none.
            AbsentError: Its record is gone.
        """
        for anchor in self.of(job.point) if job.part is UNSET else ():
            if anchor.suite != job.suite:
                continue
            found = score_of(self._folder, self._lock, self._folder.present_record(job.name))
            if found is None:
                raise InputError("the anchor has no score").within(job.name)
            self.checks.append(
                AnchorCheck(
                    model=anchor.model,
                    suite=anchor.suite,
                    published=anchor.published,
                    tolerance=anchor.tolerance,
                    found=found.value,
                    holds=abs(found.value - anchor.published) <= anchor.tolerance,
                )
            )

    def off(self) -> str:
        """The first anchor that does not hold; empty while all do."""
        return next((f"{one.model} {one.suite}" for one in self.checks if not one.holds), "")
