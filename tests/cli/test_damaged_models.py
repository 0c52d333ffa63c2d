"""Damaged and hostile model files, as people meet them: one line of cause, nothing raw, no lock, no traceback."""

from __future__ import annotations

import pytest

from tests.broken.gguf_messages import MESSAGES
from tests.broken.make_gguf import BROKEN, LLAMA, STRING, array, gguf, kv, tensor
from tests.cli.conftest import Type
from tests.fakes.project import TEMPLATE, Project

SPEC = "specs/small.toml"
EVIL = "\x1b]0;owned\x07\x1b[2J"
COMPARE = '\n[compare]\nreference = "A@plain"\n'


@pytest.mark.parametrize("name", BROKEN)
def test_a_damaged_file_is_refused_when_it_is_locked_and_when_it_is_looked_at(
    project: Project, typed: Type, name: str
) -> None:
    project.write("models/a.gguf", BROKEN[name])
    message, hint = MESSAGES[name]
    for words, where in (
        (("resolve", SPEC), "model.A: a.gguf: "),
        (("inspect", "models/a.gguf"), "a.gguf: "),
    ):
        said = typed(*words)
        assert (said.code, said.out) == (6, "")
        wanted = [f"error: {where}{message}", *([f"hint: {hint}"] if hint else [])]
        assert said.talk[-len(wanted) :] == wanted
        assert "Traceback" not in said.err
    assert not project.lock_path.exists()
    assert project.script.opened == 0


@pytest.mark.parametrize("command", ["resolve", "inspect"])
def test_an_imatrix_that_is_named_as_a_model_is_none(project: Project, typed: Type, command: str) -> None:
    project.write("models/imatrix_unsloth.gguf", gguf([kv("general.type", STRING, "imatrix"), LLAMA], []))
    project.models["A"] = "file:models/imatrix_unsloth.gguf"
    project.write_spec()
    said = typed(command, SPEC if command == "resolve" else "models/imatrix_unsloth.gguf")
    assert said.code == 6
    assert said.talk[-2].endswith("the file is an imatrix, not a model")
    assert said.talk[-1] == "hint: name the model's own GGUF"


def evil(seed: int) -> bytes:
    """A model whose every name and text is meant for a terminal."""
    fields = [
        kv("general.architecture", STRING, f"llama{EVIL}"),
        kv(f"llama{EVIL}.context_length", 4, 2048),
        kv(f"general.{EVIL}", STRING, EVIL),
        kv("general.name", STRING, EVIL),
        kv("general.sampling.temp" + EVIL, STRING, EVIL),
        kv("quantize.imatrix.dataset", STRING, EVIL),
        kv("tokenizer.ggml.model", STRING, f"llama{EVIL}"),
        array("tokenizer.ggml.tokens", STRING, [EVIL]),
        kv("tokenizer.chat_template", STRING, TEMPLATE + EVIL),
    ]
    return gguf(fields, [tensor(f"blk.0.{EVIL}.weight", (32,))], bytes([seed]) * 128)


def test_escape_sequences_of_a_file_reach_no_terminal_no_lock_and_no_report(
    project: Project, typed: Type
) -> None:
    for seed, name in enumerate("ab"):
        project.write(f"models/{name}.gguf", evil(seed))
    project.write_spec(lambda text: text + COMPARE)
    lines = [
        ("resolve", SPEC),
        ("resolve", SPEC, "--check"),
        ("run", project.lock_path),
        ("check", project.lock_path),
        ("inspect", "models/a.gguf", "models/b.gguf", "--tensors"),
        ("why", "A"),
    ]
    lines += [
        ("diff", project.runs, "--format", name) for name in ("text", "markdown", "html", "json", "junit")
    ]
    for words in lines:
        said = typed(*words)
        assert said.code in (0, 1), said.err
        for raw in ("\x1b", "\x07"):
            assert raw not in said.out + said.err, words
    assert b"\x1b" not in project.lock_path.read_bytes()
