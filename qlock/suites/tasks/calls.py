"""Function calls read out of a reply: ``[f(a=1, b="x")]``, ``{"name": "f", "arguments": {…}}``, ``<tool_call>``.

The Python style is read by a small reader of our own that knows names, keyword arguments and literals, and
nothing else: no expression is ever evaluated or compiled, and no input reaches Python's own parser, which can
exhaust the stack. Literals mean what they mean in Python; JSON's ``true``, ``false`` and ``null`` are read too.

Does not live here: whether the calls are the expected ones (``tool_call``).
"""

from __future__ import annotations

import math
import re

from qlock.core.base import Base
from qlock.core.exchange import Unparsable
from qlock.suites.tasks.reading import DEEPEST, LONGEST_NUMBER, Parsed, json_part, quoted, read_json

LONGEST_CALLS = 100_000
"""Characters of a reply that holds calls."""
MOST_CALLS = 64

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z_][A-Za-z0-9_-]*)*")
_KEYWORD = re.compile(r"[^\W\d]\w*")
_NUMBER = re.compile(
    r"[0-9][0-9_]*(?P<float>(?:\.[0-9_]*)?(?:[eE][+-]?[0-9]+)?)|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
)
_STOP = {quote: re.compile(rf"[{quote}\\\n]") for quote in "'\""}
_LONG_STOP = {quote: re.compile(rf"{quote * 3}|\\") for quote in "'\""}
_CONSTANTS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_ESCAPES = {
    "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\n": ""
}  # fmt: skip
_OCTAL = re.compile(r"[0-7]{1,3}")
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_LOOKS_LIKE_CALL = re.compile(
    r"\[?\s{0,9}(?:[A-Za-z_][\w.-]{0,99}\(|\{\s{0,9}\"(?:name|arguments|parameters)\")"
)


class Call(Base, frozen=True, kw_only=True):
    """One call."""

    name: str
    arguments: dict[str, object]


class _NoCallError(Exception):
    """The text is no list of calls."""


def read_calls(text: str) -> tuple[Call, ...] | Unparsable:
    """The calls of a reply in their order, or why there are none to read; ``[]`` is a reply without calls."""
    if len(text) > LONGEST_CALLS:
        return Unparsable(why=f"got a reply of {len(text)} characters, expected at most {LONGEST_CALLS}")
    try:
        calls = _tagged(text) if _is_tagged(text) else _untagged(_call_part(text))
    except _NoCallError as error:
        return Unparsable(why=str(error))
    if len(calls) > MOST_CALLS:
        return Unparsable(why=f"got {len(calls)} calls, expected at most {MOST_CALLS}")
    return calls


def seems_to_call(text: str) -> bool:
    """Whether the reply starts like a call, be it readable or not."""
    return _OPEN in text or _LOOKS_LIKE_CALL.match(_call_part(text[:LONGEST_CALLS])) is not None


def _is_tagged(text: str) -> bool:
    """Whether tags mark the calls, rather than stand in a text within them."""
    return _OPEN in text and _LOOKS_LIKE_CALL.match(text.strip("`\n ")) is None


def _call_part(text: str) -> str:
    """The reply where it starts like a call, else its fenced block, without backticks around."""
    whole = text.strip("`\n ")
    return whole if _LOOKS_LIKE_CALL.match(whole) else json_part(text).strip("`\n ")


def _tagged(text: str) -> tuple[Call, ...]:
    """The calls between the tags; a last tag that was never closed counts to the end."""
    return tuple(
        call for part in text.split(_OPEN)[1:] for call in _untagged(part.partition(_CLOSE)[0].strip())
    )


def _untagged(text: str) -> tuple[Call, ...]:
    if re.match(r"\{|\[\s*[\]{]", text):
        read = read_json(text)
        if isinstance(read, Unparsable):
            raise _NoCallError(read.why)
        entries = read.value if isinstance(read.value, list) else [read.value]
        return tuple(map(_call_of, entries))
    return _Reader(text).calls()


def _call_of(entry: object) -> Call:
    """One call in JSON; ``parameters`` is another word for ``arguments``, which may be JSON within a string."""
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(name, str):
        raise _NoCallError("got JSON without a `name`, expected a call")
    arguments = entry.get("arguments", entry.get("parameters", {}))
    if isinstance(arguments, str):
        read = read_json(arguments)
        arguments = read.value if isinstance(read, Parsed) else None
    if not isinstance(arguments, dict):
        raise _NoCallError(f"the arguments of {quoted(name)} are no table")
    return Call(name=name, arguments=arguments)


class _Reader:
    """Reads calls from left to right; every step moves on, so the time is in proportion to the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def calls(self) -> tuple[Call, ...]:
        """One call, several with commas between, or a list of calls; nothing may follow."""
        is_list = self._takes("[")
        found: list[Call] = []
        while not (is_list and self._takes("]")):
            found.append(self._call())
            if not self._takes(","):
                if is_list:
                    self._needs("]")
                break
        if self._peek():
            raise self._unexpected()
        return tuple(found)

    def _call(self) -> Call:
        self._skip()
        name = _NAME.match(self.text, self.at)
        if name is None:
            raise self._unexpected()
        self.at = name.end()
        self._needs("(")
        arguments: dict[str, object] = {}
        while not self._takes(")"):
            self._skip()
            keyword = _KEYWORD.match(self.text, self.at)
            if keyword is None:
                raise self._unexpected()
            self.at = keyword.end()
            self._needs("=")
            if keyword.group() in arguments:
                raise _NoCallError(f"the argument {quoted(keyword.group())} occurs twice")
            arguments[keyword.group()] = self._value(0)
            if not self._takes(","):
                self._needs(")")
                break
        return Call(name=name.group(), arguments=arguments)

    def _value(self, depth: int) -> object:
        if depth > DEEPEST:
            raise _NoCallError(f"arguments are nested deeper than {DEEPEST}")
        character = self._peek()
        if character and character in "'\"":
            return self._string()
        if self._takes("["):
            return self._elements("]", depth)
        if self._takes("("):
            return self._parenthesis(depth)
        if self._takes("{"):
            return self._table(depth)
        if character in {"+", "-"}:
            self.at += 1
            number = self._number()
            return -number if character == "-" else number
        word = _KEYWORD.match(self.text, self.at)
        if word and word.group() in _CONSTANTS:
            self.at = word.end()
            return _CONSTANTS[word.group()]
        return self._number()

    def _elements(self, close: str, depth: int) -> list[object]:
        found: list[object] = []
        while not self._takes(close):
            found.append(self._value(depth + 1))
            if not self._takes(","):
                self._needs(close)
                break
        return found

    def _parenthesis(self, depth: int) -> object:
        """A tuple, as a list; or one value in parentheses."""
        start = self.at
        found = self._elements(")", depth)
        inside = self.text[start : self.at - 1].rstrip()
        return found[0] if len(found) == 1 and not inside.endswith(",") else found

    def _table(self, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        while not self._takes("}"):
            if self._peek() not in {"'", '"'}:
                raise self._unexpected()
            key = self._string()
            self._needs(":")
            if key in found:
                raise _NoCallError(f"the key {quoted(key)} occurs twice")
            found[key] = self._value(depth + 1)
            if not self._takes(","):
                self._needs("}")
                break
        return found

    def _number(self) -> int | float:
        self._skip()
        found = _NUMBER.match(self.text, self.at)
        if found is None:
            raise self._unexpected()
        digits = found.group()
        is_plain = (
            len(digits) <= LONGEST_NUMBER
            and "__" not in digits
            and not re.search(r"_(?![0-9])|(?<![0-9])_", digits)
        )
        is_float = not digits.isdigit() and bool(re.search("[.eE]", digits))
        if not is_plain or (not is_float and digits.startswith("0") and digits.strip("0_")):
            raise _NoCallError(f"got the number {quoted(digits)}, expected one that Python reads")
        self.at = found.end()
        if re.match(r"\w", self.text[self.at : self.at + 1]):
            raise self._unexpected()
        value = float(digits) if is_float else int(digits)
        if not math.isfinite(value):
            raise _NoCallError(f"got the number {quoted(digits)}, expected one that fits a float")
        return value

    def _string(self) -> str:
        quote = self.text[self.at]
        is_long = self.text.startswith(quote * 3, self.at)
        stop = (_LONG_STOP if is_long else _STOP)[quote]
        self.at += 3 if is_long else 1
        pieces: list[str] = []
        while True:
            found = stop.search(self.text, self.at)
            if found is None or found.group() == "\n":
                raise _NoCallError("a text does not end")
            pieces.append(self.text[self.at : found.start()])
            self.at = found.end()
            if found.group() != "\\":
                return "".join(pieces)
            pieces.append(self._escape())

    def _escape(self) -> str:
        """What stands for the characters after a backslash; unknown escapes stay as they are, as in Python."""
        letter = self.text[self.at : self.at + 1]
        octal = _OCTAL.match(self.text, self.at)
        if octal:
            self.at = octal.end()
            return chr(int(octal.group(), 8))
        self.at += 1
        if letter in _HEX_DIGITS:
            digits = self.text[self.at : self.at + _HEX_DIGITS[letter]]
            if (
                not re.fullmatch(rf"[0-9a-fA-F]{{{_HEX_DIGITS[letter]}}}", digits)
                or int(digits, 16) > 0x10FFFF
            ):
                raise _NoCallError(
                    f"got the escape {quoted(digits)}, expected {_HEX_DIGITS[letter]} hex digits"
                )
            self.at += len(digits)
            return chr(int(digits, 16))
        if letter in {"", "N"}:
            raise _NoCallError("got an escape that is not read here")
        return _ESCAPES.get(letter, f"\\{letter}")

    def _skip(self) -> None:
        found = _SPACE.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def _peek(self) -> str:
        self._skip()
        return self.text[self.at : self.at + 1]

    def _takes(self, sign: str) -> bool:
        if self._peek() != sign:
            return False
        self.at += 1
        return True

    def _needs(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._unexpected()

    def _unexpected(self) -> _NoCallError:
        self._skip()
        rest = self.text[self.at : self.at + 20]
        return _NoCallError(f"no call: got {quoted(rest) if rest else 'the end'} at character {self.at + 1}")
