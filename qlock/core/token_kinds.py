"""What each token of an answer is part of: a tool call, code, a number, a mark, or prose.

Figures over all tokens of an answer are mostly about its prose, while whether a call is right hangs on few of them. The
text is read once from front to back, whatever it is: nothing has to parse, and a hostile answer costs no more time
than its length.

- *Calls* are JSON objects, whatever stands around them (``<tool_call>``, a fence, nothing), calls as Python writes them,
  ``[f(x=1)]``, and calls in tags, ``<function=f><parameter=x>1</parameter>``. In them stand ``function-name``,
  ``argument-name`` (any key of an object, but for the fixed words of a call's form), ``number``, and ``argument-value``.
- *Code* is whatever stands in a fence or between two backticks of a line; nothing in it is told apart.
- *Prose* is everything else, with its ``number`` and ``punctuation`` told apart.

Marks everywhere but in code, tags, and the fixed words of a call's form (``"name"``, ``"arguments"``) are
``punctuation``.

Does not live here: the figures (``core.kld_parts``).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

TokenKind = Literal[
    "function-name", "argument-name", "argument-value", "number", "punctuation", "code", "prose"
]
TOKEN_KINDS: tuple[TokenKind, ...] = get_args(TokenKind)

# Every repeat is possessive or bounded, so that no text makes a pattern go back over what it has read.
_NUMBER = r"-?+(?:0[xX][0-9a-fA-F]++|\d[\d_]*+(?:\.\d++)?+(?:[eE][+-]?+\d++)?+)"
_NAME = r"[^\W\d]\w{0,99}+(?:\.[^\W\d]\w{0,99}+){0,9}+"
_FENCE = re.compile(r"(`{3,}+|~{3,}+)[^\n`]*+(?:\n|\Z)")
_INLINE = re.compile(r"`[^`\n]++`")
_TAG = re.compile(r"</?+\|?+[A-Za-z_][^<>\s]{0,100}+(?:\s[^<>\n]{0,200}+)?+>|\[/?+[A-Z_]{3,40}+\]")
_NAMED_TAG = re.compile(r"<(function|parameter)(?:=|\s++name=\"?+)([^\"<>]++)")
_JSON = re.compile(r"\{\s*+[\"}]|\[\s*+(?:\{|\[\s*+\{)")
_CALL = re.compile(rf"({_NAME})\(\s*+(?:{_NAME}\s*+=(?!=)|\))")
_EQUALS = re.compile(r"[^\S\n]{0,4}+=(?!=)")
_BLANK_LINE = re.compile(r"\n[^\S\n]*+\n")
_WORD = re.compile(
    rf"(?P<number>{_NUMBER}(?:,\d++)*+)|(?P<word>[^\W\d]\w*+)|(?P<space>\s++)|(?P<mark>`++|~++|.)", re.DOTALL
)
_LEXEME = re.compile(
    rf"(?P<string>\"(?:[^\"\\\n]++|\\.)*+\"?+|'(?:[^'\\\n]++|\\.)*+'?+)|(?P<number>{_NUMBER})"
    rf"|(?P<word>{_NAME}|\w++)|(?P<space>\s++)|(?P<mark>.)",
    re.DOTALL,
)
_LITERALS = frozenset({"true", "false", "null", "True", "False", "None", "NaN", "Infinity"})
_NAMES = frozenset({"name", "function", "tool", "tool_name"})
"""Keys whose value is the function's name, where the arguments stand beside it."""
_ARGUMENTS = frozenset({"arguments", "parameters", "args"})
_FORM = _NAMES | _ARGUMENTS | {"type", "id"}
_CLOSES = {"{": "}", "[": "]", "(": ")"}

Span = tuple[int, int]


def token_kinds(pieces: Sequence[str]) -> tuple[TokenKind, ...]:
    """What each piece of an answer is part of: what most of its characters are, white space left out.

    Args:
        pieces: The text of each token, in order; they are read as one text.
    """
    text = "".join(pieces)
    reader = _Reader(text)
    reader.read(0, len(text), otherwise="prose")
    found = []
    end = 0
    for piece in pieces:
        start, end = end, end + len(piece)
        found.append(_most(text, reader.kinds, start, end))
    return tuple(found)


def _most(text: str, kinds: bytearray, start: int, end: int) -> TokenKind:
    """The kind of most characters; of two alike that of the first. A piece without text is a mark of the vocabulary."""
    seen = [kinds[at] for at in range(start, end) if not text[at].isspace()] or list(kinds[start:end])
    if not seen:
        return "punctuation"
    return TOKEN_KINDS[max(dict.fromkeys(seen), key=seen.count)]


class _Frame(msgspec.Struct, kw_only=True):
    """One bracket that is open."""

    opener: str
    key: str = ""
    """Of an object: the key whose value comes next; empty where a key is to come."""
    at_value: bool = False
    form: list[Span]
    """Keys that are fixed words if this is a call."""
    names: list[Span]
    """Values that are its name if it is one."""
    has_arguments: bool = False


class _Reader:
    """Gives every character of a text its kind."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.kinds = bytearray([TOKEN_KINDS.index("prose")]) * len(text)
        self._has_ends = True
        """Whether a parameter's end may still come."""

    def _mark(self, span: Span, kind: TokenKind) -> None:
        start, end = span
        self.kinds[start:end] = bytes([TOKEN_KINDS.index(kind)]) * (end - start)

    def read(self, at: int, end: int, *, otherwise: TokenKind) -> None:
        """Read ``at`` to ``end``; words and white space outside any call are ``otherwise``."""
        text = self._text
        while at < end:
            letter = text[at]
            if (
                letter in "`~"
                and (at == 0 or text[at - 1] == "\n")
                and (fence := _FENCE.match(text, at, end))
            ):
                at = self._fenced(fence, end)
            elif letter == "`" and (inline := _INLINE.match(text, at, end)):
                self._mark(inline.span(), "code")
                at = inline.end()
            elif letter in "<[" and (tag := _TAG.match(text, at, end)):
                at = self._tag(tag, end)
            elif letter in "{[" and _JSON.match(text, at, end):
                at = self._structure(at, end)
            elif (letter.isalpha() or letter == "_") and (call := _CALL.match(text, at, end)):
                self._mark(call.span(1), "function-name")
                at = self._structure(call.end(1), end)
            else:
                at = self._word(at, end, otherwise)

    def _word(self, at: int, end: int, otherwise: TokenKind) -> int:
        word = _WORD.match(self._text, at, end)
        assert word is not None  # its last branch takes any character
        match word.lastgroup:
            case "number":
                self._mark(word.span(), "number")
            case "mark" if unicodedata.category(word[0][0])[0] in "PS":
                self._mark(word.span(), "punctuation")
            case _:
                self._mark(word.span(), otherwise)
        return word.end()

    def _fenced(self, fence: re.Match[str], end: int) -> int:
        """A fence with what it holds: JSON or code, up to its end or that of the text."""
        self._mark(fence.span(), "punctuation")
        inside = fence.end()
        close = self._text.find(f"\n{fence[1]}", max(inside - 1, 0), end)
        until = end if close < 0 else close + 1
        if _JSON.match(self._text[inside : min(inside + 100, until)].lstrip()):
            self.read(inside, until, otherwise="code")
        else:
            self._mark((inside, until), "code")
        after = min(until + len(fence[1]), end)
        self._mark((until, after), "punctuation")
        return after

    def _tag(self, tag: re.Match[str], end: int) -> int:
        self._mark(tag.span(), "punctuation")
        named = _NAMED_TAG.match(self._text, tag.start(), tag.end())
        if named is None:
            return tag.end()
        if named[1] == "function":
            self._mark(named.span(2), "function-name")
            return tag.end()
        self._mark(named.span(2), "argument-name")
        close = self._text.find("</parameter", tag.end(), end) if self._has_ends else -1
        if close < 0:
            self._has_ends = False
            return tag.end()
        at = tag.end()
        while at < close:
            at = self._word(at, close, "argument-value")
        return close

    def _structure(self, at: int, end: int) -> int:
        """A JSON value or the brackets of a call, as far as it looks like one; gives where it ends."""
        frames: list[_Frame] = []
        while at < end:
            lexeme = _LEXEME.match(self._text, at, end)
            assert lexeme is not None  # its last branch takes any character
            if not self._lexeme(frames, lexeme):
                break
            at = lexeme.end()
            if not frames:
                break
        for frame in reversed(frames):
            self._close(frame)
        return at

    def _lexeme(self, frames: list[_Frame], lexeme: re.Match[str]) -> bool:
        """Take one lexeme; false where the structure has ended before it."""
        text, span = lexeme[0], lexeme.span()
        match lexeme.lastgroup:
            case "space":
                self._mark(span, "punctuation")
                return _BLANK_LINE.search(text) is None
            case "number":
                self._mark(span, "number")
                frames[-1].at_value = False
                return True
            case "string":
                self._string(frames[-1], span)
                return True
            case "word":
                return self._name(frames, lexeme)
            case _:
                return self._bracket(frames, text, span)

    def _string(self, frame: _Frame, span: Span) -> None:
        start, end = span
        quoted = end - start > 1 and self._text[end - 1] == self._text[start]
        inner = (start + 1, end - 1 if quoted else end)
        self._mark(span, "punctuation")
        if frame.opener == "{" and not frame.at_value:
            frame.key = self._text[inner[0] : min(inner[1], inner[0] + 20)]
            frame.has_arguments |= frame.key in _ARGUMENTS
            self._mark(inner, "argument-name")
            if frame.key in _FORM:
                frame.form.append(inner)
            return
        self._mark(inner, "argument-value")
        if frame.opener == "{" and frame.key in _NAMES:
            frame.names.append(inner)

    def _name(self, frames: list[_Frame], word: re.Match[str]) -> bool:
        is_call = frames[-1].opener == "("
        if is_call and _EQUALS.match(self._text, word.end()):
            self._mark(word.span(), "argument-name")
        elif self._text.startswith("(", word.end()):
            self._mark(word.span(), "function-name")
        elif is_call or word[0] in _LITERALS:
            self._mark(word.span(), "argument-value")
        else:
            return False
        return True

    def _bracket(self, frames: list[_Frame], mark: str, span: Span) -> bool:
        self._mark(span, "punctuation")
        if mark in _CLOSES:
            frames.append(_Frame(opener=mark, form=[], names=[]))
        elif mark in ")]}":
            if _CLOSES[frames[-1].opener] != mark:
                return False
            self._close(frames.pop())
        elif mark == ":":
            frames[-1].at_value = True
        elif mark == ",":
            frames[-1].at_value, frames[-1].key = False, ""
        return True

    def _close(self, frame: _Frame) -> None:
        """Now it is known whether an object is a call."""
        if not frame.has_arguments:
            return
        for span in frame.form:
            self._mark(span, "punctuation")
        for span in frame.names:
            self._mark(span, "function-name")
