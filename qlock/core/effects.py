"""The leaves of a struct, each with its path and with what a change of it can do.

Everything that must not forget a field goes through here: verification, job digests, comparison, and the tests
that change every leaf in turn. The list of leaves comes from the structs alone.

Does not live here: what follows from a difference (``core.verify``, ``core.compare``).
"""

from __future__ import annotations

import types
from collections.abc import Collection, Iterator
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from qlock.core.base import Base
from qlock.core.facts import EngineFile

Effect = Literal["output", "timing", "note"]
"""What a change can do: to what a model says, to speed only, or to nothing that is measured."""

_KEYS = ("key", "name", "place", "suite", "variation", "type")


class Leaf(Base, frozen=True, kw_only=True):
    """One value that is no struct, and where it stands."""

    path: str
    """``file.libggml-cpu.so.size_bytes``: field names, and the key of each entry of a table."""
    value: Any
    effect: Effect


class Change(Base, frozen=True, kw_only=True):
    """One difference between two structs of a kind: a leaf, or a whole entry that only one of them has."""

    path: str
    before: Any
    """``UNSET`` where it is not there."""
    after: Any
    effect: Effect
    file: str = ""
    """Path of the file whose size, digest or the like it is; empty for all else."""


@cache
def effects_of(kind: type[Base]) -> dict[str, Effect]:
    """Field name to effect, as the struct's annotations say; ``output`` where they say nothing."""
    return {name: _effect(hint) for name, hint in _hints(kind).items()}


@cache
def _tables_of(kind: type[Base]) -> frozenset[str]:
    """Names of the fields that hold a table: many structs of one kind."""
    return frozenset(name for name, hint in _hints(kind).items() if _is_table(hint))


def _hints(kind: type[Base]) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in kind.__struct_fields__}


def _members(hint: Any) -> tuple[Any, ...]:
    """The members of a union, else the hint alone: ``Annotated[X, …] | UnsetType`` is told by its ``X``."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _effect(hint: Any) -> Effect:
    for member in _members(hint):
        for note in getattr(member, "__metadata__", ()):
            extra = note.extra if isinstance(note, msgspec.Meta) else None
            if extra and "effect" in extra:
                effect: Effect = extra["effect"]
                return effect
    return "output"


def _is_table(hint: Any) -> bool:
    for member in _members(hint):
        plain = get_args(member)[0] if get_origin(member) is Annotated else member
        if get_origin(plain) is tuple and all(map(_is_struct, _members(get_args(plain)[0]))):
            return True
    return False


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Base)


def key_of(entry: Base, index: int) -> str:
    """How an entry of a table is called: by its name where it has one, else by its tag or its place."""
    for name in _KEYS:
        if name in entry.__struct_fields__:
            return str(getattr(entry, name))
    return str(entry.__struct_config__.tag or index)


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


def effect_of(entry: Base) -> Effect:
    """What any change within a struct can do at most: files of the system and of Python are noted only."""
    match entry:
        case EngineFile(role="system" | "python"):
            return "note"
        case _:
            return "output"


def leaves(value: Base, *, path: str = "", effect: Effect = "output") -> Iterator[Leaf]:
    """Every leaf under ``value``, in field order; the weaker effect of field and surroundings holds."""
    effect = weaker(effect, effect_of(value))
    for name, own in effects_of(type(value)).items():
        inner = getattr(value, name)
        here = f"{path}.{name}" if path else name
        if inner is UNSET:
            continue
        if name in _tables_of(type(value)):
            for key, entry in keyed(inner).items():
                yield from leaves(entry, path=f"{here}.{key}", effect=weaker(effect, own))
        elif isinstance(inner, Base):
            yield from leaves(inner, path=here, effect=weaker(effect, own))
        else:
            yield from _leaves_of(inner, here, weaker(effect, own))


def _leaves_of(value: Any, path: str, effect: Effect) -> Iterator[Leaf]:
    match value:
        case dict():
            for key in sorted(value):
                inner = value[key]
                here = f"{path}.{_dict_key(key)}"
                if inner == {}:
                    yield Leaf(path=here, value=inner, effect=effect)
                yield from _leaves_of(inner, here, effect)
        case _:
            yield Leaf(path=path, value=value, effect=effect)


def _dict_key(key: str) -> str:
    """A key within a path: in quotes where it would read as several."""
    return key if key.isidentifier() else msgspec.json.encode(key).decode()


def places(value: Base, *, path: str, only: Collection[str] = ()) -> Iterator[str]:
    """Every path that a change within ``value`` can have: of leaves, entries and tables, also of what is unset.

    Args:
        value: Where to look.
        path: Where it stands.
        only: The fields that are meant; all of them when empty.
    """
    yield path
    for name in value.__struct_fields__:
        if only and name not in only:
            continue
        here, inner = f"{path}.{name}", getattr(value, name)
        match inner:
            case Base():
                yield from places(inner, path=here)
            case (Base(), *_):
                yield here
                for key, entry in keyed(inner).items():
                    yield from places(entry, path=f"{here}.{key}")
            case dict():
                yield here
                yield from (leaf.path for leaf in _leaves_of(inner, here, "output"))
            case _:
                yield here


def changes(before: Base, after: Base, *, path: str = "", effect: Effect = "output") -> Iterator[Change]:
    """Every difference between two structs of one kind, in field order; nothing where they are equal."""
    effect = weaker(effect, _stronger(effect_of(before), effect_of(after)))
    tables = _tables_of(type(before))
    for name, own in effects_of(type(before)).items():
        a, b = getattr(before, name), getattr(after, name)
        here, inner = f"{path}.{name}" if path else name, weaker(effect, own)
        if name in tables and (a or b):
            yield from table_changes(a or (), b or (), path=here, effect=inner)
        elif _is_file(before):
            yield from (replace(one, file=path) for one in _changes_of(a, b, here, inner))
        else:
            yield from _changes_of(a, b, here, inner)


def _is_file(value: Base) -> bool:
    """Whether a struct is about one file: then a digest over all its bytes is among its leaves."""
    return "sha256" in value.__struct_fields__


def table_changes(
    before: tuple[Base, ...], after: tuple[Base, ...], *, path: str, effect: Effect = "output"
) -> Iterator[Change]:
    """Differences between two tables: entries that only one has, whole, and what differs within the others."""
    mine, theirs = keyed(before), keyed(after)
    for key, entry in mine.items():
        yield from _changes_of(entry, theirs.get(key, UNSET), f"{path}.{key}", effect)
    for key, entry in theirs.items():
        if key not in mine:
            yield from _changes_of(UNSET, entry, f"{path}.{key}", effect)


def _changes_of(before: Any, after: Any, path: str, effect: Effect) -> Iterator[Change]:
    match before, after:
        case Base(), Base() if type(before) is type(after):
            yield from changes(before, after, path=path, effect=effect)
        case (Base() as entry, _) | (_, Base() as entry):
            yield Change(path=path, before=before, after=after, effect=weaker(effect, effect_of(entry)))
        case dict(), dict():
            for key in sorted(before.keys() | after.keys()):
                a, b = before.get(key, UNSET), after.get(key, UNSET)
                yield from _changes_of(a, b, f"{path}.{_dict_key(key)}", effect)
        case _:
            if not _same(before, after):
                yield Change(path=path, before=before, after=after, effect=effect)


def _same(a: Any, b: Any) -> bool:
    """Equal and of one type: ``true`` is not 1, and 1 is not 1.0; a tuple is read back as an array."""
    match a, b:
        case ((tuple() | list()), (tuple() | list())):
            return len(a) == len(b) and all(map(_same, a, b))
        case _:
            return type(a) is type(b) and bool(a == b)


_ORDER: tuple[Effect, ...] = ("note", "timing", "output")


def _stronger(a: Effect, b: Effect) -> Effect:
    return max(a, b, key=_ORDER.index)


def weaker(a: Effect, b: Effect) -> Effect:
    """The weaker of two effects: a note within a table that changes output is still a note."""
    return min(a, b, key=_ORDER.index)


def what_changes_output(value: Base) -> dict[str, Any]:
    """Path to value of every leaf that can change what a model says: the ground of job digests."""
    return {leaf.path: leaf.value for leaf in leaves(value) if leaf.effect == "output"}
