"""``qlock cancel``: its options, what it says, and its exit code.

Does not live here: ending jobs (``flows.status``, ``world.slurm``).
"""

from __future__ import annotations

from pathlib import Path

import click

from qlock.cli.asked import runs_asked, runs_option
from qlock.cli.shown import Answer, Means, counted, document, project_path
from qlock.errors import ExitCode


@click.command("cancel")
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path))
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verb(means: Means, /, *, path: Path, runs: Path | None, as_json: bool) -> Answer:
    """End what Slurm still has of a run.

    RUN is the folder of a run, or its lock.

    What was measured is kept; `qlock submit` queues the rest again.
    """
    from qlock.flows.status import cancel

    world = means.world()
    tasks = cancel(world, project_path(world, path), runs_asked(world, runs))
    means.talk.say(
        "ok", f"cancelled {counted(len(tasks))}" if tasks else "nothing of this run is in the queue"
    )
    return Answer(ExitCode.YES, document({"verb": "cancel", "tasks": tasks}) if as_json else "")
