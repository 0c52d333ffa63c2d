"""scripts/toolchain.py, the Makefile and what they leave behind: one build, the same bytes everywhere."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("toolchain", ROOT / "scripts" / "toolchain.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def script() -> ModuleType:
    """A fresh copy of the script as a module: tests may change its constants."""
    return load_script()


def stop(*arguments: object) -> str:
    raise AssertionError(f"must not be reached, got {arguments}")


def test_the_key_is_the_same_twice(script: ModuleType) -> None:
    assert script.machine_key() == script.machine_key()
    assert len(script.machine_key()) == 8


@pytest.mark.parametrize(
    "change",
    [
        lambda script: setattr(script, "OPTIONS", (*script.OPTIONS, "-DGGML_OPENMP=OFF")),
        lambda script: setattr(script, "RECIPE_VERSION", script.RECIPE_VERSION + 1),
        lambda script: setattr(script, "SOURCE_SHA256", "0" * 64),
        lambda script: setattr(script.platform, "machine", lambda: "another"),
        lambda script: setattr(script, "read_command", lambda command: "another compiler or instruction set"),
    ],
)
def test_the_key_follows_what_decides_the_bytes(
    script: ModuleType, change: Callable[[ModuleType], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script.platform, "machine", script.platform.machine)
    before = script.machine_key()
    change(script)
    assert script.machine_key() != before


def test_the_key_does_not_follow_what_may_differ(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    before = script.machine_key()
    for name, value in (
        ("LC_ALL", "C.UTF-8"),
        ("TZ", "Asia/Tokyo"),
        ("HOME", "/elsewhere"),
        ("CFLAGS", "-O1"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir("/")
    assert script.machine_key() == before


def test_the_cache_lies_where_xdg_says(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert script.cache_folder() == Path("/somewhere/qlock")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert script.cache_folder() == Path("/home/someone/.cache/qlock")


def test_another_archive_than_the_pinned_one_is_refused(script: ModuleType, tmp_path: Path) -> None:
    archive = tmp_path / "downloads" / script.SOURCE_NAME
    archive.parent.mkdir()
    archive.write_bytes(b"something else")
    got = hashlib.sha256(b"something else").hexdigest()
    with pytest.raises(script.ToolchainError) as caught:
        script.fetch_source(tmp_path)
    assert str(caught.value) == (
        f"`{archive}` is not the pinned source: got sha256 `{got}` expected `{script.SOURCE_SHA256}`\n"
        "hint: delete the file and try again"
    )


def test_a_second_build_says_that_it_waits_and_goes_on_when_the_first_is_done(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        monkeypatch.setattr(script.time, "sleep", lambda seconds: fcntl.flock(other, fcntl.LOCK_UN))
        with script.only_one(tmp_path), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert capsys.readouterr().out == f"another build works in {tmp_path}; waiting for it\n"


def test_a_second_build_gives_up_in_the_end(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "LOCK_TIMEOUT_S", 0.0)
    with (tmp_path / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(script.ToolchainError) as caught, script.only_one(tmp_path):
            stop()
    assert str(caught.value) == (
        f"another build holds `{tmp_path}/lock` for too long\nhint: end that build and try again"
    )
    with script.only_one(tmp_path):
        pass
    assert capsys.readouterr().out == ""


def test_a_finished_build_is_not_touched(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(script, "machine_key", lambda: "01234567")
    monkeypatch.setattr(script, "fetch_source", stop)
    folder = tmp_path / "qlock" / f"llama-cpp-{script.BINDING_VERSION}-01234567"
    folder.mkdir(parents=True)
    (folder / "libraries.done").touch()
    assert script.ensure("libraries") == folder
    with pytest.raises(AssertionError):
        script.ensure("tools")
    (folder / "tools.done").touch()
    assert script.ensure("tools") == folder


def test_a_build_that_was_cut_off_starts_over(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    (work / "build").mkdir(parents=True)
    (work / "build" / "half.o").touch()
    (work / "unfinished").touch()
    monkeypatch.setattr(script, "unpack", lambda archive, work: work)

    def configured(source: Path, build: Path) -> None:
        (build / "bin").mkdir(parents=True)
        (build / "bin" / "libllama.so").write_bytes(b"new")

    monkeypatch.setattr(script, "configure", configured)
    monkeypatch.setattr(script, "run_logged", lambda command, log: None)
    script.build_stage("libraries", tmp_path, tmp_path / "archive")
    assert not (work / "build" / "half.o").exists()
    assert not (work / "unfinished").exists()
    assert (tmp_path / "bin" / "libllama.so").read_bytes() == b"new"


def test_a_command_that_fails_shows_its_last_lines_and_its_log(script: ModuleType, tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    with pytest.raises(script.ToolchainError) as caught:
        script.run_logged([sys.executable, "-c", "print('no such header'); raise SystemExit(3)"], log)
    assert str(caught.value) == (
        f"`{sys.executable}` ended with code 3; its last lines:\n"
        f"$ {sys.executable} -c print('no such header'); raise SystemExit(3)\nno such header\n"
        f"hint: the whole log is {log}"
    )


def test_a_missing_compiler_is_named(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", sys.executable)
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(script.ToolchainError) as caught:
        script.compilers()
    assert str(caught.value) == (
        "no C++ compiler found\nhint: install one, for example `apt-get install g++`"
    )


def test_a_missing_cmake_is_named(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(script.ToolchainError) as caught:
        script.check_cmake()
    assert str(caught.value) == (
        "no cmake found, expected 3.21 or newer\n"
        "hint: install it, for example `apt-get install cmake` or `pip install cmake`"
    )


def test_an_old_cmake_is_named_with_both_versions(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(script, "read_command", lambda command: "cmake version 3.9.1\n\nCMake suite\n")
    with pytest.raises(script.ToolchainError) as caught:
        script.check_cmake()
    assert str(caught.value) == (
        "cmake is too old: got `3.9.1` expected 3.21 or newer\n"
        "hint: install it, for example `apt-get install cmake` or `pip install cmake`"
    )


def test_requirements_come_from_extras_and_groups(script: ModuleType) -> None:
    assert f"llama-cpp-python=={script.BINDING_VERSION}" in script.requirements("embedded")
    assert any(line.startswith("pytest>=") for line in script.requirements("dev"))


def test_an_unknown_group_is_named(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[project.optional-dependencies]\nsign = []\n[dependency-groups]\ndev = []\n", encoding="utf-8"
    )
    monkeypatch.setattr(script, "ROOT", tmp_path)
    assert script.main(["requirements", "nope"]) == 1
    assert capsys.readouterr().err == (
        "error: pyproject.toml has no extra or group `nope`\nhint: it has dev, sign\n"
    )


def test_an_unknown_command_line_shows_the_usage(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([]) == 2
    assert capsys.readouterr().err == "usage: toolchain.py libraries | tools | requirements NAME\n"


def test_a_bare_interpreter_is_not_furnished(
    script: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert script.main(["libraries"]) == 1
    assert capsys.readouterr().err == (
        "error: this interpreter is not that of a virtual environment\nhint: `make setup` makes one\n"
    )


def test_make_without_a_new_enough_python_says_so(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    (tmp_path / "pyproject.toml").touch()
    done = subprocess.run(
        ["make", "--no-print-directory", "PYTHON=/nonexistent/python3", "setup"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode != 0
    assert done.stderr.splitlines()[:2] == [
        "error: no Python 3.11 or newer with the venv module found at /nonexistent/python3",
        "hint: install python3.11 (and python3.11-venv), or name one: make PYTHON=/path/to/python3",
    ]
    assert not (tmp_path / ".venv").exists()


@pytest.mark.live
def test_the_binding_runs_the_bytes_of_the_build(script: ModuleType, llama_bin: Path) -> None:
    spec = importlib.util.find_spec("llama_cpp")
    assert spec is not None
    assert spec.origin is not None
    inside = Path(spec.origin).parent / "lib"
    assert sorted(path.name for path in inside.iterdir()) == sorted(script.LIBRARIES)
    for name in script.LIBRARIES:
        assert (inside / name).read_bytes() == (llama_bin / name).read_bytes()


@pytest.mark.live
def test_nothing_built_knows_where_it_was_built(llama_bin: Path) -> None:
    built = sorted(path for path in llama_bin.iterdir() if path.is_file())
    assert len(built) >= 9
    for path in built:
        content = path.read_bytes()
        for trace in (llama_bin.parent, llama_bin.parent.parent, Path.home()):
            assert f"{trace}/".encode() not in content, f"{path.name} holds {trace}"


@pytest.mark.live
def test_the_build_text_names_no_foreign_commit(llama_bin: Path) -> None:
    done = subprocess.run(
        [llama_bin / "llama-server", "--version"], check=True, env={}, capture_output=True, text=True
    )
    assert "(build 0, commit unknown)" in done.stdout + done.stderr


@pytest.mark.live
def test_the_fixtures_find_what_was_set_up(smollm2_q4_1: Path, templates_folder: Path) -> None:
    with smollm2_q4_1.open("rb") as file:
        assert file.read(4) == b"GGUF"
    assert len(list(templates_folder.glob("*.jinja"))) > 10


@pytest.mark.live
def test_every_quant_is_a_whole_gguf(
    smollm2_f16: Path, smollm2_q8_0: Path, smollm2_q4_k_m: Path, smollm2_q2_k: Path
) -> None:
    sizes_bytes = [path.stat().st_size for path in (smollm2_f16, smollm2_q8_0, smollm2_q4_k_m, smollm2_q2_k)]
    assert sizes_bytes == sorted(sizes_bytes, reverse=True)
    for path in (smollm2_f16, smollm2_q8_0, smollm2_q4_k_m, smollm2_q2_k):
        with path.open("rb") as file:
            assert file.read(4) == b"GGUF"
