"""The base of every struct that is read from or written to a file.

Each class states ``frozen=True, kw_only=True`` itself, since msgspec does not inherit ``kw_only`` and mypy
wants ``frozen`` repeated.

Unknown fields are refused everywhere: a misspelt key that is silently ignored would be a setting that somebody
believes in and nobody applies.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Annotated

import msgspec


class Base(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen struct that refuses unknown fields."""


NAME = "[A-Za-z0-9][A-Za-z0-9._+-]*"
"""The letters of a name, as a pattern."""

LONGEST_NAME = 80
"""Three of them are in the name of a record, ``SUITE.MODEL@SETTING.1000.jsonl``, and file systems take 255 bytes."""

Name = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^{NAME}\Z",
        max_length=LONGEST_NAME,
        description="a name of ASCII letters, digits and `._+-` that starts with a letter or digit",
    ),
]
"""A name that people give to a model, setting or suite; safe in file names and in ``RUN:POINT``."""


def is_name(text: str) -> bool:
    """Whether a model, setting or suite may be called so."""
    return len(text) <= LONGEST_NAME and re.fullmatch(NAME, text) is not None


Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Finite = Annotated[float, msgspec.Meta(ge=-1.7976931348623157e308, le=1.7976931348623157e308)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1.7976931348623157e308)]
"""A duration."""
Token = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""A token id: llama.cpp has them in 32 bits, and none below 0."""
Day = Annotated[
    str, msgspec.Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}\Z", description="a day such as `2026-01-01`")
]
"""Its form; ``refuse_no_day`` looks into the calendar."""

_LONGEST_ID = 200
ITEM_ID = f"1 to {_LONGEST_ID} printable characters without outer spaces"
"""What an item may be called, in words."""


def is_item_id(text: str) -> bool:
    """Whether an item may be called so."""
    return 0 < len(text) <= _LONGEST_ID and text.isprintable() and text.strip() == text


SLICE = f"a name without `=` and a value, each {ITEM_ID}"
"""What a slice may be called, in words."""


def wrong_slice(slices: Mapping[str, str]) -> str | None:
    """The first slice that may not be called so, as ``NAME=VALUE``; with a ``=`` in names two could be one."""
    for name, value in slices.items():
        if not is_item_id(name) or not is_item_id(value) or "=" in name:
            return f"{name}={value}"
    return None


def refuse_no_day(text: str, *, key: str) -> None:
    """Refuse what has the form of a day and is none of the calendar.

    Raises:
        ValueError: Naming the key.
    """
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{key}: got `{text}`, expected a day of the calendar") from None
