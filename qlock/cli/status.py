"""``qlock status``: its options, what it says, and its exit code.

Does not live here: looking (``flows.status``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from qlock.cli.asked import runs_asked, runs_option
from qlock.cli.shown import Answer, Means, document, project_path, short_path
from qlock.core.escape import for_shell
from qlock.errors import ExitCode

if TYPE_CHECKING:
    from qlock.flows.status import TaskStatus


@click.command("status")
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path))
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verb(means: Means, /, *, path: Path, runs: Path | None, as_json: bool) -> Answer:
    """Say how far the tasks of a run are.

    RUN is the folder of a run, or its lock.

    By what lies in the run's folder, and by Slurm where the tasks were queued: `done`, `running`, `queued`, `failed`,
    `open` where it never was queued, and `unknown` where Slurm cannot be asked. Exit code 5 while any is not done.
    """
    from qlock.flows.status import status

    world, talk = means.world(), means.talk
    seen = status(world, project_path(world, path), runs_asked(world, runs))
    talk.table(
        ("task", "state", "items", "left", "job", "why"), [_row(task) for task in seen.tasks], right=(2, 3)
    )
    for note in seen.notes:
        talk.say("note", note)
    count = {task.state: 0 for task in seen.tasks}
    for task in seen.tasks:
        count[task.state] += 1
    is_done = set(count) <= {"done"}
    tally = ", ".join(f"{number} {state}" for state, number in count.items())
    talk.say("ok" if is_done else "note", f"{short_path(world, seen.folder)}: {tally}")
    if is_done and not seen.is_sealed:
        talk.say("hint", f"bring the tasks together with `qlock merge {for_shell(str(path))}`")
    code = ExitCode.YES if is_done else ExitCode.INCOMPLETE
    if not as_json:
        return Answer(code)
    told = {
        "verb": "status",
        "folder": short_path(world, seen.folder),
        "is_sealed": seen.is_sealed,
        "tasks": seen.tasks,
        "notes": seen.notes,
    }
    return Answer(code, document(told))


def _row(task: TaskStatus) -> tuple[str, ...]:
    match task.left_s:
        case int(left_s):
            left = f"{left_s // 3600}:{left_s // 60 % 60:02}:{left_s % 60:02}"
        case _:
            left = ""
    return (task.id, task.state, f"{task.done}/{task.items}", left, task.job, task.why)
