"""Every grader of own exams, by the ``kind`` that a row or the suite names.

A grader is a struct whose fields are its options and which answers four questions: does this ``expected`` fit
(``refusal``), what is this reply worth (``grade``), which reply must pass (``gold``), which must not (``bad``).
It is safe on any text: bounded in time and memory, without a clock.
"""

from __future__ import annotations

from typing import get_args

from qlock.suites.tasks.choice import Choice
from qlock.suites.tasks.fields import FieldF1
from qlock.suites.tasks.number import Number
from qlock.suites.tasks.schema import JsonSchema
from qlock.suites.tasks.texts import Contains, Exact, Regex
from qlock.suites.tasks.tool_call import ToolCall

Grader = Exact | Number | Choice | Regex | Contains | JsonSchema | FieldF1 | ToolCall

KINDS: tuple[str, ...] = tuple(str(grader.__struct_config__.tag) for grader in get_args(Grader))
"""Every grader by its name."""
