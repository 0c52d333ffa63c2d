"""``qlock resolve --on-slurm``: the job's state while it is waited for, and what it came to.

Does not live here: the job (``flows.on_slurm``); it is no verb.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from qlock.cli.shown import Answer, Means, readable
from qlock.cli.signals import TerminatedExit
from qlock.errors import AbsentError, ExitCode

if TYPE_CHECKING:
    from qlock.flows.on_slurm import Asked, Ended, Queued
    from qlock.world.interface import Missing, SlurmTask

_HANG_UP = "SIGHUP"


def resolve_on_slurm(means: Means, spec_path: Path, words: tuple[str, ...], *, dry_run: bool) -> Answer:
    """Queue the job, wait for it, and answer what it answered; with ``dry_run`` only print its script.

    Raises:
        AbsentError: Slurm does not take it, or the job ended before it was done.
    """
    from qlock.flows import on_slurm as flow

    world = means.world()
    asked = flow.Asked(spec_path=spec_path, program=(sys.executable, "-m", "qlock"), words=words)
    if dry_run:
        return Answer(ExitCode.YES, readable(flow.resolve_script(world, asked)))
    queued, is_old = flow.queue_resolve(world, asked)
    means.talk.say(
        "note", f"job {queued.job} of an earlier call goes on" if is_old else f"queued as job {queued.job}"
    )
    return _answer(means, queued, _waited(means, asked, queued))


def _waited(means: Means, asked: Asked, queued: Queued) -> Ended:
    """What the job came to; whoever ends the waiting ends the job, except by closing the terminal."""
    from qlock.cli.progress import busy_on
    from qlock.flows import on_slurm as flow

    def talk(seen: SlurmTask | Missing) -> None:
        means.talk.line(f"job {queued.job}: {_state(seen)}")

    try:
        with busy_on(means.talk, f"waiting for job {queued.job}"):
            return flow.wait_for(means.world(), asked, queued, talk)
    except (KeyboardInterrupt, TerminatedExit) as stop:
        match stop:
            case TerminatedExit(name=name) if name == _HANG_UP:
                means.talk.say("note", f"job {queued.job} goes on; the same command waits for it again")
            case _:
                flow.cancel_resolve(means.world(), queued)
                means.talk.say("note", f"cancelled job {queued.job}")
        raise


def _state(seen: SlurmTask | Missing) -> str:
    from qlock.world.interface import Missing

    match seen:
        case Missing(why=why):
            return f"not known: {why}"
        case _:
            more = f" on {seen.node}" if seen.node else f" ({seen.reason})" if seen.reason else ""
            return f"{seen.state.lower()}{more}"


def _answer(means: Means, queued: Queued, ended: Ended) -> Answer:
    """What the job said, as if it had been said here."""
    for line in ended.err.removesuffix("\n").split("\n") if ended.err else ():
        means.talk.line(line)
    try:
        code = ExitCode(ended.code)
    except ValueError:
        raise AbsentError(
            f"qlock could not be run by job `{queued.job}`: got the exit code `{ended.code}`",
            hint="say in the [slurm] table how it is called on a node: `qlock`, `setup`, `container`",
        ) from None
    return Answer(code, readable(ended.out))
