"""A whole project measured with a build folder: resolved, run twice, and refused with another library."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.tiny_project import make

pytestmark = pytest.mark.live


def qlock(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "qlock", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(Path(__file__).parents[3]), "HOME": str(folder), "LC_ALL": "C.UTF-8"},
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def with_engine(spec: Path, *lines: str) -> Path:
    """The spec, on another engine."""
    text = spec.read_text().replace("[[model]]", "\n".join(["[engine]", *lines, "", "[[model]]"]), 1)
    spec.write_text(text)
    return spec


def answers_digest(run: str, folder: Path) -> str:
    return str(json.loads((folder / run.strip() / "seal.json").read_text())["answers_digest"])


def changed_library(build_bin: Path, folder: Path) -> Path:
    """A copy of the build with one byte of a library changed that no code reads: the compiler's name."""
    copy = folder / "bin"
    shutil.copytree(build_bin, copy, symlinks=True)
    library = copy / "libggml-cpu.so"
    data = bytearray(library.read_bytes())
    data[data.index(b"GCC: (")] = ord("g")
    library.write_bytes(data)
    return copy


def test_two_runs_give_the_same_answers_and_another_byte_is_refused(build_bin: Path, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    spec = with_engine(make(folder, slots=1, replicas=2), 'kind = "llama.cpp"', f'path = "{build_bin}"')
    resolved = qlock(folder, "resolve", str(spec.relative_to(folder)))
    assert resolved.returncode == 0, resolved.stderr
    lock = resolved.stdout.strip()
    runs = [qlock(folder, "run", lock, "--repeat-lock") for _ in range(2)]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr + runs[1].stderr
    first, second = (answers_digest(run.stdout, folder) for run in runs)
    assert first == second
    refused = qlock(
        folder, "run", lock, "--repeat-lock", "--engine", str(changed_library(build_bin, tmp_path))
    )
    assert refused.returncode == 3
    library = (build_bin / "libggml-cpu.so").resolve().name
    assert f"error: engine.llama.cpp.file.{library} is not as locked (engine-files)\n" in refused.stderr


def test_perplexity_is_that_of_the_embedded_engine(build_bin: Path, tmp_path: Path) -> None:
    found = []
    for place, lines in enumerate(
        (f'kind = "{kind}"', f'path = "{build_bin}"') for kind in ("llama.cpp", "llama-cpp-python")
    ):
        folder = tmp_path / str(place)
        spec = with_engine(make(folder, slots=1), *lines)
        resolved = qlock(folder, "resolve", str(spec.relative_to(folder)))
        assert resolved.returncode == 0, resolved.stderr
        run = qlock(folder, "run", resolved.stdout.strip())
        assert run.returncode == 0, run.stderr
        (record,) = (folder / run.stdout.strip() / "record").glob("text.*")
        rows = [json.loads(line) for line in record.read_text().split("\n") if line]
        found.append([reply["nats"] for row in rows for reply in row.get("replies", ())])
    assert len(found[0]) == 8
    assert found[0] == found[1]
