"""The scripts in `benchmarks/`, which nothing else runs, find the names that they import."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))


def imported(script: Path) -> Iterator[tuple[str, str]]:
    """Module and name of whatever a script takes from qlock or from the tests."""
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in {"qlock", "tests"}:
            yield from ((str(node.module), alias.name) for alias in node.names)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_what_a_benchmark_imports_is_there(script: Path) -> None:
    absent = []
    for module, name in imported(script):
        try:
            if not hasattr(importlib.import_module(module), name):
                importlib.import_module(f"{module}.{name}")
        except ImportError:
            absent.append(f"{module}.{name}")
    assert absent == []
