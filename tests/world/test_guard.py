"""The script that stands between a new process and its program, called as the script it is."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qlock.world import guard

TELL = "import os, resource; print(resource.getrlimit(resource.RLIMIT_NOFILE), dict(os.environ))"


def run(**order: Any) -> subprocess.CompletedProcess[str]:
    complete = {
        "parent": os.getpid(),
        "limits": {},
        "ctype": "C",
        "argv": [sys.executable, "-I", "-S", "-c", TELL],
        **order,
    }
    return subprocess.run(
        [sys.executable, "-I", "-S", guard.__file__, json.dumps(complete)],
        env={"LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_becomes_the_program_with_limits_and_the_its_own_locale() -> None:
    done = run(limits={"NOFILE": 17})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "(17, 17) {'LC_ALL': 'C.UTF-8', 'LC_CTYPE': 'C'}\n"


def test_it_leaves_when_its_parent_is_another_than_named() -> None:
    assert run(parent=1).returncode == guard.PARENT_GONE


def test_a_program_that_cannot_start_is_named_on_stderr(tmp_path: Path) -> None:
    done = run(argv=[str(tmp_path / "none")])
    assert done.returncode == guard.NOT_STARTED
    assert done.stderr == f"cannot start `{tmp_path / 'none'}`: No such file or directory\n"


def test_a_limit_never_rises_above_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (5, 10))
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: asked.append((which, pair)))
    guard.limit({"NOFILE": 99, "CORE": 3})
    assert asked == [(resource.RLIMIT_NOFILE, (10, 10)), (resource.RLIMIT_CORE, (3, 3))]
