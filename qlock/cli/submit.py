"""``qlock submit``: its options, what it says, and its exit code.

Does not live here: what is queued (``flows.submit``), the script (``core.sbatch``).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from qlock.cli.asked import folder_asked, lock_asked, runs_asked, runs_option
from qlock.cli.shown import Answer, Means, counted, document, readable, short_path
from qlock.core.escape import for_shell
from qlock.errors import ExitCode

if TYPE_CHECKING:
    from qlock.flows.submit import Submitted

_FOLDER = click.Path(path_type=Path, file_okay=False)


_WISHES = (
    "partition",
    "account",
    "gres",
    "cpus",
    "memory",
    "time",
    "nice",
    "at_once",
    "shard_items",
    "scratch",
)


class Line(NamedTuple):
    """The command line."""

    lock: Path
    partition: str | None
    account: str | None
    gres: str | None
    cpus: int | None
    memory: str | None
    time: str | None
    nice: int | None
    at_once: int | None
    shard_items: int | None
    scratch: str | None
    models: tuple[Path, ...]
    engine: Path | None
    runs: Path | None
    frozen: bool
    dry_run: bool
    as_json: bool

    def wishes(self) -> dict[str, object]:
        """What is asked otherwise than the spec's ``[slurm]`` has it."""
        asked = self._asdict()
        return {name: asked[name] for name in _WISHES if asked[name] is not None}


@click.command("submit")
@click.argument("lock", type=click.Path(path_type=Path))
@click.option("--partition", metavar="NAME", help="Partition of the cluster, as `sbatch --partition`.")
@click.option("--account", metavar="NAME", help="Account that the time is counted to.")
@click.option("--gres", metavar="WHAT", help="Resources of each task, such as gpu:1.")
@click.option("--cpus", type=int, metavar="N", help="CPU cores of each task.")
@click.option("--memory", metavar="SIZE", help="Main memory of each task, such as 16G.")
@click.option("--time", metavar="TIME", help="Time limit of each task, such as 8:00:00.")
@click.option("--nice", type=int, metavar="N", help="Lower the priority by N, as `sbatch --nice`.")
@click.option("--at-once", type=int, metavar="N", help="Run at most N tasks side by side.")
@click.option(
    "--shard-items",
    type=int,
    metavar="N",
    help="Cut points that are asked more items into tasks of at most N.",
)
@click.option(
    "--scratch", metavar="DIR", help="On each node, copy models to this folder first, such as '$TMPDIR'."
)
@click.option(
    "--models", multiple=True, type=_FOLDER, metavar="DIR", help="Look for model and data files here."
)
@click.option("--engine", type=_FOLDER, metavar="DIR", help="Folder of the engine's libraries.")
@runs_option
@click.option("--frozen", is_flag=True, help="Trust the lock, whatever the spec beside it says.")
@click.option("--dry-run", is_flag=True, help="Print the batch script and queue nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verb(means: Means, /, **given: Any) -> Answer:
    """Queue what a lock still misses, as a Slurm array.

    Prints the number of the job, or one a line where the cluster allows no array so long. Scripts and numbers are kept in
    the run's folder, under slurm/. Typed again, it queues only tasks that are neither done nor in the queue.

    The options from --partition to --scratch overrule the keys of the same names in the spec's [slurm] table.
    """
    return _submit(means, Line(**given))


def _submit(means: Means, line: Line) -> Answer:
    from qlock.flows import submit as flow

    world = means.world()
    lock_path, _ = lock_asked(world, line.lock)
    words: list[str] = []
    for folder in line.models:
        words += ["--models", str(folder_asked(world, folder, "--models"))]
    if line.engine is not None:
        words += ["--engine", str(folder_asked(world, line.engine, "--engine"))]
    asked = flow.Asked(
        lock_path=lock_path,
        program=(sys.executable, "-m", "qlock"),
        words=tuple(words),
        runs=runs_asked(world, line.runs),
        frozen=line.frozen,
        dry_run=line.dry_run,
        wishes=line.wishes(),
    )
    said = flow.submit(world, asked)
    _say(means, said, line.lock)
    code = ExitCode.NO if said.state == "stale" else ExitCode.YES
    if line.as_json:
        told = {
            "verb": "submit",
            "state": said.state,
            "folder": short_path(world, said.folder),
            "why": said.why,
            "arrays": said.arrays,
            "done": said.done,
            "notes": said.notes,
            "under_way": said.under_way,
        }
        return Answer(code, document(told))
    data = {
        "dry-run": readable("\n".join(array.script for array in said.arrays)),
        "submitted": "".join(f"{array.job}\n" for array in said.arrays),
    }
    return Answer(code, data.get(said.state, ""))


def _say(means: Means, said: Submitted, lock: Path) -> None:
    talk = means.talk
    for note in said.notes:
        talk.say("note", note)
    counts = f"{len(said.done)} done, {len(said.under_way)} in the queue"
    match said.state:
        case "submitted":
            jobs = ", ".join(array.job for array in said.arrays)
            where = ", ".join(f"`{short_path(means.world(), array.path)}`" for array in said.arrays)
            many = "" if len(said.arrays) == 1 else "s"
            talk.say(
                "ok",
                f"queued {counted(len(said.tasks))} as job{many} {jobs} ({counts}); script{many} {where}",
            )
            talk.say("hint", f"see how far they are with `qlock status {for_shell(str(lock))}`")
        case "dry-run":
            arrays = "" if len(said.arrays) == 1 else f" as {len(said.arrays)} arrays"
            talk.say("note", f"would queue {counted(len(said.tasks))}{arrays} ({counts})")
        case "already-sealed":
            talk.say("ok", "this lock was run before, and its run is sealed")
        case "nothing-left":
            talk.say("ok", f"nothing to queue: {counts}")
            if not said.under_way:
                talk.say("hint", f"bring the tasks together with `qlock merge {for_shell(str(lock))}`")
        case "stale":
            talk.say("error", f"the lock is stale: {said.why}")
            talk.say("hint", "renew it with `qlock resolve`, or trust it with --frozen")
