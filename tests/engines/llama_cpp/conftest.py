"""Engines of this test alone: on the real build, or on a server that plays a part."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from qlock.core.facts import Setting
from qlock.engines.interface import Generate, Load
from qlock.engines.llama_cpp import Deadlines, LlamaCpp, open_engine, server
from tests.fakes.decoder import GREEDY
from tests.fakes.decoder import SETTING as LOCKSTEP
from tests.fakes.llama_server import build
from tests.fakes.tiny_models import write_tiny

SETTING = msgspec.structs.replace(LOCKSTEP, context_tokens=512, slots=1)
DEADLINES = Deadlines(start_s=60, load_s=60, progress_s=60, close_s=5)
NOWHERE = Path("/nowhere/config.ini")

Opener = Callable[..., LlamaCpp]


def load_of(model: Path, **changes: object) -> Load:
    return Load(weights=(str(model),), setting=changed(**changes))


def changed(**changes: object) -> Setting:
    return msgspec.structs.replace(SETTING, **changes)


def work(
    item: str, tokens: tuple[int, ...], *, logprobs: bool = False, digest: bool = False, **changes: object
) -> Generate:
    sampling = msgspec.structs.replace(GREEDY, **changes)
    return Generate(id=item, tokens=tokens, sampling=sampling, logprobs=logprobs, logits_digest=digest)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for a socket."""
    with tempfile.TemporaryDirectory(prefix="q", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def temporary(tmp_path: Path, short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where engines of this test make their folders; what is there at the end was left behind.

    NOTE: pytest makes its own folders below the same place, unless it has made one before.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(short_folder))
    return short_folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file that no server reads."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    return path


@pytest.fixture
def played(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    """Open an engine on a server that plays a part; all are closed at the end."""
    monkeypatch.setattr(server, "SETTLE_S", 0.5)
    engines: list[LlamaCpp] = []

    def open_played(
        *, deadlines: Deadlines = DEADLINES, variables: dict[str, str] | None = None, **behaviour: object
    ) -> LlamaCpp:
        folder = build(tmp_path / "build", **behaviour)
        engines.append(
            open_engine(lib_folder=folder, deadlines=deadlines, variables=variables, system_options=NOWHERE)
        )
        return engines[-1]

    yield open_played
    for engine in engines:
        engine.close()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense model of 0.1 million random weights."""
    return write_tiny(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="session", params=["llama_bin", "mainline_bin"])
def build_bin(request: pytest.FixtureRequest) -> Path:
    """Each of the real builds: that of the bindings' sources, and a release of llama.cpp."""
    folder: Path = request.getfixturevalue(request.param)
    return folder


@pytest.fixture
def real(build_bin: Path, temporary: Path) -> Iterator[LlamaCpp]:
    """An engine on a real build."""
    with open_engine(lib_folder=build_bin, deadlines=DEADLINES) as engine:
        yield engine
