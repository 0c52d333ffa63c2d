"""Every grader of own exams, by the ``kind`` that a row or the suite names.

A grader is a struct whose fields are its options and which answers four questions: does this ``expected`` fit
(``refusal``), what is this reply worth (``grade``), which reply must pass (``gold``), which must not (``bad``).
Those that read a reply part by part also say what they read (``read``).
It is safe on any text: bounded in time and memory, without a clock.
"""

from __future__ import annotations

from typing import get_args

from qlock.core.exchange import Reading
from qlock.suites.tasks.choice import Choice
from qlock.suites.tasks.fields import FieldF1
from qlock.suites.tasks.number import Number
from qlock.suites.tasks.schema import JsonSchema
from qlock.suites.tasks.texts import Contains, Exact, Regex
from qlock.suites.tasks.tool_call import ToolCall

Grader = Exact | Number | Choice | Regex | Contains | JsonSchema | FieldF1 | ToolCall

KINDS: tuple[str, ...] = tuple(str(grader.__struct_config__.tag) for grader in get_args(Grader))
"""Every grader by its name."""


def read_by(grader: Grader, text: str) -> Reading | None:
    """What a grader reads out of a reply, part by part; ``None`` where it does not, or cannot."""
    match grader:
        case ToolCall() | FieldF1():
            return grader.read(text)
        case Exact() | Number() | Choice() | Regex() | Contains() | JsonSchema():
            return None
