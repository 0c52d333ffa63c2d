"""``qlock init``: its options and what it says.

Does not live here: the spec that it writes (``flows.init``).
"""

from __future__ import annotations

import click

from qlock.cli.shown import Answer, Means, data_line, short_path
from qlock.core.escape import for_shell
from qlock.errors import ExitCode


@click.command("init")
@click.argument("name", default="")
@click.pass_obj
def verb(means: Means, /, *, name: str) -> Answer:
    """Write a first spec, specs/NAME.toml.

    Without NAME it is called as the current folder is. With it come tasks/own.jsonl, a few items to replace, and an empty
    folder models. Nothing that is there is ever overwritten.
    """
    from qlock.flows.init import init

    world = means.world()
    started = init(world, name)
    path = short_path(world, started.spec)
    means.talk.verb("Wrote", path)
    if started.items is not None:
        means.talk.verb("Wrote", short_path(world, started.items))
    means.talk.say(
        "hint",
        f"put your models where it says, or change what it says, then run `qlock resolve {for_shell(str(path))}`",
    )
    return Answer(ExitCode.YES, data_line(path))
