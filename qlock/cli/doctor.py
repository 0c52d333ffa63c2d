"""``qlock doctor``: its options, what it says, and its exit code.

Does not live here: looking at the machine (``flows.doctor``).
"""

from __future__ import annotations

from pathlib import Path

import click

from qlock.cli.asked import folder_asked
from qlock.cli.shown import Answer, Means, data_line, document
from qlock.errors import ExitCode

_FOLDER = click.Path(path_type=Path, file_okay=False)
_KIND = "llama-cpp-python"


@click.command("doctor")
@click.option("--engine", type=_FOLDER, metavar="DIR", help="Look at this build of llama.cpp too.")
@click.option("--all", "whole", is_flag=True, help="Show every flag of the CPU and the engine too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verb(means: Means, /, *, engine: Path | None, whole: bool, as_json: bool) -> Answer:
    """Say what this machine has and what it lacks.

    Exits with 8 when something that `run` needs is absent.
    """
    from qlock.flows.doctor import doctor

    world = means.world()
    build = None if engine is None else folder_asked(world, engine, "--engine")
    health = doctor(world, means.opener(_KIND), build=build)
    code = ExitCode.YES if health.is_fit else ExitCode.ABSENT
    if as_json:
        return Answer(code, document({"verb": "doctor", "is_fit": health.is_fit, "rows": health.rows}))
    width = max(len(row.what) for row in health.rows)
    lines = [
        f"{row.what.ljust(width)}  {row.state.ljust(6)}  {row.says}"
        + (f": {row.more}" if whole and row.more else "")
        for row in health.rows
    ]
    for row in health.rows:
        if row.is_needed and row.state == "absent":
            means.talk.say("error", f"`qlock run` needs {row.what}: {row.says}")
            if row.hint:
                means.talk.say("hint", row.hint)
    return Answer(code, "".join(map(data_line, lines)))
