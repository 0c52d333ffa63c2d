"""The grader ``number``: one number read out of the reply, compared exactly as it is written.

Numbers are fractions of whole numbers from the first digit to the verdict: 0.1 is a tenth, and no rounding of
floats decides a score.

What is read: digits with separators of thousands, a decimal part, a sign (also before a currency sign), an
exponent, a percent sign, and a quotient such as ``3/4``. What is not: digits stuck to an ASCII letter before
them (``H2``), the parts of ``1.2.3`` or of a date after the first, a minus between two numbers (``3-5``), words.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Literal

import msgspec

from qlock.core.base import Base
from qlock.core.exchange import Outcome, Right, Unparsable, Wrong
from qlock.suites.tasks.reading import quoted

MOST_DIGITS = 250
"""Digits of a number in a reply, and below the line of a quotient."""
MOST_EXPECTED_DIGITS = 100
"""Digits of an expected number; written without an exponent it then stays readable."""
LARGEST_EXPONENT = 100
"""Of ten, either way."""

_Tolerance = Annotated[float, msgspec.Meta(ge=0.0, le=1e100)]

_MINUS = "-\N{MINUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}"
_CURRENCY = "$€£¥"
_SPACES = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}"
_PLAIN = re.compile(r"(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]+))?(?:[eE](?P<exponent>[+-]?[0-9]+))?")


class Number(Base, frozen=True, kw_only=True, tag_field="kind", tag="number"):
    """The last number of the reply, or the first one after a marker."""

    marker: str = ""
    """Text before the answer, such as ``####``; its last occurrence counts, and it must be there."""
    tolerance: _Tolerance = 0.0
    """How far the number may be from the expected one."""
    tolerance_share: _Tolerance = 0.0
    """The same, as a share of the expected number; the wider of both counts."""
    percent: Literal["as-written", "share"] = "as-written"
    """``12 %`` is 12, or 0.12."""
    thousands: Literal[",", ".", " ", "_", "'", ""] = ","
    """What may stand between groups of three digits."""
    decimal: Literal[".", ","] = "."

    def __post_init__(self) -> None:
        """Refuse one sign with two meanings."""
        if self.thousands == self.decimal:
            raise ValueError(f"`thousands` and `decimal` are both `{self.decimal}`")

    def refusal(self, expected: object) -> str:
        """Why ``expected`` does not fit this grader; empty when it does."""
        if _expected(expected) is not None:
            return ""
        return f"expected a number, or one as text, of at most {MOST_EXPECTED_DIGITS} digits"

    def grade(self, text: str, expected: object) -> Outcome:
        """Right when the number read is within the tolerance."""
        wanted = _expected(expected)
        assert wanted is not None
        found = self._found(text)
        if isinstance(found, Unparsable):
            return found
        value = self._value(found)
        if isinstance(value, Unparsable):
            return value
        if abs(value - wanted) <= self._allowed(wanted):
            return Right()
        return Wrong(why=f"got `{self._written(value)}`, expected {quoted(str(expected))}")

    def gold(self, expected: object) -> str | None:
        """The expected number as this grader reads it."""
        wanted = _expected(expected)
        return None if wanted is None else f"{self.marker} {self._written(wanted)}".strip()

    def bad(self, expected: object) -> str | None:
        """A number beyond the tolerance."""
        wanted = _expected(expected)
        if wanted is None:
            return None
        return f"{self.marker} {self._written(wanted + 2 * self._allowed(wanted) + 1)}".strip()

    def _allowed(self, wanted: Fraction) -> Fraction:
        return max(Fraction(repr(self.tolerance)), Fraction(repr(self.tolerance_share)) * abs(wanted))

    def _found(self, text: str) -> re.Match[str] | Unparsable:
        numbers = _numbers(self.thousands, self.decimal)
        if self.marker:
            at = text.rfind(self.marker)
            if at < 0:
                return Unparsable(why=f"the reply has no {quoted(self.marker)}")
            first = numbers.search(text, at + len(self.marker))
            return first or Unparsable(why=f"no number after {quoted(self.marker)}")
        last = None
        for found in numbers.finditer(text):
            last = found
        return last or Unparsable(why="no number in the reply")

    def _value(self, found: re.Match[str]) -> Fraction | Unparsable:
        whole = re.sub("[^0-9]", "", found["whole"] or "")
        part = found["part"] or found["tail"] or ""
        value = _fraction(whole, part, found["exponent"] or "0", most_digits=MOST_DIGITS)
        below = found["below"] or "1"
        if value is None or len(below) > MOST_DIGITS:
            return Unparsable(why=f"the number {quoted(found.group())} has too many digits")
        if int(below) == 0:
            return Unparsable(why=f"the number {quoted(found.group())} has no value")
        value /= int(below)
        if found["percent"] and self.percent == "share":
            value /= 100
        return -value if _is_negative(found.string, found.start()) else value

    def _written(self, value: Fraction) -> str:
        """The value in digits; what does not end in the decimal system is cut."""
        places, scaled = 0, abs(value)
        while scaled.denominator != 1 and places < 2 * MOST_EXPECTED_DIGITS:
            scaled *= 10
            places += 1
        digits = str(int(scaled)).rjust(places + 1, "0")
        sign = "-" if value < 0 else ""
        if places == 0:
            return f"{sign}{digits}"
        return f"{sign}{digits[:-places]}{self.decimal}{digits[-places:]}"


@lru_cache(maxsize=32)
def _numbers(thousands: str, decimal: str) -> re.Pattern[str]:
    """Numbers in running text, without their sign.

    No part of it can match the same characters in two ways, so the search takes time in proportion to the text.
    """
    point = re.escape(decimal)
    between = f"[{re.escape(_SPACES if thousands == ' ' else thousands)}]" if thousands else ""
    grouped = f"[0-9]{{1,3}}(?:{between}[0-9]{{3}})+(?![0-9])|" if between else ""
    return re.compile(
        rf"(?<![0-9A-Za-z_])(?<![0-9][{point}/])"
        rf"(?:(?P<whole>{grouped}[0-9]+)(?:{point}(?P<part>[0-9]+))?|(?<!{point}){point}(?P<tail>[0-9]+))"
        r"(?:[eE](?P<exponent>[+-]?[0-9]+))?"
        rf"(?:/(?P<below>[0-9]+)(?![0-9/{point}]))?"
        r"(?P<percent>[ ]?%)?"
    )


def _is_negative(text: str, start: int) -> bool:
    """Whether a minus belongs to the number at ``start``, and does not stand between two numbers or words."""
    if start and text[start - 1] in _CURRENCY:
        start -= 1
    if not start or text[start - 1] not in _MINUS:
        return False
    before = text[start - 2 : start - 1]
    return not (before.isalnum() or before in {")", "]"})


def _expected(expected: object) -> Fraction | None:
    """The exact value of what the item expects; a float counts as it is written."""
    if isinstance(expected, bool) or not isinstance(expected, int | float | str):
        return None
    if isinstance(expected, int):
        return Fraction(expected) if abs(expected) < 10**MOST_EXPECTED_DIGITS else None
    plain = _PLAIN.fullmatch(expected if isinstance(expected, str) else repr(expected))
    if plain is None:
        return None
    value = _fraction(
        plain["whole"], plain["part"] or "", plain["exponent"] or "0", most_digits=MOST_EXPECTED_DIGITS
    )
    return None if value is None else -value if plain["sign"] else value


def _fraction(whole: str, part: str, exponent: str, *, most_digits: int) -> Fraction | None:
    """The value of its digits; ``None`` where there are too many."""
    if len(whole) + len(part) > most_digits or len(exponent) > len(f"-{LARGEST_EXPONENT}"):
        return None
    power = int(exponent)
    if abs(power) > LARGEST_EXPONENT:
        return None
    return Fraction(int(whole + part), 10 ** len(part)) * Fraction(10) ** power
