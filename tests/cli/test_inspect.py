from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broken.make_gguf import STRING, gguf, kv, tensor
from tests.cli.conftest import Type
from tests.fakes.hub import FakeHub, served
from tests.fakes.project import Project, tiny_gguf


@pytest.fixture
def stub(project: Project) -> Iterator[FakeHub]:
    with served() as hub:
        project.connect(hub)
        yield hub


def test_one_model_is_shown_as_tables(project: Project, typed: Type) -> None:
    said = typed("inspect", "models/a.gguf")
    assert said.code == 0
    lines = said.out.split("\n")
    assert lines[0] == "models/a.gguf"
    assert "  architecture            llama" in lines
    assert "  bits per weight         32.000" in lines
    assert "  sampling keys           temp = 0.5" in lines
    assert "  tensors of  type  tensors  weights  bytes  bits per weight" in lines
    assert "  token_embd  F32         1       32    128           32.000" in lines
    assert "  {% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]" in lines
    assert said.talk == [
        "warning: models/a.gguf: `tokenizer.ggml.pre` is missing: llama.cpp needs it for BPE vocabularies only"
    ]


def test_two_models_are_shown_side_by_side(project: Project, typed: Type) -> None:
    project.write("models/b.gguf", tiny_gguf(2, template="{{ messages }}\n[assistant]"))
    said = typed("inspect", "models/a.gguf", "models/b.gguf")
    assert said.code == 0
    lines = said.out.split("\n")
    assert lines[:14] == [
        "Sources",
        "  side  source",
        "  A     models/a.gguf",
        "  B     models/b.gguf",
        "",
        "Differences",
        "  what           A against B",
        "  recipe         the same recipe in all 1 tensor",
        "  template       differs",
        "  tokenizer      identical",
        "  metadata       identical",
        "  sampling keys  identical",
        "  imatrix        identical",
        "  weights        not compared: headers alone are read",
    ]
    assert lines[-8:] == [
        "Chat template",
        "  --- A",
        "  +++ B",
        "  @@ -1 +1,2 @@",
        "  -{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]",
        "  +{{ messages }}",
        "  +[assistant]",
        "",
    ]


def test_every_tensor_is_shown_when_asked_for(project: Project, typed: Type) -> None:
    lines = typed("inspect", "models/a.gguf", "--tensors").out.split("\n")
    assert lines[lines.index("Tensors") + 1 : lines.index("Tensors") + 3] == [
        "  tensor             type  shape  bytes  file",
        "  token_embd.weight  F32   32       128     1",
    ]
    both = typed("inspect", "models/a.gguf", "models/b.gguf", "--tensors", "--format", "markdown").out
    assert "| token_embd.weight | F32 32 | F32 32 |  |" in both.split("\n")


def test_markdown_is_for_a_review(project: Project, typed: Type) -> None:
    project.write("models/b.gguf", tiny_gguf(2, template="{{ messages }}\n```[assistant]"))
    said = typed("inspect", "models/a.gguf", "models/b.gguf", "--format", "markdown")
    lines = said.out.split("\n")
    assert lines[:6] == [
        "### Sources",
        "",
        "| side | source |",
        "| --- | --- |",
        "| A | models/a.gguf |",
        "| B | models/b.gguf |",
    ]
    assert lines[-9:] == [
        "````text",
        "--- A",
        "+++ B",
        "@@ -1 +1,2 @@",
        "-{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]",
        "+{{ messages }}",
        "+```[assistant]",
        "````",
        "",
    ]


def test_json_has_all_of_it(project: Project, typed: Type) -> None:
    said = typed("inspect", "models/a.gguf", "models/b.gguf", "--json")
    found = json.loads(said.out)
    assert found["verb"] == "inspect"
    assert found["parts"] == {
        "recipe": True,
        "template": True,
        "tokenizer": True,
        "metadata": True,
        "sampling keys": True,
        "imatrix": True,
    }
    assert found["a"]["classes"] == [
        {"tensor_class": "token_embd", "type": "F32", "tensors": 1, "elements": 32, "bytes": 128}
    ]


def test_a_model_on_the_hub_is_not_downloaded(stub: FakeHub, typed: Type, tmp_path: Path) -> None:
    commit = stub.repository("o/m").commit({"m-Q4_0.gguf": tiny_gguf() + bytes(5_000)})
    said = typed("inspect", "hub:o/m:q4_0")
    assert said.code == 0
    assert said.out.startswith(f"hub:o/m:q4_0 at commit {commit}\n")
    assert not (tmp_path / "hf").exists()


def test_offline_asks_nobody(stub: FakeHub, typed: Type) -> None:
    said = typed("inspect", "hub:o/m:Q4_0", "--offline")
    assert said.code == 8
    assert said.talk == [
        "error: repository `o/m` is not in the Hub's cache, and no network may be used",
        "hint: run it once without --offline and HF_HUB_OFFLINE",
    ]
    assert stub.seen == []


def test_a_wait_for_the_hub_is_said(project: Project, stub: FakeHub, typed: Type) -> None:
    stub.trouble.always = (429, {"Retry_After": "5"})
    said = typed("inspect", "hub:o/m:Q4_0")
    assert said.code == 8
    assert project.told == ["the Hub: too many requests (429); waiting 5 s"] * 3
    assert said.talk == [
        "error: the Hub did not answer in 4 tries: too many requests (429)",
        "hint: run it again later",
    ]


def test_json_and_another_format_do_not_go_together(project: Project, typed: Type) -> None:
    said = typed("inspect", "models/a.gguf", "--json", "--format", "markdown")
    assert (said.code, said.talk) == (
        2,
        ["error: got both --json and --format markdown, expected one of them"],
    )


@pytest.mark.parametrize("form", [[], ["--format", "markdown"], ["--json"]])
def test_nothing_of_a_file_reaches_a_terminal_raw(project: Project, typed: Type, form: list[str]) -> None:
    evil = "\x1b]0;x\x07\x1b[2J"
    data = gguf(
        [
            kv("general.architecture", STRING, f"llama{evil}"),
            kv("general.name", STRING, f"| a\n# b <script>{evil}"),
            kv("tokenizer.chat_template", STRING, f"```\n{evil}"),
        ],
        [tensor(f"blk.0.{evil}.weight", (32,))],
        bytes(128),
    )
    project.write("models/a.gguf", data)
    for words in (["models/a.gguf"], ["models/a.gguf", "models/b.gguf"]):
        said = typed("inspect", *words, *form)
        assert said.code == 0
        for raw in ("\x1b", "\x07", "\r"):
            assert raw not in said.out + said.err
