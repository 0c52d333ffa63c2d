"""``qlock resolve``: its options, what it says, and its exit code.

Does not live here: making the lock (``flows.resolve``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from qlock.cli.asked import folder_asked, spec_asked
from qlock.cli.shown import Answer, Means, data_line, document, offline, readable, short_path
from qlock.cli.waiting import resolve_on_slurm
from qlock.core.escape import for_shell
from qlock.core.units import count_text
from qlock.core.words import listed
from qlock.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from qlock.core.lock import Lock
    from qlock.flows.changed import Change
    from qlock.flows.resolve import Resolved
    from qlock.world.interface import World

_MOST_JOBS = 8
_MOST_PINS = 3
"""Of one reason; more of them are counted."""


class Line(NamedTuple):
    """The command line."""

    spec: Path
    check: bool
    dry_run: bool
    upgrade: tuple[str, ...]
    no_prove: bool
    rehash: bool
    models: tuple[Path, ...]
    offline: bool
    on_slurm: bool
    as_json: bool


@click.command("resolve")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Write nothing; exit 1 with a diff when the lock would change.")
@click.option("--dry-run", is_flag=True, help="Write nothing; print what would change as a diff.")
@click.option(
    "--upgrade",
    multiple=True,
    metavar="NAME",
    help="Let the pin of this model, suite, setting or point move; `all` lets every pin move.",
)
@click.option(
    "--no-prove", is_flag=True, help="Leave the engine alone; what only it knows is listed missing."
)
@click.option("--rehash", is_flag=True, help="Read every byte again instead of trusting cached digests.")
@click.option(
    "--models",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Look for files of the Hub here too.",
)
@click.option("--offline", is_flag=True, help="Use no network.")
@click.option(
    "--on-slurm", is_flag=True, help="Let a job of Slurm do it, on a node with the [slurm] table's resources."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verb(means: Means, /, **given: Any) -> Answer:
    """Make a spec exact, as a lock for this machine.

    Prints the path of the lock. A pin that is there is kept. What moved without being asked for is named, and nothing
    is written, nor a path printed, until `--upgrade NAME` allows it.
    """
    return _resolve(means, Line(**given))


def _resolve(means: Means, line: Line) -> Answer:
    from qlock.cli.progress import busy_on
    from qlock.flows import resolve as flow

    if line.check and line.dry_run:
        raise UsageError("got both --check and --dry-run, expected one of them")
    world = offline(means.world()) if line.offline else means.world()
    spec_path, kind = spec_asked(world, line.spec)
    if line.on_slurm:
        return resolve_on_slurm(means, spec_path, _words(world, line), dry_run=line.dry_run)
    started_s = world.clock.monotonic_s()
    with busy_on(means.talk, f"resolving {spec_path.name}") as tell:
        asked = flow.Asked(
            spec_path=spec_path,
            upgrade=line.upgrade,
            prove=not line.no_prove,
            rehash=line.rehash,
            models=tuple(folder_asked(world, folder, "--models") for folder in line.models),
            tell=tell,
        )
        resolved = flow.resolve(world, asked, means.opener(kind))
    took_s = world.clock.monotonic_s() - started_s
    lock = resolved.lock
    means.talk.line(
        f"Resolved {count_text(len(lock.model), 'model')}, {count_text(len(lock.suite), 'suite')}, "
        f"{count_text(len(lock.point), 'point')} in {took_s:.1f} s"
    )
    changes = _changes(resolved)
    written = not (line.check or line.dry_run or resolved.moves)
    if written and resolved.state != "same":
        from qlock.flows.writing import write_file

        write_file(world, resolved.path, resolved.data)
    _say_changes(means, changes, done=written)
    _say_warnings(means, lock)
    for note in resolved.notes:
        means.talk.say("note", note)
    if line.check or line.dry_run:
        _say_again(means, resolved)
    _say_moves(means, line, resolved)
    if line.check and resolved.state != "same":
        means.talk.say("error", f"`{short_path(world, resolved.path)}` is not up to date")
        if not resolved.moves:
            means.talk.say("hint", f"run `qlock resolve {for_shell(str(line.spec))}`")
    _say_how_to_move(means, line, resolved)
    return Answer(_exit_code(line, resolved), _data(world, line, resolved, changes, written=written))


def _words(world: World, line: Line) -> tuple[str, ...]:
    """The same options for a node; there ``--dry-run`` is not asked for: here it prints the script."""
    flags = {
        "--check": line.check,
        "--no-prove": line.no_prove,
        "--rehash": line.rehash,
        "--offline": line.offline,
        "--json": line.as_json,
    }
    words = [flag for flag, is_set in flags.items() if is_set]
    for name in line.upgrade:
        words += ["--upgrade", name]
    for folder in line.models:
        words += ["--models", str(folder_asked(world, folder, "--models"))]
    return tuple(words)


def _exit_code(line: Line, resolved: Resolved) -> ExitCode:
    if line.dry_run:
        return ExitCode.YES
    if line.check:
        return ExitCode.YES if resolved.state == "same" else ExitCode.NO
    return ExitCode.NO if resolved.moves else ExitCode.YES


def _changes(resolved: Resolved) -> tuple[Change, ...]:
    from qlock.core.lock import read_lock
    from qlock.flows.changed import lock_changes

    old = None if resolved.before is None else read_lock(resolved.before, name=resolved.path.name)
    return tuple(lock_changes(old, resolved.lock))


def _say_changes(means: Means, changes: tuple[Change, ...], *, done: bool) -> None:
    would = {"Added": "Would add", "Updated": "Would update", "Removed": "Would remove", "Kept": "Would keep"}
    for change in changes:
        if change.word != "Kept":
            means.talk.verb(change.word if done else would[change.word], change.told())
    kept = sum(change.word == "Kept" for change in changes)
    if kept == len(changes):
        means.talk.line("Nothing changed")
    elif kept:
        means.talk.verb(
            "Kept" if done else "Would keep",
            "1 other as it is" if kept == 1 else f"{kept} others as they are",
        )


def _say_warnings(means: Means, lock: Lock) -> None:
    for model in lock.model:
        for warning in model.warnings:
            means.talk.say("warning", f"model {model.name}: {warning}")
    for setting in lock.setting:
        if setting.slots_why:
            means.talk.say(
                "warning",
                f"setting {setting.name}: {count_text(setting.slots, 'slot')} instead of {setting.slots_requested}: "
                f"{setting.slots_why}",
            )
    for (until, why), pins in _by_reason(lock).items():
        how = "cannot be pinned" if until == "never" else "is not pinned yet"
        if len(pins) > _MOST_PINS:
            how = how.replace("is not", "are not")
            means.talk.say("note", f"{len(pins)} pins {how}, first {pins[0]}: {why}")
        else:
            for pin in pins:
                means.talk.say("note", f"{pin} {how}: {why}")


def _by_reason(lock: Lock) -> dict[tuple[str, str], list[str]]:
    """Pins that are missing, by until when and why."""
    found: dict[tuple[str, str], list[str]] = {}
    for entry in lock.missing:
        found.setdefault((entry.until, entry.why), []).append(entry.pin)
    return found


def _say_again(means: Means, resolved: Resolved) -> None:
    """What an up-to-date lock would leave to do, where everything that is locked now has been measured."""
    if not resolved.again or resolved.state == "same":
        return
    todo = [("Would measure", row) for row in resolved.again.measure]
    todo += [("Would grade", row) for row in resolved.again.grade]
    for word, row in todo:
        means.talk.verb(word, f"again ({row.why}): {listed(row.jobs, most=_MOST_JOBS)}")
    if todo:
        valid = len(resolved.again.valid)
        means.talk.line("1 job stays valid" if valid == 1 else f"{valid} jobs stay valid")


def _say_moves(means: Means, line: Line, resolved: Resolved) -> None:
    """What moved unasked: what stops a resolve, and what would stop one where nothing is to be written anyway."""
    for move in resolved.moves:
        what = f"{move.what} {move.name}"
        if line.dry_run:
            means.talk.say("warning", f"{what} would move, and nobody asked for it: {move.why}")
        else:
            means.talk.say("error", f"{what} moved, and nobody asked for it: {move.why}")


def _say_how_to_move(means: Means, line: Line, resolved: Resolved) -> None:
    if not resolved.moves:
        return
    names = " ".join(f"--upgrade {name}" for name in dict.fromkeys(move.name for move in resolved.moves))
    done = "" if line.check or line.dry_run else "nothing was written; "
    means.talk.say(
        "hint",
        f"{done}bring back what was locked, or let it move with `qlock resolve {for_shell(str(line.spec))} {names}`",
    )


def _data(world: World, line: Line, resolved: Resolved, changes: tuple[Change, ...], *, written: bool) -> str:
    if line.as_json:
        return document(
            {
                "verb": "resolve",
                "state": resolved.state,
                "path": short_path(world, resolved.path),
                "written": written and resolved.state != "same",
                "changes": changes,
                "moves": resolved.moves,
                "notes": resolved.notes,
                "again": resolved.again or None,
                "missing": resolved.lock.missing,
            }
        )
    if line.check or line.dry_run:
        from qlock.flows.moving import text_difference

        return readable(
            text_difference(resolved.before or b"", resolved.data, name=f"locks/{resolved.path.name}")
        )
    if resolved.moves:
        return ""
    return data_line(short_path(world, resolved.path))
