"""Changing one leaf of a struct, by the path that `qlock.core.effects` gives it."""

from __future__ import annotations

from typing import Any

import msgspec

from qlock.core.base import Base
from qlock.core.effects import keyed


def other(value: Any) -> Any:
    """Another value of the same kind, as ordinary as the one it replaces."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case "system":
            return "python"
        case "f16":
            return "bf16"
        case "2026-01-01":
            return "2026-01-02"
        case str():
            return f"{value[:-1]}{'0' if value.endswith('1') else '1'}" if value else "x"
        case tuple():
            return (*value, "x") if not value or isinstance(value[0], str) else (*value, 99)
        case list():
            return [*value, 1]
        case dict():
            return {**value, "x": 1}
        case _:
            raise NotImplementedError(value)


def changed(value: Any, path: str) -> Any:
    """The value with the leaf at `path` changed: fields, entries by key, and dict keys as `core.effects` writes them."""
    match value:
        case Base():
            field, _, rest = path.partition(".")
            inner = getattr(value, field)
            return msgspec.structs.replace(value, **{field: changed(inner, rest) if rest else other(inner)})
        case tuple():
            return tuple(
                changed(entry, path.removeprefix(f"{key}.")) if path.startswith(f"{key}.") else entry
                for key, entry in keyed(value).items()
            )
        case dict():
            key, _, rest = path.partition(".")
            return {**value, key: changed(value[key], rest) if rest else other(value[key])}
        case _:
            raise NotImplementedError(path)
