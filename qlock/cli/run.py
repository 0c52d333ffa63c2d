"""``qlock run``: its options, what it says, and its exit code.

Does not live here: running (``flows.run``) and showing how far it is (``cli.progress``).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from qlock.cli.asked import Duration, folder_asked, lock_asked, runs_asked, runs_option
from qlock.cli.leaving import leaving
from qlock.cli.shown import (
    Answer,
    Means,
    Talk,
    counted,
    data_line,
    document,
    finding_rows,
    offline,
    say_distances,
    short_path,
)
from qlock.core.escape import for_shell
from qlock.core.units import count_text
from qlock.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from qlock.core.verify import Finding
    from qlock.flows.deadline import Deadline
    from qlock.flows.run import Asked, Ran
    from qlock.flows.scores import JobScore
    from qlock.world.interface import World

_CODES = {
    "sealed": ExitCode.YES,
    "already-sealed": ExitCode.YES,
    "stale": ExitCode.NO,
    "trials-failed": ExitCode.NO,
    "anchor-off": ExitCode.NO,
    "refused": ExitCode.REFUSED,
    "incomplete": ExitCode.INCOMPLETE,
    "absent": ExitCode.ABSENT,
}
_MOST_BROKEN = 10


class Line(NamedTuple):
    """The command line."""

    lock: Path
    models: tuple[Path, ...]
    engine: Path | None
    runs: Path | None
    frozen: bool
    allow: tuple[str, ...]
    rehash: bool
    repeat_lock: bool
    task: str
    max_time: float | None
    scratch: str | None
    offline: bool
    as_json: bool


_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command("run")
@click.argument("lock", type=click.Path(path_type=Path))
@click.option(
    "--models", multiple=True, type=_FOLDER, metavar="DIR", help="Look for model and data files here."
)
@click.option("--engine", type=_FOLDER, metavar="DIR", help="Folder of the engine's libraries.")
@runs_option
@click.option("--frozen", is_flag=True, help="Trust the lock, whatever the spec beside it says.")
@click.option(
    "--allow",
    multiple=True,
    metavar="FACT",
    help="Let this fact differ, named as the refusal prints it (list: docs/spec.md); the run is marked for ever.",
)
@click.option("--rehash", is_flag=True, help="Read every byte again instead of trusting cached digests.")
@click.option("--repeat-lock", is_flag=True, help="Run a lock again that is done, into a folder of its own.")
@click.option(
    "--task", default="", metavar="ID", help="Only this task of `qlock plan`, apart from the others."
)
@click.option(
    "--max-time", type=Duration(), help="Stop in time, such as 90m or 8h; exit 5. Slurm's limit is known."
)
@click.option(
    "--scratch", metavar="DIR", help="Copy models to this folder first, on a disk of this machine's own."
)
@click.option("--offline", is_flag=True, help="Use no network.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_obj
def verb(means: Means, /, **given: Any) -> Answer:
    """Measure what a lock says, on what it names.

    Prints the folder of the run. What is not as locked is shown and nothing is measured. A run that was stopped goes
    on at the next item.
    """
    return _run(means, Line(**given))


def _run(means: Means, line: Line) -> Answer:
    from qlock.cli.progress import progress_on
    from qlock.flows import run as flow
    from qlock.flows.deadline import deadline
    from qlock.flows.refusal import refuse_unknown

    if line.task and line.repeat_lock:
        raise click.UsageError("--task and --repeat-lock do not go together")
    world = offline(means.world()) if line.offline else means.world()
    limit = deadline(world, line.max_time)
    lock_path, lock = lock_asked(world, line.lock)
    refuse_unknown(lock, line.allow)
    asked = flow.Asked(
        lock_path=lock_path,
        runs=runs_asked(world, line.runs),
        models=tuple(folder_asked(world, folder, "--models") for folder in line.models),
        frozen=line.frozen,
        allow=line.allow,
        rehash=line.rehash,
        repeat_lock=line.repeat_lock,
        task=line.task,
        ask_until_s=None if limit is None else limit.ask_until_s,
        scratch=None if line.scratch is None else _scratch_asked(world, line.scratch),
        engine=None if line.engine is None else folder_asked(world, line.engine, "--engine"),
        tell=lambda told: means.talk.say("note", told),
    )
    _say_forced(means.talk, line.allow)
    if not (line.task or line.repeat_lock):
        _say_unfinished(means.talk, world, asked, line)
    with _until(limit, world), _Kept(means.talk), progress_on(means.talk, world.clock) as talk:
        ran = flow.run(world, asked, means.opener(lock.engine[0].kind), talk)
    forced = _forced(world, ran, line)
    _say(means.talk, ran, line, world)
    _say_forced(means.talk, forced)
    if line.allow and ran.state == "already-sealed":
        means.talk.say("note", "the run was whole already: nothing is run, and --allow marks nothing")
    return Answer(_CODES[ran.state], _data(world, ran, forced, as_json=line.as_json))


def _scratch_asked(world: World, text: str) -> Path:
    if not text:
        # As a path it would be the current folder.
        raise UsageError(
            "--scratch: got no folder", hint="a variable such as $TMPDIR may not be set on this machine"
        )
    return folder_asked(world, Path(text), "--scratch")


def _say_unfinished(talk: Talk, world: World, asked: Asked, line: Line) -> None:
    """What tasks have done is taken over; that there are others, which may be running, is to be known."""
    from qlock.flows.tasks import place_of, unfinished

    left = unfinished(world, place_of(world, asked.lock_path, asked.runs))
    if left:
        talk.say(
            "note",
            f"{counted(len(left))} of this run, first `{left[0]}`, not done: what it answered is asked again here",
        )
        talk.say(
            "hint",
            f"rather finish tasks with `qlock run {for_shell(str(line.lock))} --task ID` or `qlock submit`, then `qlock merge {for_shell(str(line.lock))}`",
        )


def _until(limit: Deadline | None, world: World) -> AbstractContextManager[None]:
    """Leaves what goes on when the time is up; nothing where there is no limit."""
    if limit is None:
        return leaving(None)
    left_s = limit.leave_at_s - world.clock.monotonic_s()
    return leaving(left_s, hang_s=limit.kill_at_s - limit.leave_at_s)


def _forced(world: World, ran: Ran, line: Line) -> tuple[str, ...]:
    """Marks that the run carries: of this stretch, and of those before."""
    from qlock.flows.run_folder import RunFolder

    before = [] if ran.folder is None else RunFolder(world, ran.folder).facts().segment
    allowed = () if ran.state == "already-sealed" else line.allow
    return tuple(sorted({*allowed, *(fact for segment in before for fact in segment.forced)}))


class _Kept:
    """Says what a signal leaves behind, while the run is being left."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        match error:
            case KeyboardInterrupt() | SystemExit():
                self._talk.say("note", "what was measured is kept; the same command goes on from there")
            case _:
                pass


def _say_forced(talk: Talk, allow: tuple[str, ...]) -> None:
    for fact in allow:
        talk.say(
            "warning",
            f"FORCED: `{fact}` may differ; the run carries that mark for ever, and no comparison with it is valid",
        )


def _say(talk: Talk, ran: Ran, line: Line, world: World) -> None:
    from qlock.flows.refusal import is_allowed

    def allowed(finding: Finding) -> bool:
        return is_allowed(finding, line.allow)

    talk.findings(ran.findings, allowed=allowed)
    for trial in ran.trials:
        talk.say("error", f"{trial.suite}: a canned reply to `{trial.item}` was not graded as it must be")
        talk.rows(("expected", trial.expected), ("found", trial.found))
    talk.anchors(ran.anchors)
    for broken in ran.broken[:_MOST_BROKEN]:
        talk.say("error", f"{broken.job}: `{broken.item}` was not answered: {broken.why}")
    if len(ran.broken) > _MOST_BROKEN:
        talk.say("error", f"{len(ran.broken) - _MOST_BROKEN} more items were not answered")
    if ran.taken_over:
        talk.say("note", f"taken over from earlier runs: {', '.join(ran.taken_over)}")
    if ran.scores:
        talk.table(
            ("suite", "point", "repeat", "score", "value", "items", "left out"),
            _rows(ran),
            right=(2, 4, 5, 6),
        )
    say_distances(talk, ran.scores)
    for job in ran.unscored if ran.state in ("sealed", "already-sealed") else ():
        talk.say("warning", f"{job} is done and has no score: its record says why")
    _say_end(talk, ran, line, world)


def _rows(ran: Ran) -> list[tuple[str, ...]]:
    return [
        (
            job.suite,
            job.point,
            str(job.repeat),
            job.score.what,
            _value(job),
            str(job.score.items),
            str(job.score.left_out),
        )
        for job in ran.scores
    ]


def _value(job: JobScore) -> str:
    from qlock.core.units import share_percent
    from qlock.reports.interface.distance import nats_text

    match job.score.what:
        case "right_share":
            return share_percent(job.score.value)
        case "kld_nats":
            return nats_text(job.score.value)
        case _:
            return f"{job.score.value:.4f}"


def _say_end(talk: Talk, ran: Ran, line: Line, world: World) -> None:
    """The last line: what became of the run, and what to do now."""
    folder = "" if ran.folder is None else short_path(world, ran.folder)
    match ran.state:
        case "sealed" if line.task:
            talk.say("ok", f"task `{line.task}` is done, {count_text(ran.measured, 'item')} measured")
            talk.say(
                "hint",
                f"when all tasks are done, bring them together with `qlock merge {for_shell(str(line.lock))}`",
            )
        case "sealed":
            talk.say(
                "ok",
                f"sealed, {count_text(ran.measured, 'item')} measured; answers_digest {ran.answers_digest}",
            )
        case "already-sealed":
            talk.say("ok", f"this lock was run before; answers_digest {ran.answers_digest}")
            talk.say("hint", "run it once more with --repeat-lock to see how far two runs differ")
        case "stale":
            talk.say("error", f"the lock is stale: {ran.why}")
            talk.say("hint", "renew it with `qlock resolve`, or trust it with --frozen")
        case "trials-failed":
            talk.say("error", "a grader failed its trials; nothing of that suite was measured")
            talk.say("hint", "correct the items or their grader in the spec, then `qlock resolve` again")
        case "anchor-off":
            talk.say(
                "error", f"a published score did not come out again, so nothing else was measured: {ran.why}"
            )
            talk.say("hint", "look at the anchor's source, its setting and its suite")
        case "refused":
            talk.say("error", "refused: this is not what is locked")
        case "absent":
            talk.say("error", "files that the lock names are not here")
            talk.say(
                "hint", f"say where they lie with --models DIR, or `qlock fetch {for_shell(str(line.lock))}`"
            )
        case "incomplete":
            why = f", {ran.why}" if ran.why else ""
            talk.say("error", f"incomplete{why}: `{folder}` still misses items")
            talk.say(
                "hint", f"run `qlock run {for_shell(str(line.lock))}` again; it asks only what is missing"
            )


def _data(world: World, ran: Ran, forced: tuple[str, ...], *, as_json: bool) -> str:
    folder = "" if ran.folder is None else short_path(world, ran.folder)
    if not as_json:
        return data_line(folder) if folder else ""
    return document(
        {
            "verb": "run",
            "state": ran.state,
            "folder": folder,
            "why": ran.why,
            "answers_digest": ran.answers_digest,
            "measured": ran.measured,
            "cached_digests": ran.cached_digests,
            "forced": forced,
            "taken_over": ran.taken_over,
            "scores": ran.scores,
            "unscored": ran.unscored,
            "findings": finding_rows(ran.findings),
            "trials": ran.trials,
            "anchors": ran.anchors,
            "broken": ran.broken,
        }
    )
