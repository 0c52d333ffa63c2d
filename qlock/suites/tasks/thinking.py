"""Cutting the thinking of a model away before its answer is graded.

Does not live here: whether a model is told to think (``[suite.prompt]``).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from qlock.core.base import Base
from qlock.core.exchange import Unparsable

_Tag = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class Thinking(Base, frozen=True, kw_only=True):
    """The rule by which thinking is told from the answer; part of the lock."""

    cut: bool = True
    """Whether thinking is cut at all; if not, the whole reply is graded."""
    open: _Tag = "<think>"
    close: _Tag = "</think>"
    opened_by_template: bool = False
    """Whether the chat template itself ends with the opening tag: then a reply without a closing one is all
    thinking, which the reply alone does not show."""


def final_answer(text: str, rule: Thinking) -> str | Unparsable:
    """What stands after the thinking, or why there is nothing.

    1. An opening tag after the last closing one, or without any: the thinking did not end.
    2. A closing tag: the answer is what follows the last one, without the white space between them. Whether
       the opening tag is in the reply or was in the prompt makes no difference.
    3. No tag: the whole reply is the answer, as when the thinking was separated before.
    """
    if not rule.cut:
        return text
    closed = text.rfind(rule.close)
    after = closed + len(rule.close) if closed >= 0 else 0
    if text.find(rule.open, after) >= 0 or (closed < 0 and rule.opened_by_template):
        return Unparsable(why="thinking did not end")
    return text[after:].lstrip() if closed >= 0 else text
