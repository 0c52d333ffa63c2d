"""Golden files are what qlock writes today."""

from __future__ import annotations

import difflib

import pytest

from tests.golden.make import FOLDER, GOLDEN

REMEDY = "python -m tests.golden.make"


@pytest.mark.parametrize("name", GOLDEN)
def test_the_golden_file_is_what_is_written(name: str) -> None:
    file = FOLDER / name
    kept = file.read_bytes() if file.exists() else b""
    made = GOLDEN[name]()
    lines = difflib.unified_diff(
        kept.decode().splitlines(), made.decode().splitlines(), f"golden/{name}", "made now", lineterm=""
    )
    assert made == kept, "\n".join([*lines, f"if this is meant: {REMEDY}"])


def test_every_golden_file_is_made() -> None:
    kept = {path.name for path in FOLDER.iterdir() if path.is_file() and path.suffix != ".py"}
    assert kept == set(GOLDEN)
