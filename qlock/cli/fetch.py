"""``qlock fetch``: its options, what it says, and its exit code.

Does not live here: bringing files (``flows.fetch``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from qlock.cli.asked import folder_asked, lock_asked
from qlock.cli.shown import Answer, Means, data_line, document, offline, short_path
from qlock.core.escape import for_shell
from qlock.errors import ExitCode

if TYPE_CHECKING:
    from qlock.flows.fetch import Fetched


class Line(NamedTuple):
    """The command line."""

    lock: Path
    models: tuple[Path, ...]
    rehash: bool
    model: tuple[str, ...]
    offline: bool
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
@click.option("--model", multiple=True, metavar="NAME", help="Bring this model, not all of them.")
@click.option("--offline", is_flag=True, help="Use no network; say which files are not here.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verb(means: Means, /, **given: Any) -> Answer:
    """Bring the files that a lock names from the Hub.

    They go into the Hub's own cache and are held against the lock; digests that were missing are filled in, and nothing
    else in the lock changes. What is here already is not fetched again, and what was begun is gone on with. Prints where
    each file lies.
    """
    return _fetch(means, Line(**given))


def _fetch(means: Means, line: Line) -> Answer:
    from qlock.cli.progress import transfers_on
    from qlock.flows import fetch as flow

    world = offline(means.world()) if line.offline else means.world()
    lock_path, _ = lock_asked(world, line.lock)
    asked = flow.Asked(
        lock_path=lock_path,
        models=tuple(folder_asked(world, folder, "--models") for folder in line.models),
        rehash=line.rehash,
        only=line.model,
        may_download=not line.offline,
    )
    with transfers_on(means.talk, world.clock) as talk:
        fetched = flow.fetch(world, asked, talk)
    _say(means, fetched, short_path(world, lock_path))
    code = ExitCode.ABSENT if fetched.absent else ExitCode.YES
    if line.as_json:
        import msgspec

        return Answer(code, document({"verb": "fetch", **msgspec.structs.asdict(fetched)}))
    return Answer(code, "".join(data_line(file.path) for file in fetched.file))


def _say(means: Means, fetched: Fetched, lock: str) -> None:
    from qlock.core.units import bytes_text

    talk = means.talk
    for file in fetched.file:
        word = "Fetched" if file.is_new else "Have"
        talk.verb(word, f"{file.owner}: {file.file} ({bytes_text(file.size_bytes)})")
    for lacking in fetched.absent:
        talk.verb("Lacks", f"{lacking.owner}: {lacking.file} ({bytes_text(lacking.size_bytes)})")
    if fetched.absent:
        size = bytes_text(sum(lacking.size_bytes for lacking in fetched.absent))
        many = len(fetched.absent)
        files = "1 file is" if many == 1 else f"{many} files are"
        talk.say("error", f"{files} not here ({size}), and no network may be used")
        talk.say("hint", f"run `qlock fetch {for_shell(str(lock))}` where there is a network")
        return
    if not fetched.file:
        talk.say("ok", "the lock names no files that lie elsewhere")
        return
    added = "1 pin was" if len(fetched.pins) == 1 else f"{len(fetched.pins)} pins were"
    pins = f"{added} added to `{lock}`" if fetched.pins else "the lock is as it was"
    files = "1 file is" if len(fetched.file) == 1 else f"{len(fetched.file)} files are"
    talk.say("ok", f"{files} here and as locked; {pins}")
    if any(entry.until == "prove" for entry in fetched.missing):
        talk.say("hint", f"pin what only the engine knows with `qlock resolve {for_shell(fetched.renew)}`")
