"""``qlock plan``: the tasks of a lock, for a scheduler of any kind.

Does not live here: which tasks there are (``flows.plan``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import click

from qlock.cli.asked import lock_asked, runs_asked, runs_option
from qlock.cli.shown import Answer, Means, document
from qlock.errors import ExitCode


class Line(NamedTuple):
    """The command line."""

    lock: Path
    shard_items: int | None
    runs: Path | None
    frozen: bool
    as_json: bool


@click.command("plan")
@click.argument("lock", type=click.Path(path_type=Path))
@click.option(
    "--shard-items",
    type=click.IntRange(min=1),
    metavar="N",
    help="Cut points that are asked more items into tasks of at most N; else as the spec's [slurm] table has it.",
)
@runs_option
@click.option("--frozen", is_flag=True, help="Trust the lock, whatever the spec beside it says.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verb(means: Means, /, **given: Any) -> Answer:
    """List the tasks of a lock.

    A task is what one process does: the jobs of one point, or a shard of their items. Prints their ids; `qlock run LOCK
    --task ID` does one, and `qlock merge LOCK` brings them together. A point of which a task was begun stays cut as it is.
    Looks at the lock and the spec beside it alone, so any machine can tell whether the lock may be run: exit code 1 where
    it is stale, 3 where it misses pins, 6 where it was edited.
    """
    return _plan(means, Line(**given))


def _plan(means: Means, line: Line) -> Answer:
    from qlock.flows import plan as flow

    world, talk = means.world(), means.talk
    path, _ = lock_asked(world, line.lock)
    runs = runs_asked(world, line.runs)
    planned = flow.plan(
        world, flow.Asked(lock_path=path, runs=runs, frozen=line.frozen, shard_items=line.shard_items)
    )
    code = ExitCode.YES if planned.state == "planned" else ExitCode.NO
    if planned.state == "stale":
        talk.say("error", f"the lock is stale: {planned.why}")
        talk.say("hint", "renew it with `qlock resolve`, or trust it with --frozen")
    else:
        rows = [(task.id, str(len(task.jobs)), str(task.items)) for task in planned.tasks]
        talk.table(("task", "jobs", "items"), rows, right=(1, 2))
    if line.as_json:
        return Answer(
            code,
            document({"verb": "plan", "state": planned.state, "why": planned.why, "tasks": planned.tasks}),
        )
    return Answer(code, "".join(f"{task.id}\n" for task in planned.tasks))
