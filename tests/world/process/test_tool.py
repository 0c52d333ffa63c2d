"""Tools that are called and end: what they say, and what becomes of those that do not end."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from qlock.errors import AbsentError
from qlock.world.process import ToolEnded, call_tool

ENV = {"PATH": "/usr/bin:/bin"}


def test_its_output_and_its_exit_code_are_told() -> None:
    done = call_tool(("sh", "-c", "echo out; echo err >&2; exit 3"), env=ENV, limit_s=30)
    assert done == ToolEnded(code=3, out="out\n", err="err\n")


def test_it_inherits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QLOCK_SECRET", "x")
    assert call_tool(("env",), env=ENV | {"A": "b"}, limit_s=30).out == "PATH=/usr/bin:/bin\nA=b\n"


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert call_tool(("printf", "a\\377b"), env=ENV, limit_s=30).out == "a\ufffdb"


def test_one_that_is_not_there_is_said() -> None:
    with pytest.raises(AbsentError) as caught:
        call_tool(("no-such-tool",), env=ENV, limit_s=30)
    assert str(caught.value) == "`no-such-tool` is not on the PATH"


def test_one_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    said = tmp_path / "pid"
    with pytest.raises(AbsentError) as caught:
        call_tool(("sh", "-c", f"sleep 300 & echo $! > {said}; wait"), env=ENV, limit_s=0.5)
    assert str(caught.value) == "`sh` did not answer within 0.5 s"
    pid = int(said.read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_one_that_says_too_much_is_not_read() -> None:
    with pytest.raises(AbsentError) as caught:
        call_tool(("head", "-c", "1001", "/dev/zero"), env=ENV, limit_s=30, most_bytes=1000)
    assert str(caught.value) == "`head` said more than 1000 bytes"
