"""Signals before, while and after there is something to stop."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from qlock.cli.signals import TerminatedExit, stop_in

ROOT = Path(__file__).resolve().parents[2]

CLOSING = """
import os, signal, sys, time, types
import click
import qlock.cli.main as m
module = types.ModuleType("qlock.cli.probe")
@click.command("probe")
@click.pass_obj
def verb(means, /):
    try:
        os.kill(os.getpid(), FIRST)
        time.sleep(60)
    finally:
        os.kill(os.getpid(), SECOND)
        try:
            raise ValueError("another one is handled meanwhile")
        except ValueError:
            os.kill(os.getpid(), SECOND)
        print("closed", flush=True)
module.verb = verb
sys.modules["qlock.cli.probe"] = module
m._files = lambda: ["probe"]
sys.argv = ["qlock", "probe"]
code = m.main()
os.kill(os.getpid(), SECOND)
raise SystemExit(code)
"""

EARLY = """
import os, signal, sys
import qlock.__main__ as entry
real = __import__
def slow(name, *rest, **more):
    if name == "qlock.cli.main":
        os.kill(os.getpid(), FIRST)
    return real(name, *rest, **more)
__builtins__.__import__ = slow
sys.argv = ["qlock", "verify", "nowhere"]
raise SystemExit(entry.main())
"""

READING = """
import os, sys
import qlock.world.files as files
real = files.opened
def opened(path, what):
    os.kill(os.getpid(), FIRST)
    return real(path, what)
files.opened = opened
import qlock.cli.main as m
sys.argv[0] = "qlock"
raise SystemExit(m.main())
"""


def ran(program: str, *words: str | Path, **signals: signal.Signals) -> tuple[int, str, str]:
    for name, number in signals.items():
        program = program.replace(name, str(int(number)))
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "first, second, code, said",
    [
        (signal.SIGINT, signal.SIGINT, 130, "error: interrupted\n"),
        (signal.SIGTERM, signal.SIGINT, 143, "error: ended by SIGTERM\n"),
        (signal.SIGINT, signal.SIGTERM, 130, "error: interrupted\n"),
        (signal.SIGHUP, signal.SIGTERM, 143, "error: ended by SIGHUP\n"),
        (signal.SIGUSR1, signal.SIGTERM, 143, "error: ended by SIGUSR1\n"),
    ],
)
def test_the_first_signal_counts_and_no_other_disturbs_the_closing(
    first: signal.Signals, second: signal.Signals, code: int, said: str
) -> None:
    assert ran(CLOSING, FIRST=first, SECOND=second) == (code, "closed\n", said)


@pytest.mark.parametrize(
    "first, code, said",
    [
        (signal.SIGINT, 130, "error: interrupted\n"),
        (signal.SIGTERM, 143, "error: ended by SIGTERM\n"),
        (signal.SIGHUP, 143, "error: ended by SIGHUP\n"),
    ],
)
def test_a_signal_during_the_imports_waits_until_it_can_be_taken(
    first: signal.Signals, code: int, said: str
) -> None:
    assert ran(EARLY, FIRST=first) == (code, "", said)


@pytest.mark.parametrize(
    "first, code, said",
    [
        (signal.SIGINT, 130, "error: interrupted\n"),
        (signal.SIGTERM, 143, "error: ended by SIGTERM\n"),
    ],
)
@pytest.mark.parametrize("verb", ["resolve", "run", "fetch", "diff"])
def test_each_verb_ends_at_a_signal_with_its_code(
    tmp_path: Path, *, verb: str, first: signal.Signals, code: int, said: str
) -> None:
    lock = tmp_path / "lock.toml"
    lock.write_bytes(b"")
    assert ran(READING, verb, tmp_path if verb == "diff" else lock, FIRST=first) == (code, "", said)


def test_what_nohup_ignores_stays_ignored() -> None:
    held = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    program = held + EARLY
    code, out, err = ran(program, FIRST=signal.SIGHUP)
    assert (code, out) == (8, "")
    assert "no run in" in err


def test_a_signal_is_found_behind_what_was_raised_while_it_was_handled() -> None:
    stop = TerminatedExit("SIGHUP")
    later = OSError("gone")
    later.__context__ = ValueError("x")
    assert stop_in(later) is None
    later.__context__.__context__ = stop
    assert stop_in(later) is stop
    assert stop_in(None) is None
    stop.__context__ = later
    assert stop_in(later) is stop
