"""A small real project: tiny real GGUF files, an exam with sampled answers of unequal length, a text to score."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.fakes.tiny_models import DENSE, MIXTURE, Shape, write_tiny

_SPEC = """\
spec_version = 1
name = "tiny"

[[model]]
name = "tiny"
source = "file:models/tiny.gguf"
trained = false

[[setting]]
name = "s"
context_tokens = 512
slots = {slots}
replicas = {replicas}
threads = 1

[[suite]]
name = "text"
kind = "perplexity"
text = "file:data/text.txt"
window_tokens = 64
windows = 8

[[suite]]
name = "exam"
kind = "tasks"
items = "file:tasks/exam.jsonl"
repeats = 2
[suite.sampling]
temperature = 1.5
answer_tokens = {answer_tokens}
seed = 7
"""


def make(
    folder: Path,
    *,
    shape: Shape = DENSE,
    quantize: tuple[str, ...] = (),
    slots: int = 4,
    replicas: int = 1,
    items: int = 12,
    answer_tokens: int = 40,
) -> Path:
    """Write the project and give the path of its spec.

    Args:
        folder: Where to, made if it is not there.
        shape: Sizes of the model.
        quantize: llama-quantize by its path, and a type: then the model is quantized.
        slots: As in the spec.
        replicas: As in the spec.
        items: Questions of the exam.
        answer_tokens: As in the spec.
    """
    for name in ("models", "data", "tasks", "specs"):
        (folder / name).mkdir(parents=True)
    weights = folder / "models" / "tiny.gguf"
    write_tiny(weights, shape)
    if quantize:
        tool, kind = quantize
        weights.rename(folder / "f16.gguf")
        subprocess.run([tool, folder / "f16.gguf", weights, kind], check=True, capture_output=True)
    (folder / "data" / "text.txt").write_text(
        "the sea is near the old town and the rain is warm in may. " * 60
    )
    rows = [
        {
            "id": f"q{number:02}",
            "prompt": "is the sea near? " * (1 + number % 5) + str(number),
            "expected": "yes",
            "grader": {"kind": "contains"},
        }
        for number in range(items)
    ]
    (folder / "tasks" / "exam.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = folder / "specs" / "tiny.toml"
    spec.write_text(_SPEC.format(slots=slots, replicas=replicas, answer_tokens=answer_tokens))
    return spec


def qlock(
    *words: str | Path, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "qlock", *map(str, words)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def start(*words: str | Path, **environment: str) -> subprocess.Popen[bytes]:
    """Start the command line and leave it running, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "qlock", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def lock_of(folder: Path) -> Path:
    """The one lock of a project."""
    (lock,) = (folder / "locks").iterdir()
    return lock


def run_of(folder: Path) -> Path:
    """The one run of a project."""
    (run,) = (path for path in (folder / "runs").glob("*/*") if path.is_dir())
    return run


def answers_digest(run: Path) -> str:
    """The digest of all answers of a sealed run."""
    digest = json.loads((run / "seal.json").read_text())["answers_digest"]
    assert isinstance(digest, str)
    return digest


__all__ = ["DENSE", "MIXTURE", "answers_digest", "lock_of", "make", "qlock", "run_of", "start"]
