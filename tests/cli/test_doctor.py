"""`qlock doctor`: what is said and the exit code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from qlock.world.interface import MappedFile
from tests.cli.conftest import Type
from tests.fakes.llama_server import build
from tests.fakes.project import Project
from tests.fakes.world import ScriptedMaps


@pytest.fixture
def fit(project: Project) -> Project:
    """The project on a machine whose /proc can be read."""
    pytest.importorskip("llama_cpp.llama_cpp", reason="llama-cpp-python is not installed")
    mapped = MappedFile(path="/lib/libc.so", device="8:1", inode=1, deleted=False)
    project.change_world(maps=ScriptedMaps({os.getpid(): (mapped,)}))
    return project


def test_a_fit_machine(fit: Project, typed: Type) -> None:
    said = typed("doctor")
    assert (said.code, said.err) == (0, "")
    lines = said.out.split("\n")
    assert "python            ok      3.11.9" in lines
    assert "cpu               ok      AMD EPYC, 2 cores, 5 instruction sets (cpu-amd-1a-02)" in lines
    assert "gpu               absent  the NVML library of the NVIDIA driver is not installed" in lines


def test_flags_are_shown_to_who_asks_for_all(fit: Project, typed: Type) -> None:
    flags = "avx avx2 avx512f f16c fma"
    assert flags not in typed("doctor").out
    assert (
        f"cpu               ok      AMD EPYC, 2 cores, 5 instruction sets (cpu-amd-1a-02): {flags}"
        in typed("doctor", "--all").out.split("\n")
    )


def test_what_a_run_needs_and_is_absent(fit: Project, typed: Type) -> None:
    fit.script.start_error = "no libllama.so"
    said = typed("doctor")
    assert said.code == 8
    assert said.talk == [
        "error: `qlock run` needs engine: no libllama.so",
        "hint: reinstall llama-cpp-python for this machine",
    ]
    assert "engine            absent  no libllama.so" in said.out.split("\n")


def test_json_document(fit: Project, typed: Type) -> None:
    document = json.loads(typed("doctor", "--json").out)
    assert (document["verb"], document["is_fit"]) == ("doctor", True)
    assert document["rows"][0]["what"] == "qlock"


def test_a_build_is_looked_at(fit: Project, typed: Type, tmp_path: Path) -> None:
    said = typed("doctor", "--engine", str(build(tmp_path / "build")))
    assert said.code == 0
    assert any(line.split()[:4] == ["build:", "version", "ok", "llama.cpp"] for line in said.out.split("\n"))


def test_a_build_that_is_not_there(fit: Project, typed: Type, tmp_path: Path) -> None:
    said = typed("doctor", "--engine", str(tmp_path / "none"))
    assert (said.code, said.talk[0]) == (
        8,
        f"error: --engine: there is no folder `{tmp_path}/none`",
    )
