"""Programs that are run to their end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qlock.engines.llama_cpp import open_engine
from qlock.engines.llama_cpp.home import Home
from qlock.engines.llama_cpp.tools import Build, Device, build_info, devices, printed, version
from qlock.errors import AbsentError, EngineError
from tests.engines.llama_cpp.conftest import NOWHERE, Opener
from tests.fakes.llama_server import build


@pytest.fixture
def home(temporary: Path) -> Iterator[Home]:
    home = Home(variables={}, system_options=NOWHERE)
    yield home
    home.close()


def program(tmp_path: Path, script: str) -> Path:
    path = tmp_path / "tool"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return path


@pytest.mark.parametrize(
    "text, label",
    [
        ("version: 10360 (90e6a9131)\nbuilt with", "llama.cpp 10360 (90e6a9131)"),
        (
            "ggml_cuda_init: x\nversion: 0.1.1-dev (build 10470, commit abc1234)",
            "llama.cpp 0.1.1-dev (build 10470, commit abc1234)",
        ),
        ("nothing", "llama.cpp"),
        ("version: \x1b[2K", r"llama.cpp \x1b[2K"),
    ],
)
def test_old_and_new_version_texts_are_labels(text: str, label: str) -> None:
    assert version(text) == label


@pytest.mark.parametrize(
    "text, info",
    [
        ("version: 10360 (90e6a9131)\nbuilt with", "b10360-90e6a9131"),
        ("version: 0.1.1-dev (build 10470, commit abc1234)", "b10470-abc1234"),
        ("version: 0.6.0-dev (build 0, commit unknown)", "b0-unknown"),
        ("version: 0.6.0", ""),
        ("nothing", ""),
    ],
)
def test_what_a_server_must_say_of_its_build_follows_from_the_version_text(text: str, info: str) -> None:
    assert build_info(text) == info


def test_the_label_of_an_engine_is_its_version(played: Opener) -> None:
    assert played(version="version: 0.1.1-dev (build 7, commit a)").label() == (
        "llama.cpp 0.1.1-dev (build 7, commit a)"
    )


def test_devices_are_those_that_are_listed() -> None:
    text = (
        "ggml_cuda_init: found 1 CUDA devices:\n  Device 0: NVIDIA L4, compute capability 8.9\n"
        "Available devices:\n  CUDA0: NVIDIA L4 (22 MiB, 21 MiB free)\n  BLAS: OpenBLAS (0 MiB, 0 MiB free)\n"
        "  Vulkan1: AMD Radeon RX 6800 (RADV NAVI21) (16368 MiB, 16000 MiB free)\n"
    )
    assert devices(text) == (
        Device(name="CUDA0", description="NVIDIA L4", memory_mib=22, free_mib=21),
        Device(
            name="Vulkan1",
            description="AMD Radeon RX 6800 (RADV NAVI21)",
            memory_mib=16368,
            free_mib=16000,
        ),
    )
    assert devices("Available devices:\n  (none)\n") == ()
    with pytest.raises(EngineError, match=r"^cannot verify the devices: `--list-devices` lists none$"):
        devices("")
    with pytest.raises(EngineError, match=r"^cannot verify the devices: got the line `CUDA0: L4`$"):
        devices("Available devices:\n  CUDA0: L4\n")


def test_both_outputs_are_read(home: Home, tmp_path: Path) -> None:
    assert printed(program(tmp_path, 'echo "$1"; echo b >&2'), "a", home=home, deadline_s=30) == "a\nb\n"


def test_a_tool_that_fails_is_quoted(home: Home, tmp_path: Path) -> None:
    with pytest.raises(EngineError) as caught:
        printed(program(tmp_path, "echo 'error: no such thing'; exit 3"), "--x", home=home, deadline_s=30)
    assert caught.value.message == "`tool --x` failed (exit code 3): error: no such thing"


def test_a_tool_that_hangs_is_ended(home: Home, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"^`tool` did not end within 0\.2 s$"):
        printed(program(tmp_path, "sleep 1000"), "--x", home=home, deadline_s=0.2)


def test_a_tool_that_never_stops_printing_is_ended(home: Home, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"^`tool --x` failed \(exit code 1\)"):
        printed(program(tmp_path, "exec cat /dev/zero"), "--x", home=home, deadline_s=60, file_bytes=1 << 20)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "llama-server").mkdir()
    with pytest.raises(AbsentError) as caught:
        Build(folder=str(tmp_path)).program("llama-server")
    assert (caught.value.message, caught.value.hint) == (
        f"got no program `llama-server` in `{tmp_path}`",
        "give the folder of a build of llama.cpp that holds llama-server",
    )


def test_an_engine_needs_a_folder(temporary: Path) -> None:
    with pytest.raises(AbsentError) as caught:
        open_engine()
    assert (caught.value.message, caught.value.hint) == (
        "the engine `llama.cpp` needs the folder of a build",
        "give `path` in `[engine]`, or `--engine`",
    )


def test_a_build_that_cannot_be_used_leaves_nothing_behind(tmp_path: Path, temporary: Path) -> None:
    with pytest.raises(
        EngineError, match=r"^cannot verify the options of the build: its `--help` lists none$"
    ):
        open_engine(lib_folder=build(tmp_path / "b", no_help=True), system_options=NOWHERE)
    assert list(temporary.iterdir()) == []
