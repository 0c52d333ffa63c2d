"""The child process, spoken to over its pipes without the engine around it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from qlock.engines.interface import Load, Measure
from qlock.engines.llama_cpp_python import wire
from tests.conftest import ROOT
from tests.fakes.decoder import SETTING

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("bindings")]


def spoken(lines: Sequence[bytes]) -> tuple[list[wire.Word], int]:
    """What a worker answers to these lines, and its exit code once its input has ended."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "qlock.engines.llama_cpp_python.worker"],
        env={"PYTHONPATH": str(ROOT), "LC_ALL": "C"},
        input=b"".join(line + b"\n" for line in lines),
        capture_output=True,
        check=False,
    )
    return [wire.word_from(line) for line in done.stdout.split(b"\n")[:-1]], done.returncode


def test_it_greets_and_ends_with_its_input() -> None:
    words, code = spoken([])
    assert code == 0
    (hello,) = words
    assert isinstance(hello, wire.Hello)
    assert hello.label.startswith("llama-cpp-python 0.3.36, llama.cpp ")
    assert "OPENMP = 1" in hello.system_info


def test_an_order_before_a_model_is_refused_and_the_next_is_heard() -> None:
    orders: list[wire.Order] = [
        wire.TokenizeOrder(text="a", add_special=True, parse_special=False),
        Measure(id="m", tokens=(1, 2), score_from=1),
        wire.ProbeOrder(prompts=((1,),), steps=1),
    ]
    words, code = spoken([wire.encode(order) for order in orders])
    assert words[1:] == [wire.Refused(why="no model is loaded")] * 3
    assert code == 0


def test_nothing_but_words_goes_to_stdout_however_much_is_logged(tiny: Path) -> None:
    load = wire.encode(wire.LoadOrder(load=Load(weights=(str(tiny),), setting=SETTING)))
    words, code = spoken([load, load])
    assert [type(word).__name__ for word in words] == ["Hello", "Loaded", "Loaded"]
    assert code == 0


def test_an_order_that_is_none_ends_it() -> None:
    words, code = spoken([b"{}"])
    assert [type(word).__name__ for word in words] == ["Hello"]
    assert code == 1
