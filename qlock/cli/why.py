"""``qlock why``: its options, what it says, and its exit code.

Does not live here: reading locks (``flows.why``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from qlock.cli.shown import Answer, Means, document, readable, whole_path
from qlock.errors import ExitCode

if TYPE_CHECKING:
    from qlock.flows.why import Reason


class Line(NamedTuple):
    """The command line."""

    name: str
    lock: tuple[Path, ...]
    as_json: bool


@click.command("why")
@click.argument("name")
@click.option(
    "--lock",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="LOCK",
    help="Look into this lock, not into all of locks/.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verb(means: Means, /, **given: Any) -> Answer:
    """Say where a pin came from.

    NAME is that of a model, suite, point, setting, engine or device: what was asked for, which commit and bytes it
    became, and what is missing.
    """
    return _why(means, Line(**given))


def _why(means: Means, line: Line) -> Answer:
    from qlock.cli.asked import lock_asked
    from qlock.flows import why as flow

    world = means.world()
    locks = [lock_asked(world, path)[0] for path in line.lock]
    locks = locks or sorted(whole_path(world, Path("locks")).glob("*.toml"))
    reasons = flow.why(world, flow.Asked(name=line.name, locks=tuple(locks)))
    if line.as_json:
        return Answer(ExitCode.YES, document({"verb": "why", "reasons": reasons}))
    return Answer(ExitCode.YES, "\n".join(_text(reason) for reason in reasons))


def _text(reason: Reason) -> str:
    lines = [f"{reason.table} {reason.name} in {reason.lock}"]
    lines += [f"  {f'{row.what}:':<12}{row.told}" for row in reason.row]
    return "".join(f"{readable(' '.join(line.splitlines()))}\n" for line in lines)
