"""`qlock why`."""

from __future__ import annotations

import json

from tests.cli.conftest import Type
from tests.fakes.project import Project

LOCK = "locks/small@cpu-amd-1a-02.toml"


def test_where_a_pin_came_from(locked: Project, typed: Type) -> None:
    said = typed("why", "A")
    assert (said.code, said.err) == (0, "")
    lines = said.out.split("\n")
    assert lines[:4] == [
        "model A in small@cpu-amd-1a-02.toml",
        "  requested:  file:models/a.gguf",
        "  became:     the bytes that were there",
        "  since:      unknown: a lock holds no dates; `git log` of the lock tells",
    ]
    assert typed("why", "A", "--lock", LOCK).out == said.out


def test_json(locked: Project, typed: Type) -> None:
    (reason,) = json.loads(typed("why", "plain", "--json").out)["reasons"]
    assert (reason["table"], reason["row"]) == ("setting", [{"what": "slots", "told": "4 of 4 asked for"}])


def test_an_unknown_name_is_usage_and_no_lock_is_absent(project: Project, typed: Type) -> None:
    assert typed("why", "A").code == 8
    project.lock()
    said = typed("why", "Q4")
    assert (said.code, said.talk[0]) == (2, "error: no lock here has a pin called `Q4`")
