"""The only door for outside text: TOML and JSON lines into structs, and structs back into canonical bytes.

Lives here: decoding with clean errors (key path, nearest known key, look-alike letters), and the canonical TOML
of a lock. Does not live here: what the keys mean (``core.spec``, ``core.lock``, ``core.record``).

Canonical TOML: keys in the order of the struct's fields, one fact a line, plain values before tables, every table
with its own header, LF, a final newline. tomli_w writes each ``key = value``; it inlines and moves short tables by
itself, so the headers are written here.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
import tomli_w

from qlock.core.base import Base
from qlock.core.escape import for_message
from qlock.errors import InputError

T = TypeVar("T")

_UNKNOWN = re.compile(
    r"Object contains unknown field `(?P<field>.*?)`(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL
)
_PATH = re.compile(r"^(?P<text>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)
_MARKER = re.compile(rb"^(<{7}|={7}|>{7}|\|{7})( |\r?$)", re.MULTILINE)
_BARE_KEY = re.compile(r"^[A-Za-z0-9_-]+$")
_BOM = b"\xef\xbb\xbf"
_INTEGER_MAX = 2**63


def decode_text(data: bytes, *, name: str) -> str:
    """The text of a file written by people or by qlock.

    Raises:
        InputError: A byte-order mark, an unresolved git conflict, or bytes that are no UTF-8.
    """
    if data.startswith(_BOM):
        raise InputError(
            "the file starts with a BOM (bytes EF BB BF)", hint="save it as UTF-8 without BOM"
        ).within(name)
    marker = _MARKER.search(data)
    if marker and data.find(b"<<<<<<<") >= 0:
        line = data.count(b"\n", 0, marker.start()) + 1
        raise InputError(
            f"unresolved git conflict at line {line}", hint="take one side, then run `qlock resolve` again"
        ).within(name)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"line {line} is not UTF-8").within(name) from None


def read_toml_table(data: bytes, *, name: str) -> dict[str, Any]:
    """A TOML file as a plain table with finite numbers, negative zero made zero.

    Raises:
        InputError: No TOML, or a number that is not finite or does not fit 64 bits.
    """
    text = decode_text(data, name=name)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not TOML: {for_message(str(error))}").within(name) from None
    except RecursionError:
        raise InputError("tables or arrays are nested too deep").within(name) from None
    clean: dict[str, Any] = _checked(table, name=name, path="")
    return clean


def _checked(value: Any, *, name: str, path: str) -> Any:
    match value:
        case bool():
            return value
        case float():
            if not math.isfinite(value):
                raise InputError(f"got `{value}`, expected a finite number").within(path).within(name)
            return value + 0.0
        case int():
            if not -_INTEGER_MAX <= value < _INTEGER_MAX:
                raise InputError("got an integer that does not fit 64 bits").within(path).within(name)
            return value
        case dict():
            return {
                key: _checked(inner, name=name, path=f"{path}.{_shown(key)}".strip("."))
                for key, inner in value.items()
            }
        case list():
            return [_checked(inner, name=name, path=f"{path}[{i}]") for i, inner in enumerate(value)]
        case _:
            return value


def to_struct(table: Any, kind: type[T], *, name: str) -> T:
    """A struct out of plain values.

    Raises:
        InputError: A key is missing, unknown (with the nearest known one), or of another type; with its path.
    """
    try:
        return msgspec.convert(table, kind, strict=True)
    except msgspec.ValidationError as error:
        raise _explained(str(error), kind, name) from None
    except RecursionError:
        raise InputError("values are nested too deep").within(name) from None


def _explained(message: str, kind: Any, name: str) -> InputError:
    unknown = _UNKNOWN.match(message)
    if unknown:
        path = (unknown["path"] or "$").removeprefix("$").lstrip(".")
        known = known_keys(kind, path)
        error = unknown_key(unknown["field"], known)
        return _placed(error, path, name)
    parts = _PATH.match(message)
    assert parts is not None
    path = (parts["path"] or "$").removeprefix("$").lstrip(".")
    text = parts["text"][:1].lower() + parts["text"][1:]
    return _placed(InputError(for_message(text)), path, name)


def _placed(error: InputError, path: str, name: str) -> InputError:
    return error.within(for_message(path)).within(name) if path else error.within(name)


def unknown_key(key: str, known: tuple[str, ...]) -> InputError:
    """The error for a key that nobody knows, naming the nearest one that is known."""
    near = difflib.get_close_matches(_ascii_skeleton(key), known, n=1, cutoff=0.6)
    hint = f"did you mean `{near[0]}`?" if near else f"known keys: {', '.join(sorted(known))}"
    return InputError(f"unknown key `{_shown(key)}`", hint=hint)


_LOOKALIKES = str.maketrans("аеорсухіѕјԁոɡⅼ", "aeopcyxisjdngl")


def _ascii_skeleton(key: str) -> str:
    return key.translate(_LOOKALIKES)


def _shown(key: str) -> str:
    """A key for people: letters outside ASCII by their code point, so that look-alikes are seen."""
    odd = sorted({f"U+{ord(letter):04X}" for letter in key if not 0x20 <= ord(letter) < 0x7F})
    text = for_message(key)
    return f"{text} ({', '.join(odd)})" if odd else text


def known_keys(kind: Any, path: str) -> tuple[str, ...]:
    """The keys of the struct that stands at ``path`` (``model[0].file``) under ``kind``; empty where unknown."""
    found = msgspec.inspect.type_info(kind)
    for part in re.findall(r"[^.\[\]]+|\[[^\]]*\]", path):
        found = _step(found, part)
    return tuple(field.encode_name for struct in _structs(found) for field in struct.fields)


def _structs(info: msgspec.inspect.Type) -> Iterator[msgspec.inspect.StructType]:
    match info:
        case msgspec.inspect.StructType():
            yield info
        case msgspec.inspect.UnionType(types=types):
            for inner in types:
                yield from _structs(inner)
        case msgspec.inspect.Metadata(type=inner):
            yield from _structs(inner)
        case _:
            return


def _step(info: msgspec.inspect.Type, part: str) -> msgspec.inspect.Type:
    match info:
        case msgspec.inspect.VarTupleType(item_type=inner) if part.startswith("["):
            return inner
        case msgspec.inspect.DictType(value_type=inner):
            return inner
        case _:
            for struct in _structs(info):
                for field in struct.fields:
                    if field.encode_name == part:
                        return field.type
            return msgspec.inspect.AnyType()


def json_bytes(value: Any) -> bytes:
    """Canonical JSON of a struct or plain value, without a newline.

    Raises:
        ValueError: A float is NaN or infinite (msgspec would silently write ``null``).
    """
    plain = msgspec.to_builtins(value)
    refuse_non_finite(plain)
    return msgspec.json.encode(plain)


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
        InputError: No JSON, or a key is missing, unknown or of another type.
    """
    try:
        return msgspec.json.decode(data, type=kind, strict=True)
    except msgspec.ValidationError as error:
        raise _explained(str(error), kind, name) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not JSON: {for_message(str(error))}").within(name) from None


def toml_text(value: Base) -> str:
    """Canonical TOML of a struct: the same struct gives the same bytes, everywhere."""
    plain: dict[str, Any] = msgspec.to_builtins(value)
    refuse_non_finite(plain)
    return "\n".join(_table(plain, ())).strip("\n") + "\n"


def _table(table: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for key, value in table.items():
        if _is_plain(value):
            yield _line(key, value)
    for key, value in table.items():
        inner = (*path, key)
        header = ".".join(part if _BARE_KEY.match(part) else tomli_w.dumps({part: 0})[:-5] for part in inner)
        if _is_plain(value):
            continue
        if isinstance(value, dict):
            yield ""
            yield f"[{header}]"
            yield from _table(value, inner)
        else:
            for entry in value:
                yield ""
                yield f"[[{header}]]"
                yield from _table(entry, inner)


def _line(key: str, value: Any) -> str:
    if value == {}:
        return tomli_w.dumps({key: 0})[:-2] + "{}"
    return tomli_w.dumps({key: value}).rstrip("\n")


def _is_plain(value: Any) -> bool:
    match value:
        case dict():
            return not value
        case list() | tuple():
            return not value or not all(isinstance(entry, dict) for entry in value)
        case _:
            return True
