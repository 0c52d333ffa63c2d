"""What is wrong with outside text, in words for people: key path, what stands there, what was expected.

Lives here: turning msgspec's messages into ours, the nearest known key, look-alike letters by code point. Does not
live here: decoding itself (``core.canon``).
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import msgspec

from qlock.core.escape import for_message
from qlock.errors import InputError

_AT = re.compile(r"(?P<text>.*?)(?: - at `(?P<path>\$[^`]*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_ABSENT = re.compile(r"Object missing required field `(.*)`")
_OTHER_TYPE = re.compile(r"Expected `(.+)`, got `(.+)`")
_OTHER_VALUE = re.compile(r"Expected `([^`]+)` (.+)", re.DOTALL)
_OUR_KEY = re.compile(r"([a-z_0-9]+): (.*)", re.DOTALL)
"""How a struct's own rule across keys names the key at fault."""
_PART = re.compile(r"[^.\[\]]+|\[[^\]]*\]")

_WORDS = {
    "str": "text",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "an array",
    "object": "a table",
    "null": "null",
}


def explained(message: str, kind: Any, plain: Any) -> InputError:
    """A message of ``msgspec.ValidationError`` in our words, placed at its key.

    Args:
        message: What msgspec says, such as "Expected `int` >= 1 - at `$.setting[0].slots`".
        kind: The type that was decoded into.
        plain: The same value without a type, to show what stands there; ``None`` where there is none.
    """
    found = _AT.fullmatch(message)
    assert found is not None
    path = (found["path"] or "$").removeprefix("$").removeprefix(".")
    error = _error(found["text"], kind, path, _value_at(plain, path))
    return error.within(for_message(path)) if path else error


def _error(text: str, kind: Any, path: str, value: Any) -> InputError:
    if unknown := _UNKNOWN.fullmatch(text):
        return unknown_key(unknown[1], _keys_of(kind, path, value))
    if absent := _ABSENT.fullmatch(text):
        return _absent_key(absent[1], _keys_of(kind, path, value), value)
    got = _shown_value(value)
    if other := _OTHER_TYPE.fullmatch(text):
        if other[2] == "str" or not got:
            got = f"got {_words(other[2])}{got.removeprefix('got').removesuffix(', ')}, "
        return InputError(f"{got}expected {_words(other[1])}")
    if other := _OTHER_VALUE.fullmatch(text):
        described = _description(_type_at(kind, path))
        rule = described if "regex" in other[2] and described else f"{_words(other[1])} {other[2]}"
        return InputError(f"{got}expected {for_message(rule)}")
    if text.startswith("Invalid "):
        choices = _choices(kind, path)
        return InputError(f"{got}expected one of: {', '.join(choices)}" if choices else for_message(text))
    if own := _OUR_KEY.fullmatch(text):
        return InputError(for_message(own[2])).within(own[1])
    return InputError(f"{got}{for_message(text[:1].lower() + text[1:])}")


def _absent_key(key: str, known: tuple[str, ...], table: Any) -> InputError:
    """A key that is missing, or one that nobody knows and that was meant to be it: a tag is looked for first."""
    for other in table if isinstance(table, dict) else ():
        if isinstance(other, str) and other not in known and _near(other, (*known, key)) == [key]:
            return unknown_key(other, (*known, key))
    return InputError(f"the key `{key}` is missing")


def _words(types: str) -> str:
    return " or ".join(_WORDS.get(part, f"`{part}`") for part in types.split(" | "))


def _shown_value(value: Any) -> str:
    match value:
        case bool():
            return f"got `{str(value).lower()}`, "
        case str() | float():
            return f"got `{for_message(str(value))}`, "
        case int() if value.bit_length() <= 64:
            return f"got `{value}`, "
        case _:
            return ""


def _value_at(plain: Any, path: str) -> Any:
    """The value at ``model[0].name``; ``None`` where the path leads nowhere or through ``[...]``."""
    for part in _PART.findall(path):
        match plain:
            case dict() if part in plain:
                plain = plain[part]
            case list() | tuple() if part[1:-1].isdecimal():
                plain = plain[int(part[1:-1])]
            case _:
                return None
    return plain


def unknown_key(key: str, known: tuple[str, ...]) -> InputError:
    """The error for a key that nobody knows, naming the nearest one that is known."""
    near = _near(key, known)
    hint = f"did you mean `{near[0]}`?" if near else f"known keys: {', '.join(sorted(known))}"
    return InputError(f"unknown key `{for_message(key)}`{_code_points(key)}", hint=hint)


def _near(key: str, known: tuple[str, ...]) -> list[str]:
    return difflib.get_close_matches(_ascii_skeleton(key[:1000]), known, n=1, cutoff=0.6)


_LOOKALIKES = str.maketrans("аеорсухіѕјԁոɡⅼ", "aeopcyxisjdngl")


def _ascii_skeleton(key: str) -> str:
    return unicodedata.normalize("NFKC", key).translate(_LOOKALIKES).lower()


def shown_key(key: str) -> str:
    """A key for people: letters outside ASCII by their code point, so that look-alikes are seen."""
    return for_message(key) + _code_points(key)


def _code_points(key: str) -> str:
    odd = sorted({ord(letter) for letter in key if not 0x20 <= ord(letter) < 0x7F})
    shown = [f"U+{code:04X}" for code in odd[:10]] + ["…"] * (len(odd) > 10)
    return f" ({', '.join(shown)})" if odd else ""


def known_keys(kind: Any, path: str) -> tuple[str, ...]:
    """The keys of the struct that stands at ``path`` (``model[0].file``) under ``kind``; empty where there is none."""
    names = [field.encode_name for struct in _structs(_type_at(kind, path)) for field in struct.fields]
    return tuple(dict.fromkeys(names))


def _keys_of(kind: Any, path: str, table: Any) -> tuple[str, ...]:
    """The same for one table: of a union of structs, the keys of the one that its tag names."""
    structs = [struct for struct in _structs(_type_at(kind, path)) if _is_tagged(table, struct)]
    names = [
        name for struct in structs for name in (struct.tag_field, *(f.encode_name for f in struct.fields))
    ]
    return tuple(dict.fromkeys(filter(None, names))) or known_keys(kind, path)


def _is_tagged(table: Any, struct: msgspec.inspect.StructType) -> bool:
    return isinstance(table, dict) and struct.tag_field in table and table[struct.tag_field] == struct.tag


def _type_at(kind: Any, path: str) -> msgspec.inspect.Type:
    found = msgspec.inspect.type_info(kind)
    for part in _PART.findall(path):
        found = _step(found, part)
    return found


def _step(info: msgspec.inspect.Type, part: str) -> msgspec.inspect.Type:
    match info:
        case msgspec.inspect.Metadata(type=inner):
            return _step(inner, part)
        case msgspec.inspect.VarTupleType(item_type=inner) | msgspec.inspect.DictType(value_type=inner):
            return inner
        case _:
            fields = (field for struct in _structs(info) for field in struct.fields)
            return next(
                (field.type for field in fields if field.encode_name == part), msgspec.inspect.AnyType()
            )


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


def _description(info: msgspec.inspect.Type) -> str:
    match info:
        case msgspec.inspect.Metadata(extra_json_schema={"description": str(words)}):
            return words
        case msgspec.inspect.Metadata(type=inner):
            return _description(inner)
        case _:
            return ""


def _choices(kind: Any, path: str) -> list[str]:
    """The values that are allowed at ``path``: of a literal, or the tags of a union of structs."""
    match _type_at(kind, path):
        case msgspec.inspect.LiteralType(values=values):
            return [f"`{value}`" for value in values]
        case msgspec.inspect.Metadata(type=msgspec.inspect.LiteralType(values=values)):
            return [f"`{value}`" for value in values]
        case _:
            above, _, last = path.rpartition(".")
            return [
                f"`{struct.tag}`" for struct in _structs(_type_at(kind, above)) if struct.tag_field == last
            ]
