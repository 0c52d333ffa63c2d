"""``qlock traces``: its options, what it says, and its exit code.

Does not live here: taking them out of a run (``flows.traces``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import click

from qlock.cli.asked import folder_asked, run_asked
from qlock.cli.shown import Answer, Means, data_line, document, short_path, whole_path
from qlock.core.units import count_text
from qlock.errors import ExitCode

_FOLDER = click.Path(path_type=Path, file_okay=False)


class Line(NamedTuple):
    """The command line."""

    run: Path
    suite: str
    point: str
    output: Path
    models: tuple[Path, ...]
    engine: Path | None
    as_json: bool


@click.command("traces")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--suite", required=True, metavar="NAME", help="The suite whose answers are taken.")
@click.option(
    "--point",
    default="",
    metavar="POINT",
    help="The point whose answers are taken; without it, the reference.",
)
@click.option(
    "--output",
    "-o",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file to write.",
)
@click.option("--models", multiple=True, type=_FOLDER, metavar="DIR", help="Look for model files here.")
@click.option("--engine", type=_FOLDER, metavar="DIR", help="Folder of the engine's libraries.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verb(means: Means, /, **given: Any) -> Answer:
    """Take the answers of a run as traces.

    A suite of the kind `kld` with `traces` then holds other points against the reference on these very answers, each
    prompt exactly as it was asked. Prompts are rendered and tokenized again and must be as locked; nothing is generated.
    Prints the file.
    """
    return _traces(means, Line(**given))


def _traces(means: Means, line: Line) -> Answer:
    from qlock.flows import traces as flow
    from qlock.flows.opened import open_run

    world = means.world()
    path = run_asked(world, line.run)
    taken = flow.traces(
        world,
        flow.Asked(
            path=path,
            suite=line.suite,
            point=line.point,
            output=whole_path(world, line.output),
            models=tuple(folder_asked(world, folder, "--models") for folder in line.models),
            engine=None if line.engine is None else folder_asked(world, line.engine, "--engine"),
        ),
        means.opener(open_run(world, path).lock.engine[0].kind),
    )
    told = f"{count_text(taken.traces, 'trace')} of {taken.job}, {count_text(taken.answer_tokens, 'token')} of answers"
    means.talk.say("ok", told)
    if taken.empty:
        means.talk.say("note", f"{count_text(taken.empty, 'empty answer')} left out")
    shown = short_path(world, taken.output)
    if not line.as_json:
        return Answer(ExitCode.YES, data_line(shown))
    counts = {"traces": taken.traces, "answer_tokens": taken.answer_tokens, "empty": taken.empty}
    return Answer(
        ExitCode.YES,
        document({"verb": "traces", "job": taken.job, "output": shown, **counts, "digest": taken.digest}),
    )
