"""How far a run is: plain lines that do not flood a log, and bars on a terminal."""

from __future__ import annotations

import io
from typing import NoReturn

import pytest

from qlock.cli.progress import (
    PlainProgress,
    PlainTransfers,
    busy_on,
    duration_text,
    progress_on,
    transfers_on,
)
from qlock.cli.shown import Talk
from qlock.flows.fetch import Progress as Transfer
from qlock.flows.preparing import Progress
from tests.fakes.world import SetClock


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def at(done: int, *, items: int = 100, tokens: int = 0, job: str = "exam.A@s.1") -> Progress:
    return Progress(job=job, done=done, items=items, tokens=tokens)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def plain(clock: SetClock) -> tuple[PlainProgress, io.StringIO]:
    stream = io.StringIO()
    return PlainProgress(Talk(stream, {}), clock), stream


def test_the_first_and_the_last_item_are_always_said(clock: SetClock) -> None:
    progress, stream = plain(clock)
    for done in range(4):
        progress(at(done, items=3))
        clock.pass_s(0.5)
    assert stream.getvalue() == "exam.A@s.1: 0/3 items\nexam.A@s.1: 3/3 items\n"


def test_in_between_there_is_a_line_every_few_seconds(clock: SetClock) -> None:
    progress, stream = plain(clock)
    for done in range(101):
        progress(at(done, tokens=20 * done))
        clock.pass_s(1.0)
    lines = stream.getvalue().split("\n")[:-1]
    assert lines[:3] == [
        "exam.A@s.1: 0/100 items",
        "exam.A@s.1: 5/100 items, 20 tokens/s, 1 min 35 s left",
        "exam.A@s.1: 10/100 items, 20 tokens/s, 1 min 30 s left",
    ]
    assert lines[-1] == "exam.A@s.1: 100/100 items, 20 tokens/s"
    assert len(lines) == 21


def test_what_was_done_on_an_earlier_day_counts_for_no_rate(clock: SetClock) -> None:
    progress, stream = plain(clock)
    progress(at(90))
    clock.pass_s(10.0)
    progress(at(91, tokens=50))
    assert stream.getvalue().split("\n")[1] == "exam.A@s.1: 91/100 items, 5 tokens/s, 1 min 30 s left"


def test_nothing_done_yet_has_no_time_left(clock: SetClock) -> None:
    progress, stream = plain(clock)
    progress(at(0))
    clock.pass_s(10.0)
    progress(at(0))
    assert stream.getvalue().split("\n")[1] == "exam.A@s.1: 0/100 items"


def test_each_job_has_its_own_pace(clock: SetClock) -> None:
    progress, stream = plain(clock)
    progress(at(0, job="one"))
    clock.pass_s(100.0)
    progress(at(100, job="one", tokens=100))
    progress(at(0, job="two"))
    clock.pass_s(10.0)
    progress(at(50, job="two", tokens=500))
    assert stream.getvalue().split("\n")[1:4] == [
        "one: 100/100 items, 1 tokens/s",
        "two: 0/100 items",
        "two: 50/100 items, 50 tokens/s, 10 s left",
    ]


def test_a_log_gets_plain_lines(clock: SetClock) -> None:
    stream = io.StringIO()
    with progress_on(Talk(stream, {}), clock) as talk:
        talk(at(0))
    assert stream.getvalue() == "exam.A@s.1: 0/100 items\n"


def test_a_terminal_gets_a_bar_for_each_job(clock: SetClock) -> None:
    stream = Terminal()
    with progress_on(Talk(stream, {"TERM": "xterm"}), clock) as talk:
        talk(at(0, job="exam[bold].A@s.1", items=2))
        clock.pass_s(1.0)
        talk(at(2, job="exam[bold].A@s.1", items=2, tokens=40))
        talk(at(1, job="text.A@s.1", items=2))
    last = stream.getvalue().rpartition("exam[bold].A@s.1")[2]
    assert "2/2" in last
    assert "40 tokens/s" in last
    assert "text.A@s.1" in last
    assert "1/2" in last


def interrupted(stream: io.StringIO, clock: SetClock) -> NoReturn:
    with progress_on(Talk(stream, {"TERM": "xterm"}), clock) as talk:
        talk(at(0))
        raise KeyboardInterrupt


def test_the_end_of_a_bar_leaves_the_terminal_as_it_was(clock: SetClock) -> None:
    stream = Terminal()
    with pytest.raises(KeyboardInterrupt):
        interrupted(stream, clock)
    assert stream.getvalue().rstrip("\n").endswith("\x1b[?25h")


@pytest.mark.parametrize(
    "duration_s, text",
    [
        (0.0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (185.0, "3 min 05 s"),
        (3599.6, "1 h 00 min"),
        (7800.0, "2 h 10 min"),
    ],
)
def test_durations_for_people(duration_s: float, text: str) -> None:
    assert duration_text(duration_s) == text


def test_a_log_hears_of_each_step() -> None:
    stream = io.StringIO()
    with busy_on(Talk(stream, {}), "resolving [bold]x") as tell:
        assert stream.getvalue() == ""
        tell("model [bold]A\x1b: reading")
        assert stream.getvalue() == "model [bold]A\\x1b: reading\n"
    assert stream.getvalue().count("\n") == 1


def test_a_terminal_sees_that_something_goes_on() -> None:
    stream = Terminal()
    with busy_on(Talk(stream, {"TERM": "xterm"}), "resolving [bold]x\x1b[2J") as tell:
        tell("model [bold]A\x1b[2J")
    assert "resolving [bold]x\\x1b[2J" in stream.getvalue()
    assert "resolving [bold]x\\x1b[2J: model [bold]A\\x1b[2J" in stream.getvalue()


def test_a_download_is_a_line_every_few_seconds(clock: SetClock) -> None:
    stream = io.StringIO()
    transfers = PlainTransfers(Talk(stream, {}), clock)
    for done in range(13):
        transfers(Transfer(file="m.gguf", done_bytes=done * 1_000, size_bytes=12_000))
        clock.pass_s(1.0)
    transfers(Transfer(file="n.gguf", done_bytes=0, size_bytes=500))
    assert stream.getvalue().split("\n")[:-1] == [
        "m.gguf: 0 B of 12.0 kB",
        "m.gguf: 5.0 kB of 12.0 kB",
        "m.gguf: 10.0 kB of 12.0 kB",
        "m.gguf: 12.0 kB of 12.0 kB",
        "n.gguf: 0 B of 500 B",
    ]


def test_a_download_on_a_terminal_is_a_bar_without_anything_raw(clock: SetClock) -> None:
    stream = Terminal()
    with transfers_on(Talk(stream, {"NO_COLOR": "1"}), clock) as transfers:
        transfers(Transfer(file="m\x07[bold].gguf", done_bytes=0, size_bytes=12_000))
        transfers(Transfer(file="m\x07[bold].gguf", done_bytes=12_000, size_bytes=12_000))
    assert "12.0/12.0 kB" in stream.getvalue()
    assert "m\\x07[bold].gguf" in stream.getvalue()
    assert "\x07" not in stream.getvalue()
