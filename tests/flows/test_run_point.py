from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from qlock.core.facts import EngineFile, ReadBack
from qlock.engines.interface import Broken as BrokenReply
from qlock.errors import EngineError
from qlock.flows.run_point import Broken
from qlock.world.interface import FileDigest
from tests.fakes.engine import FakeEngine
from tests.fakes.project import (
    Project,
    fields_of,
    folder_of,
    is_whole,
    other_than,
    sealed,
    undisturbed,
    wheres,
)
from tests.fakes.world import ScriptedMaps

DEVICE = "device.cpu-amd-1a-02"
ENGINE = "engine.llama-cpp-python"


class ChangedMaps(ScriptedMaps):
    """Engine files with one fact of libm changed."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self.changes = changes

    def engine_files(
        self, mapped: Any, *, build_folders: Any, digest: Callable[[Path], FileDigest]
    ) -> tuple[EngineFile, ...]:
        files = super().engine_files(mapped, build_folders=build_folders, digest=digest)
        return tuple(
            msgspec.structs.replace(file, **self.changes) if file.name == "libm.so.6" else file
            for file in files
        )


HEX = f"blake3:{'0' * 64}"


@pytest.mark.parametrize(
    "changes, found",
    [
        ({"role": "driver"}, ["role"]),
        ({"size_bytes": 5}, ["size_bytes"]),
        ({"sha256": HEX}, ["sha256"]),
        ({"blake3": HEX}, ["blake3"]),
        ({"code_digest": HEX}, ["code_digest"]),
    ],
)
def test_every_fact_of_an_engine_file_that_differs_is_named(
    project: Project, changes: dict[str, Any], found: list[str]
) -> None:
    project.change_world(maps=ChangedMaps(**changes))
    ran = project.run()
    assert ran.state == "refused"
    assert wheres(ran) == [("engine-files", f"{ENGINE}.file.libm.so.6.{name}") for name in found]
    assert project.script.asked == []


def test_an_engine_file_more_or_fewer_is_named(project: Project) -> None:
    lost = project.script.folder / "libm.so.6"
    lost.rename(lost.with_name("libgomp.so.1"))
    ran = project.run()
    assert [(finding.where, finding.expected, finding.found) for finding in ran.findings] == [
        (f"{ENGINE}.file.libm.so.6", "present", "absent"),
        (f"{ENGINE}.file.libgomp.so.1", "absent", "present"),
    ]


def test_another_feature_line_refuses_and_another_label_does_not(project: Project) -> None:
    project.script.label = "b7000"
    project.script.system_info = "CPU : FAKE = 0"
    ran = project.run()
    assert ran.state == "refused"
    assert wheres(ran) == [("engine-files", f"{ENGINE}.system_info")]
    project.script.system_info = "CPU : FAKE = 1"
    assert project.run().state == "sealed"


@pytest.mark.parametrize("name", fields_of(ReadBack))
def test_every_fact_that_the_engine_says_of_itself_is_held_against_the_lock(
    project: Project, name: str
) -> None:
    pin = project.resolve().lock.point[0].read_back
    assert pin is not UNSET
    project.script.read_back = {name: other_than(getattr(pin, name))}
    ran = project.run()
    assert ran.state == "refused"
    # An entry of a table is told by its name, a value by that of its field.
    (where,) = (where for rule, where in wheres(ran) if rule == "read-back")
    assert re.match(rf"point\.A@plain\.read_back\.{name}(?:\.[A-Z]\w*#2)?\Z", where)
    assert project.script.asked == []


def test_an_engine_that_computes_otherwise_is_refused_at_the_canaries(project: Project) -> None:
    project.script.salt = "broken kernel"
    ran = project.run()
    assert ran.state == "refused"
    names = {where for rule, where in wheres(ran) if rule == "canaries"}
    assert names >= {"point.A@plain.canary.long-prompt.logits_digest", "point.A@plain.plain_text_nats"}
    assert {rule for rule, _ in wheres(ran)} == {"canaries"}
    assert project.script.asked == []


def test_another_sampler_is_refused_at_the_sampled_canary(project: Project) -> None:
    project.script.sampler = "draws otherwise"
    ran = project.run()
    assert ran.state == "refused"
    where = "point.A@plain.canary.sampled"
    assert {w for rule, w in wheres(ran) if rule == "canaries"} == {
        f"{where}.tokens_digest",
        f"{where}.logits_digest",
    }
    assert project.script.asked == []


def test_every_rule_at_the_start_of_a_point_speaks_at_once(project: Project) -> None:
    project.script.salt = "broken kernel"
    project.script.read_back = {"add_bos": False}
    project.change_world(maps=ChangedMaps(size_bytes=1))
    assert {rule for rule, _ in wheres(project.run())} == {"canaries", "read-back", "engine-files"}


def test_a_tokenizer_that_cuts_otherwise_is_refused_for_every_suite(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = FakeEngine.tokenize

    def tokenize(self: FakeEngine, texts: Any, *, add_special: bool, parse_special: bool) -> Any:
        found = plain(self, texts, add_special=add_special, parse_special=parse_special)
        return [
            (*ids[:-1], 255) if text.startswith(("3 and", "The sea")) else ids
            for text, ids in zip(texts, found, strict=True)
        ]

    monkeypatch.setattr(FakeEngine, "tokenize", tokenize)
    ran = project.run()
    assert ran.state == "refused"
    assert wheres(ran) == [("prompts", "point.A@plain.prompts.digits.tokens_digest")]


# Items that cannot be had


def test_an_engine_that_dies_at_one_item_sets_it_aside_and_the_next_run_asks_only_that(
    project: Project,
) -> None:
    project.script.kills["q07"] = 4
    opened = project.script.opened
    ran = project.run()
    assert ran.state == "incomplete"
    assert ran.broken == (
        Broken(
            job="digits.A@plain.1",
            item="q07",
            why="the engine died 3 times at this item: the engine died (signal SIGSEGV)",
        ),
    )
    assert (ran.measured, is_whole(ran)) == (21, False)
    assert project.script.opened - opened == 1 + 1 + 3
    project.script.asked.clear()
    again = sealed(project)
    assert (again.measured, project.script.asked) == (1, ["q07"])
    assert again.answers_digest == undisturbed(project)


def test_a_death_that_is_none_of_the_items_costs_no_item(project: Project) -> None:
    project.script.kills["q03"] = 1
    ran = sealed(project)
    assert ran.measured == 22
    assert ran.answers_digest == undisturbed(project)


def test_a_broken_reply_leaves_the_item_open(project: Project) -> None:
    project.script.replies["q02"] = BrokenReply(id="q02", why="logits are not finite at step `0`")
    ran = project.run()
    assert (ran.state, [broken.why for broken in ran.broken]) == (
        "incomplete",
        ["logits are not finite at step `0`"] * 2,
    )
    del project.script.replies["q02"]
    project.script.asked.clear()
    sealed(project)
    assert project.script.asked == ["q02", "q02"]


def test_an_engine_that_cannot_be_started_again_ends_the_run(project: Project) -> None:
    def kill(_: str) -> None:
        if len(project.script.asked) == 4:
            project.script.kills["q05"] = 1
            project.script.start_error = "the engine did not start: no memory"

    project.script.before_item = kill
    with pytest.raises(EngineError) as caught:
        project.run()
    assert str(caught.value) == "the engine did not start: no memory"
    project.script.start_error = ""
    project.script.before_item = lambda _: None
    done = list(project.script.asked)
    assert sealed(project).measured == 22 - len(done)
    assert sorted(project.script.asked[:8]) == [f"q{number:02d}" for number in range(8)]


def test_an_engine_that_dies_at_everything_ends_the_run(project: Project) -> None:
    project.script.kills.update({f"q{number:02d}": 99 for number in range(8)})
    with pytest.raises(EngineError) as caught:
        project.run()
    assert (str(caught.value), caught.value.hint) == (
        "the engine died at 3 items in a row: the engine died (signal SIGSEGV)",
        "look at the engine; the items are asked again by the next run",
    )
    assert project.script.closed <= project.script.opened
    project.script.kills.clear()
    assert sealed(project).measured == 22


def test_an_answer_that_is_cut_by_the_budget_says_so_and_is_graded_as_it_stands(project: Project) -> None:
    project.script.replies["q01"] = "1, as I said before"
    record = folder_of(project, sealed(project)).record("digits.A@plain.1")
    assert record is not None
    reply = msgspec.to_builtins(record.rows[1].replies[0])
    assert (reply["ending"], reply["text"]) == ("budget", "1, as I ")


def test_a_grader_that_fails_its_trials_stops_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path)
    row = b'{"id": "q", "prompt": "1", "expected": "1", "grader": {"kind": "exact"}, "gold": "2"}\n'
    project.write("tasks/digits.jsonl", row)
    with monkeypatch.context() as before:  # A lock of a qlock whose grader took this reply for right.
        before.setattr("qlock.flows.papers.try_grader", lambda *_, **__: ())
        project.lock()
    ran = project.run()
    assert (ran.state, is_whole(ran), project.script.asked) == ("trials-failed", False, [])
    assert [(trial.suite, trial.item, trial.expected) for trial in ran.trials] == [("digits", "q", "right")]
    assert ran.trials[0].found == "wrong: got `2`, expected `1`"
