from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec import UNSET

from qlock.core.lock import MissingPin
from qlock.errors import AbsentError, InputError, QlockError
from tests.broken.make_gguf import I32, STRING, U16, gguf, kv, tensor
from tests.fakes.project import Project, refusal, tiny_gguf

ROOT = Path(__file__).resolve().parents[2]


def test_an_unknown_tensor_type_is_pinned_without_proof_and_run_refuses_it(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("models/b.gguf", tiny_gguf(2, type_id=156))
    lock = project.lock().lock
    why = "type 156 (unknown): needs ik_llama.cpp?"
    size = "type 156 (unknown): the size of its tensors is not known"
    fields = ("canary", "plain_text_nats", "probe", "prompts", "read_back", "repeatable")
    assert [entry for entry in lock.missing if not entry.pin.startswith("engine.")] == [
        MissingPin(pin="model.B.bits_per_weight", why=size, until="never"),
        MissingPin(
            pin="model.B.recipe.type 156 (unknown).bytes",
            why="the size of this type is not known",
            until="never",
        ),
        MissingPin(pin="model.B.tensors_digest", why=size, until="never"),
        *(MissingPin(pin=f"point.B@plain.{field}", why=why, until="never") for field in fields),
    ]
    assert project.script.loads == ["a.gguf"]
    opened = project.script.opened
    for allow in ((), ("model.B",)):
        ran = project.run(allow=allow)
        assert (ran.state, project.script.opened) == ("refused", opened)
        (finding,) = ran.findings
        assert (finding.rule, finding.where, finding.found, finding.why) == (
            "model-files",
            "model.B.recipe.type 156 (unknown)",
            "type 156 (unknown)",
            "needs ik_llama.cpp?",
        )


def test_where_no_model_can_run_the_engine_is_left_alone(tmp_path: Path) -> None:
    project = Project(tmp_path)
    for name in ("a", "b"):
        project.write(f"models/{name}.gguf", tiny_gguf(2, type_id=9999))
    lock = project.resolve().lock
    assert (project.script.opened, lock.engine[0].file) == (0, ())
    assert {entry.pin: entry.why for entry in lock.missing}["point.A@plain.canary"] == (
        "type 9999 (unknown): needs ik_llama.cpp?"
    )
    assert {entry.pin: entry.until for entry in lock.missing}["suite.digits.items_limit"] == "prove"


def test_a_trained_context_that_the_file_does_not_say_is_missing_and_no_zero(tmp_path: Path) -> None:
    project = Project(tmp_path)
    bare = gguf([kv("general.architecture", STRING, "llama")], [tensor("t", (32,))], bytes(128))
    project.write("models/b.gguf", bare)
    lock = project.lock().lock
    assert lock.model[1].trained_context_tokens is UNSET
    assert (
        MissingPin(
            pin="model.B.trained_context_tokens", why="the file has no `llama.context_length`", until="never"
        )
        in lock.missing
    )
    assert project.run().state == "sealed"


def shard(number: int, count: int = 3) -> bytes:
    keys = [] if number > 1 else [kv("general.architecture", STRING, "llama")]
    split = [
        kv("split.no", U16, number - 1),
        kv("split.count", U16, count),
        kv("split.tensors.count", I32, count),
    ]
    return gguf([*keys, *split], [tensor(f"t{number}", (32,))], bytes([number]) * 128)


def with_shards(project: Project, folder: str) -> list[str]:
    names = [f"m-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]
    for number, name in enumerate(names, start=1):
        project.write(f"{folder}/{name}", shard(number))
    project.models["S"] = f"file:{folder}/{names[0]}"
    project.write_spec()
    return names


def test_a_split_model_is_pinned_shard_by_shard(tmp_path: Path) -> None:
    project = Project(tmp_path)
    names = with_shards(project, "models")
    lock = project.lock().lock
    model = next(pin for pin in lock.model if pin.name == "S")
    assert ([file.name for file in model.file], model.parameters) == (names, 96)
    assert project.run().state == "sealed"


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    project = Project(tmp_path)
    names = with_shards(project, "models")
    (project.path / "models" / names[1]).unlink()
    assert refusal(project, AbsentError) == (
        f"model.S: `{names[0]}` lacks 1 of 3 shards: `{names[1]}`",
        "put them beside it",
    )
    (project.path / "models" / names[0]).unlink()
    project.models["S"] = f"file:models/{names[2]}"
    project.write_spec()
    assert refusal(project, AbsentError)[0] == (
        f"model.S: `{names[2]}` lacks 2 of 3 shards: `{names[0]}`, `{names[1]}`"
    )


def test_shards_behind_the_links_of_a_hub_cache_keep_their_names(tmp_path: Path) -> None:
    project = Project(tmp_path)
    names = with_shards(project, "hub/snapshots/0123abc")
    blobs = project.path / "hub/blobs"
    blobs.mkdir()
    for number, name in enumerate(names):
        link = project.path / "hub/snapshots/0123abc" / name
        link.rename(blobs / (f"{number}" * 64))
        link.symlink_to("../../blobs/" + f"{number}" * 64)
    lock = project.lock().lock
    assert [file.name for file in next(pin for pin in lock.model if pin.name == "S").file] == names
    assert names[0] in project.script.loads
    assert project.run().state == "sealed"


def test_links_that_lead_nowhere_or_round_and_what_is_no_file_are_refused_at_once(tmp_path: Path) -> None:
    project = Project(tmp_path)
    path = project.path / "models/a.gguf"
    at = f"`{path}`"

    def fault(kind: type[QlockError]) -> str:
        return refusal(project, kind)[0]

    path.unlink()
    assert fault(AbsentError) == "model.A: no file at `models/a.gguf`"
    path.symlink_to("nowhere.gguf")
    assert fault(AbsentError) == f"model.A: model {at} is not there"
    path.unlink()
    path.symlink_to("a.gguf")
    assert fault(InputError) == f"model.A: model {at} is a symbolic link that leads back to itself"
    path.unlink()
    path.mkdir()
    assert fault(InputError) == f"model.A: model {at} is a folder, expected a regular file"
    path.rmdir()
    os.mkfifo(path)
    assert fault(InputError) == f"model.A: model {at} is a FIFO, expected a regular file"


@pytest.mark.parametrize("name", ["sp ace/m.gguf", "ünï/ÄÖ.gguf", "模型/量化.gguf", "🦙/🙂.gguf"])
def test_any_letters_in_paths_work_and_stand_in_the_lock_as_they_are(tmp_path: Path, name: str) -> None:
    project = Project(tmp_path, name=f"project {name.partition('/')[0]}")
    project.write(name, tiny_gguf(4))
    project.models["A"] = f"file:{name}"
    project.write_spec()
    data = project.lock().data
    assert f'requested = "file:{name}"\n'.encode() in data
    assert f'name = "{name.partition("/")[2]}"\n'.encode() in data
    assert project.run().state == "sealed"


def test_an_imatrix_is_no_model(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write(
        "models/a.gguf", gguf([kv("general.type", STRING, "imatrix")], [tensor("t", (32,))], bytes(128))
    )
    assert refusal(project, InputError) == (
        "model.A: the file is an imatrix, not a model",
        "name the model's own GGUF",
    )
