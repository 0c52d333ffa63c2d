"""What the tests of the flows share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _disk_that_is_always_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here pulls the plug, and thousands of syncs are most of what these tests would wait for."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
