"""The first spec reads as it stands, says what a suite will accept, and comes with the items that it names."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from qlock.core.exchange import Chat, Complete, Right
from qlock.core.rules import NonInferior, rule_of
from qlock.core.source import FileSource, parse_source
from qlock.core.spec import Spec, read_spec
from qlock.core.stats import fewest_to_pass
from qlock.errors import AbsentError, InputError, UsageError
from qlock.flows.init import ITEMS, Started, init, starter
from qlock.flows.kinds import params_of, suite_kind
from qlock.suites import tasks
from qlock.suites.interface import Item, play_back
from tests.fakes.world import fake_world


def test_the_starter_reads_as_it_stands() -> None:
    spec = read_spec(starter("mine").encode(), name="mine.toml")
    assert spec.name == "mine"
    assert [model.name for model in spec.model] == ["F16", "Q4_K_M"]
    assert [setting.name for setting in spec.setting] == ["f16kv"]
    assert [suite.kind for suite in spec.suite] == ["tasks"]
    assert [rule_of(gate) for gate in spec.gate] == ["non-inferior"]
    for suite in spec.suite:
        params_of(suite_kind(suite.kind), suite, where=f"suite.{suite.name}")


def test_a_short_text_is_long_enough_for_it() -> None:
    """Two windows do: a number of windows is only said in a remark."""
    kind = suite_kind("perplexity")
    params = params_of(kind, without_remarks().suite[1], where="suite.text")
    items = kind.items({"text": b"x" * 1024}, params, lambda text: (1,) * len(text))
    assert len(items) == 2


def test_it_says_the_truth_about_slots() -> None:
    assert "never changes" not in starter("mine")
    assert "compared by diff: another width gives other bits" in starter("mine")


def without_remarks() -> Spec:
    """Each remark that is a line of TOML becomes one; prose has capital letters or two words before any `=`."""
    lines = [
        re.sub(r"^# (?=[a-z_]+ = |\[)", "", line).partition("   #")[0] for line in starter("mine").split("\n")
    ]
    text = "\n".join(lines)
    assert '\n[engine]\nkind = "llama.cpp"\npath = ' in text
    assert '\ncache_type_k = "q8_0"' in text
    assert "\n[[anchor]]\nmodel = " in text
    return read_spec(text.encode(), name="mine.toml")


def test_what_is_commented_out_reads_too() -> None:
    spec = without_remarks()
    assert (spec.engine.kind, spec.engine.path) == ("llama.cpp", "/opt/llama.cpp/build/bin")
    assert spec.setting[0].flash_attention
    assert [(suite.name, suite.kind) for suite in spec.suite] == [("own", "tasks"), ("text", "perplexity")]
    assert spec.suite[0].sampling.stop == ("\n",)
    assert [anchor.published for anchor in spec.anchor] == [23.5]


def read_items(data: bytes) -> tuple[Item, ...]:
    return tasks.items({"items": data}, tasks.Params(items="file:tasks/own.jsonl"), lambda _: ())


def test_the_rows_in_it_are_some_that_the_suite_reads_a_conversation_first() -> None:
    rows = [line[4:] for line in starter("mine").split("\n") if line.startswith("#   {")]
    items = read_items("".join(f"{row}\n" for row in rows).encode())
    assert [(item.id, item.slices) for item in items] == [("q1", {}), ("q2", {"topic": "sums"})]
    assert ["messages" in row for row in rows] == [True, False]


def test_the_items_beside_it_are_conversations_and_their_graders_tell_right_from_wrong() -> None:
    params = tasks.Params(items="file:tasks/own.jsonl")
    items = read_items(ITEMS)
    assert [item.id for item in items] == ["sum", "capital", "colour"]
    for item in items:
        request = next(tasks.ask(item, params))
        assert isinstance(request, Complete)
        assert isinstance(request.prompt, Chat)
    trials = tasks.trials(items, params)
    assert {trial.passes for trial in trials} == {True, False}
    for trial in trials:
        answer = play_back(tasks.ask(trial.item, params), trial.replies)
        assert (tasks.grade(trial.item, answer, params) == Right()) is trial.passes


def test_it_says_how_many_items_a_margin_takes() -> None:
    (gate,) = read_spec(starter("mine").encode(), name="mine.toml").gate
    assert isinstance(gate, NonInferior)
    text = starter("mine")
    assert (
        f"{gate.margin_share} (two points in a hundred) passes with {fewest_to_pass(gate.margin_share)}"
        in text
    )
    assert f"0.05 with {fewest_to_pass(0.05)}, 0.1 with {fewest_to_pass(0.1)}." in text


def test_what_it_names_beside_the_models_is_written_too(tmp_path: Path) -> None:
    world = fake_world(tmp_path)
    started = init(world, "mine")
    assert started.items == world.cwd / "tasks" / "own.jsonl"
    assert started.items.read_bytes() == ITEMS
    spec = read_spec(started.spec.read_bytes(), name="mine.toml")
    sources = [parse_source(model.source) for model in spec.model]
    assert [source.path for source in sources if isinstance(source, FileSource)] == [
        "models/model-F16.gguf",
        "models/model-Q4_K_M.gguf",
    ]
    assert sorted(path.name for path in world.cwd.iterdir()) == ["models", "specs", "tasks"]
    assert list((world.cwd / "models").iterdir()) == []


def test_items_and_models_that_are_there_are_left_alone(tmp_path: Path) -> None:
    world = fake_world(tmp_path)
    (world.cwd / "tasks").mkdir()
    (world.cwd / "tasks" / "own.jsonl").symlink_to("nowhere")
    (world.cwd / "models").write_bytes(b"a file")
    assert init(world, "mine") == Started(spec=world.cwd / "specs" / "mine.toml", items=None)
    assert not (world.cwd / "tasks" / "nowhere").exists()
    assert (world.cwd / "models").read_bytes() == b"a file"


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = fake_world(tmp_path)
    real = Path.mkdir

    def mkdir(self: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:  # noqa: FBT001, FBT002 - as Path has it
        if self.name == "models":
            raise PermissionError(13, "Permission denied")
        real(self, mode, parents, exist_ok)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(AbsentError) as caught:
        init(world, "mine")
    assert str(caught.value) == f"cannot make the folder `{world.cwd / 'models'}`: permission denied"


def test_it_is_called_as_the_folder_is(tmp_path: Path) -> None:
    world = fake_world(tmp_path)
    path = init(world, "").spec
    assert path == world.cwd / "specs" / "work.toml"
    assert path.read_text() == starter("work")


def test_a_folder_whose_name_is_no_name_gives_another(tmp_path: Path) -> None:
    folder = tmp_path / "two words"
    folder.mkdir()
    world = msgspec.structs.replace(fake_world(tmp_path), cwd=folder)
    assert init(world, "").spec == folder / "specs" / "first.toml"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    world = fake_world(tmp_path)
    path = init(world, "mine").spec
    path.write_bytes(b"my own")
    with pytest.raises(InputError) as caught:
        init(world, "mine")
    assert str(caught.value) == "`specs/mine.toml` is there already"
    assert caught.value.hint == "give another name with `qlock init NAME`"
    assert path.read_bytes() == b"my own"


def test_a_spec_that_is_there_stops_the_rest_too(tmp_path: Path) -> None:
    world = fake_world(tmp_path)
    (world.cwd / "specs").mkdir()
    (world.cwd / "specs" / "mine.toml").write_bytes(b"my own")
    with pytest.raises(InputError):
        init(world, "mine")
    assert [path.name for path in world.cwd.iterdir()] == ["specs"]


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
