"""What the tests of the flows share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fakes.project import Project


@pytest.fixture(autouse=True)
def _disk_that_is_always_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here pulls the plug, and thousands of syncs are most of what these tests would wait for."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A small project whose lock is made."""
    made = Project(tmp_path)
    made.lock()
    return made
