from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from qlock.core.spec import PromptSpec, SamplingSpec
from qlock.errors import InputError
from qlock.flows.keeping import asks_the_same
from qlock.flows.moving import Move
from tests.fakes.documents import a_suite
from tests.fakes.project import Project, items_jsonl, refusal, tiny_gguf
from tests.fakes.world import CPU, FixedHost

ROOT = Path(__file__).resolve().parents[2]


def test_nothing_changed_proves_one_point_to_see_the_engine(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    project.script.probes.clear()
    assert project.resolve().state == "same"
    assert project.script.probes == ["a.gguf"]


def test_a_new_model_is_proved_alone_and_the_old_points_stay(tmp_path: Path) -> None:
    project = Project(tmp_path)
    before = project.lock().lock
    project.script.probes.clear()
    project.models["C"] = "file:models/c.gguf"
    project.write("models/c.gguf", tiny_gguf(3))
    project.write_spec()
    after = project.resolve()
    assert (after.state, after.moves) == ("changed", ())
    assert project.script.probes == ["c.gguf"]
    assert after.lock.point[:2] == before.point
    assert [pin.name for pin in after.lock.point] == ["A@plain", "B@plain", "C@plain"]


def test_a_model_that_goes_takes_nothing_else_with_it(tmp_path: Path) -> None:
    project = Project(tmp_path)
    before = project.lock().lock
    del project.models["A"]
    project.write_spec()
    after = project.resolve()
    assert (after.lock.point, after.moves) == (before.point[1:], ())


def test_another_engine_file_proves_every_point_again_and_is_a_move(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    project.script.probes.clear()
    (project.script.folder / "libm.so.6").write_bytes(b"code of another libm")
    after = project.resolve()
    assert sorted(project.script.probes) == ["a.gguf", "b.gguf"]
    parts = ("blake3", "sha256", "size_bytes")
    assert after.moves == (
        Move(
            name="llama-cpp-python", what="engine", why=", ".join(f"file.libm.so.6.{part}" for part in parts)
        ),
    )
    assert project.resolve(upgrade=("engine",)).moves == ()
    assert project.resolve(upgrade=("llama-cpp-python",)).moves == ()


def test_a_file_that_cannot_change_output_moves_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    (project.script.folder / "libc.so.6").write_bytes(b"code of another libc")
    assert project.resolve().state == "same"


def test_another_device_of_the_same_name_is_a_move_and_proves_again(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    project.script.probes.clear()
    project.script.loads.clear()
    project.change_world(host=FixedHost(msgspec.structs.replace(CPU, cpu_model="AMD EPYC 2")))
    assert project.resolve().moves == (Move(name="cpu-amd-1a-02", what="device", why="cpu_model"),)
    assert (project.script.probes, project.script.loads) == ([], [])
    assert project.resolve(upgrade=("device",)).moves == ()
    assert sorted(project.script.probes) == ["a.gguf", "b.gguf"]


def test_more_cores_prove_nothing_again(tmp_path: Path) -> None:
    project = Project(tmp_path)
    before = project.lock()
    project.script.probes.clear()
    project.change_world(host=FixedHost(msgspec.structs.replace(CPU, cores=64)))
    after = project.resolve()
    assert (after.moves, len(project.script.probes)) == ((), 1)
    assert after.lock.point == before.lock.point


@pytest.mark.parametrize(
    "upgrade, moves",
    [
        ((), 1),
        (("B",), 1),
        (("A",), 0),
        (("model",), 0),
        (("all",), 0),
    ],
)
def test_a_changed_file_is_an_unasked_move_until_it_is_named(
    tmp_path: Path, upgrade: tuple[str, ...], moves: int
) -> None:
    project = Project(tmp_path)
    project.lock()
    project.write("models/a.gguf", tiny_gguf(9))
    after = project.resolve(upgrade=upgrade)
    why = "tensors differ; tokenizer, template, metadata identical"
    assert after.moves == (Move(name="A", what="model", why=why),) * moves
    assert after.before == project.lock_path.read_bytes()


def test_a_changed_suite_file_is_an_unasked_move(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    project.write("tasks/digits.jsonl", items_jsonl(8, start=1))
    assert project.resolve().moves == (Move(name="digits", what="suite", why="items: the file changed"),)
    assert project.resolve(upgrade=("digits",)).moves == ()


@pytest.mark.parametrize("asked", [{}, {"upgrade": ("digits",)}, {"upgrade": ("all",)}, {"prove": False}])
def test_a_changed_file_that_cannot_be_read_is_said_before_it_may_move(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    project = Project(tmp_path)
    project.lock()
    project.script.loads.clear()
    project.write("tasks/digits.jsonl", items_jsonl(8) + b'{"id": \n')
    message, _ = refusal(project, InputError, **asked)
    assert message.startswith("tasks/digits.jsonl: line 9: not JSON: ")
    project.write("tasks/digits.jsonl", items_jsonl(8))
    project.write("data/text.txt", b"\xff" * 999)
    message, _ = refusal(project, InputError, **asked)
    assert message.startswith("data/text.txt: ")
    assert project.script.loads == []


def test_a_file_that_is_as_it_was_locked_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path)
    project.lock()
    monkeypatch.setattr("qlock.flows.papers.items_of", None)
    assert project.resolve().state == "same"


def test_a_changed_spec_is_asking(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    project.write_spec(lambda text: text.replace("answer_tokens = 8", "answer_tokens = 9"))
    after = project.resolve()
    assert (after.state, after.moves) == ("changed", ())


def test_the_same_ground_that_behaves_otherwise_is_a_move_of_the_point(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    project.script.nats = 3.0
    assert project.resolve().moves == (Move(name="A@plain", what="point", why="plain_text_nats"),)
    assert project.resolve(upgrade=("A@plain",)).moves == ()


def test_a_raised_limit_asks_for_more_items(tmp_path: Path) -> None:
    project = Project(tmp_path)

    def limited(limit: str) -> tuple[object, bool, set[int]]:
        project.write_spec(lambda text: text.replace('kind = "tasks"', f'kind = "tasks"{limit}'))
        lock = project.lock().lock
        suite = next(pin for pin in lock.suite if pin.name == "digits")
        return suite.items_limit, suite.items_all, {pin.prompts[0].items for pin in lock.point if pin.prompts}

    assert limited("\nlimit = 3") == (3, False, {3})
    assert limited("\nlimit = 5") == (5, False, {5})
    assert limited("") == (8, True, {8})
    assert limited("\nlimit = 100") == (8, True, {8})
    assert limited("\nlimit = 8") == (8, False, {8})
    assert limited("\nlimit = 2") == (2, False, {2})


def test_a_limit_that_changes_nothing_proves_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    project.script.probes.clear()
    project.write_spec(
        lambda text: text.replace('kind = "tasks"', 'kind = "tasks"\nlimit = 100\nrepeats = 3')
    )
    project.lock()
    assert len(project.script.probes) == 1


@pytest.mark.parametrize(
    "before, now, same",
    [
        ((5, True), UNSET, True),
        ((5, False), UNSET, False),
        ((5, True), 9, True),
        ((5, False), 9, False),
        ((5, True), 5, True),
        ((5, False), 5, True),
        ((5, True), 3, False),
        ((UNSET, True), UNSET, True),
        ((UNSET, True), 3, False),
    ],
)
def test_a_limit_asks_the_same_where_the_same_items_come_of_it(
    before: tuple[int | UnsetType, bool], now: int | UnsetType, *, same: bool
) -> None:
    limit, is_all = before
    old = a_suite(items_limit=limit, items_all=is_all)
    new = a_suite(items_limit=now, items_all=now is UNSET, repeats=9, grade_version=8, points=("X@y",))
    assert asks_the_same(new, old) == same


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "other"},
        {"ask_version": 2},
        {"params": {"items": "file:other"}},
        {"sampling": SamplingSpec(temperature=0.25)},
        {"prompt": PromptSpec(system="other")},
        {"file": ()},
    ],
)
def test_what_changes_a_question_does_not_ask_the_same(changes: dict[str, Any]) -> None:
    assert not asks_the_same(a_suite(**changes), a_suite())
