"""Gates that a run could not decide, told before anything is measured: too few items, or a margin within the noise.

They are no fault of the spec, so nothing is refused: a gate that fails can still be told, and items or repeats may be added.

Does not live here: gates that no run could ever decide (``flows.gated``), the sentences (``core.gates.foreseen``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from qlock.core.gates.foreseen import too_few, too_few_to_time, within_noise
from qlock.core.gates.shares import noise_share
from qlock.core.lock import Lock, SuitePin
from qlock.core.pairs import Pairing, pair
from qlock.core.plan import Job, jobs
from qlock.core.rules import (
    AgreementShare,
    EndingShare,
    GateSpec,
    Kld,
    NoMoreErrors,
    NonInferior,
    ShareSpec,
    SpeedAtLeast,
    slice_of,
    suite_of,
)
from qlock.core.slices import slices_meant
from qlock.core.stats import CannotTell
from qlock.errors import InputError, QlockError
from qlock.flows.gated import items_asked
from qlock.flows.opened import OpenRun, open_run, sitting_of
from qlock.flows.proving import Exam
from qlock.flows.run_folder import run_folders
from qlock.world.interface import World


def foreseen(world: World, lock: Lock, exams: Iterable[Exam], runs: Path) -> tuple[str, ...]:
    """A sentence for each gate of a lock that its run could not decide.

    Args:
        world: The effects.
        lock: What is to be run.
        exams: Its suites, as far as their files are here.
        runs: Where earlier runs lie; two that measured the same job show how far it moves.
    """
    return (*items_too_few(lock, exams), *_within_noise(world, lock, runs))


def items_too_few(lock: Lock, exams: Iterable[Exam]) -> tuple[str, ...]:
    """A sentence for each gate of a lock that has too few items, or too few answers to see how steady a speed is.

    Of a text, whose windows depend on the vocabulary, the most that there could be are counted: a token is a byte or
    more.
    """
    by_name = {exam.pin.name: exam for exam in exams}
    counted: dict[str, Counter[str]] = {}
    found = []
    for gate in lock.gate:
        suite = suite_of(gate)
        if suite not in by_name:
            continue
        if suite not in counted:
            try:
                counted[suite] = _counted(by_name[suite])
            except InputError:
                match gate:
                    case Kld() | SpeedAtLeast():
                        # A vocabulary may make a token more of a text than it has bytes; whether it is too short is
                        # told elsewhere.
                        continue
                    case _:
                        raise
        found.append(_too_few(gate, counted[suite], lock, by_name[suite].pin))
    return tuple(filter(None, dict.fromkeys(found)))


def _too_few(gate: GateSpec, counts: Counter[str], lock: Lock, suite: SuitePin) -> str:
    """The sentence about one gate; empty where there are items enough."""
    match gate:
        case SpeedAtLeast():
            return too_few_to_time(gate, counts[""] * suite.repeats, at_once=_most_at_once(lock, suite))
        case _:
            wanted = slice_of(gate)
            meant = slices_meant(counts, wanted) if wanted else ("",)
            return too_few(gate, sum(counts[name] for name in meant))


def _most_at_once(lock: Lock, suite: SuitePin) -> int:
    """How many items are answered at once, by the point of a suite that answers the most."""
    widths = {setting.name: setting.at_once for setting in lock.setting}
    return max(widths[point.setting] for point in lock.point if point.name in suite.points)


def _of_shares(gates: Iterable[GateSpec]) -> Iterator[ShareSpec]:
    for gate in gates:
        match gate:
            case NonInferior() | NoMoreErrors() | EndingShare() | AgreementShare():
                yield gate
            case _:
                pass


def _counted(exam: Exam) -> Counter[str]:
    """How many items lie in each slice, ``NAME=VALUE``, and in all, under the empty name."""
    counts: Counter[str] = Counter()
    for item in items_asked(exam):
        counts.update(["", *(f"{name}={value}" for name, value in item.slices.items())])
    return counts


class _Twice(msgspec.Struct, frozen=True, kw_only=True):
    """A job that two runs measured, put side by side."""

    suite: str
    runs: tuple[str, str]
    pairing: Pairing


def _within_noise(world: World, lock: Lock, runs: Path) -> Iterator[str]:
    gates = list(_of_shares(lock.gate))
    twice = list(_measured_twice(world, lock, runs, suites={gate.suite for gate in gates}))
    for gate in gates:
        mine = [one for one in twice if one.suite == gate.suite]
        noise = noise_share(gate, [one.pairing for one in mine])
        match noise:
            case float():
                names = " and ".join(sorted({name for one in mine for name in one.runs}))
                yield from filter(None, [within_noise(gate, noise, runs=names)])
            case CannotTell():
                pass


def _measured_twice(world: World, lock: Lock, runs: Path, *, suites: set[str]) -> Iterator[_Twice]:
    """Jobs of these suites that may move, in the first two runs that measured them.

    An earlier run that was damaged shows nothing; it is no reason not to run.
    """
    moving = {point.name for point in lock.point if point.repeatable != "bitwise"}
    wanted = [job for job in jobs(lock) if job.suite in suites and job.point in moving]
    measured = list(_measured(world, runs)) if wanted else []
    for job in wanted:
        found = [(run, own[job.digest]) for run, own in measured if job.digest in own][:2]
        with suppress(QlockError):
            if len(found) == 2:
                one, other = ((sitting_of(run, done),) for run, done in found)
                (first, _), (second, _) = found
                names = (first.folder.path.name, second.folder.path.name)
                yield _Twice(suite=job.suite, runs=names, pairing=pair(one, other))


def _measured(world: World, runs: Path) -> Iterator[tuple[OpenRun, dict[str, Job]]]:
    """Sealed runs, with the jobs that each measured itself, by digest."""
    for path in run_folders(runs):
        with suppress(QlockError):
            run = open_run(world, path)
            if run.seal is not None and not run.seal.forced:
                own = {done.job for done in run.seal.job if not done.taken_from}
                yield run, {job.digest: job for job in jobs(run.lock) if job.name in own}
