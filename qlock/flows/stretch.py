"""What has become of one stretch of running so far: what is left to do, what was measured, and what was found wrong late.

Does not live here: running (``flows.run``), and what is written of a stretch (``flows.segments``).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from qlock.core.plan import Job
from qlock.core.record import Row, is_done
from qlock.core.verify import Finding
from qlock.flows.loaded import LoadedFile
from qlock.flows.run_point import Broken


class Stretch(msgspec.Struct, kw_only=True):
    """Changes while the points run."""

    open: dict[str, Job] = {}
    """Jobs that are not done, by name."""
    taken: dict[str, str] = {}
    """Where the run lies that did a job which is taken over, by the job's name."""
    segment: int = 0
    measured: int = 0
    """Items that were done in this stretch."""
    kept: dict[Path, LoadedFile] = {}
    """Kept files that were used, as they were when they were looked at."""
    broken: list[Broken] = []
    late: list[Finding] = []
    """What rule 8 found."""
    looked_again: bool = False
    """Whether rule 8 was looked after."""

    def count(self, row: Row) -> None:
        """Count a row that was measured."""
        self.measured += is_done(row)

    def beside_late(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """These findings, then those of rule 8 about other places."""
        first = tuple(findings)
        told = {finding.where for finding in first}
        return (*first, *(finding for finding in self.late if finding.where not in told))
