"""`qlock plan`: the tasks of a lock, one a line."""

from __future__ import annotations

import json

from qlock.core.lock import read_lock
from qlock.core.tasks import tasks
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


def test_long_points_are_cut(locked: Project, typed: Type) -> None:
    said = typed("plan", LOCK, "--shard-items", "6")
    assert said.out == "A@plain@1of2\nA@plain@2of2\nB@plain@1of2\nB@plain@2of2\n"
    assert said.talk == [
        "task          jobs  items",
        "A@plain@1of2     1      5",
        "A@plain@2of2     2      6",
        "B@plain@1of2     1      5",
        "B@plain@2of2     2      6",
    ]
    typed("run", LOCK, "--task", "A@plain@2of2")
    assert typed("plan", LOCK).out == "A@plain@1of2\nA@plain@2of2\nB@plain\n"
    locked.write_spec(lambda text: f"{text}\n[slurm]\nshard_items = 4\n")
    told = json.loads(typed("plan", LOCK, "--json").out)
    assert [task["id"] for task in told["tasks"]] == [
        "A@plain@1of2",
        "A@plain@2of2",
        "B@plain@1of3",
        "B@plain@2of3",
        "B@plain@3of3",
    ]
    assert told["tasks"][1]["jobs"][0]["part"] == {"start": 5, "stop": 8}


def test_a_shard_of_nothing(locked: Project, typed: Type) -> None:
    assert typed("plan", LOCK, "--shard-items", "0").code == 2


def test_a_stale_lock(locked: Project, typed: Type) -> None:
    locked.write_spec(lambda text: text.replace("answer_tokens = 8", "answer_tokens = 9"))
    said = typed("plan", LOCK)
    assert (said.code, said.out) == (1, "")
    assert said.talk == [
        "error: the lock is stale: the spec `specs/small.toml` changed since this lock was made",
        "hint: renew it with `qlock resolve`, or trust it with --frozen",
    ]
    assert json.loads(typed("plan", LOCK, "--json").out)["state"] == "stale"
    assert typed("plan", LOCK, "--frozen").code == 0
