"""``show``: what a run asked, what was answered, and what that is worth, item by item; no engine and no model.

Everything comes from the run's folder: what was asked from the items that lie there, replies from the record, outcomes
from the grades, or worked out now where the job goes on still. A run that is not whole is shown as far as it goes, also
where its tasks were not brought together yet.

The text that a chat template made of a conversation is not kept, only pinned; the conversation is shown instead.

Does not live here: how it looks (``cli.show``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import get_args

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Count, Positive
from qlock.core.endings import ENDINGS, loops
from qlock.core.escape import for_message
from qlock.core.exchange import Chat, Complete, Ending, Failed, Outcome, Reply, Request, Ungraded
from qlock.core.lock import SuitePin, named
from qlock.core.pairs import ending_of
from qlock.core.plan import Job, jobs
from qlock.core.record import Row, Times, tokens_of
from qlock.core.tasks import Task, cut_of_id, lock_of_task, task_named
from qlock.core.words import did_you_mean
from qlock.errors import IncompleteError, QlockError, UsageError
from qlock.flows.asking import conversation
from qlock.flows.grading import word
from qlock.flows.kinds import params_of, suite_kind
from qlock.flows.opened import OpenRun, forced_facts, items_of, open_run, sitting_of
from qlock.flows.run_folder import TASKS
from qlock.suites.interface import Item, Play
from qlock.world.interface import World

OUTCOMES: tuple[str, ...] = tuple(kind.__struct_config__.tag for kind in get_args(Outcome))
"""Words for outcomes."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks of ``show``; what is empty stands for all."""

    path: Path
    item: str = ""
    suite: str = ""
    point: str = ""
    outcome: tuple[str, ...] = ()
    ending: tuple[str, ...] = ()


class Exchange(Base, frozen=True, kw_only=True):
    """One request of an item and its reply."""

    request: Request | UnsetType = UNSET
    """A conversation is whole: with the system's message and the examples. Unset where nothing more is asked."""
    reply: Reply | UnsetType = UNSET
    """Unset where there is none yet."""


class ItemSeen(Base, frozen=True, kw_only=True):
    """One item in one job."""

    item: str
    suite: str
    point: str
    repeat: Positive
    slices: dict[str, str]
    outcome: Outcome
    ending: Ending | UnsetType = UNSET
    """Unset where nothing was written."""
    loops: bool = False
    tokens: Count = 0
    """Written or scored."""
    times: Times | UnsetType = UNSET
    exchanges: tuple[Exchange, ...] | UnsetType = UNSET
    """Only of an item that is asked for by its id."""

    @property
    def is_answered(self) -> bool:
        """Whether there is a row of it."""
        return self.times is not UNSET


class Shown(Base, frozen=True, kw_only=True):
    """What was found."""

    run: str
    is_sealed: bool
    forced: tuple[str, ...]
    items: tuple[ItemSeen, ...]
    """Suite by suite, then point by point, in the order in which they are asked."""
    left_out: Count
    """Items that another outcome or ending was asked for."""
    not_begun: dict[str, Count]
    """Job to its items that no run and no task has begun to ask."""


def show(world: World, asked: Asked) -> Shown:
    """The items that are asked for.

    Raises:
        UsageError: The run has no such item, suite, point, outcome or ending.
        IncompleteError: It has no such item yet, and not every item was begun.
        AbsentError: There is no such run, or several.
        InputError: The lock, a record, its items or grades are unreadable, or were changed after the seal.
    """
    _known("outcome", asked.outcome, OUTCOMES)
    _known("ending", asked.ending, ENDINGS)
    run = open_run(world, asked.path)
    task = None if run.folder.whole == run.folder.path else task_named(run.lock, run.folder.path.name)
    lock = run.lock if task is None else lock_of_task(run.lock, task)
    order = [suite.name for suite in lock.suite]
    _known("suite", filter(None, [asked.suite]), order)
    _known("point", filter(None, [asked.point]), [point.name for point in lock.point])
    mine = jobs(lock) if task is None else task.jobs
    chosen = [job for job in mine if asked.suite in ("", job.suite) and asked.point in ("", job.point)]
    if not chosen:
        raise UsageError(f"the point `{asked.point}` does not sit the suite `{asked.suite}`")
    seen: list[ItemSeen] = []
    ids: dict[str, None] = {}
    not_begun: dict[str, int] = {}
    for job in sorted(chosen, key=lambda job: order.index(job.suite)):
        begun = 0
        for place, part in _places(world, run, job):
            items = items_of(place, part)
            begun += len(items)
            ids |= dict.fromkeys(item.id for item in items)
            seen += _items(place, part, items, only=asked.item)
        if begun < job.asked:
            not_begun[job.name] = job.asked - begun
    if asked.item and not seen:
        raise _no_item(asked.item, tuple(ids), not_begun)
    wanted = tuple(one for one in seen if _is_wanted(one, asked))
    return Shown(
        run=run.name,
        is_sealed=run.seal is not None,
        forced=forced_facts(run),
        items=wanted,
        left_out=len(seen) - len(wanted),
        not_begun=not_begun,
    )


def _known(what: str, asked: Iterable[str], known: Iterable[str]) -> None:
    names = tuple(known)
    for name in asked:
        if name not in names:
            raise UsageError(
                f"got {what} `{for_message(name)}`, expected one of: {', '.join(names)}",
                hint=did_you_mean(name, names),
            )


def _no_item(name: str, ids: tuple[str, ...], not_begun: dict[str, int]) -> QlockError:
    """What is said of an item that is not there: where some were not begun, it may be one of them."""
    shown = for_message(name)
    meant = did_you_mean(name, ids)
    if not_begun:
        jobs_left = ", ".join(not_begun)
        return IncompleteError(
            f"the run has no item `{shown}` yet, and of {jobs_left} not every item was asked", hint=meant
        )
    return UsageError(
        f"the run has no item `{shown}`", hint=meant or "without an item, all of them are listed"
    )


def _is_wanted(seen: ItemSeen, asked: Asked) -> bool:
    return (not asked.outcome or word(seen.outcome) in asked.outcome) and (
        not asked.ending or seen.ending in asked.ending
    )


def _places(world: World, run: OpenRun, job: Job) -> list[tuple[OpenRun, Job]]:
    """Where a job lies, and which part of it: in the run's own folder, or in those of tasks until these are merged."""
    folder = run.folder
    if run.seal is not None or folder.record_path(job.name).exists():
        return [(run, job)]
    found = [
        (open_run(world, folder.path / TASKS / task.id), part)
        for task in _begun(run, job.point)
        for part in task.jobs
        if part.name == job.name
    ]
    return found or [(run, job)]


def _begun(run: OpenRun, point: str) -> list[Task]:
    """The tasks of a point that were begun, in the order of their items."""
    place = run.folder.path / TASKS
    names = [path.parent.name for path in place.glob("*/lock.toml")]
    found = [task_named(run.lock, name) for name in names if cut_of_id(name)[0] == point]
    return sorted(found, key=lambda task: task.index)


def _items(run: OpenRun, job: Job, items: tuple[Item, ...], *, only: str) -> Iterator[ItemSeen]:
    sitting = sitting_of(run, job)
    suite = named(run.lock.suite, job.suite)
    rows = {row.item: row for row in sitting.rows}
    for item in items:
        if only in ("", item.id):
            row = rows.get(item.id)
            outcome = sitting.outcomes.get(item.id, Ungraded(why="not answered yet"))
            seen = ItemSeen(
                item=item.id,
                suite=job.suite,
                point=job.point,
                repeat=job.repeat,
                slices=item.slices,
                outcome=outcome,
                exchanges=_exchanges(suite, item, row) if only else UNSET,
            )
            yield seen if row is None else _with_row(seen, row)


def _with_row(seen: ItemSeen, row: Row) -> ItemSeen:
    return msgspec.structs.replace(
        seen,
        ending=ending_of(row) or UNSET,
        loops=loops(row),
        tokens=tokens_of(row),
        times=row.times,
    )


def _exchanges(suite: SuitePin, item: Item, row: Row | None) -> tuple[Exchange, ...]:
    """What was asked and answered, by playing the replies back."""
    kind = suite_kind(suite.kind)
    play = kind.ask(item, params_of(kind, suite, where=f"suite.{suite.name}"))
    replies = () if row is None else row.replies
    requests = [_whole(request, suite) for request in _requests(play, replies)]
    return tuple(
        Exchange(request=request, reply=reply)
        for request, reply in zip_longest(requests, replies, fillvalue=UNSET)
    )


def _requests(play: Play, replies: tuple[Reply, ...]) -> Iterator[Request]:
    """Every request of a play that is sent these replies, and the one that has no reply yet."""
    try:
        yield next(play)
        for reply in replies:
            match reply:
                case Failed():
                    return
                case _:
                    yield play.send(reply)
    except StopIteration:
        return
    finally:
        play.close()


def _whole(request: Request, suite: SuitePin) -> Request:
    match request:
        case Complete(prompt=Chat() as chat):
            messages = conversation(chat, suite.prompt)
            return Complete(prompt=msgspec.structs.replace(chat, messages=messages))
        case _:
            return request
