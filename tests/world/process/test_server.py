"""Children that only write: where it goes, and how their end is seen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qlock.world.process import Ended, Limits, ServerChild

LONG_S = 30.0
"""A deadline that is only met when something is broken."""

Start = Callable[[str], ServerChild]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a child that runs the Python code; all are closed at the end."""
    children: list[ServerChild] = []

    def run(code: str) -> ServerChild:
        argv = (sys.executable, "-I", "-S", "-c", code)
        children.append(ServerChild(argv, env={}, cwd=tmp_path, log=tmp_path / "log"))
        return children[-1]

    yield run
    for child in children:
        child.close(grace_s=0)


def test_all_that_it_prints_goes_into_the_log(start: Start, tmp_path: Path) -> None:
    child = start("import os; os.write(1, b'out\\n'); os.write(2, b'err\\n')")
    assert child.wait_ended(LONG_S) == Ended(how="exit code 0")
    assert (tmp_path / "log").read_bytes() == b"out\nerr\n"


def test_its_input_is_empty(start: Start, tmp_path: Path) -> None:
    assert start("import sys; sys.exit(len(sys.stdin.read()))").wait_ended(LONG_S) == Ended(how="exit code 0")


def test_one_that_runs_has_not_ended(start: Start) -> None:
    child = start("import time; time.sleep(1000)")
    assert child.ended() is None
    assert child.wait_ended(0.01) is None
    assert child.close() == "signal SIGTERM"
    assert child.ended() == Ended(how="signal SIGTERM")


def test_its_end_can_be_seen_more_than_once(start: Start) -> None:
    child = start("import sys; sys.exit(3)")
    for _ in range(2):
        assert child.wait_ended(LONG_S) == Ended(how="exit code 3")
    assert child.close() == "exit code 3"


def test_one_that_never_stops_printing_is_ended_though_nobody_asks(tmp_path: Path) -> None:
    argv = (sys.executable, "-I", "-S", "-c", "import os\nwhile True: os.write(1, bytes(1000))")
    with ServerChild(
        argv, env={}, cwd=tmp_path, log=tmp_path / "log", limits=Limits(log_bytes=1 << 12)
    ) as child:
        too_much = "it wrote more than `4096` bytes into its log"
        assert child.wait_ended(LONG_S) == Ended(how=too_much)
        assert child.close() == too_much
        assert child.ended() == Ended(how=too_much)


def test_other_files_of_it_may_be_longer_than_its_log(tmp_path: Path) -> None:
    argv = (sys.executable, "-I", "-S", "-c", "open('long', 'wb').write(bytes(10000))")
    with ServerChild(
        argv, env={}, cwd=tmp_path, log=tmp_path / "log", limits=Limits(log_bytes=1 << 12)
    ) as child:
        assert child.wait_ended(LONG_S) == Ended(how="exit code 0")
