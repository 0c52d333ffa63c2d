"""The words of an error: what stands there, what was expected, where, and which key was meant."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.base import Base, Name
from qlock.core.escape import visible
from qlock.core.explain import explained, known_keys, shown_key, unknown_key
from qlock.core.lock import Lock
from qlock.core.record import Line
from qlock.core.spec import Spec
from tests.broken.make import small_lock
from tests.fakes.documents import a_spec

LINE: Any = Line


class Inner(Base, frozen=True, kw_only=True):
    temperature: float = 0.0
    top_k: int = 0
    mode: Literal["cpu", "gpu"] = "cpu"
    pair: int | str = 0


class Outer(Base, frozen=True, kw_only=True):
    name: Name
    inner: tuple[Inner, ...] = ()
    by_word: dict[str, Inner] = {}
    count: int = 0

    def __post_init__(self) -> None:
        if self.count == 13:
            raise ValueError("count: got `13`, expected luck")
        if self.count == 14:
            raise ValueError("Fourteen is too many")


class Boat(Base, frozen=True, kw_only=True, tag_field="kind", tag="boat"):
    sails: int


class Bicycle(Base, frozen=True, kw_only=True, tag_field="kind", tag="bicycle"):
    wheels: int


VEHICLE: Any = Boat | Bicycle


def error_of(plain: Any, kind: Any = Outer, *, shown: Any = ...) -> tuple[str, str]:
    """The error of a plain value, as text and hint."""
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(plain, kind, strict=True)
    error = explained(str(caught.value), kind, plain if shown is ... else shown)
    return str(error), error.hint


@pytest.mark.parametrize(
    "plain, message",
    [
        ({"name": 3}, "name: got `3`, expected text"),
        ({"name": None}, "name: got null, expected text"),
        ({"name": "a", "count": True}, "count: got `true`, expected an integer"),
        ({"name": "a", "count": 1.0}, "count: got `1.0`, expected an integer"),
        ({"name": "a", "inner": {}}, "inner: got a table, expected an array"),
        ({"name": "a", "inner": [1]}, "inner[0]: got `1`, expected a table"),
        (
            {"name": "a", "inner": [{}, {"pair": 1.5}]},
            "inner[1].pair: got `1.5`, expected an integer or text",
        ),
        ({"name": "a", "count": "8"}, "count: got text `8`, expected an integer"),
        ({}, "the key `name` is missing"),
        (
            {"name": "a b"},
            "name: got `a b`, expected a name of ASCII letters, digits and `._+-` that starts with a letter or digit",
        ),
        ({"name": "a" * 81}, f"name: got `{'a' * 81}`, expected text of length <= 80"),
        (
            {"name": "a", "inner": [{"mode": "npu"}]},
            "inner[0].mode: got `npu`, expected one of: `cpu`, `gpu`",
        ),
        ({"name": "a", "count": 13}, "count: got `13`, expected luck"),
        ({"name": "a", "count": 14}, "fourteen is too many"),
        (
            {"name": "a", "by_word": {"x": {"mode": "npu"}}},
            "by_word[...].mode: expected one of: `cpu`, `gpu`",
        ),
    ],
)
def test_words(plain: Any, message: str) -> None:
    assert error_of(plain) == (message, "")


@pytest.mark.parametrize(
    "value, kind, message",
    [
        (0, Literal[1, 2], "got `0`, expected one of: `1`, `2`"),
        (2**70, msgspec.Meta(le=5), "expected an integer <= 5"),
        (False, Literal["a"], "got `false`, expected text"),
        ("x", msgspec.Meta(pattern="^y$"), "got `x`, expected text matching regex '^y$'"),
        (0, msgspec.Meta(ge=1, extra={"effect": "note"}), "got `0`, expected an integer >= 1"),
        (
            "x",
            Annotated[Literal["a", "b"], msgspec.Meta(extra={"effect": "note"})],
            "got `x`, expected one of: `a`, `b`",
        ),
        (1.5, msgspec.Meta(ge=2), "got `1.5`, expected a number >= 2.0"),
    ],
)
def test_words_at_the_root(value: Any, kind: Any, message: str) -> None:
    whole = Annotated[type(value), kind] if isinstance(kind, msgspec.Meta) else kind
    assert error_of(value, whole) == (message, "")


def test_the_value_is_left_out_where_it_is_not_at_hand() -> None:
    plain = {"name": "a", "inner": [{"mode": "npu"}]}
    message = "inner[0].mode: expected one of: `cpu`, `gpu`"
    shapes: list[Any] = [None, [], {"inner": {"0": {}}}, {"inner": [{"mode": []}]}]
    for shown in shapes:
        assert error_of(plain, shown=shown) == (message, "")
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({"name": 3}, Outer)
    assert str(explained(str(caught.value), Outer, None)) == "name: got an integer, expected text"


def test_a_message_that_is_not_known_keeps_its_words() -> None:
    assert str(explained("Invalid UUID - at `$.name`", Outer, {"name": "x"})) == "name: Invalid UUID"
    assert str(explained("Odd - at `$.count`", Outer, {"count": True})) == "count: got `true`, odd"


@pytest.mark.parametrize(
    "plain, message, hint",
    [
        ({"name": "a", "inner": [{"temprature": 1}]}, "inner[0]: unknown key `temprature`", "temperature"),
        ({"name": "a", "Inner": 1}, "unknown key `Inner`", "inner"),
        ({"name": "a", "inner": [{"TOP-K": 1}]}, "inner[0]: unknown key `TOP-K`", "top_k"),
        (
            {"name": "a", "inner": [{"tеmperature": 1}]},
            "inner[0]: unknown key `tеmperature` (U+0435)",
            "temperature",
        ),
        (
            {"name": "a", "inner": [{"ｔｏｐ_k": 1}]},
            "inner[0]: unknown key `ｔｏｐ_k` (U+FF4F, U+FF50, U+FF54)",
            "top_k",
        ),
        (
            {"name": "a", "by_word": {"w": {"top_k\u200b": 1}}},
            "by_word[...]: unknown key `top_k\\u200b` (U+200B)",
            "top_k",
        ),
    ],
)
def test_an_unknown_key_and_the_one_that_was_meant(plain: Any, message: str, hint: str) -> None:
    assert error_of(plain) == (message, f"did you mean `{hint}`?")


def test_the_tag_says_which_keys_a_table_has() -> None:
    """Of a union only the table that is meant has its say."""
    plain = {"kind": "boat", "sails": 1, "wheel": 2}
    assert error_of(plain, VEHICLE) == ("unknown key `wheel`", "known keys: kind, sails")
    assert error_of({"kind": "bicycle", "weels": 2}, VEHICLE) == (
        "unknown key `weels`",
        "did you mean `wheels`?",
    )
    assert error_of({"kinnd": "boat", "sails": 1}, VEHICLE) == ("unknown key `kinnd`", "did you mean `kind`?")
    assert error_of({"sails": 1, "zzz": 1}, VEHICLE) == ("the key `kind` is missing", "")


def test_where_no_key_is_near_all_are_named() -> None:
    error = unknown_key("zzz", ("b", "a"))
    assert (str(error), error.hint) == ("unknown key `zzz`", "known keys: a, b")


def test_an_endless_key_is_shown_short() -> None:
    error = unknown_key("ж" * 10**6, ("a",))
    assert len(str(error)) < 300
    odd = "".join(chr(0x400 + index) for index in range(20))
    assert shown_key(odd).endswith(
        "(U+0400, U+0401, U+0402, U+0403, U+0404, U+0405, U+0406, U+0407, U+0408, U+0409, …)"
    )


def test_known_keys_at_a_path() -> None:
    assert known_keys(Outer, "") == ("name", "inner", "by_word", "count")
    assert known_keys(Outer, "inner[3]") == ("temperature", "top_k", "mode", "pair")
    assert known_keys(Outer, "by_word[...]") == ("temperature", "top_k", "mode", "pair")
    assert known_keys(Outer, "name") == ()
    assert known_keys(Outer, "nowhere[0].at.all") == ()
    assert known_keys(LINE, "replies[0]")[:2] == ("text", "tokens")
    assert len(set(known_keys(LINE, ""))) == len(known_keys(LINE, ""))


def _tables(plain: Any, kind: Any, path: str = "") -> list[str]:
    """The path of every table within plain values that stands for a struct."""
    match plain:
        case dict() if known_keys(kind, path):
            inner = [_tables(value, kind, f"{path}.{key}".removeprefix(".")) for key, value in plain.items()]
            return [path, *(one for found in inner for one in found)]
        case list() | tuple():
            inner = [_tables(value, kind, f"{path}[{index}]") for index, value in enumerate(plain)]
            return [one for found in inner for one in found]
        case _:
            return []


def _at(plain: Any, path: str) -> Any:
    for part in re.findall(r"\w+", path):
        plain = plain[int(part) if part.isdecimal() else part]
    return plain


@pytest.mark.parametrize("document", [a_spec(), small_lock()], ids=["spec", "lock"])
def test_every_key_of_every_table_is_found_again_when_a_letter_is_doubled(document: Spec | Lock) -> None:
    tried = 0
    for path in _tables(msgspec.to_builtins(document), type(document)):
        for key in [key for key in _at(msgspec.to_builtins(document), path) if len(key) > 2]:
            plain = msgspec.to_builtins(document)
            table = _at(plain, path)
            table[key + key[-1]] = table.pop(key)
            place = f"{path}: " if path else ""
            assert error_of(plain, type(document)) == (
                f"{place}unknown key `{key}{key[-1]}`",
                f"did you mean `{key}`?",
            )
            tried += 1
    assert tried > 40


@given(st.text(), st.lists(st.text(min_size=1), max_size=3).map(tuple))
def test_any_key_can_be_unknown(key: str, known: tuple[str, ...]) -> None:
    error = unknown_key(key, known)
    assert error.message.startswith("unknown key `")
    assert visible(error.message) == error.message
