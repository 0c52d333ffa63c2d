"""A comparison as canonical JSON: the same comparison gives the same bytes, and they read back as the same struct.

It holds more than the other reports show (``comparison_version`` says in which shape); ``qlock diff`` prints an array of
them, whose schema is published as ``docs/comparison.schema.json``. Texts of models in it are
shortened and have their control characters written out.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from qlock.core.canon import json_bytes
from qlock.core.comparison import COMPARISON_VERSION, Comparison

SUFFIX = ".json"


def render(comparison: Comparison) -> str:
    """One line of JSON."""
    return json_bytes(comparison).decode() + "\n"


def schema() -> str:
    """The JSON schema (draft 2020-12) of what ``qlock diff --json`` prints."""
    found: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Comparisons of qlock, version {COMPARISON_VERSION}",
        **msgspec.json.schema(tuple[Comparison, ...]),
    }
    return json.dumps(found, indent=1, sort_keys=True) + "\n"
