"""Whether the bindings can drive a build's libraries."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from qlock.engines.llama_cpp.agreement import Defaults, difference, disagreement
from qlock.engines.llama_cpp.home import Home
from tests.engines.llama_cpp.conftest import NOWHERE

live = pytest.mark.live

OWN: Defaults = {
    "version": {"llama.cpp": "0.5.0"},
    "model": {"n_gpu_layers": "-1", "vocab_only": "False"},
    "context": {"n_ctx": "512", "n_batch": "2048"},
}


@pytest.fixture
def home(temporary: Path) -> Iterator[Home]:
    home = Home(variables={}, system_options=NOWHERE)
    yield home
    home.close()


def test_equal_structs_agree_whatever_the_version() -> None:
    assert difference(OWN, OWN | {"version": {"llama.cpp": "0.6.0"}}) == ""


@pytest.mark.parametrize(
    "struct, name, got",
    [("model", "vocab_only", "True"), ("context", "n_batch", "512"), ("context", "n_ctx", "0")],
)
def test_a_value_that_lies_elsewhere_is_named(struct: str, name: str, got: str) -> None:
    other = deepcopy(OWN)
    other[struct][name] = got
    other["version"]["llama.cpp"] = "0.6.0"
    assert difference(OWN, other) == (
        f"llama-cpp-python reads `{name} = {got}` from the build, expected `{OWN[struct][name]}`:"
        " it was made for 0.5.0, and this is 0.6.0"
    )


def test_a_folder_without_libraries_does_not_agree(home: Home, tmp_path: Path) -> None:
    why = disagreement(tmp_path, home=home)
    assert "library does not load" in why or "is not installed" in why


@live
def test_the_real_build_agrees(home: Home, build_bin: Path) -> None:
    assert disagreement(build_bin, home=home) == ""
