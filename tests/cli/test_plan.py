"""`qlock plan`: the tasks of a lock, one a line."""

from __future__ import annotations

import json

from qlock.core.lock import read_lock
from qlock.core.plan import tasks
from tests.cli.conftest import Type
from tests.fakes.project import Project

LOCK = "locks/small@cpu-amd-1a-02.toml"


def test_ids_go_to_stdout(locked: Project, typed: Type) -> None:
    said = typed("plan", LOCK)
    assert (said.code, said.out) == (0, "A@plain\nB@plain\n")
    assert said.talk == ["task     jobs  items", "A@plain     2     11", "B@plain     2     11"]


def test_json(locked: Project, typed: Type) -> None:
    told = json.loads(typed("plan", LOCK, "--json").out)
    every = tasks(read_lock(locked.lock_path.read_bytes(), name="lock"))
    assert [(task["id"], task["index"], task["digest"], task["items"]) for task in told["tasks"]] == [
        (task.id, task.index, task.digest, task.items) for task in every
    ]
    assert [job["name"] for job in told["tasks"][0]["jobs"]] == ["digits.A@plain.1", "text.A@plain.1"]
