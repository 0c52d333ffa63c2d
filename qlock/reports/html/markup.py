"""HTML that cannot be broken by a text: every element is made by one function, every text goes through one other.

``Markup`` is text that is HTML already; a plain string is none, and mypy refuses it as content of an element.

Does not live here: what is on the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NewType

from qlock.core.escape import for_html

Markup = NewType("Markup", str)

_QUOTED = re.compile(r"`([^`]+)`")
_VOID = frozenset({"meta", "br", "line", "rect", "circle", "path"})
"""Elements without content here."""


def text(written: str, *, limit: int = 2_400) -> Markup:
    """Any text, harmless and with everything invisible written out; longer ones lose their middle."""
    return Markup(for_html(written, limit=limit))


def sentence(written: str, *, limit: int = 2_400) -> Markup:
    """The same with what stands in backticks as code, as in a message; a backtick without a second one stays one."""
    pieces = _QUOTED.split(text(written, limit=limit))
    return many(
        element("code", Markup(piece)) if number % 2 else Markup(piece) for number, piece in enumerate(pieces)
    )


def element(tag: str, *content: Markup, **attributes: str | float) -> Markup:
    """One element; ``class_`` stands for ``class``, and ``_`` in a name for ``-``."""
    told = "".join(f' {_name(name)}="{_value(value)}"' for name, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{told}/>")
    return Markup(f"<{tag}{told}>{''.join(content)}</{tag}>")


def many(parts: Iterable[Markup]) -> Markup:
    """Elements one after the other."""
    return Markup("".join(parts))


def _name(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    match value:
        case str():
            return for_html(value)
        case _:
            return f"{round(value, 2):g}"
