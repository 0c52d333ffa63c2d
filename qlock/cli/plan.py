"""``qlock plan``: the tasks of a lock, for a scheduler of any kind.

Does not live here: what a task is (``core.plan``).
"""

from __future__ import annotations

from pathlib import Path

import click

from qlock.cli.asked import lock_asked
from qlock.cli.shown import Answer, Means, document
from qlock.errors import ExitCode


@click.command("plan")
@click.argument("lock", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verb(means: Means, /, *, lock: Path, as_json: bool) -> Answer:
    """List the tasks of a lock.

    A task is what one process does: the jobs of one point. Prints their ids; `qlock run LOCK --task ID` does one, and
    `qlock merge LOCK` brings them together.
    """
    from qlock.core.plan import tasks
    from qlock.flows.resolve import read_lock_file

    world = means.world()
    path, _ = lock_asked(world, lock)
    every = tasks(read_lock_file(world, path)[0])
    if as_json:
        return Answer(ExitCode.YES, document({"verb": "plan", "tasks": every}))
    rows = [(task.id, str(len(task.jobs)), str(task.items)) for task in every]
    means.talk.table(("task", "jobs", "items"), rows, right=(1, 2))
    return Answer(ExitCode.YES, "".join(f"{task.id}\n" for task in every))
