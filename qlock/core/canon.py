"""The only door for outside text: TOML and JSON lines into structs, and structs back into canonical bytes.

Lives here: decoding within bounds, and the canonical TOML of a lock. Does not live here: the words of an error
(``core.explain``), and what the keys mean (``core.spec``, ``core.lock``, ``core.record``).

Canonical TOML: keys in the order of the struct's fields, one fact a line, plain values before tables, every table
with its own header, LF, a final newline. tomli_w writes each ``key = value``; it inlines and moves short tables by
itself, so the headers are written here.
"""

from __future__ import annotations

import math
import re
import tomllib
import unicodedata
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
import tomli_w

from qlock.core.base import Base
from qlock.core.escape import for_message
from qlock.core.explain import explained, known_keys, shown_key, unknown_key
from qlock.errors import InputError

__all__ = [
    "MOST_TOML_BYTES",
    "check_version",
    "decode_text",
    "from_json",
    "json_bytes",
    "known_keys",
    "read_toml_table",
    "refuse_non_finite",
    "to_struct",
    "to_whole_struct",
    "toml_text",
    "unknown_key",
    "without_negative_zero",
]

T = TypeVar("T")

_MARKER = re.compile(rb"^(<{7}|>{7})( |\r?$)", re.MULTILINE)
"""Git's own lines around a conflict; a line of seven ``=`` alone may be an underline within a text."""
_AT = re.compile(r"\(at line (\d+), column (\d+)\)$")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BOM = b"\xef\xbb\xbf"
_INTEGER_MAX = 2**63
MOST_TOML_BYTES = 8 << 20
"""Of a spec or lock, read or written; a lock of a hundred models has about one MiB."""
_DEPTH_MAX = 64
"""Of tables and arrays within one another; far below what Python's own stack bears."""
_MANY_DOTS = re.compile(
    r"""^[ \t]*\[?\[?[ \t]*(?:(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*\.[ \t]*){64}""",
    re.MULTILINE,
)
"""A key of more than 64 dotted parts, for which tomllib needs time with the square of the parts."""


def decode_text(data: bytes, *, name: str) -> str:
    """The text of a file written by people or by qlock.

    Raises:
        InputError: A byte-order mark, an unresolved git conflict, or bytes that are no UTF-8.
    """
    if data.startswith(_BOM):
        raise InputError(
            "the file starts with a BOM (bytes EF BB BF)", hint="save it as UTF-8 without BOM"
        ).in_document(name)
    marker = _MARKER.search(data)
    if marker:
        line = data.count(b"\n", 0, marker.start()) + 1
        raise InputError(
            f"unresolved git conflict at line {line}", hint="take one side, then run `qlock resolve` again"
        ).in_document(name)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"line {line} is not UTF-8").in_document(name) from None


def read_toml_table(data: bytes, *, name: str) -> dict[str, Any]:
    """A TOML file as a plain table of text, truth values, finite numbers, arrays and tables; −0.0 made 0.0.

    Raises:
        InputError: No TOML, larger than 8 MiB, deeper than 64 levels, a date or time without quotes, or a number
            that is not finite or does not fit 64 bits.
    """
    if len(data) > MOST_TOML_BYTES:
        raise InputError(f"got {len(data)} bytes, expected at most {MOST_TOML_BYTES}").in_document(name)
    text = decode_text(data, name=name)
    dots = _MANY_DOTS.search(text)
    if dots:
        line = text.count("\n", 0, dots.start()) + 1
        raise InputError(f"line {line}: got a key of more than {_DEPTH_MAX} parts").in_document(name)
    try:
        # A final newline makes tomllib name the line instead of "end of document".
        table = tomllib.loads(text if text.endswith("\n") else f"{text}\n")
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(str(error), text).in_document(name) from None
    except ValueError:
        raise InputError("got an integer that does not fit 64 bits").in_document(name) from None
    except RecursionError:
        raise _too_deep().in_document(name) from None
    clean: dict[str, Any] = _checked(table, name=name, path="", depth=0)
    return clean


def _not_toml(message: str, text: str) -> InputError:
    """The error with its place, and by name the letter that stands there where it is none of ASCII."""
    at = _AT.search(message)
    line = text.replace("\r\n", "\n").split("\n")[int(at[1]) - 1] if at else ""
    letter = line[int(at[2]) - 1 : int(at[2])] if at else ""
    if not letter or letter.isascii():
        return InputError(f"not TOML: {for_message(message)}")
    return InputError(
        f"not TOML: {for_message(message)}: got {_named(letter)}",
        hint="write keys in ASCII letters, and text in quotes",
    )


def _named(letter: str) -> str:
    return f"`{for_message(letter)}` (U+{ord(letter):04X} {unicodedata.name(letter, 'without a name')})"


def _too_deep() -> InputError:
    return InputError(f"tables or arrays are nested too deep, expected at most {_DEPTH_MAX} levels")


def _checked(value: Any, *, name: str, path: str, depth: int) -> Any:
    match value:
        case bool() | str():
            return value
        case dict() | list() if depth == _DEPTH_MAX:
            raise _too_deep().in_document(name)
        case float():
            if not math.isfinite(value):
                raise InputError(f"got `{value}`, expected a finite number").within(path).in_document(name)
            return value + 0.0
        case int():
            if not -_INTEGER_MAX <= value < _INTEGER_MAX:
                raise InputError("got an integer that does not fit 64 bits").within(path).in_document(name)
            return value
        case dict():
            table = {}
            for key, inner in value.items():
                here = f"{path}.{shown_key(key)}" if path else shown_key(key)
                table[key] = _checked(inner, name=name, path=here, depth=depth + 1)
            return table
        case list():
            return [
                _checked(inner, name=name, path=f"{path}[{index}]", depth=depth + 1)
                for index, inner in enumerate(value)
            ]
        case _:
            raise (
                InputError(
                    f"got a date or time `{value}`, expected text or a number", hint="put text in quotes"
                )
                .within(path)
                .in_document(name)
            )


def to_struct(table: Any, kind: type[T], *, name: str = "") -> T:
    """A struct out of plain values, of the document ``name`` where they are all that it says.

    Raises:
        InputError: A key is missing, unknown (with the nearest known one), or of another type; with its path.
    """
    try:
        return msgspec.convert(table, kind, strict=True)
    except msgspec.ValidationError as error:
        told = explained(str(error), kind, table)
    except RecursionError:
        told = _too_deep()
    raise told.in_document(name) if name else told


def to_whole_struct(table: Any, kind: type[T], *, name: str = "") -> T:
    """The same of a document that has no defaults: what is not there is missing, whatever the struct would say instead.

    Raises:
        InputError: As ``to_struct``.
    """
    value = to_struct(table, kind, name=name)
    _refuse_absent(msgspec.to_builtins(value), table, path="", name=name)
    return value


def _refuse_absent(whole: Any, table: Any, *, path: str, name: str) -> None:
    match whole, table:
        case dict(), dict():
            for key, inner in whole.items():
                if key not in table:
                    told = InputError(f"the key `{shown_key(key)}` is missing")
                    told = told.within(path) if path else told
                    raise told.in_document(name) if name else told
                here = f"{path}.{shown_key(key)}" if path else shown_key(key)
                _refuse_absent(inner, table[key], path=here, name=name)
        case list() | tuple(), list() | tuple():
            for index, (inner, entry) in enumerate(zip(whole, table, strict=True)):
                _refuse_absent(inner, entry, path=f"{path}[{index}]", name=name)
        case _:
            return


def check_version(key: str, table: dict[str, Any], supported: int, *, name: str) -> None:
    """Refuse a document of another version before anything else of it is read.

    Raises:
        InputError: The version is missing, no integer, newer, or older than any that is read here.
    """
    match table.get(key):
        case None:
            raise InputError(f"the key `{key}` is missing").in_document(name)
        case int(version) if version == supported and not isinstance(version, bool):
            return
        case int(version) if version > supported and not isinstance(version, bool):
            raise InputError(
                f"got {key} `{version}`, this qlock reads up to `{supported}`", hint="upgrade qlock"
            ).in_document(name)
        case other:
            raise InputError(f"got {key} `{for_message(str(other))}`, expected `{supported}`").in_document(
                name
            )


def json_bytes(value: Any) -> bytes:
    """Canonical JSON of a struct or plain value, without a newline: fields in their order, keys of a dict sorted.

    Raises:
        ValueError: A float is NaN or infinite (msgspec would silently write ``null``).
    """
    body = msgspec.json.encode(value, order="deterministic")
    # Walking every value of a record in Python takes longer than all else; these bytes say that it is needed.
    if b"null" in body:
        refuse_non_finite(msgspec.to_builtins(value))
    return body


def refuse_non_finite(value: Any) -> None:
    """Raise ``ValueError`` when any float within plain values is NaN or infinite."""
    match value:
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{value} cannot be recorded")
        case dict():
            for inner in value.values():
                refuse_non_finite(inner)
        case list() | tuple():
            for inner in value:
                refuse_non_finite(inner)
        case _:
            return


def from_json(data: bytes, kind: type[T], *, name: str) -> T:
    """A struct out of JSON bytes.

    Raises:
        InputError: No JSON, deeper than 64 levels, or a key is missing, unknown or of another type.
    """
    try:
        value = msgspec.json.decode(data, type=kind, strict=True)
        if data.count(b"[") + data.count(b"{") > _DEPTH_MAX and _is_deeper(
            msgspec.to_builtins(value), _DEPTH_MAX
        ):
            raise _too_deep().in_document(name)
    except msgspec.ValidationError as error:
        raise explained(str(error), kind, _plain_json(data)).in_document(name) from None
    except RecursionError:
        raise _too_deep().in_document(name) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not JSON: {for_message(str(error))}").in_document(name) from None
    return value


def _plain_json(data: bytes) -> Any:
    """What the bytes say without a type, to show a wrong value; ``None`` where even that fails."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _is_deeper(value: Any, levels: int) -> bool:
    match value:
        case dict():
            return levels == 0 or any(_is_deeper(inner, levels - 1) for inner in value.values())
        case list() | tuple():
            return levels == 0 or any(_is_deeper(inner, levels - 1) for inner in value)
        case _:
            return False


def toml_text(value: Base) -> str:
    """Canonical TOML of a struct: equal structs give the same bytes, everywhere.

    Raises:
        ValueError: A float is NaN or infinite.
    """
    plain: dict[str, Any] = msgspec.to_builtins(value, order="deterministic")
    refuse_non_finite(plain)
    return "\n".join(_table(plain, ())).strip("\n") + "\n"


def _table(table: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for key, value in table.items():
        if _is_plain(value):
            yield _line(key, value)
    for key, value in table.items():
        if _is_plain(value):
            continue
        inner = (*path, key)
        header = ".".join(_key(part) for part in inner)
        if isinstance(value, dict):
            yield ""
            yield f"[{header}]"
            yield from _table(value, inner)
        else:
            for entry in value:
                yield ""
                yield f"[[{header}]]"
                yield from _table(entry, inner)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else tomli_w.dumps({key: 0}).removesuffix(" = 0\n")


def _line(key: str, value: Any) -> str:
    if value in ({}, [], ()):
        return f"{_key(key)} = {'{}' if value == {} else '[]'}"
    return tomli_w.dumps({key: without_negative_zero(value)}).removesuffix("\n")


def without_negative_zero(value: Any) -> Any:
    """The value as ``read_toml_table`` gives it back: −0.0 is 0.0."""
    match value:
        case float():
            return value + 0.0
        case list() | tuple():
            return [without_negative_zero(inner) for inner in value]
        case dict():
            return {key: without_negative_zero(inner) for key, inner in value.items()}
        case _:
            return value


def _is_plain(value: Any) -> bool:
    match value:
        case dict():
            return not value
        case list() | tuple():
            return not value or not all(isinstance(entry, dict) for entry in value)
        case _:
            return True
