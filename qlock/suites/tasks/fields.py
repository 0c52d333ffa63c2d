"""The grader ``field_f1``: how many fields of a JSON answer are the expected ones.

Both sides become pairs of a path (``order``, ``lines``, 0, ``price``) and a value. With t pairs in common, e expected and g
given, the share is F1 = 2t / (e + g): missing fields and invented ones cost alike. Within an item every pair
counts the same (micro F1); items count the same in a mean over items.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

from qlock.core.base import Base
from qlock.core.exchange import Outcome, Partial, Reading, Right, Unparsable, Wrong
from qlock.suites.tasks.reading import alike, json_part, parts_of, read_json

Pair = tuple[int, str, str | Fraction]
"""Number of the path, type of the value, value."""

_Paths = dict[tuple[int, str | int], int]
"""Number of the path above and the last step to the number of a path: long paths are held once, not per leaf."""


class FieldF1(Base, frozen=True, kw_only=True, tag_field="kind", tag="field_f1"):
    """The share of fields that are right; both sides are made alike first."""

    strip: bool = True
    """Drop white space at both ends of texts."""
    casefold: bool = False
    """Upper and lower case count as equal in texts."""
    single_spaces: bool = False
    """Every run of white space in a text counts as one space."""
    list_order: bool = True
    """Whether an element must stand at its place; if not, lists are compared as bags of fields."""

    def refusal(self, expected: object) -> str:
        """Why ``expected`` does not fit this grader; empty when it does."""
        return (
            ""
            if isinstance(expected, dict | list) and expected
            else "expected a table or list that is not empty"
        )

    def grade(self, text: str, expected: object) -> Outcome:
        """The share of fields, or right and wrong at its ends."""
        read = read_json(json_part(text))
        if isinstance(read, Unparsable):
            return read
        paths: _Paths = {}
        wanted = Counter(self._pairs(expected, 0, paths))
        given = Counter(self._pairs(read.value, 0, paths))
        common = (wanted & given).total()
        if common == 0:
            return Wrong(why="no field is as expected")
        if common == wanted.total() == given.total():
            return Right()
        return Partial(share=2 * common / (wanted.total() + given.total()))

    def read(self, text: str) -> Reading | None:
        """The fields of a table; ``None`` where there is none to read."""
        read = read_json(json_part(text))
        if isinstance(read, Unparsable) or not isinstance(read.value, dict):
            return None
        return {"": parts_of(read.value)}

    def gold(self, expected: object) -> str | None:
        """The expected JSON."""
        return json.dumps(expected, ensure_ascii=False)

    def bad(self, expected: object) -> str | None:  # noqa: ARG002 - every grader has the same methods
        """JSON without any field."""
        return "{}"

    def _pairs(self, value: object, path: int, paths: _Paths) -> Iterator[Pair]:
        """Every leaf with its path; an empty container is a leaf too."""
        match value:
            case dict() if value:
                for key, inner in value.items():
                    yield from self._pairs(inner, paths.setdefault((path, key), len(paths) + 1), paths)
            case list() if value:
                for place, inner in enumerate(value):
                    step = place if self.list_order else -1
                    yield from self._pairs(inner, paths.setdefault((path, step), len(paths) + 1), paths)
            case str():
                yield path, "text", self._alike(value)
            case int() | float() if not isinstance(value, bool):
                yield path, "number", Fraction(value)
            case _:
                yield path, "constant", json.dumps(value)

    def _alike(self, text: str) -> str:
        return alike(text, strip=self.strip, casefold=self.casefold, single_spaces=self.single_spaces)
