"""Defaults of structs as the bindings read them."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys

import pytest

from qlock.engines.llama_cpp_python.defaults import defaults_of
from tests.conftest import ROOT


class Struct(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_int),
        ("share", ctypes.c_float),
        ("on", ctypes.c_bool),
        ("at", ctypes.c_void_p),
    )


def test_every_field_is_told_and_pointers_only_as_such() -> None:
    assert defaults_of(Struct(3, 0.5, True, None)) == {
        "count": "3",
        "share": "0.5",
        "on": "True",
        "at": "null",
    }


@pytest.mark.live
def test_the_library_of_the_bindings_tells_its_defaults(bindings: None) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "qlock.engines.llama_cpp_python.defaults"],
        cwd=ROOT,
        env={},
        check=True,
        capture_output=True,
    )
    told = json.loads(done.stdout)
    assert told["version"]["llama.cpp"]
    assert (told["context"]["n_ctx"], told["model"]["vocab_only"]) == ("512", "False")
