"""The grader ``choice``: one of a few labels read out of the reply.

Does not live here: multiple-choice exams scored by log-probability.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Literal

import msgspec

from qlock.core.base import Base
from qlock.core.exchange import Outcome, Right, Unparsable, Wrong
from qlock.suites.tasks.reading import quoted

_Word = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
_Words = Annotated[tuple[_Word, ...], msgspec.Meta(max_length=64)]

_DECORATION = " \t\r\n*_`'\"$([{<\\"
"""What may stand between a marker and its label."""
_CLOSING = " \t\r\n*_`'\"$)]}>.,;:!?"
_AFTER_MARKER = 80
"""Characters after a marker within which the label starts."""
_LONGEST_WHOLE = 1_000
"""Characters of a reply that can be a label and nothing else."""
_LINK = re.compile(r"[:=]|is\b", re.IGNORECASE)
_VERBS = ("is", "are", "was", "because", "since", "as")


class Choice(Base, frozen=True, kw_only=True, tag_field="kind", tag="choice"):
    """A label: the marked one, else the only one that stands alone in the reply.

    1. The last marker that is followed by ``:``, ``=`` or ``is`` and then a label (``**Answer:** (B)``).
    2. Else the whole reply, decoration apart (``(b).``), in any case.
    3. Else the labels that stand alone: not part of a longer word or number, and not the English words ``A`` or
       ``I`` before another word; which of them counts says ``unmarked``.
    """

    labels: Annotated[_Words, msgspec.Meta(min_length=2)] = ("A", "B", "C", "D")
    markers: _Words = ("answer",)
    """Words before the answer, in any case."""
    ignore_case: bool = False
    """Whether an unmarked label in running text may be in any case; for labels such as ``yes`` and ``no``."""
    unmarked: Literal["only", "first", "last", "none"] = "only"
    """Which unmarked label counts: the only one (several are unparsable), the first, the last, or none."""

    def __post_init__(self) -> None:
        """Refuse labels that could not be told apart."""
        if len({label.strip().casefold() for label in self.labels}) < len(self.labels):
            raise ValueError("two labels are the same but for case")
        if any(label != label.strip(_DECORATION + _CLOSING) for label in self.labels):
            raise ValueError("a label starts or ends with a space or a punctuation mark")

    def refusal(self, expected: object) -> str:
        """Why ``expected`` does not fit this grader; empty when it does."""
        known = " or ".join(f"`{label}`" for label in self.labels)
        return "" if expected in self.labels else f"expected one of the labels {known}"

    def grade(self, text: str, expected: object) -> Outcome:
        """Right when the label read is the expected one."""
        found = self._read(text)
        if isinstance(found, Unparsable):
            return found
        return (
            Right()
            if found == expected
            else Wrong(why=f"got {quoted(found)}, expected {quoted(str(expected))}")
        )

    def gold(self, expected: object) -> str | None:
        """The label alone."""
        return str(expected)

    def bad(self, expected: object) -> str | None:
        """Another label."""
        return next(label for label in self.labels if label != expected)

    def _read(self, text: str) -> str | Unparsable:
        marked = self._marked(text)
        if marked is not None:
            return marked
        whole = text.strip(_DECORATION + _CLOSING).casefold() if len(text) < _LONGEST_WHOLE else ""
        for label in self.labels:
            if whole == label.casefold():
                return label
        alone = list(self._alone(text)) if self.unmarked != "none" else []
        if not alone:
            return Unparsable(why="no label in the reply")
        if self.unmarked == "only" and len(set(alone)) > 1:
            several = ", ".join(quoted(label) for label in sorted(set(alone))[:4])
            return Unparsable(why=f"several labels in the reply: {several}")
        return alone[-1] if self.unmarked == "last" else alone[0]

    def _marked(self, text: str) -> str | None:
        last = None
        for marker in _any_of(self.markers, ignore_case=True).finditer(text) if self.markers else ():
            if _is_part_of_word(text[marker.start() - 1 : marker.start()]):
                continue
            label = self._label_after(text[marker.end() : marker.end() + _AFTER_MARKER])
            last = label if label is not None else last
        return last

    def _label_after(self, text: str) -> str | None:
        """The label that follows a marker, decoration and one of ``:``, ``=``, ``is``."""
        link = _LINK.match(text.lstrip(_DECORATION))
        if link is None:
            return None
        rest = text.lstrip(_DECORATION)[link.end() :].lstrip(_DECORATION + ":=")
        for wrapper in ("boxed{", "text{"):
            rest = rest.removeprefix(wrapper).lstrip(_DECORATION)
        for label in sorted(self.labels, key=len, reverse=True):
            if rest[: len(label)].casefold() == label.casefold() and not _is_part_of_word(
                rest[len(label) : len(label) + 1]
            ):
                return label
        return None

    def _alone(self, text: str) -> Iterator[str]:
        by_case = {label.casefold(): label for label in self.labels}
        for found in _any_of(self.labels, ignore_case=self.ignore_case).finditer(text):
            before, after = text[found.start() - 1 : found.start()], text[found.end() : found.end() + 20]
            if _is_part_of_word(before) or _is_part_of_word(after[:1]):
                continue
            if found.group() in {"A", "a", "I", "i"} and _is_english_word(after):
                continue
            # A pattern in any case also matches letters whose case is folded to more than one.
            label = by_case.get(found.group().casefold())
            if label is not None:
                yield label


@lru_cache(maxsize=64)
def _any_of(words: tuple[str, ...], *, ignore_case: bool) -> re.Pattern[str]:
    longest_first = sorted(words, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE if ignore_case else 0)


def _is_part_of_word(character: str) -> bool:
    return character.isalnum() or character in {"_", "-", "'", "\N{RIGHT SINGLE QUOTATION MARK}"}


def _is_english_word(after: str) -> bool:
    """Whether ``A`` or ``I`` before this text is an article or a pronoun rather than a label."""
    if not after.startswith(" ") or not after[1:2].isalpha():
        return False
    return re.split("[^a-z]", after[1:].casefold(), maxsplit=1)[0] not in _VERBS
