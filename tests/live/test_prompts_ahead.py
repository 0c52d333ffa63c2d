"""What is asked is pinned from the header alone, and the weights, fetched later, give the very same prompts."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.hub import served
from tests.live.tiny_project import lock_of, make, qlock

pytestmark = pytest.mark.live


def from_the_hub(folder: Path, engine: str) -> Path:
    """The tiny project with its model on the Hub; its questions are conversations where the model has a template."""
    spec = make(folder, slots=1, items=4, answer_tokens=8)
    text = spec.read_text().replace("file:models/tiny.gguf", "hub:o/m:Q4_0")
    spec.write_text(text.replace("[[model]]", f"[engine]\n{engine}\n\n[[model]]", 1))
    return spec


def as_conversations(folder: Path) -> None:
    path = folder / "tasks" / "exam.jsonl"
    rows = [json.loads(line) for line in path.read_text().split("\n") if line]
    for row in rows:
        row["messages"] = [{"role": "user", "content": row.pop("prompt")}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def pinned(folder: Path) -> tuple[Any, set[str]]:
    """The prompts that the lock pins, and which verb fills in what is missing."""
    lock = tomllib.loads(lock_of(folder).read_text())
    return lock["point"][0].get("prompts"), {entry["until"] for entry in lock["missing"]}


@pytest.mark.parametrize("kind", ["llama-cpp-python", "llama.cpp"])
@pytest.mark.parametrize("name", ["tiny", pytest.param("smollm2_q4_1", marks=pytest.mark.slow)])
def test_the_weights_give_the_prompts_that_the_header_gave(
    tmp_path: Path, llama_bin: Path, request: pytest.FixtureRequest, kind: str, name: str
) -> None:
    folder = tmp_path / "project"
    path = f'\npath = "{llama_bin}"' if kind == "llama.cpp" else ""
    spec = from_the_hub(folder, f'kind = "{kind}"{path}')
    weights = folder / "models" / "tiny.gguf" if name == "tiny" else request.getfixturevalue(name)
    if name != "tiny":
        as_conversations(folder)
    data = weights.read_bytes()
    (folder / "models" / "tiny.gguf").unlink()
    with served() as hub:
        hub.repository("o/m").commit({"m-Q4_0.gguf": data})

        def typed(*words: str | Path) -> subprocess.CompletedProcess[str]:
            home, cache = str(tmp_path / "hf"), str(tmp_path / "c")
            return qlock(*words, HF_ENDPOINT=hub.endpoint, HF_HOME=home, QLOCK_CACHE=cache)

        made = typed("resolve", spec)
        assert made.returncode == 0, made.stderr
        before, open_until = pinned(folder)
        assert open_until == {"fetch", "prove"}
        assert [prompts["suite"] for prompts in before] == ["exam", "text"]
        assert hub.bytes_sent < len(data) or name == "tiny"
        for words in (("fetch", lock_of(folder)), ("resolve", spec)):
            done = typed(*words)
            assert done.returncode == 0, done.stderr
    assert pinned(folder) == (before, set())
