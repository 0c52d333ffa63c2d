"""Graders that look at the reply as text: equal, containing, matching.

Does not live here: numbers, labels, JSON, calls (a file each).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from qlock.core.base import Base
from qlock.core.exchange import Outcome, Right, Unparsable, Wrong
from qlock.suites.tasks.patterns import as_bytes, compiled
from qlock.suites.tasks.reading import alike, quoted


def _texts(expected: object) -> tuple[str, ...]:
    """One text, or each of several; empty where ``expected`` is neither."""
    if isinstance(expected, str):
        return (expected,)
    if isinstance(expected, list) and all(isinstance(one, str) for one in expected):
        return tuple(expected)
    return ()


def _one_of(texts: tuple[str, ...]) -> str:
    shown = " or ".join(quoted(text) for text in texts[:3])
    return f"{shown} or {len(texts) - 3} more" if len(texts) > 3 else shown


class Exact(Base, frozen=True, kw_only=True, tag_field="kind", tag="exact"):
    """The reply is the expected text, or one of several; both sides are made alike first."""

    strip: bool = True
    """Drop white space at both ends."""
    casefold: bool = False
    """Upper and lower case count as equal."""
    single_spaces: bool = False
    """Every run of white space counts as one space, and none at both ends."""

    def refusal(self, expected: object) -> str:
        """Why ``expected`` does not fit this grader; empty when it does."""
        return "" if _texts(expected) else "expected a text or a list of texts"

    def grade(self, text: str, expected: object) -> Outcome:
        """Right when the reply equals an expected text."""
        texts = _texts(expected)
        if self._alike(text) in {self._alike(one) for one in texts}:
            return Right()
        return Wrong(why=f"got {quoted(text)}, expected {_one_of(texts)}")

    def gold(self, expected: object) -> str | None:
        """The first expected text."""
        return next(iter(_texts(expected)), None)

    def bad(self, expected: object) -> str | None:
        """All expected texts and one word more."""
        return " ".join((*_texts(expected), "otherwise"))

    def _alike(self, text: str) -> str:
        return alike(text, strip=self.strip, casefold=self.casefold, single_spaces=self.single_spaces)


class Contains(Base, frozen=True, kw_only=True, tag_field="kind", tag="contains"):
    """The reply contains the expected texts."""

    need: Literal["all", "any"] = "all"
    casefold: bool = False
    """Upper and lower case count as equal."""

    def refusal(self, expected: object) -> str:
        """Why ``expected`` does not fit this grader; empty when it does."""
        texts = _texts(expected)
        return "" if texts and all(texts) else "expected a text or a list of texts, none of them empty"

    def grade(self, text: str, expected: object) -> Outcome:
        """Right when all (or any) expected texts occur."""
        reply = text.casefold() if self.casefold else text
        texts = _texts(expected)
        missing = tuple(one for one in texts if (one.casefold() if self.casefold else one) not in reply)
        if not missing or (self.need == "any" and len(missing) < len(texts)):
            return Right()
        return Wrong(why=f"the reply does not contain {_one_of(missing)}")

    def gold(self, expected: object) -> str | None:
        """The expected texts in a row."""
        return " ".join(_texts(expected))

    def bad(self, expected: object) -> str | None:  # noqa: ARG002 - every grader has the same methods
        """Nothing at all."""
        return ""


class Regex(Base, frozen=True, kw_only=True, tag_field="kind", tag="regex"):
    """The reply matches a pattern; with ``expected``, a group of the match is that text."""

    pattern: Annotated[str, msgspec.Meta(min_length=1)]
    """RE2 syntax; searched anywhere unless ``whole``."""
    group: int | str = 0
    """The group that is compared with ``expected``: number or name; 0 is the whole match."""
    whole: bool = False
    """The pattern must match the whole reply, white space at both ends apart."""
    ignore_case: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no pattern, or a group that it does not have."""
        pattern = compiled(self.pattern, ignore_case=self.ignore_case)
        is_known = (
            self.group in pattern.groupindex
            if isinstance(self.group, str)
            else 0 <= self.group <= pattern.groups
        )
        if not is_known:
            raise ValueError(f"got the group `{self.group}`, expected one of the pattern's")

    def refusal(self, expected: object) -> str:
        """Why ``expected`` does not fit this grader; empty when it does."""
        return "" if expected is msgspec.UNSET or isinstance(expected, str) else "expected a text or nothing"

    def grade(self, text: str, expected: object) -> Outcome:
        """Right on a match, whose group must be the expected text where there is one.

        Without a match the reply is wrong, or unparsable where an answer should have been read out of it.
        """
        pattern = compiled(self.pattern, ignore_case=self.ignore_case)
        reply = as_bytes(text.strip())
        found = pattern.fullmatch(reply) if self.whole else pattern.search(reply)
        if not isinstance(expected, str):
            return Right() if found else Wrong(why="the pattern does not match")
        if found is None:
            return Unparsable(why="the pattern does not match")
        got = (found.group(self.group) or b"").decode(errors="replace").strip()
        alike = got.casefold() == expected.strip().casefold() if self.ignore_case else got == expected.strip()
        return Right() if alike else Wrong(why=f"got {quoted(got)}, expected {quoted(expected)}")

    def gold(self, expected: object) -> str | None:
        """The expected text where the whole match is compared; otherwise the row must give one."""
        return expected if isinstance(expected, str) and self.group == 0 else None

    def bad(self, expected: object) -> str | None:  # noqa: ARG002 - every grader has the same methods
        """Nothing at all."""
        return ""
