"""Golden files are what qlock writes today."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from tests.golden.make import FOLDER, GOLDEN, PUBLISHED, ROOT

REMEDY = "python -m tests.golden.make"


def demand_same(file: Path, made: bytes) -> None:
    kept = file.read_bytes() if file.exists() else b""
    lines = difflib.unified_diff(
        kept.decode().splitlines(), made.decode().splitlines(), f"golden/{file.name}", "made now", lineterm=""
    )
    assert made == kept, "\n".join([*lines, f"if this is meant: {REMEDY}"])


@pytest.mark.parametrize("name", GOLDEN)
def test_the_golden_file_is_what_is_written(name: str) -> None:
    demand_same(FOLDER / name, GOLDEN[name]())


@pytest.mark.parametrize("path", PUBLISHED)
def test_the_published_file_is_what_is_written(path: str) -> None:
    demand_same(ROOT / path, PUBLISHED[path]())


def test_every_golden_file_is_made() -> None:
    kept = {path.name for path in FOLDER.iterdir() if path.is_file() and path.suffix != ".py"}
    assert kept == set(GOLDEN)
