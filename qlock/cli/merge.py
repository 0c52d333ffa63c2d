"""``qlock merge``: its options, what it says, and its exit code.

Does not live here: bringing together (``flows.merge``).
"""

from __future__ import annotations

from pathlib import Path

import click

from qlock.cli.asked import runs_asked, runs_option
from qlock.cli.shown import (
    Answer,
    Means,
    counted,
    data_line,
    document,
    finding_rows,
    project_path,
    short_path,
)
from qlock.errors import ExitCode

_CODES = {
    "sealed": ExitCode.YES,
    "already-sealed": ExitCode.YES,
    "incomplete": ExitCode.INCOMPLETE,
    "refused": ExitCode.REFUSED,
    "anchor-off": ExitCode.NO,
}
_MOST = 20


@click.command("merge")
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path))
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verb(means: Means, /, *, path: Path, runs: Path | None, as_json: bool) -> Answer:
    """Bring the tasks of a run together and seal it.

    RUN is the folder of a run, or its lock.

    Prints the folder of the run. Tasks of another lock, engine or device are refused; while any is not done, nothing
    is written.
    """
    from qlock.flows import merge as flow

    world, talk = means.world(), means.talk
    where = runs_asked(world, runs)
    merged = flow.merge(world, flow.Asked(path=project_path(world, path), runs=where))
    folder = short_path(world, merged.folder)
    talk.findings(merged.findings, allowed=lambda _: False)
    talk.anchors(merged.anchors)
    match merged.state:
        case "sealed":
            talk.say("ok", f"sealed out of {counted(merged.tasks)}; answers_digest {merged.answers_digest}")
        case "already-sealed":
            talk.say("ok", f"this run is sealed; answers_digest {merged.answers_digest}")
        case "refused":
            talk.say("error", "refused: the tasks were not measured on the same engine and device")
        case "anchor-off":
            talk.say("error", "a published score did not come out again, so the run is not sealed")
            talk.say("hint", "look at the anchor's source, its setting and its suite")
        case "incomplete":
            for task in merged.missing[:_MOST]:
                talk.say("error", f"task `{task}` is not done")
            talk.say("error", f"incomplete: {len(merged.missing)} of {merged.tasks} tasks are not done")
            talk.say("hint", "queue them with `qlock submit`, or run them with `qlock run LOCK --task ID`")
    if not as_json:
        is_whole = merged.state in ("sealed", "already-sealed")
        return Answer(_CODES[merged.state], data_line(folder) if is_whole else "")
    told = {
        "verb": "merge",
        "state": merged.state,
        "folder": folder,
        "tasks": merged.tasks,
        "missing": merged.missing,
        "findings": finding_rows(merged.findings),
        "anchors": merged.anchors,
        "answers_digest": merged.answers_digest,
        "scores": merged.scores,
    }
    return Answer(_CODES[merged.state], document(told))
