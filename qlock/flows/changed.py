"""What a new lock changes in an old one, in words: a line for each entry of each table.

Does not live here: which changes nobody asked for (``flows.moving``), and the text of the two locks side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from qlock.core.base import Base
from qlock.core.effects import changes, keyed
from qlock.core.lock import Lock, ModelPin
from qlock.core.words import listed
from qlock.flows.moving import model_why

_TABLES = ("engine", "device", "model", "setting", "suite", "point", "anchor", "gate")
_MOST_LEAVES = 4


class Change(Base, frozen=True, kw_only=True):
    """What becomes of one entry."""

    word: Literal["Added", "Updated", "Removed", "Kept"]
    table: str
    name: str
    why: str
    """What differs, where it is updated."""

    def told(self) -> str:
        """``model Q4_K_M: tensors differ``."""
        return f"{self.table} {self.name}" + (f": {self.why}" if self.why else "")


def lock_changes(old: Lock | None, new: Lock) -> Iterator[Change]:
    """Every entry of both locks, table by table in the order of the lock."""
    for table in _TABLES:
        before = {} if old is None else keyed(getattr(old, table))
        after = keyed(getattr(new, table))
        for name, entry in after.items():
            yield _change(table, name, before.get(name), entry)
        for name in before:
            if name not in after:
                yield Change(word="Removed", table=table, name=name, why="")


def _change(table: str, name: str, before: Base | None, after: Base) -> Change:
    if before is None:
        return Change(word="Added", table=table, name=name, why="")
    if before == after:
        return Change(word="Kept", table=table, name=name, why="")
    return Change(word="Updated", table=table, name=name, why=_why(before, after))


def _why(before: Base, after: Base) -> str:
    match before, after:
        case ModelPin(), ModelPin() if before.file != after.file:
            return model_why(before, after)
        case _:
            return listed((change.path for change in changes(before, after)), most=_MOST_LEAVES)
