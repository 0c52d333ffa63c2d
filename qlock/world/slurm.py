"""Slurm, through its own tools: ``sbatch``, ``squeue``, ``sacct``, ``scancel``, ``scontrol``.

Lives here: their command lines and what their output means; nothing else knows either. Does not live here: the
script (``core.sbatch``), which task is which element (``flows.submit``).

The tools are asked for a format of our own, field by field, which every version since 2016 gives; ``--json`` differs
from version to version.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from qlock.errors import AbsentError
from qlock.world.interface import Missing, SlurmTask, UndoneError
from qlock.world.process import ToolEnded, call_tool

_LIMIT_S = 60.0
_MOST_JOBS = 200
"""In one command line."""
_JOB = re.compile(r"^([0-9]+)(?:;.*)?$")
_RANGE = r"[0-9]{1,9}(?:-[0-9]{1,9})?"
_ELEMENT = re.compile(rf"^([0-9]+)_(?:([0-9]{{1,9}})|\[({_RANGE}(?:,{_RANGE})*)(?:%[0-9]+)?\])$")
_MOST_INDICES = 1 << 22
"""``MaxArraySize`` is at most 4,000,001."""
_ARRAY_LIMIT = re.compile(r"^MaxArraySize\s*=\s*([0-9]{1,9})\s*$", re.MULTILINE)
_NO_SLURM = "type it where Slurm's tools work, such as on the cluster's login node"
_UNCONFIGURED = re.compile(r"\bfatal: (.*\bconfiguration (?:source|file)\b.*)")
"""The last of several lines, of which the first ones say nothing to people: Slurm is installed and belongs to no cluster."""
_UNCLEAR = re.compile(r"timed? ?out|zero bytes", re.IGNORECASE)
"""Of the controller that may have done what it was asked for, and only its answer did not come."""
_LEFT = re.compile(r"^(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)$")


class RealSlurm:
    """The cluster that this machine belongs to.

    Args:
        environment: As it was when qlock started; ``SLURM_CONF`` and the like are in it.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        # Formats and filters that a user has set for the tools would change what they print.
        ours = ("SQUEUE_", "SACCT_", "SBATCH_", "SCANCEL_", "SLURM_TIME_FORMAT", "SLURM_CLUSTERS")
        self._env = {name: value for name, value in environment.items() if not name.startswith(ours)}
        self._env |= {"LC_ALL": "C.UTF-8"}

    def submit(self, script: Path) -> str:
        """Queue a batch script; gives the number of the job.

        Raises:
            UndoneError: Slurm does not take it.
            AbsentError: It gave no clear answer, and may have taken it.
        """
        done = self._call("sbatch", "--parsable", str(script))
        match = _JOB.match(done.out.strip())
        if match is None:
            raise AbsentError(f"sbatch: got `{_first(done.out)}`, expected the number of a job")
        return match[1]

    def queue(self) -> tuple[SlurmTask, ...]:
        """Every element of this user's arrays that waits or runs.

        Raises:
            AbsentError: Slurm does not answer.
        """
        done = self._call(
            "squeue", "--noheader", "--array", f"--user={os.getuid()}", "--format=%F|%K|%T|%L|%N|%r"
        )
        return tuple(task for line in done.out.split("\n") if (task := queued(line)) is not None)

    def array_limit(self) -> int | Missing:
        """``MaxArraySize`` of the controller."""
        try:
            done = self._call("scontrol", "show", "config")
        except AbsentError as error:
            return Missing(why=error.message)
        match = _ARRAY_LIMIT.search(done.out)
        if match is None:
            return Missing(why="scontrol tells no `MaxArraySize`")
        return int(match[1])

    def accounts(self, jobs: Sequence[str]) -> tuple[SlurmTask, ...] | Missing:
        """How the elements of these jobs ended; the last word on each, where it was requeued."""
        found: list[SlurmTask] = []
        for some in _in_parts(jobs):
            try:
                done = self._call(
                    "sacct",
                    "--noheader",
                    "--parsable2",
                    "--allocations",
                    "--format=JobID,State,ExitCode,NodeList",
                    f"--jobs={','.join(some)}",
                )
            except AbsentError as error:
                return Missing(why=error.message)
            found += [task for line in done.out.split("\n") for task in accounted(line)]
        return tuple(found)

    def cancel(self, jobs: Sequence[str]) -> None:
        """End these jobs; one that has ended is passed over.

        Raises:
            AbsentError: Slurm does not answer.
        """
        for some in _in_parts(jobs):
            self._call("scancel", "--quiet", *some)

    def _call(self, *argv: str) -> ToolEnded:
        tool = argv[0]
        if shutil.which(tool, path=self._env.get("PATH", "")) is None:
            raise UndoneError(f"Slurm is not here: `{tool}` is not on the PATH", hint=_NO_SLURM)
        done = call_tool(argv, env=self._env, limit_s=_LIMIT_S)
        if done.code == 0:
            return done
        unconfigured = _UNCONFIGURED.search(done.err)
        if unconfigured is not None:
            raise UndoneError(f"Slurm is not here: {tool}: {unconfigured[1]}", hint=_NO_SLURM)
        words = _first(done.err) or f"exit code {done.code}"
        kind = AbsentError if _UNCLEAR.search(done.err) else UndoneError
        raise kind(f"{tool}: {words.removeprefix(f'{tool}: ').removeprefix('error: ')}")


def _first(text: str) -> str:
    return next((line.strip() for line in text.split("\n") if line.strip()), "")


def _in_parts(jobs: Sequence[str]) -> list[Sequence[str]]:
    return [jobs[start : start + _MOST_JOBS] for start in range(0, len(jobs), _MOST_JOBS)]


def queued(line: str) -> SlurmTask | None:
    """One line of squeue; ``None`` for what is no element of an array."""
    fields = line.strip().split("|", 5)
    if len(fields) != 6 or not (fields[0].isdigit() and fields[1].isdigit()):
        return None
    job, index, state, left, node, reason = fields
    return SlurmTask(
        job=job,
        index=int(index),
        state=state,
        reason="" if reason == "None" else reason,
        node=node,
        left_s=left_s(left),
    )


def accounted(line: str) -> tuple[SlurmTask, ...]:
    """One line of sacct; nothing for what is no element of an array.

    An element that has begun has a line of its own; those that ended without have one together: ``7_[1-3,5%2]``.
    """
    fields = line.strip().split("|")
    match = _ELEMENT.match(fields[0])
    if len(fields) != 4 or match is None:
        return ()
    # `CANCELLED by 1000` names who did it.
    state, _, by = fields[1].partition(" ")
    code = "" if fields[2] == "0:0" else f"exit code {fields[2].partition(':')[0]}"
    if code == "exit code 0":
        code = f"signal {fields[2].partition(':')[2]}"
    return tuple(
        SlurmTask(
            job=match[1],
            index=index,
            state=state,
            reason=by or code,
            node="" if fields[3] == "None assigned" else fields[3],
            left_s=Missing(why="it has ended"),
        )
        for index in _indices(match[2] or match[3])
    )


def _indices(text: str) -> Iterator[int]:
    """Indices out of ``4`` or ``1-3,5``, of which none is longer than any array."""
    for part in text.split(","):
        low, _, high = part.partition("-")
        yield from islice(range(int(low), int(high or low) + 1), _MOST_INDICES)


def left_s(text: str) -> int | Missing:
    """Seconds out of ``1-02:03:04``, ``02:03:04`` or ``03:04``."""
    match = _LEFT.match(text)
    if match is None:
        return Missing(why=f"Slurm says `{text}`")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
