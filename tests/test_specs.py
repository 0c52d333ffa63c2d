"""Every spec in `specs/` is run: resolved, measured in full, compared, and found up to date; every lock in `locks/` reads.

With the real engine and the real small model, in a folder of its own that sees the project's files through links.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from qlock.cli.main import exit_code
from qlock.cli.shown import Means, Talk, real_means
from qlock.core.lock import read_lock
from qlock.core.spec import points, read_spec, spec_digest
from qlock.flows.layout import spec_beside
from qlock.world.real import real_world
from tests.conftest import ROOT

SPECS = sorted((ROOT / "specs").glob("*.toml"))
LOCKS = sorted((ROOT / "locks").glob("*.toml"))
Qlock = Callable[..., tuple[int, str]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The repository's files, with `locks/` and `runs/` of its own."""
    for path in ROOT.iterdir():
        if path.name not in {"locks", "runs", "demo"} and not path.name.startswith("."):
            (tmp_path / path.name).symlink_to(path)
    return tmp_path


@pytest.fixture
def qlock(project: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Qlock:
    """Types a command line in the project; gives the exit code and what was on stdout, or was said on stderr."""
    world = msgspec.structs.replace(real_world(), cwd=project)

    def typed(*words: str) -> tuple[int, str]:
        stream = io.StringIO()
        means: Means = real_means()._replace(world=lambda: world, talk=Talk(stream, environment={}))
        capsysbinary.readouterr()
        code = exit_code(words, means)
        out = capsysbinary.readouterr().out.decode()
        return code, out.strip() if code == 0 else stream.getvalue()

    return typed


def test_there_are_specs() -> None:
    assert SPECS


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.name)
def test_a_spec_reads_and_is_named_after_its_file(path: Path) -> None:
    assert read_spec(path.read_bytes(), name=path.name).name == path.stem


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.name)
def test_a_spec_is_resolved_run_and_compared(
    smollm2_q4_1: Path, project: Path, qlock: Qlock, path: Path
) -> None:
    spec = f"specs/{path.name}"
    code, lock = qlock("resolve", spec)
    assert code == 0, lock
    assert (project / lock).is_file()
    assert qlock("resolve", "--check", spec)[0] == 0

    code, run = qlock("run", lock)
    assert code == 0, run
    assert qlock("verify", run)[0] == 0

    code, shown = qlock("diff", run)
    assert code == 0, shown
    others = len(points(read_spec(path.read_bytes(), name=path.name))) - 1
    assert shown.count("VALID: ") == others
    assert "INVALID: " not in shown


def test_every_lock_reads_and_fits_the_spec_beside_it() -> None:
    for path in LOCKS:
        data = path.read_bytes()
        lock = read_lock(data, name=path.name)
        label = data.split(b"\n", 1)[0].decode().rpartition("qlock resolve ")[2]
        spec_path = spec_beside(path, label)
        assert spec_digest(read_spec(spec_path.read_bytes(), name=spec_path.name)) == lock.spec_digest
        assert path.name == f"{lock.name}@{lock.device[0].name}.toml"
