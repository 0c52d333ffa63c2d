"""The leaves of a struct, each with its path and with what a change of it can do.

Everything that must not forget a field goes through here: verification, job digests, comparison, and the tests
that change every leaf in turn. The list of leaves comes from the structs alone.

Does not live here: what follows from a difference (``core.verify``, ``core.compare``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_type_hints

import msgspec
from msgspec import UNSET

from qlock.core.base import Base

Effect = Literal["output", "timing", "note"]
"""What a change can do: to what a model says, to speed only, or to nothing that is measured."""

_KEYS = ("name", "suite", "variation", "type")
_effects: dict[type[Base], dict[str, Effect]] = {}


class Leaf(Base, frozen=True, kw_only=True):
    """One value that is no struct, and where it stands."""

    path: str
    """``file.libggml-cpu.so.size_bytes``: field names, and the key of each entry of a table."""
    value: Any
    effect: Effect


def effects_of(kind: type[Base]) -> dict[str, Effect]:
    """Field name to effect, as the struct's annotations say; ``output`` where they say nothing."""
    if kind not in _effects:
        hints = get_type_hints(kind, include_extras=True)
        _effects[kind] = {
            name: _effect(hint) for name, hint in hints.items() if name in kind.__struct_fields__
        }
    return _effects[kind]


def _effect(hint: Any) -> Effect:
    for note in getattr(hint, "__metadata__", ()):
        extra = note.extra if isinstance(note, msgspec.Meta) else None
        if extra and "effect" in extra:
            effect: Effect = extra["effect"]
            return effect
    return "output"


def key_of(entry: Base, index: int) -> str:
    """How an entry of a table is called: by its name where it has one, else by its place."""
    for name in _KEYS:
        if name in entry.__struct_fields__:
            return str(getattr(entry, name))
    return str(index)


def keyed(entries: tuple[Base, ...]) -> dict[str, Base]:
    """Entries by key; a second entry of one key gets ``#2``."""
    found: dict[str, Base] = {}
    for index, entry in enumerate(entries):
        key = key_of(entry, index)
        turn = 1
        while (key if turn == 1 else f"{key}#{turn}") in found:
            turn += 1
        found[key if turn == 1 else f"{key}#{turn}"] = entry
    return found


def leaves(value: Base, *, path: str = "", effect: Effect = "output") -> Iterator[Leaf]:
    """Every leaf under ``value``, in field order; the weaker effect of field and surroundings holds."""
    for name, own in effects_of(type(value)).items():
        inner = getattr(value, name)
        here = f"{path}.{name}" if path else name
        yield from _leaves_of(inner, here, weaker(effect, own))


def _leaves_of(value: Any, path: str, effect: Effect) -> Iterator[Leaf]:
    if value is UNSET:
        return
    if isinstance(value, Base):
        yield from leaves(value, path=path, effect=effect)
    elif isinstance(value, tuple) and value and all(isinstance(entry, Base) for entry in value):
        for key, entry in keyed(value).items():
            yield from leaves(entry, path=f"{path}.{key}", effect=effect)
    elif isinstance(value, dict):
        for key in sorted(value):
            yield from _leaves_of(value[key], f"{path}.{key}", effect)
    else:
        yield Leaf(path=path, value=value, effect=effect)


def weaker(a: Effect, b: Effect) -> Effect:
    """The weaker of two effects: a note within a table that changes output is still a note."""
    order: tuple[Effect, ...] = ("note", "timing", "output")
    return order[min(order.index(a), order.index(b))]


def what_changes_output(value: Base) -> dict[str, Any]:
    """Path to value of every leaf that can change what a model says: the ground of job digests."""
    return {
        leaf.path: list(leaf.value) if isinstance(leaf.value, tuple) else leaf.value
        for leaf in leaves(value)
        if leaf.effect == "output"
    }
