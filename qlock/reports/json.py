"""A comparison as canonical JSON: the same comparison gives the same bytes, and they read back as the same struct.

It holds more than the other reports show (``comparison_version`` says in which shape). Texts of models in it are
shortened and have their control characters written out.
"""

from __future__ import annotations

from qlock.core.canon import json_bytes
from qlock.core.comparison import Comparison

SUFFIX = ".json"


def render(comparison: Comparison) -> str:
    """One line of JSON."""
    return json_bytes(comparison).decode() + "\n"
