"""Batch scripts, from the spec's ``[slurm]`` table: the tasks of a lock as a Slurm array, or one command alone.

A script is meant to be read: one line for each wish, the tasks by name, and one command. That of a task takes the shell's
place, so that signals reach qlock itself; the shell around a command alone stays, and keeps how it ended.

Does not live here: handing it to Slurm (``world.slurm``), what is missing (``flows.submit``).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import Base
from qlock.errors import InputError

_WORD = r"^[A-Za-z0-9][A-Za-z0-9_.,:+=/*()@-]*\Z"
Word = Annotated[str, msgspec.Meta(pattern=_WORD, max_length=200, description="one word of an sbatch option")]
Duration = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^([0-9]{1,4}-)?[0-9]{1,3}(:[0-9]{2}){0,2}\Z",
        description="a time such as `30`, `8:00:00` or `1-12:00:00`, as sbatch takes it",
    ),
]
Line = Annotated[
    str, msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f]+\Z", max_length=1000, description="one line of text")
]
Folder = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9_./$][A-Za-z0-9_./${}:=+-]*\Z",
        max_length=200,
        description="a folder without blanks and quotes, such as `/local/scratch` or `$TMPDIR`",
    ),
]
Option = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^--[a-z][^\x00-\x1f\x7f#]*\Z", max_length=1000, description="a long option of sbatch"
    ),
]


class SlurmSpec(Base, frozen=True, kw_only=True):
    """``[slurm]``: where and how the tasks run. Never part of the lock."""

    partition: Word | UnsetType = UNSET
    account: Word | UnsetType = UNSET
    gres: Word | UnsetType = UNSET
    """Such as ``gpu:1``."""
    cpus: Annotated[int, msgspec.Meta(ge=1, le=4096)] | UnsetType = UNSET
    """Of each task."""
    memory: Word | UnsetType = UNSET
    """Such as ``16G``."""
    time: Duration | UnsetType = UNSET
    """The limit of one task."""
    nice: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)] | UnsetType = UNSET
    at_once: Annotated[int, msgspec.Meta(ge=1)] | UnsetType = UNSET
    """So many tasks of an array run side by side at most."""
    shard_items: Annotated[int, msgspec.Meta(ge=1)] | UnsetType = UNSET
    """Most items of one task: a point that is asked more is cut into shards."""
    scratch: Folder | UnsetType = UNSET
    """Of the node's own disk: models are copied there before they are loaded. The node's shell fills variables in."""
    extra: tuple[Option, ...] = ()
    """Further options of sbatch: ``--constraint=a100``."""
    setup: tuple[Line, ...] = ()
    """Lines of the script before the command: ``module load cuda/12.4``."""
    container: Line | UnsetType = UNSET
    """What stands before the command: ``apptainer exec --nv qlock.sif``."""
    qlock: Line | UnsetType = UNSET
    """How qlock is called there; by the interpreter that submits, when not given."""


_NOT_IN_SCRIPT = frozenset('"\\%$`\n\r')


def refuse_odd_path(*paths: str) -> None:
    """Stop where a path cannot stand in a batch script: Slurm and the shell would read something else.

    Raises:
        InputError: Naming it.
    """
    for path in paths:
        if not _NOT_IN_SCRIPT.isdisjoint(path):
            raise InputError(
                f"the path `{path}` cannot stand in a batch script",
                hint="use a folder without quotes, dollar or percent signs, backslashes or line breaks in its name",
            )


class Array(msgspec.Struct, frozen=True, kw_only=True):
    """What one submission runs."""

    name: str
    """Of the job in the queue."""
    title: str
    """What the script says of itself in its first lines."""
    log: str
    """Path of the logs, with Slurm's ``%A`` and ``%a``."""
    tasks: Mapping[int, str]
    """Index to id."""
    command: tuple[str, ...]
    """The words of ``qlock run``, up to ``--task``."""
    program: tuple[str, ...]
    """How qlock is called, unless the spec says otherwise."""
    lock: str
    """Path of the lock."""
    kept_lock: str
    """Path of the same bytes in the run's folder."""


class Single(msgspec.Struct, frozen=True, kw_only=True):
    """One command, and where what it says is kept."""

    name: str
    """Of the job in the queue."""
    title: str
    """As of an array."""
    stem: str
    """Path of ``STEM.out`` and ``STEM.err`` of the command, of ``STEM.log`` with what else is said in the job, and, once
    the command has ended, of ``STEM.code``."""
    command: tuple[str, ...]
    """The words behind ``qlock``."""
    program: tuple[str, ...]
    """As of an array."""


_END_TIME = """\
# When the job's time ends: older Slurm does not say so by itself.
if [ -z "${SLURM_JOB_END_TIME:-}" ]; then
  element="${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
  end=$(squeue --noheader --job="$element" --format=%e 2>/dev/null) || end=
  # Of no text at all, date would make midnight.
  if [ -n "$end" ] && end=$(date --date="$end" +%s 2>/dev/null); then
    export SLURM_JOB_END_TIME="$end"
  fi
fi
"""


_SAME_LOCK = """\
# A task of another lock is another task. Where they cannot be compared, qlock says what is not there.
differs=0
cmp -s {lock} {kept} || differs=$?
if [ "$differs" -eq 1 ]; then
  echo "error: refused: the lock changed since this task was queued" >&2
  echo "hint: queue the tasks of the new lock with \\`qlock submit\\`" >&2
  exit 3
fi
"""


def script(spec: SlurmSpec, array: Array) -> str:
    """The whole script."""
    throttle = "" if spec.at_once is UNSET else f"%{spec.at_once}"
    wishes = {
        "job-name": array.name,
        "array": f"{index_ranges(tuple(array.tasks))}{throttle}",
        "output": f'"{array.log}"',
    }
    # A requeued task goes on where it was ended; its log goes on too.
    parts = [*_head(spec, array.title, wishes, "--open-mode=append", "--requeue"), "", "tasks=("]
    parts += [f"  [{index}]={shlex.quote(id_)}" for index, id_ in sorted(array.tasks.items())]
    parts += [")", "", *_setup(spec)]
    # In quotes, so that a variable that is not set there comes as an empty word, which is refused.
    scratch = "" if spec.scratch is UNSET else f' --scratch "{spec.scratch}"'
    words = f"{shlex.join(array.command)}{scratch}"
    command = f'{_program(spec, array.program)} {words} --task "${{tasks[$SLURM_ARRAY_TASK_ID]}}"'
    same_lock = _SAME_LOCK.format(lock=shlex.quote(array.lock), kept=shlex.quote(array.kept_lock))
    return "\n".join([*parts, f"{same_lock}\n{_END_TIME}exec {command}", ""])


def single_script(spec: SlurmSpec, single: Single) -> str:
    """The whole script of one command; an array of one element, as ``status`` and ``cancel`` know them."""
    wishes = {
        "job-name": single.name,
        "array": "0",
        "output": f'"{single.stem}.log"',
    }
    parts = [*_head(spec, single.title, wishes, "--no-requeue"), "", *_setup(spec)]
    return "\n".join(
        [
            *parts,
            f"{_program(spec, single.program)} {shlex.join(single.command)} \\",
            f'  > "{single.stem}.out" 2> "{single.stem}.err"',
            "code=$?",
            "# Whoever waits finds it whole.",
            f'echo "$code" > "{single.stem}.code.new" && mv "{single.stem}.code.new" "{single.stem}.code"',
            'exit "$code"',
            "",
        ]
    )


def _setup(spec: SlurmSpec) -> list[str]:
    return [*spec.setup, ""] if spec.setup else []


def _program(spec: SlurmSpec, program: tuple[str, ...]) -> str:
    words = shlex.join(program) if spec.qlock is UNSET else spec.qlock
    return words if spec.container is UNSET else f"{spec.container} {words}"


def _head(spec: SlurmSpec, title: str, first: Mapping[str, str], *more: str) -> list[str]:
    """The first lines: what the script is, and a line for each wish."""
    wishes = {
        **first,
        "partition": spec.partition,
        "account": spec.account,
        "gres": spec.gres,
        "cpus-per-task": spec.cpus,
        "mem": spec.memory,
        "time": spec.time,
        "nice": spec.nice,
    }
    asked = [f"--{name}={value}" for name, value in wishes.items() if value is not UNSET]
    return [
        "#!/bin/bash",
        *(f"# {line}" for line in title.split("\n")),
        *(f"#SBATCH {option}" for option in (*asked, *more, *spec.extra)),
    ]


def index_ranges(indices: tuple[int, ...]) -> str:
    """Indices as sbatch takes them: ``0-3,7``."""
    found: list[tuple[int, int]] = []
    for index in sorted(indices):
        if found and found[-1][1] == index - 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in found)
