"""Signals that end a verb: each an exception on its way out, and a second one for what hangs there."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qlock.cli.leaving import leaving
from qlock.cli.signals import TimeUpExit
from tests.cli.conftest import Type
from tests.fakes.project import Project

LOCK = "locks/small@cpu-amd-1a-02.toml"
ROOT = Path(__file__).parents[2]


def test_without_a_limit_no_alarm_is_set() -> None:
    with leaving(None):
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_the_alarm_comes_and_is_taken_back() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TimeUpExit), leaving(0.05, hang_s=300):
        time.sleep(60)
    with leaving(300):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGALRM) is before


def ended(program: str) -> subprocess.CompletedProcess[str]:
    """A program that says `ready` and ends."""
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        out = process.stdout.read()
        return subprocess.CompletedProcess([], process.wait(), out, "")


def test_what_hangs_on_its_way_out_is_ended_by_the_kernel() -> None:
    program = """
import time
from qlock.cli.leaving import leaving
print("ready", flush=True)
with leaving(0.1, hang_s=0.2):
    try:
        time.sleep(60)
    finally:
        print("leaving", flush=True)
        time.sleep(60)
"""
    done = ended(program)
    assert (done.returncode, done.stdout) == (-signal.SIGALRM, "leaving\n")


def test_when_something_else_is_ending_it_the_alarm_does_not_disturb() -> None:
    program = """
import time
from qlock.cli.leaving import leaving
print("ready", flush=True)
with leaving(0.1, hang_s=300):
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        time.sleep(0.5)
        print("closed", flush=True)
"""
    assert ended(program).stdout == "closed\n"


def test_when_the_time_is_up_a_run_says_so_and_can_go_on(locked: Project, typed: Type) -> None:
    """The clock of the project stands still, so that only the alarm can end it."""

    def wait(item: str) -> None:
        if item == "q05":
            time.sleep(60)

    locked.script.before_item = wait
    said = typed("run", LOCK, "--max-time", "1s")
    assert said.code == 5
    assert said.talk[-2:] == [
        "note: what was measured is kept; the same command goes on from there",
        "error: incomplete: the time is up",
    ]
    locked.script.before_item = lambda _: None
    assert typed("run", LOCK).code == 0


def test_a_limit_in_time_stops_asking(locked: Project, typed: Type) -> None:
    clock = locked.world.clock
    locked.script.before_item = lambda _: clock.sleep_s(3.0)
    said = typed("run", LOCK, "--max-time", "16s")
    assert said.code == 5
    folder = said.out.strip()
    assert said.talk[-2:] == [
        f"error: incomplete, the time is up: `{folder}` still misses items",
        f"hint: run `qlock run {LOCK}` again; it asks only what is missing",
    ]


@pytest.mark.parametrize("text", ["90", "1.5h", "soon", "0s", "-1m", "5w"])
def test_a_time_without_its_unit_is_no_time(locked: Project, typed: Type, text: str) -> None:
    said = typed("run", LOCK, f"--max-time={text}")
    assert said.code == 2
    assert (
        f"got `{text}`, expected a number with its unit, such as `90s`, `45m`, `8h` or `2d`" in said.talk[0]
    )
