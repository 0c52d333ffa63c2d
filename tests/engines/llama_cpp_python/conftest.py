"""Tiny models and engines for the live tests of the embedded engine."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from qlock.engines.llama_cpp_python import Deadlines, LlamaCppPython, open_engine
from tests.conftest import absent
from tests.fakes.tiny_models import MIXTURE, write_tiny


@pytest.fixture(scope="session")
def bindings() -> None:
    """llama-cpp-python is installed."""
    if importlib.util.find_spec("llama_cpp") is None:
        absent("llama-cpp-python is not installed; `make test` builds it")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense model of 0.3 million random weights."""
    return write_tiny(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny_mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mixture of four experts."""
    return write_tiny(tmp_path_factory.mktemp("models") / "mixture.gguf", MIXTURE)


@pytest.fixture(scope="session")
def mixture_q5_k(llama_bin: Path, tiny_mixture: Path) -> Path:
    """The mixture with K-quants, whose kernels look at how many rows an expert gets."""
    path = tiny_mixture.with_name("mixture.q5_k.gguf")
    command = [str(llama_bin / "llama-quantize"), str(tiny_mixture), str(path), "Q5_K_M", "2"]
    subprocess.run(command, check=True, env={"LC_ALL": "C"}, capture_output=True)
    return path


@pytest.fixture
def engine(bindings: None) -> Iterator[LlamaCppPython]:
    """An engine of this test alone, with nothing loaded."""
    with open_engine(deadlines=Deadlines(start_s=60, load_s=120, progress_s=120, write_s=60)) as engine:
        yield engine


@pytest.fixture(scope="module")
def shared_engine(bindings: None) -> Iterator[LlamaCppPython]:
    """An engine that the tests of a module share; each loads what it needs."""
    with open_engine() as engine:
        yield engine
