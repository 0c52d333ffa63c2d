from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from qlock.core.recipe import RecipeDifference
from qlock.errors import AbsentError, InputError
from qlock.flows.inspect import MOST_LINES, Inspection, SeenFile, inspect, template_difference
from qlock.world.hub import open_hub
from qlock.world.interface import World
from tests.broken.make_gguf import F32, I32, STRING, U16, array, gguf, kv, tensor
from tests.fakes.hub import FakeHub, served
from tests.fakes.world import ScriptedRemote, SetClock, fake_world

TEMPLATE = "{% for m in messages %}\n{{ m.content }}\n{% endfor %}"


def model(
    *, template: str = TEMPLATE, kind: int = 0, dataset: str = "calibration.txt", temp: float = 0.5
) -> bytes:
    fields = [
        kv("general.architecture", STRING, "llama"),
        kv("tokenizer.ggml.model", STRING, "gpt2"),
        kv("tokenizer.ggml.pre", STRING, "llama-bpe"),
        array("tokenizer.ggml.tokens", STRING, ["a", "b"]),
        kv("tokenizer.chat_template", STRING, template),
        kv("quantize.imatrix.dataset", STRING, dataset),
        kv("general.sampling.temp", F32, temp),
    ]
    return gguf(
        fields,
        [
            tensor("blk.0.attn_q.weight", (32,), kind),
            tensor("output_norm.weight", (32,), 0, 32 if kind else 128),
        ],
        bytes(256),
    )


@pytest.fixture
def stub() -> Iterator[FakeHub]:
    with served() as hub:
        yield hub


@pytest.fixture
def world(tmp_path: Path, stub: FakeHub) -> World:
    hub = open_hub({"HF_ENDPOINT": stub.endpoint, "HOME": "/nowhere"}, clock=SetClock())
    return msgspec.structs.replace(fake_world(tmp_path), hub=hub)


def seen(world: World, *files: bytes) -> Inspection:
    names = []
    for number, data in enumerate(files):
        (world.cwd / f"{number}.gguf").write_bytes(data)
        names.append(f"{number}.gguf")
    return inspect(world, tuple(names))


def test_one_local_model(world: World, stub: FakeHub) -> None:
    data = model()
    found = seen(world, data)
    assert (found.b, found.difference, found.parts, found.template_difference) == (UNSET, UNSET, {}, ())
    assert (found.a.source, found.a.commit, found.a.tensors) == ("0.gguf", "", 2)
    assert [(file.name, file.size_bytes, file.sha256) for file in found.a.file] == [
        ("0.gguf", len(data), UNSET)
    ]
    assert (found.a.tokenizer_model, found.a.tokenizer_pre) == ("gpt2", "llama-bpe")
    assert [(row.tensor_class, row.type, row.tensors) for row in found.a.classes] == [
        ("attn_q", "F32", 1),
        ("output_norm", "F32", 1),
    ]
    assert found.a.facts.imatrix == {"dataset": "calibration.txt"}
    assert stub.seen == []


@pytest.mark.parametrize(
    "other, differing",
    [
        (model(), []),
        (model(template=TEMPLATE + " "), ["template"]),
        (model(dataset="other.txt"), ["metadata", "imatrix"]),
        (model(temp=0.75), ["metadata", "sampling keys"]),
        (model(kind=24), ["recipe"]),
    ],
)
def test_two_models_differ_in_what_was_changed(world: World, other: bytes, differing: list[str]) -> None:
    found = seen(world, model(), other)
    assert [part for part, is_same in found.parts.items() if not is_same] == differing


def test_the_recipe_difference_is_by_tensor_and_the_templates_by_line(world: World) -> None:
    found = seen(world, model(), model(kind=24, template=TEMPLATE.replace("m.content", "m['content']")))
    assert found.difference is not UNSET
    assert found.difference.sentence() == "1 of 2 tensors has another type"
    assert [(change.tensor, change.type_a, change.type_b) for change in found.difference.changed] == [
        ("blk.0.attn_q.weight", "F32", "I8")
    ]
    assert found.template_difference == (
        "--- A",
        "+++ B",
        "@@ -1,3 +1,3 @@",
        " {% for m in messages %}",
        "-{{ m.content }}",
        "+{{ m['content'] }}",
        " {% endfor %}",
    )


def test_a_model_on_the_hub_before_and_after_a_reupload(world: World, stub: FakeHub) -> None:
    old, new = model(), model(template=TEMPLATE + "fixed")
    padded = [data + bytes(1_000) for data in (old, new)]
    before = stub.repository("o/m").commit({"m-Q4_K_M.gguf": padded[0], "mmproj-F16.gguf": bytes(2_000)})
    after = stub.repository("o/m").commit({"m-Q4_K_M.gguf": padded[1]}, "Fix template")
    found = inspect(world, (f"hub:o/m:Q4_K_M@{before}", "hub:o/m/m-Q4_K_M.gguf"))
    assert found.b is not UNSET
    assert (found.a.commit, found.b.commit) == (before, after)
    assert found.a.file[0].sha256 == f"sha256:{hashlib.sha256(padded[0]).hexdigest()}"
    assert [part for part, is_same in found.parts.items() if not is_same] == ["files", "template"]
    assert found.template_difference[3:] == (
        " {% for m in messages %}",
        " {{ m.content }}",
        "-{% endfor %}",
        "+{% endfor %}fixed",
    )


@pytest.mark.parametrize(
    "source, message",
    [
        ("none.gguf", "model `{cwd}/none.gguf` is not there"),
        ("wheel:none==1/x.gguf", "package `none` is not installed"),
    ],
)
def test_what_is_not_there_is_named(world: World, source: str, message: str) -> None:
    with pytest.raises(AbsentError) as caught:
        inspect(world, (source,))
    assert caught.value.message == message.format(cwd=world.cwd)


ADDRESS = "https://user.example/files/m.gguf"


def behind(world: World, tmp_path: Path, files: dict[str, bytes]) -> World:
    return msgspec.structs.replace(world, remote=ScriptedRemote(tmp_path / "url", files))


@pytest.mark.parametrize("source", [ADDRESS, f"url:{ADDRESS}", f"url:{ADDRESS}#sha256={64 * '0'}"])
def test_a_model_behind_an_address_is_looked_at_with_and_without_a_digest(
    world: World, tmp_path: Path, source: str
) -> None:
    data = model()
    found = inspect(behind(world, tmp_path, {ADDRESS: data}), (source,)).a
    assert (found.source, found.commit, found.tensors) == (f"url:{ADDRESS}", "", 2)
    assert found.file == (SeenFile(name="m.gguf", size_bytes=len(data), tensors=2),)


def test_a_signature_in_an_address_is_not_shown(world: World, tmp_path: Path) -> None:
    signed = f"{ADDRESS}?Signature=secret"
    found = inspect(behind(world, tmp_path, {signed: model()}), (signed,))
    assert "secret" not in str(found)


@pytest.mark.parametrize(
    "source, message",
    [
        ("http://h/m.gguf", "got `http://h/m.gguf`, expected https://…"),
        ("url:file:///m.gguf?secret", "got `url:file:///m.gguf`, expected https://…"),
        ("https://me:word@h/m.gguf", "an address with a user or a password in it is no source"),
        ("https://h/m.gguf#sha256=12", "got `https://h/m.gguf#sha256=12`, expected https://…"),
    ],
)
def test_what_is_no_address_is_said(world: World, source: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        inspect(world, (source,))
    assert caught.value.message == message


def shards(count: int) -> dict[str, bytes]:
    """A model cut into so many files, by name."""
    made = {}
    for number in range(count):
        fields = [
            kv("split.no", U16, number),
            kv("split.count", U16, count),
            kv("split.tensors.count", I32, count),
            *([kv("general.architecture", STRING, "llama")] if number == 0 else []),
        ]
        data = gguf(fields, [tensor(f"blk.{number}.attn_q.weight", (32,))], bytes(128))
        made[f"m-{number + 1:05d}-of-{count:05d}.gguf"] = data
    return made


@pytest.mark.parametrize("named", [1, 3])
def test_any_shard_stands_for_its_set_wherever_it_lies(
    world: World, stub: FakeHub, tmp_path: Path, named: int
) -> None:
    files = shards(3)
    name = f"m-{named:05d}-of-00003.gguf"
    for file, data in files.items():
        (world.cwd / file).write_bytes(data)
    stub.repository("o/m").commit({file: data + bytes(2_000) for file, data in files.items()})
    addresses = {f"https://h/q/{file}?key=1": data for file, data in files.items()}
    world = behind(world, tmp_path, addresses)
    for source in (name, f"hub:o/m/{name}", f"https://h/q/{name}?key=1"):
        found = inspect(world, (source,)).a
        assert [(file.name, file.tensors) for file in found.file] == [(file, 1) for file in files]
        assert [(row.name, row.file) for row in found.tensor] == [
            (f"blk.{number}.attn_q.weight", number + 1) for number in range(3)
        ]
    assert inspect(world, (name, f"hub:o/m/{name}")).difference == RecipeDifference(
        tensors_in_both=3, changed=(), reshaped=(), only_in_a=(), only_in_b=()
    )


def test_a_shard_that_is_missing_is_named(world: World, stub: FakeHub) -> None:
    for file, data in shards(3).items():
        (world.cwd / file).write_bytes(data)
    (world.cwd / "m-00002-of-00003.gguf").unlink()
    with pytest.raises(AbsentError) as caught:
        inspect(world, ("m-00003-of-00003.gguf",))
    assert caught.value.message == "`m-00003-of-00003.gguf` lacks 1 of 3 shards: `m-00002-of-00003.gguf`"


def test_a_difference_far_into_a_template_keeps_its_line_numbers() -> None:
    lines = [f"line {number}" for number in range(5_000)]
    changed = [*lines[:4_000], "new", *lines[4_001:]]
    assert template_difference("\n".join(lines), "\n".join(changed)) == (
        "--- A",
        "+++ B",
        "@@ -3998,7 +3998,7 @@",
        " line 3997",
        " line 3998",
        " line 3999",
        "-line 4000",
        "+new",
        " line 4001",
        " line 4002",
        " line 4003",
    )


def test_templates_that_differ_in_too_much_are_not_compared() -> None:
    a = "\n".join(f"a {number}" for number in range(MOST_LINES + 1))
    assert template_difference(a, a.replace("a", "b")) == (f"more than {MOST_LINES} lines differ",)


_LINES = st.lists(st.sampled_from(["a", "b", "c", "- x", "@@ -1,2 +1,2 @@"]), max_size=30).map("\n".join)


@given(_LINES, _LINES)
def test_a_difference_is_empty_exactly_for_equal_texts_and_holds_every_change(a: str, b: str) -> None:
    found = template_difference(a, b)
    assert (found == ()) is (a == b)
    body = found[2:]
    assert sum(line.startswith("-") for line in body) - sum(line.startswith("+") for line in body) == (
        len(a.split("\n")) - len(b.split("\n"))
    )
