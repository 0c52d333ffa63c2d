from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import UNSET

from qlock.errors import EngineError, InputError, RefusedError
from qlock.flows.refusal import FindingsError
from tests.fakes.project import Project, refusal, tiny_gguf

ROOT = Path(__file__).resolve().parents[2]


def test_rows_that_depend_on_one_another_make_the_whole_setting_fall_back_to_one_slot(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.script.shaky = {"b.gguf"}
    lock = project.resolve().lock
    (setting,) = lock.setting
    why = (
        "B@plain: greedy tokens stay but logits do not when the schedule changes (repeat, permute, dummies, copies, "
        "long-neighbours): logits move by up to 0.25, 0.001 nats of KL divergence a token"
    )
    assert (setting.slots, setting.slots_requested, setting.slots_why) == (1, 4, why)
    assert project.script.probes == ["a.gguf", "b.gguf", "a.gguf", "b.gguf"]
    points = [f"point {name}@plain: loading and proving" for name in "AB"]
    models = [f"model {name}: reading 1 file (576 B)" for name in "AB"]
    assert project.steps == [*models, *points, f"setting plain: one slot instead of 4: {why}", *points]
    assert [(pin.repeatable, pin.read_back) for pin in lock.point] == [
        ("bitwise", pin.read_back) for pin in lock.point
    ]
    assert {pin.read_back.slots for pin in lock.point if pin.read_back is not UNSET} == {1}
    assert {pin.repeatable_why for pin in lock.point} == {
        "each answer is the same bits every time, so a run may stop and resume anywhere"
    }


def test_a_model_added_to_a_fallen_back_setting_stays_at_one_slot(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.script.shaky = {"b.gguf"}
    before = project.lock().lock
    project.script.probes.clear()
    project.models["C"] = "file:models/c.gguf"
    project.write("models/c.gguf", tiny_gguf(3))
    project.write_spec()
    after = project.resolve()
    assert after.moves == ()
    assert (after.lock.setting, after.lock.point[:2]) == (before.setting, before.point)
    assert project.script.probes == ["c.gguf"]


def test_a_new_model_that_narrows_a_setting_moves_it(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    project.script.shaky = {"c.gguf"}
    project.models["C"] = "file:models/c.gguf"
    project.write("models/c.gguf", tiny_gguf(3))
    project.write_spec()
    (move,) = project.resolve().moves
    assert (move.name, move.what) == ("plain", "setting")
    assert move.why.startswith("falls back to 1 slot: C@plain: greedy tokens stay but logits do not")
    assert project.resolve(upgrade=("plain",)).moves == ()


def test_an_engine_that_makes_no_sense_of_plain_text_is_refused_unless_the_model_is_untrained(
    tmp_path: Path,
) -> None:
    project = Project(tmp_path)
    project.script.nats = 5.5
    with pytest.raises(FindingsError) as caught:
        project.resolve()
    assert str(caught.value) == (
        "point.A@plain.plain_text_nats: got `5.51`, expected `below 3.70`: engine output not sane: plain English "
        "costs as much as guessing; for random weights set `trained = false`"
    )
    project.write_spec(lambda text: text.replace('.gguf"\n', '.gguf"\ntrained = false\n'))
    assert project.resolve().state == "new"


def test_an_engine_that_does_not_start_or_obey_stops_the_resolve(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.script.read_back = {"slots": 2}
    assert refusal(project, RefusedError) == (
        "point.A@plain.slots: got `2`, expected `4`",
        "the engine did not do as it was told; look at its log",
    )
    project.script.start_error = "the engine did not start: no libllama.so"
    assert refusal(project, EngineError) == ("the engine did not start: no libllama.so", "")


def test_a_fallen_back_setting_is_tried_again_at_its_width_when_it_is_named(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.script.shaky = {"b.gguf"}
    project.lock()
    project.script.shaky = set()
    assert project.resolve().lock.setting[0].slots == 1
    for name in ("plain", "setting", "all"):
        assert project.resolve(upgrade=(name,)).lock.setting[0].slots == 4


def test_a_gold_reply_that_is_not_graded_right_is_refused_before_a_lock_is_made(tmp_path: Path) -> None:
    project = Project(tmp_path)
    row = b'{"id": "q", "prompt": "1", "expected": "1", "grader": {"kind": "exact"}, "gold": "2"}\n'
    project.write("tasks/digits.jsonl", row)
    with pytest.raises(InputError) as caught:
        project.resolve()
    assert str(caught.value) == (
        "point.A@plain.suite.digits.q: the gold reply must be graded as right, got `wrong: got `2`, expected `1``"
    )
    assert caught.value.hint == "mend the item's expected, gold or bad, or its grader"


def test_a_bad_reply_that_is_graded_right_is_refused_as_well(tmp_path: Path) -> None:
    project = Project(tmp_path)
    row = b'{"id": "q", "prompt": "1", "expected": "1", "grader": {"kind": "exact"}, "bad": "1"}\n'
    project.write("tasks/digits.jsonl", row)
    with pytest.raises(InputError) as caught:
        project.resolve()
    assert str(caught.value) == (
        "point.A@plain.suite.digits.q: the bad reply must be graded as not right, got `right`"
    )
