"""Untrusted text into plain values: JSON within bounds, the fenced block of a reply, texts that count as equal.

The bounds are fixed numbers, so that the same text is read or refused alike on every machine; none is a time
limit. Within them, reading takes time and memory in proportion to the text.

Does not live here: what the values mean (the graders), and Python-style calls (``calls``).
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator

from qlock.core.base import Base
from qlock.core.digest import blake3_of
from qlock.core.escape import for_message
from qlock.core.exchange import Unparsable

LONGEST_JSON = 1_000_000
"""Characters of a JSON text."""
DEEPEST = 64
"""Arrays and objects within each other."""
MOST_VALUES = 50_000
"""Values in one JSON text, containers included."""
LONGEST_NUMBER = 300
"""Characters of one number: it then fits a float."""

MOST_PARTS = 64
"""Parts of one table that are kept for showing."""
LONGEST_PART = 200
"""Characters of a part's value that are kept."""

_FENCE = "```"
_BRACKET = re.compile(r'["\[\]{}]')
_IN_STRING = re.compile(r'["\\]')


class Parsed(Base, frozen=True, kw_only=True):
    """A value that was read."""

    value: object


class _RefusedValueError(ValueError):
    """A value that JSON readers let through and qlock does not."""


def quoted(text: str) -> str:
    """Foreign text for a reason: one line, bounded, in backticks."""
    return f"`{for_message(text)}`"


def alike(text: str, *, strip: bool, casefold: bool, single_spaces: bool) -> str:
    """A text made like others that count as equal: without outer white space, without case, with single spaces."""
    if single_spaces:
        text = " ".join(text.split())
    if strip:
        text = text.strip()
    return text.casefold() if casefold else text


def parts_of(table: dict[str, object]) -> dict[str, str]:
    """The first parts of a table with their values in JSON, to be shown and compared.

    Numbers that are equal are written alike. A long value is cut, with its length and digest in its place.
    """
    return {name: _value_text(value) for name, value in list(table.items())[:MOST_PARTS]}


def _value_text(value: object) -> str:
    written = json.dumps(_plain_numbers(value), ensure_ascii=False, sort_keys=True)
    if len(written) <= LONGEST_PART:
        return written
    digest = blake3_of(written.encode(errors="surrogatepass"))
    return f"{written[: LONGEST_PART // 2]}… ({len(written)} characters, {digest})"


def _plain_numbers(value: object) -> object:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_plain_numbers(inner) for inner in value]
        case dict():
            return {key: _plain_numbers(inner) for key, inner in value.items()}
        case _:
            return value


def read_json(text: str) -> Parsed | Unparsable:
    """The value of a JSON text, or why there is none.

    Refused: duplicate keys, NaN and infinity (also as ``1e999``), and what is beyond the bounds above.
    """
    if len(text) > LONGEST_JSON:
        return Unparsable(why=f"got JSON of {len(text)} characters, expected at most {LONGEST_JSON}")
    if _is_too_deep(text):
        return Unparsable(why=f"JSON is nested deeper than {DEEPEST}")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=_whole,
            parse_float=_finite,
            parse_constant=_refused_constant,
        )
    except json.JSONDecodeError as error:
        return Unparsable(
            why=f"not JSON: {for_message(error.msg)} at line {error.lineno}, column {error.colno}"
        )
    except _RefusedValueError as error:
        return Unparsable(why=str(error))
    if _has_too_many(value):
        return Unparsable(why=f"JSON holds more than {MOST_VALUES} values")
    return Parsed(value=value)


def _is_too_deep(text: str) -> bool:
    """Whether brackets outside strings nest deeper than ``DEEPEST``; one pass, no recursion."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return False
    depth = 0
    found = _BRACKET.search(text)
    while found:
        after = found.end()
        match found.group():
            case '"':
                after = _after_string(text, after)
            case "[" | "{":
                depth += 1
                if depth > DEEPEST:
                    return True
            case _:
                depth -= 1
        found = _BRACKET.search(text, after)
    return False


def _after_string(text: str, start: int) -> int:
    """Where a JSON string that is open at ``start`` has ended; the end of the text if it never does."""
    found = _IN_STRING.search(text, start)
    while found:
        if found.group() == '"':
            return found.end()
        found = _IN_STRING.search(text, found.end() + 1)
    return len(text)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise _RefusedValueError(f"the key {quoted(counts.most_common(1)[0][0])} occurs twice")
    return table


def _whole(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise _RefusedValueError(
            f"got a number of {len(digits)} characters, expected at most {LONGEST_NUMBER}"
        )
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _RefusedValueError(f"got the number {quoted(digits)}, expected one that fits a float")
    return value


def _refused_constant(name: str) -> float:
    raise _RefusedValueError(f"got the number `{name}`, expected a finite number")


def _has_too_many(value: object) -> bool:
    return any(number > MOST_VALUES for number, _ in enumerate(inner_values(value), start=1))


def inner_values(value: object) -> Iterator[object]:
    """The value itself and every value and key within it."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        yield one
        if isinstance(one, dict):
            waiting.extend(one.keys())
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)


def json_part(text: str) -> str:
    """The part of a reply that should be JSON.

    1. A reply that starts with ``{`` or ``[``: all of it, a closing fence at its end apart. Fences within texts
       of the JSON do not matter then.
    2. Else the last fenced block.
    3. Else all of it.
    """
    whole = text.strip()
    if whole.startswith(("{", "[")):
        return whole.rstrip("`").rstrip()
    block = last_fenced(whole)
    return whole if block is None else block


def last_fenced(text: str) -> str | None:
    """The text within the last pair of code fences, without its language word; ``None`` without a fence.

    A block that was cut off before its closing fence counts: it is what the model wrote.
    """
    marks = [mark.start() for mark in re.finditer(_FENCE, text)]
    if not marks:
        return None
    is_open = len(marks) % 2 == 1
    start = marks[-1] if is_open else marks[-2]
    inside = text[start + len(_FENCE) : None if is_open else marks[-1]]
    first, newline, rest = inside.partition("\n")
    # A language word stands alone on the line of the fence; anything else there is content.
    if newline and re.fullmatch(r"[\w+#.-]*\s*", first):
        inside = rest
    return inside.strip()
