"""The grader ``tool_call``: the reply makes exactly the expected calls, and no other.

The item's ``expected`` is a list of ``{"name": …, "arguments": {…}}``; an empty list means that nothing should be
called, and then any prose is right. Such items alone say little: a model that only babbles gets all of them.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Annotated

import msgspec

from qlock.core.base import Base
from qlock.core.exchange import Outcome, Reading, Right, Unparsable, Wrong
from qlock.suites.tasks.calls import MOST_CALLS, Call, read_calls, seems_to_call
from qlock.suites.tasks.reading import parts_of, quoted

_LOOSE = str.maketrans("", "", " ,./-_*^")


class ToolCall(Base, frozen=True, kw_only=True, tag_field="kind", tag="tool_call"):
    """Compares calls by name and by every argument."""

    alternatives: bool = False
    """Every expected argument is a list of allowed values; ``""`` in it means that the argument may be left out
    (as in the answers of the Berkeley Function-Calling Leaderboard)."""
    tolerance: Annotated[float, msgspec.Meta(ge=0.0, le=1e100)] = 0.0
    """How far a number may be from the expected one; 5 and 5.0 are the same in any case."""
    loose_strings: bool = False
    """Texts are compared without case, spaces and any of ``,./-_*^``, and with one kind of quote."""
    extra_arguments: bool = False
    """Whether a call may have arguments that are not expected."""
    ordered: bool = False
    """Whether several calls must come in the expected order."""

    def refusal(self, expected: object) -> str:
        """Why ``expected`` does not fit this grader; empty when it does."""
        try:
            calls = msgspec.convert(expected, list[Call])
        except msgspec.ValidationError:
            return 'expected a list of calls such as `{"name": "f", "arguments": {"a": 1}}`'
        if len(calls) > MOST_CALLS:
            return f"got {len(calls)} calls, expected at most {MOST_CALLS}"
        lists = all(
            isinstance(allowed, list) and allowed for call in calls for allowed in call.arguments.values()
        )
        if self.alternatives and not lists:
            return "with `alternatives`, expected a list of allowed values for every argument"
        return ""

    def grade(self, text: str, expected: object) -> Outcome:
        """Right when every expected call is made once, and no other."""
        wanted = msgspec.convert(expected, list[Call])
        made = read_calls(text)
        if isinstance(made, Unparsable):
            return Right() if not wanted and not seems_to_call(text) else made
        if len(made) != len(wanted):
            return Wrong(why=f"got {len(made)} calls, expected {len(wanted)}")
        if self.ordered or len(wanted) == 1:
            whys = (self._difference(*pair) for pair in zip(made, wanted, strict=True))
            why = next((why for why in whys if why), "")
            return Wrong(why=why) if why else Right()
        fits = [[not self._difference(call, want) for call in made] for want in wanted]
        return Right() if _all_can_be_paired(fits) else Wrong(why="the calls are not the expected ones")

    def read(self, text: str) -> Reading | None:
        """The functions that are called, each with its arguments; nothing where nothing is called.

        A second call of one function is told apart by its number.
        """
        made = read_calls(text)
        if isinstance(made, Unparsable):
            return None if seems_to_call(text) else {}
        found: Reading = {}
        for call in made:
            turn = sum(other == call.name or other.startswith(f"{call.name} #") for other in found) + 1
            found[call.name if turn == 1 else f"{call.name} #{turn}"] = parts_of(call.arguments)
        return found

    def gold(self, expected: object) -> str | None:
        """The expected calls in JSON; prose where nothing should be called."""
        calls = [
            {"name": call.name, "arguments": self._first_allowed(call)}
            for call in msgspec.convert(expected, list[Call])
        ]
        return json.dumps(calls, ensure_ascii=False) if calls else "There is nothing to call"

    def bad(self, expected: object) -> str | None:
        """The expected calls under other names; a call where there should be none."""
        calls = msgspec.convert(expected, list[Call]) or [Call(name="call", arguments={})]
        other = [{"name": f"not_{call.name}", "arguments": self._first_allowed(call)} for call in calls]
        return json.dumps(other, ensure_ascii=False)

    def _first_allowed(self, call: Call) -> dict[str, object]:
        if not self.alternatives:
            return call.arguments
        return {name: allowed[0] for name, allowed in _lists(call) if allowed[0] != ""}

    def _difference(self, made: Call, wanted: Call) -> str:
        """How a call is not the expected one; empty when it is."""
        if made.name != wanted.name:
            return f"got a call of {quoted(made.name)}, expected {quoted(wanted.name)}"
        extra = [name for name in made.arguments if name not in wanted.arguments]
        if extra and not self.extra_arguments:
            return f"the argument {quoted(extra[0])} is not expected"
        allowed = dict(_lists(wanted)) if self.alternatives else {k: [v] for k, v in wanted.arguments.items()}
        for name, values in allowed.items():
            if name not in made.arguments:
                if self.alternatives and "" in values:
                    continue
                return f"the argument {quoted(name)} is missing"
            if not any(self._same(made.arguments[name], value) for value in values):
                shown = json.dumps(made.arguments[name], ensure_ascii=False)
                return f"the argument {quoted(name)}: got {quoted(shown)}, expected {quoted(_shown(values))}"
        return ""

    def _same(self, got: object, want: object) -> bool:
        match got, want:
            case str(), str():
                return got == want or (self.loose_strings and _loose(got) == _loose(want))
            case (bool(), _) | (_, bool()):
                return got is want
            case (int() | float(), int() | float()):
                return abs(Fraction(got) - Fraction(want)) <= Fraction(repr(self.tolerance))
            case list(), list():
                return len(got) == len(want) and all(map(self._same, got, want))
            case dict(), dict():
                return got.keys() == want.keys() and all(self._same(got[key], want[key]) for key in want)
            case _:
                return got is None and want is None


def _lists(call: Call) -> list[tuple[str, list[object]]]:
    """Arguments with their lists of allowed values."""
    return [(name, allowed) for name, allowed in call.arguments.items() if isinstance(allowed, list)]


def _shown(values: list[object]) -> str:
    return " or ".join(json.dumps(value, ensure_ascii=False) for value in values)


def _loose(text: str) -> str:
    return text.translate(_LOOSE).lower().replace("'", '"')


def _all_can_be_paired(fits: list[list[bool]]) -> bool:
    """Whether every row can have a column of its own (augmenting paths; no order of trying decides)."""
    row_of: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, is_fit in enumerate(fits[row]):
            if is_fit and column not in tried:
                tried.add(column)
                if column not in row_of or place(row_of[column], tried):
                    row_of[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(fits)))
