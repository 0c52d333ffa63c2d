"""Comparisons as one canonical JSON document: the same comparisons give the same bytes, and read back as the same struct.

It is a ladder, also of a single comparison: ``comparison`` holds each of them, whole, ``rung`` every point once with its
size, score, endings, distance and speed, and ``best`` what was asked for. It holds more than the other reports show;
``ladder_version`` and ``comparison_version`` say in which shape. Texts of models in it are shortened and have their
control characters written out. Its schema is published as ``docs/comparison.schema.json``.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from qlock.core.canon import json_bytes
from qlock.core.comparison import COMPARISON_VERSION, Comparison
from qlock.core.ladder import LADDER_VERSION, Ladder, ladder

SUFFIX = ".json"


def render(comparison: Comparison) -> str:
    """One line of JSON."""
    return render_all(ladder([comparison]))


def render_all(found: Ladder) -> str:
    """The same of many."""
    return json_bytes(found).decode() + "\n"


def schema() -> str:
    """The JSON schema (draft 2020-12) of what ``qlock diff --json`` prints."""
    versions = f"version {LADDER_VERSION}, each comparison of version {COMPARISON_VERSION}"
    found: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A ladder of qlock, {versions}",
        **msgspec.json.schema(Ladder),
    }
    return json.dumps(found, indent=1, sort_keys=True) + "\n"
