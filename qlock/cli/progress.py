"""How far a run or a download is: a bar for each job or file on a terminal, a plain line every few seconds elsewhere.

Does not live here: counting (``flows.run_point``, ``flows.fetch``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from qlock.cli.shown import Talk

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from qlock.flows.fetch import Progress as Transfer
    from qlock.flows.preparing import Progress
    from qlock.world.interface import Clock

_EVERY_S = 5.0


@contextlib.contextmanager
def progress_on(talk: Talk, clock: Clock) -> Iterator[Callable[[Progress], None]]:
    """What a run tells its progress to, until the end of the ``with``."""
    if not talk.is_terminal:
        yield PlainProgress(talk, clock)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    console = Console(file=talk.stream, no_color=not talk.has_colour, highlight=False, markup=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console) as bars:
        yield BarProgress(bars, clock)


@contextlib.contextmanager
def busy_on(talk: Talk, doing: str) -> Iterator[Callable[[str], None]]:
    """A sign of life while something goes on that can only say at which step it is, until the end of the ``with``.

    Gives what is told of each step: a terminal shows the last one, a log gets a line for each.
    """
    if not talk.is_terminal:
        yield talk.line
        return
    from rich.console import Console
    from rich.text import Text

    from qlock.core.escape import for_message

    console = Console(file=talk.stream, no_color=not talk.has_colour, highlight=False, markup=False)
    with console.status(Text(for_message(doing))) as status:
        yield lambda step: status.update(Text(for_message(f"{doing}: {step}")))


@contextlib.contextmanager
def transfers_on(talk: Talk, clock: Clock) -> Iterator[Callable[[Transfer], None]]:
    """What a download tells its progress to, until the end of the ``with``."""
    if not talk.is_terminal:
        yield PlainTransfers(talk, clock)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    console = Console(file=talk.stream, no_color=not talk.has_colour, highlight=False, markup=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console) as bars:
        tasks: dict[str, Any] = {}

        def move(transfer: Transfer) -> None:
            from qlock.core.escape import for_message

            if transfer.file not in tasks:
                tasks[transfer.file] = bars.add_task(for_message(transfer.file), total=transfer.size_bytes)
            bars.update(tasks[transfer.file], completed=transfer.done_bytes)

        yield move


class PlainTransfers:
    """A line at the start and end of each file, and in between at most every few seconds."""

    def __init__(self, talk: Talk, clock: Clock) -> None:
        self._talk = talk
        self._clock = clock
        self._said_s = 0.0
        self._file = ""

    def __call__(self, transfer: Transfer) -> None:
        """Say it, when it is time to."""
        from qlock.core.units import bytes_text

        now_s = self._clock.monotonic_s()
        is_edge = transfer.file != self._file or transfer.done_bytes == transfer.size_bytes
        if not is_edge and now_s - self._said_s < _EVERY_S:
            return
        self._said_s, self._file = now_s, transfer.file
        share = f"{bytes_text(transfer.done_bytes)} of {bytes_text(transfer.size_bytes)}"
        self._talk.line(f"{transfer.file}: {share}")


class _Pace:
    """Tokens and items in one job since it was first heard of.

    NOTE: the first word about a job counts what an earlier stretch of running did, which took none of this one's time.
    """

    def __init__(self, first: Progress, clock: Clock) -> None:
        self._clock = clock
        self._started_s = clock.monotonic_s()
        self._first = first

    def tokens_per_s(self, now: Progress) -> float | None:
        """``None`` before any time has passed."""
        passed_s = self._clock.monotonic_s() - self._started_s
        return (now.tokens - self._first.tokens) / passed_s if passed_s > 0 else None

    def left_s(self, now: Progress) -> float | None:
        """``None`` before anything was done."""
        did = now.done - self._first.done
        passed_s = self._clock.monotonic_s() - self._started_s
        return passed_s / did * (now.items - now.done) if did > 0 else None


class BarProgress:
    """A bar for each job."""

    def __init__(self, bars: Bars, clock: Clock) -> None:
        self._bars = bars
        self._clock = clock
        self._tasks: dict[str, tuple[_Pace, int]] = {}

    def __call__(self, progress: Progress) -> None:
        """Move the job's bar."""
        from rich.progress import TaskID

        if progress.job not in self._tasks:
            task = self._bars.add_task(progress.job, total=progress.items, completed=progress.done, rate="")
            self._tasks[progress.job] = (_Pace(progress, self._clock), int(task))
        pace, number = self._tasks[progress.job]
        rate = _rate(pace.tokens_per_s(progress))
        self._bars.update(TaskID(number), completed=progress.done, rate=rate)


class PlainProgress:
    """A line at the start and end of each job, and in between at most every few seconds."""

    def __init__(self, talk: Talk, clock: Clock) -> None:
        self._talk = talk
        self._clock = clock
        self._paces: dict[str, _Pace] = {}
        self._said_s = 0.0

    def __call__(self, progress: Progress) -> None:
        """Say it, when it is time to."""
        now_s = self._clock.monotonic_s()
        is_first = progress.job not in self._paces
        pace = self._paces.setdefault(progress.job, _Pace(progress, self._clock))
        is_last = progress.done == progress.items
        if not (is_first or is_last or now_s - self._said_s >= _EVERY_S):
            return
        self._said_s = now_s
        left_s = None if is_last else pace.left_s(progress)
        parts = [
            f"{progress.done}/{progress.items} items",
            _rate(pace.tokens_per_s(progress)),
            "" if left_s is None else f"{duration_text(left_s)} left",
        ]
        self._talk.line(f"{progress.job}: " + ", ".join(part for part in parts if part))


def _rate(tokens_per_s: float | None) -> str:
    return "" if not tokens_per_s else f"{tokens_per_s:.0f} tokens/s"


def duration_text(duration_s: float) -> str:
    """A duration for people: ``45 s``, ``3 min 05 s``, ``2 h 10 min``."""
    whole_s = round(duration_s)
    if whole_s < 60:
        return f"{whole_s} s"
    if whole_s < 3600:
        return f"{whole_s // 60} min {whole_s % 60:02} s"
    return f"{whole_s // 3600} h {whole_s % 3600 // 60:02} min"
