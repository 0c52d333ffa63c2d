"""The first spec reads as it stands, and says what a suite will accept."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from qlock.core.rules import rule_of
from qlock.core.spec import read_spec
from qlock.errors import InputError, UsageError
from qlock.flows.init import init, starter
from qlock.flows.kinds import params_of, suite_kind
from tests.fakes.world import fake_world


def test_the_starter_reads_as_it_stands() -> None:
    spec = read_spec(starter("mine").encode(), name="mine.toml")
    assert spec.name == "mine"
    assert [model.name for model in spec.model] == ["F16", "Q4_K_M"]
    assert [setting.name for setting in spec.setting] == ["f16kv"]
    assert [suite.kind for suite in spec.suite] == ["perplexity", "tasks"]
    assert [rule_of(gate) for gate in spec.gate] == ["non-inferior"]
    for suite in spec.suite:
        params_of(suite_kind(suite.kind), suite, where=f"suite.{suite.name}")


def test_a_short_text_is_long_enough_for_it() -> None:
    """Two windows do: a number of windows is only said in a remark."""
    spec = read_spec(starter("mine").encode(), name="mine.toml")
    kind = suite_kind("perplexity")
    params = params_of(kind, spec.suite[0], where="suite.text")
    items = kind.items({"text": b"x" * 1024}, params, lambda text: (1,) * len(text))
    assert len(items) == 2


def test_it_says_the_truth_about_slots() -> None:
    assert "never changes" not in starter("mine")
    assert "compared by diff: another width gives other bits" in starter("mine")


def test_what_is_commented_out_reads_too() -> None:
    """Each remark that is a line of TOML becomes one; prose has capital letters or two words before any `=`."""
    lines = [
        re.sub(r"^# (?=[a-z_]+ = |\[)", "", line).partition("   #")[0] for line in starter("mine").split("\n")
    ]
    text = "\n".join(lines)
    assert '\n[engine]\nkind = "llama.cpp"\npath = ' in text
    assert '\ncache_type_k = "q8_0"' in text
    assert "\n[[anchor]]\nmodel = " in text
    spec = read_spec(text.encode(), name="mine.toml")
    assert (spec.engine.kind, spec.engine.path) == ("llama.cpp", "/opt/llama.cpp/build/bin")
    assert spec.setting[0].flash_attention
    assert spec.suite[0].params["windows"] == 40
    assert [anchor.published for anchor in spec.anchor] == [23.5]


def test_the_exam_row_in_it_is_one_that_the_suite_reads() -> None:
    row = next(line[4:] for line in starter("mine").split("\n") if line.startswith("#   {"))
    kind = suite_kind("tasks")
    params = msgspec.convert({"items": "file:tasks/own.jsonl"}, kind.params)
    items = kind.items({"items": row.encode() + b"\n"}, params, lambda _: ())
    assert [(item.id, item.slices) for item in items] == [("q1", {"topic": "sums"})]


def test_it_is_called_as_the_folder_is(tmp_path: Path) -> None:
    world = fake_world(tmp_path)
    path = init(world, "")
    assert path == world.cwd / "specs" / "work.toml"
    assert path.read_text() == starter("work")


def test_a_folder_whose_name_is_no_name_gives_another(tmp_path: Path) -> None:
    folder = tmp_path / "two words"
    folder.mkdir()
    world = msgspec.structs.replace(fake_world(tmp_path), cwd=folder)
    assert init(world, "") == folder / "specs" / "first.toml"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    world = fake_world(tmp_path)
    path = init(world, "mine")
    path.write_bytes(b"my own")
    with pytest.raises(InputError) as caught:
        init(world, "mine")
    assert str(caught.value) == "`specs/mine.toml` is there already"
    assert caught.value.hint == "give another name with `qlock init NAME`"
    assert path.read_bytes() == b"my own"


def test_a_link_to_nowhere_is_not_overwritten_either(tmp_path: Path) -> None:
    world = fake_world(tmp_path)
    (world.cwd / "specs").mkdir()
    (world.cwd / "specs" / "mine.toml").symlink_to("nowhere")
    with pytest.raises(InputError, match="is there already"):
        init(world, "mine")
    assert not (world.cwd / "specs" / "nowhere").exists()


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "a b", "ü", "x" * 81, "x\n"])
def test_a_name_that_cannot_be_one_is_refused(tmp_path: Path, name: str) -> None:
    world = fake_world(tmp_path)
    with pytest.raises(
        UsageError, match=r"^got the name `.*`, expected letters, digits and `\._\+-` that start"
    ):
        init(world, name)
    assert list(world.cwd.iterdir()) == []
