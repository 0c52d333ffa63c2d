r"""The one way that text of models, files and servers takes before it is shown anywhere.

Lives here: what must never reach a reader raw, and one function for each place where text is shown. Does not
live here: layout, colours, width, or the choice of what is shown.

Every function first makes the invisible visible (``visible``): control characters, ESC and BEL, backspace and
carriage return, marks that turn the reading direction, zero-width and other ignorable characters, lone
surrogates and noncharacters become their escape (``\x1b``, ``\u202e``, ``\U000e0041``). A backslash that was
in the text stays one, so what is shown is for reading and cannot be turned back; records keep the original.

Each function has a ``limit`` in characters of that visible text; what is longer loses its middle to one ``…``.
Time and memory grow with the limit, not with the text.
"""

from __future__ import annotations

import html
import re
import shlex
from typing import Literal

Newlines = Literal["keep", "arrow"]
"""What becomes of a line feed: it stays, or is shown as ``↵``."""

DEFAULT_LIMIT = 20_000
"""Characters of one text that are shown where the caller names no limit."""

MESSAGE_LIMIT = 200
"""Characters of foreign text inside an error message or a line of a list."""

_HIDDEN = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0"  # soft hyphen, joiners, fillers
    "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2"  # format characters of Arabic and Syriac
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"  # zero-width, separators, bidi, invisible operators
    "\ufe00-\ufe0f\ufff0-\ufffb\ufdd0-\ufdef\ufffe\uffff"  # variation selectors, annotations, noncharacters
    "\ud800-\udfff"  # surrogates, which no encoding accepts
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"  # tags and further selectors: can smuggle a whole text unseen
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0x10000, 0x110000, 0x10000))
    + "]"
)

_SHORT = {"\t": "\\t", "\r": "\\r", "\n": "↵"}

_XML = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;", "\n": "&#10;", "\t": "&#9;"}
)

_MARKDOWN = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {mark: f"\\{mark}" for mark in "\\`*[]|~$"}
)
_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_BLOCK_START = re.compile(r"( *)(?:([-+#=])|(\d{1,9})([.)]))")
_LINKED_AT = re.compile(r"(?<![A-Za-z0-9])@|@(?=[A-Za-z0-9_-]+\.[A-Za-z0-9_-])")
"""What GitHub takes for a mention, or for a part of an address."""
_QUOTED = re.compile(r"`([^`]+)`")
_BACKTICKS = re.compile(r"`+")

_KEPT: dict[Newlines, str] = {"keep": "\n", "arrow": ""}


def visible(text: str, *, keep: str = "") -> str:
    r"""The text with every hidden character written out, except those in ``keep``.

    Args:
        text: Any string, lone surrogates included.
        keep: Characters that stay as they are; meant for ``"\n"`` and ``"\t"``.
    """

    def shown(found: re.Match[str]) -> str:
        character = found.group()
        if character in keep:
            return character
        if character in _SHORT:
            return _SHORT[character]
        code = ord(character)
        if code < 0x100:
            return f"\\x{code:02x}"
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    return _HIDDEN.sub(shown, text)


def for_terminal(text: str, *, limit: int = DEFAULT_LIMIT, newlines: Newlines = "keep") -> str:
    """Text that can only move the cursor forward, or down where line feeds are kept.

    Column widths stay computable: tabs are shown as ``\\t``. Markup of a terminal library is not touched; pass
    the text to it as plain text.
    """
    return _shortened(text, limit=limit, keep=_KEPT[newlines])


def for_message(text: str) -> str:
    """One line of at most 200 characters, for an error message or a table cell; the middle gives way."""
    return _shortened(text, limit=MESSAGE_LIMIT, keep="")


def for_shell(word: str) -> str:
    """A word of a command line for people to type, quoted where a shell asks for it; bounded as ``for_message``."""
    return for_message(shlex.quote(word))


def for_html(text: str, *, limit: int = DEFAULT_LIMIT) -> str:
    """Text for an HTML element or a quoted attribute; line feeds and tabs stay.

    A browser, or ``html.parser``, reads back exactly the visible text.
    """
    return html.escape(_shortened(text, limit=limit, keep="\n\t"), quote=True)


def for_xml(text: str, *, limit: int = DEFAULT_LIMIT) -> str:
    """Text for an XML 1.0 element or attribute that is written as a string.

    Line feeds and tabs become references, since a parser turns raw ones in an attribute into spaces. What XML
    cannot hold at all (most control characters) is already written out. A library that escapes by itself gets
    ``visible`` instead.
    """
    return _shortened(text, limit=limit, keep="\n\t").translate(_XML)


def for_markdown(text: str, *, limit: int = DEFAULT_LIMIT) -> str:
    """One line of Markdown (CommonMark, GitHub's tables) that renders as exactly the visible text.

    Nothing in it is markup: no tag, link, image, automatic link, mention, emphasis, code, table border, formula, or
    start of a block. An underscore or an ``@`` inside a word stays bare, where Markdown gives it no meaning, so that
    ``Q4_K_M@f16kv`` can be read in the source as well.
    """
    return _at_the_start(_inert(_shortened(text, limit=limit, keep="")))


def for_markdown_cell(text: str, *, limit: int = DEFAULT_LIMIT) -> str:
    """The same within a row of a table, where no block can start: ``-1.5 points`` stays as it is."""
    line = _inert(_shortened(text, limit=limit, keep=""))
    return f"&#32;{line[1:]}" if line.startswith(" ") else line


def for_markdown_sentence(text: str, *, limit: int = DEFAULT_LIMIT) -> str:
    """One line of Markdown in which what stands in backticks is code, as in a message; all else is as ever.

    Code shows its text as it is, so no text can come out of it; a backtick without a second one stays a backtick.
    """
    line = _shortened(text, limit=limit, keep="")
    pieces, end = [], 0
    for found in _QUOTED.finditer(line):
        pieces += [_inert(line[end : found.start()]), found[0]]
        end = found.end()
    written = "".join([*pieces, _inert(line[end:])])
    return written if line.startswith("`") and pieces else _at_the_start(written)


def _inert(line: str) -> str:
    """The line with everything escaped that is markup wherever it stands."""
    line = _UNDERSCORE.sub(r"\\_", line.translate(_MARKDOWN))
    # GitHub links bare addresses; a reference in place of one character is the same text and no address.
    line = _LINKED_AT.sub("&#64;", line).replace("://", "&#58;//")
    return line.replace("www.", "www&#46;").replace("WWW.", "WWW&#46;")


def _at_the_start(line: str) -> str:
    """The line with everything escaped that is markup at its start alone."""
    start = _BLOCK_START.match(line)
    if start:
        spaces, mark, number, after = start.groups()
        line = spaces + (f"\\{mark}" if mark else f"{number}\\{after}") + line[start.end() :]
    if line.startswith(" "):  # four spaces would begin a block of code
        line = f"&#32;{line[1:]}"
    return line


def for_markdown_block(text: str, *, limit: int = DEFAULT_LIMIT) -> str:
    """A fenced block of Markdown that shows the visible text as it is, without final line feed.

    The fence is longer than any run of backticks inside.
    """
    body = _shortened(text, limit=limit, keep="\n\t")
    longest = max((len(run) for run in _BACKTICKS.findall(body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{body}\n{fence}"


def _shortened(text: str, *, limit: int, keep: str) -> str:
    """The visible text in at most ``limit`` characters (at least one), its middle replaced by ``…``.

    No character becomes shorter by being shown, so the first and the last ``limit`` characters of the text
    decide what is left, and only they are looked at.
    """
    limit = max(limit, 1)
    ends = text if len(text) <= 2 * limit else text[:limit] + text[-limit:]
    shown = visible(ends, keep=keep)
    if len(shown) <= limit:
        return shown
    head = limit // 2
    tail = limit - 1 - head
    return f"{shown[:head]}…{shown[len(shown) - tail :]}"
