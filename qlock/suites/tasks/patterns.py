"""Regular expressions that take time in proportion to the text: google-re2, with a bound on everything.

RE2 knows no look-around and no back-references; ``\\d``, ``\\w`` and ``\\s`` are ASCII; ``\\z`` is the end.

Does not live here: what is done with a match (``texts``, ``schema``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from qlock.core.escape import for_message

LONGEST_PATTERN = 1_000
"""Characters of a pattern."""
_MEMORY_BYTES = 8 << 20


class Match(Protocol):
    """The part of a match that is used."""

    def group(self, group: int | str) -> bytes | None:
        """The bytes of a group; ``None`` where it took no part."""
        ...


class Pattern(Protocol):
    """The part of a compiled pattern that is used."""

    groups: int
    groupindex: dict[str, int]

    def search(self, text: bytes) -> Match | None:
        """The first match anywhere."""
        ...

    def fullmatch(self, text: bytes) -> Match | None:
        """The match of the whole text."""
        ...


@lru_cache(maxsize=128)
def compiled(pattern: str, *, ignore_case: bool = False) -> Pattern:
    """The pattern ready to search.

    Raises:
        ValueError: It is none, or too long.
    """
    import re2

    if len(pattern) > LONGEST_PATTERN:
        raise ValueError(f"got a pattern of {len(pattern)} characters, expected at most {LONGEST_PATTERN}")
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:
        made: Pattern = re2.compile(pattern, options)
    except UnicodeEncodeError:
        raise ValueError("the pattern holds a lone surrogate") from None
    except re2.error as error:
        why = error.args[0] if error.args else b""
        shown = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        raise ValueError(f"not a pattern of RE2: {for_message(shown)}") from None
    return made


def as_bytes(text: str) -> bytes:
    """Text as RE2 reads it; lone surrogates, which JSON may hold, become ``?``."""
    return text.encode(errors="replace")
