"""``qlock plan``: the tasks of a lock, for a scheduler of any kind.

Does not live here: what a task is (``core.tasks``), how a run was cut (``flows.tasks``).
"""

from __future__ import annotations

from pathlib import Path

import click

from qlock.cli.asked import lock_asked
from qlock.cli.shown import Answer, Means, document, whole_path
from qlock.errors import ExitCode


@click.command("plan")
@click.argument("lock", type=click.Path(path_type=Path))
@click.option(
    "--shard-items",
    type=click.IntRange(min=1),
    metavar="N",
    help="Cut points that are asked more items into tasks of at most N; as in the spec's [slurm] table.",
)
@click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of this lock's runs, not runs/NAME@DEVICE.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verb(means: Means, /, *, lock: Path, shard_items: int | None, runs: Path | None, as_json: bool) -> Answer:
    """List the tasks of a lock.

    A task is what one process does: the jobs of one point, or a shard of their items. Prints their ids; `qlock run LOCK
    --task ID` does one, and `qlock merge LOCK` brings them together. A point of which a task was begun stays cut as it is.
    """
    from qlock.flows.submissions import known_tasks
    from qlock.flows.tasks import place_of

    world = means.world()
    path, _ = lock_asked(world, lock)
    place = place_of(world, path, None if runs is None else whole_path(world, runs))
    every = known_tasks(place, shard_items=shard_items)
    if as_json:
        return Answer(ExitCode.YES, document({"verb": "plan", "tasks": every}))
    rows = [(task.id, str(len(task.jobs)), str(task.items)) for task in every]
    means.talk.table(("task", "jobs", "items"), rows, right=(1, 2))
    return Answer(ExitCode.YES, "".join(f"{task.id}\n" for task in every))
