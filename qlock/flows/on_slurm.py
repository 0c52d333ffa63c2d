"""``resolve --on-slurm``: the environment resolved on a compute node, where the login node has no such device.

One job runs ``qlock resolve`` with the resources of the ``[slurm]`` table. Its script, its number, what it said and how it
ended are kept in ``runs/resolve/NAME/`` of the project. The lock it writes itself, at its usual place, which login and
compute nodes share. Who asks again while such a job is in the queue waits for that one.

Does not live here: resolving (``flows.resolve``), the script (``core.sbatch``), Slurm's tools (``world.slurm``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from qlock.core.base import Base, Positive
from qlock.core.canon import from_json, json_bytes
from qlock.core.sbatch import Single, refuse_odd_path, single_script
from qlock.core.spec import Spec
from qlock.errors import AbsentError
from qlock.flows.layout import resolving_folder
from qlock.flows.resolve import read_spec_file
from qlock.flows.submissions import hand_over, last_error, next_number
from qlock.world.files import make_folder
from qlock.world.interface import Missing, SlurmTask, World

_MOST_SAID_BYTES = 1 << 24
_MOST_FILE_BYTES = 1 << 20
_LOOK_EVERY_S = 2.0
_SILENT_S = 300.0
"""So long the controller may not answer before nobody waits any more."""
_APPEARS_S = 30.0
"""So long a file that a node has written may need to be seen here."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for."""

    spec_path: Path
    program: tuple[str, ...]
    """How qlock is called on a node, unless the spec says otherwise."""
    words: tuple[str, ...] = ()
    """Options of ``qlock resolve``."""


class Queued(Base, frozen=True, kw_only=True):
    """``N.json``: a job that resolves."""

    number: Positive
    job: str
    """Slurm's number of it."""
    submitted_utc: str
    command: tuple[str, ...]


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    code: int
    out: str
    err: str


Talk = Callable[[SlurmTask | Missing], None]
"""Told the job as it is in the queue, or why that is not known, whenever that changes."""


def resolve_script(world: World, asked: Asked) -> str:
    """The script that would be queued; nothing is written.

    Raises:
        InputError: The spec is unreadable, or a path cannot stand in a batch script.
    """
    return _script(world, asked, next_number(_folder(world, asked)))


def queue_resolve(world: World, asked: Asked) -> tuple[Queued, bool]:
    """Queue the job; gives it, and whether it is one that was in the queue already.

    Raises:
        InputError: As ``resolve_script``.
        AbsentError: Slurm does not take it, or a job with other options resolves this spec.
    """
    folder = _folder(world, asked)
    before = _still_queued(world, folder)
    if before is not None:
        if before.command != _command(asked):
            raise AbsentError(
                f"job `{before.job}` resolves this spec already, with other options",
                hint=f"wait for it, or end it with `scancel {before.job}`",
            )
        return before, True
    number = next_number(folder)
    script = _script(world, asked, number)
    make_folder(folder)
    path = folder / f"{number}.sbatch"
    queued = Queued(
        number=number,
        job=hand_over(world, path, script),
        submitted_utc=world.clock.now().isoformat(timespec="seconds"),
        command=_command(asked),
    )
    world.files.write_atomic(
        folder / f"{number}.json", msgspec.json.format(json_bytes(queued), indent=1) + b"\n"
    )
    return queued, False


def wait_for(world: World, asked: Asked, queued: Queued, talk: Talk) -> Ended:
    """Wait until the job has ended.

    Raises:
        AbsentError: It ended before the command in it did, or Slurm does not answer any more.
    """
    folder = _folder(world, asked)
    shown: SlurmTask | Missing | None = None
    heard_s = world.clock.monotonic_s()
    while True:
        try:
            element = _element(world, queued)
        except AbsentError as error:
            if world.clock.monotonic_s() - heard_s > _SILENT_S:
                raise
            seen: SlurmTask | Missing = Missing(why=error.message)
        else:
            if element is None:
                return _ended(world, folder, queued)
            heard_s, seen = world.clock.monotonic_s(), element
        if shown is None or _changed(shown, seen):
            talk(seen)
            shown = seen
        world.clock.sleep_s(_LOOK_EVERY_S)


def cancel_resolve(world: World, queued: Queued) -> None:
    """End the job.

    Raises:
        AbsentError: Slurm does not answer.
    """
    world.slurm.cancel([queued.job])


def _changed(shown: SlurmTask | Missing, seen: SlurmTask | Missing) -> bool:
    """Whether there is something new to say; that time passes is none."""
    match shown, seen:
        case SlurmTask(), SlurmTask():
            return (shown.state, shown.reason, shown.node) != (seen.state, seen.reason, seen.node)
        case _:
            return shown != seen


def _element(world: World, queued: Queued) -> SlurmTask | None:
    return next((element for element in world.slurm.queue() if element.job == queued.job), None)


def _ended(world: World, folder: Path, queued: Queued) -> Ended:
    stem = folder / str(queued.number)
    code = stem.with_suffix(".code")
    until_s = world.clock.monotonic_s() + _APPEARS_S
    while not code.exists() and world.clock.monotonic_s() < until_s:
        world.clock.sleep_s(_LOOK_EVERY_S)
    said = [_said(world, stem.with_suffix(suffix)) for suffix in (".out", ".err")]
    text = _said(world, code).strip()
    if not (text.isascii() and text.isdigit()):
        raise AbsentError(
            f"job `{queued.job}` ended before `qlock resolve` did{_why(world, queued, stem)}",
            hint=f"what it said is in `{stem.with_suffix('.log')}`",
        )
    return Ended(code=int(text), out=said[0], err=said[1])


def _why(world: World, queued: Queued, stem: Path) -> str:
    """What Slurm's accounts and the last error in the job say."""
    told = world.slurm.accounts([queued.job])
    states = []
    match told:
        case Missing():
            pass
        case _:
            states = [f"{one.state} {one.reason}".strip() for one in told if one.job == queued.job]
    words = [word for word in (*states[-1:], last_error(_said(world, stem.with_suffix(".log")))) if word]
    return f": {': '.join(words)}" if words else ""


def _said(world: World, path: Path) -> str:
    """The text of a file; empty where there is none."""
    if not path.exists():
        return ""
    return world.files.read_prefix(path, _MOST_SAID_BYTES, "log").data.decode(errors="replace")


def _still_queued(world: World, folder: Path) -> Queued | None:
    """The last job that was queued for this spec, where Slurm still has it."""
    paths = sorted(folder.glob("[0-9]*.json"), key=lambda path: (len(path.name), path.name))
    if not paths:
        return None
    data = world.files.read_bounded(paths[-1], _MOST_FILE_BYTES, "submission")
    queued = from_json(data, Queued, name=paths[-1].name)
    return queued if _element(world, queued) is not None else None


def _folder(world: World, asked: Asked) -> Path:
    return resolving_folder(asked.spec_path, _spec(world, asked))


def _spec(world: World, asked: Asked) -> Spec:
    return read_spec_file(world, asked.spec_path)


def _command(asked: Asked) -> tuple[str, ...]:
    return ("resolve", str(asked.spec_path), *asked.words)


def _script(world: World, asked: Asked, number: int) -> str:
    spec, folder = _spec(world, asked), _folder(world, asked)
    refuse_odd_path(str(asked.spec_path), str(folder))
    single = Single(
        name=f"qlock-resolve-{spec.name}",
        title=f"Written by qlock to resolve {asked.spec_path.name} on a compute node.",
        stem=str(folder / str(number)),
        command=_command(asked),
        program=asked.program,
    )
    return single_script(spec.slurm, single)
