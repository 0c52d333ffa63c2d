"""``qlock init``: its options and what it says.

Does not live here: the spec that it writes (``flows.init``).
"""

from __future__ import annotations

import click

from qlock.cli.shown import Answer, Means, readable, short_path
from qlock.core.escape import for_shell
from qlock.errors import ExitCode


@click.command("init")
@click.argument("name", default="")
@click.pass_obj
def verb(means: Means, /, *, name: str) -> Answer:
    """Write a first spec, specs/NAME.toml.

    Without NAME it is called as the current folder is. A spec that is there is never overwritten.
    """
    from qlock.flows.init import init

    world = means.world()
    path = short_path(world, init(world, name))
    means.talk.verb("Wrote", path)
    means.talk.say(
        "hint",
        f"write the paths of your own models, text and items into it, then run `qlock resolve {for_shell(str(path))}`",
    )
    return Answer(ExitCode.YES, f"{readable(path)}\n")
