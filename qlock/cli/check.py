"""``qlock check``: its options, what it says, and its exit code.

Does not live here: looking at the machine (``flows.check``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from qlock.cli.asked import folder_asked, lock_asked
from qlock.cli.shown import Answer, Means, document, finding_rows
from qlock.errors import ExitCode

if TYPE_CHECKING:
    from qlock.flows.check import Checked

_CODES = {
    "verified": ExitCode.YES,
    "stale": ExitCode.NO,
    "refused": ExitCode.REFUSED,
    "absent": ExitCode.ABSENT,
}
_FOLDER = click.Path(path_type=Path, file_okay=False)


class Line(NamedTuple):
    """The command line."""

    lock: Path
    models: tuple[Path, ...]
    engine: Path | None
    quick: bool
    rehash: bool
    as_json: bool


@click.command("check")
@click.argument("lock", type=click.Path(path_type=Path))
@click.option(
    "--models", multiple=True, type=_FOLDER, metavar="DIR", help="Look for model and data files here."
)
@click.option("--engine", type=_FOLDER, metavar="DIR", help="Folder of the engine's libraries.")
@click.option("--quick", is_flag=True, help="Look at files and device alone; start no engine.")
@click.option("--rehash", is_flag=True, help="Read every byte again instead of trusting cached digests.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verb(means: Means, /, **given: Any) -> Answer:
    """Hold this machine against a lock.

    Nothing is measured. Shows everything that is not as locked: files, device, the engine's libraries, what it says of
    its settings, the prompts and the canaries. Says too whether the spec beside the lock has changed.
    """
    return _check(means, Line(**given))


def _check(means: Means, line: Line) -> Answer:
    from qlock.cli.progress import busy_on
    from qlock.flows import check as flow

    world = means.world()
    lock_path, lock = lock_asked(world, line.lock)
    with busy_on(means.talk, f"checking {lock_path.name}") as tell:
        asked = flow.Asked(
            lock_path=lock_path,
            models=tuple(folder_asked(world, folder, "--models") for folder in line.models),
            engine=None if line.engine is None else folder_asked(world, line.engine, "--engine"),
            quick=line.quick,
            rehash=line.rehash,
            tell=tell,
        )
        checked = flow.check(world, asked, means.opener(lock.engine[0].kind))
    _say(means, checked)
    code = _CODES[checked.state]
    if not line.as_json:
        return Answer(code)
    import msgspec

    findings = finding_rows(checked.findings)
    return Answer(code, document({"verb": "check", **msgspec.structs.asdict(checked), "findings": findings}))


def _say(means: Means, checked: Checked) -> None:
    talk = means.talk
    talk.findings(checked.findings, allowed=lambda _: False)
    for name in checked.left_out:
        talk.say("note", f"point {name} was not loaded: its files are not as locked")
    if checked.why_stale:
        talk.say("error", f"the lock is stale: {checked.why_stale}")
        talk.say("hint", "renew it with `qlock resolve`")
    looked = f"{len(checked.points)} points are" if checked.points else "files and device are"
    if len(checked.points) == 1:
        looked = "1 point is"
    match checked.state:
        case "verified" | "stale":
            talk.say("ok", f"{looked} as locked")
        case "refused":
            talk.say("error", "this is not what is locked; `qlock run` will refuse")
        case "absent":
            talk.say("error", "files that the lock names are not here")
            talk.say("hint", "say where they lie with --models DIR, or bring them with `qlock fetch`")
