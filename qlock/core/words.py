"""Names in messages: several of them in a bounded list, and the one that a misspelt name was meant to be.

Does not live here: making one text safe to show (``core.escape``), and keys of a table (``core.explain``).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from qlock.core.escape import for_message

MOST_NAMES = 10


def listed(names: Iterable[str], *, most: int = MOST_NAMES, in_backticks: bool = False) -> str:
    """``a, b and 3 more``: the first names, safe to show; how many others there are is told.

    Args:
        names: In the order in which they are told.
        most: So many of them are told by name.
        in_backticks: Whether each stands in backticks.
    """
    every = list(names)
    shown = map(for_message, every[:most])
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(f"`{name}`" if in_backticks else name for name in shown) + more


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint with the known name that is most like this one; empty where none is like it.

    A point ``MODEL@SETTING`` is also found by its model alone.
    """
    whole = {one: one for one in known}
    by_model = {one.partition("@")[0]: one for one in reversed(whole)}
    meant = by_model | whole
    near = difflib.get_close_matches(name, meant, n=1)
    return f"did you mean `{for_message(meant[near[0]])}`?" if near else ""
