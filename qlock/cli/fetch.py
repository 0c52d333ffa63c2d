"""``qlock fetch``: its options, what it says, and its exit code.

Does not live here: bringing files (``flows.fetch``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from qlock.cli.asked import folder_asked, lock_asked
from qlock.cli.shown import Answer, Means, document, readable, short_path
from qlock.errors import ExitCode

if TYPE_CHECKING:
    from qlock.flows.fetch import Fetched


class Line(NamedTuple):
    """The command line."""

    lock: Path
    models: tuple[Path, ...]
    rehash: bool
    as_json: bool


@click.command("fetch")
@click.argument("lock", type=click.Path(path_type=Path))
@click.option(
    "--models",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Files that lie here already are not fetched.",
)
@click.option("--rehash", is_flag=True, help="Read every byte again instead of trusting cached digests.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verb(means: Means, /, **given: Any) -> Answer:
    """Bring the files that a lock names from the Hub.

    They go into the Hub's own cache and are held against the lock; digests that were missing are filled in, and nothing
    else in the lock changes. What is here already is not fetched again. Prints where each file lies.
    """
    return _fetch(means, Line(**given))


def _fetch(means: Means, line: Line) -> Answer:
    from qlock.cli.progress import transfers_on
    from qlock.flows import fetch as flow

    world = means.world()
    lock_path, _ = lock_asked(world, line.lock)
    asked = flow.Asked(
        lock_path=lock_path,
        models=tuple(folder_asked(world, folder, "--models") for folder in line.models),
        rehash=line.rehash,
    )
    with transfers_on(means.talk, world.clock) as talk:
        fetched = flow.fetch(world, asked, talk)
    _say(means, fetched, short_path(world, lock_path))
    if line.as_json:
        import msgspec

        return Answer(ExitCode.YES, document({"verb": "fetch", **msgspec.structs.asdict(fetched)}))
    return Answer(ExitCode.YES, "".join(f"{readable(file.path)}\n" for file in fetched.file))


def _say(means: Means, fetched: Fetched, lock: str) -> None:
    from qlock.core.units import bytes_text

    talk = means.talk
    for file in fetched.file:
        word = "Fetched" if file.is_new else "Have"
        talk.verb(word, f"{file.owner}: {file.file} ({bytes_text(file.size_bytes)})")
    if not fetched.file:
        talk.say("ok", "the lock names no files that lie elsewhere")
        return
    pins = f"{len(fetched.pins)} pins were added to `{lock}`" if fetched.pins else "the lock is as it was"
    files = "1 file is" if len(fetched.file) == 1 else f"{len(fetched.file)} files are"
    talk.say("ok", f"{files} here and as locked; {pins}")
    if any(entry.until == "prove" for entry in fetched.missing):
        talk.say("hint", f"pin what only the engine knows with `qlock resolve {fetched.renew}`")
