"""Digests: their written form, known values, and what they depend on."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import msgspec
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.canon import without_negative_zero
from qlock.core.digest import (
    Digest,
    StreamDigests,
    blake3_of,
    digest_of,
    digest_of_each,
    is_digest,
    sha256_of,
)
from tests.strategies import DIGESTS, PLAIN, TEXTS

EMPTY_BLAKE3 = "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
EMPTY_SHA256 = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_known_digests() -> None:
    assert blake3_of(b"") == EMPTY_BLAKE3
    assert sha256_of(b"") == EMPTY_SHA256


def test_a_digest_never_changes_between_releases() -> None:
    assert (
        digest_of("spec", {"b": [1, 2.5, "é"], "a": None})
        == blake3_of('qlock spec 1\n{"a":null,"b":[1,2.5,"é"]}'.encode())
        == "blake3:e9e1f0505abc9e96036411a767c9395982b00b9c438f2d5c34f9ab6322bf304e"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        EMPTY_BLAKE3[:-1],
        f"{EMPTY_BLAKE3}\n",
        f" {EMPTY_BLAKE3}",
        EMPTY_SHA256.upper(),
        EMPTY_SHA256.replace("sha256", "md5"),
        EMPTY_SHA256.removeprefix("sha256:"),
    ],
)
def test_what_is_no_digest(text: str) -> None:
    assert not is_digest(text)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(text, Digest)


@given(DIGESTS)
def test_what_is_a_digest(text: str) -> None:
    assert is_digest(text)
    assert msgspec.convert(text, Digest) == text


def test_two_kinds_of_thing_never_share_a_digest() -> None:
    assert digest_of("spec", {}) != digest_of("items", {})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_has_no_digest(value: float) -> None:
    with pytest.raises(ValueError) as caught:
        digest_of("x", {"a": [1.0, {"b": value}]})
    assert str(caught.value) == f"{value} cannot be recorded"


@given(st.dictionaries(TEXTS, PLAIN, max_size=4))
def test_the_order_of_keys_does_not_matter(value: dict[str, Any]) -> None:
    assert digest_of("x", value) == digest_of("x", dict(reversed(value.items())))


@given(st.lists(PLAIN, max_size=3), st.lists(PLAIN, max_size=3))
def test_other_values_have_other_digests(a: list[Any], b: list[Any]) -> None:
    assert (digest_of("x", a) == digest_of("x", b)) == (_sorted(a) == _sorted(b))


def _sorted(value: Any) -> bytes:
    return msgspec.json.encode(without_negative_zero(value), order="sorted")


def test_zero_has_no_sign() -> None:
    assert (
        digest_of("x", {"a": [-0.0, (-0.0,)]})
        == digest_of("x", {"a": [0.0, (0.0,)]})
        != digest_of("x", {"a": [0, [0]]})
    )


@given(st.lists(st.binary(max_size=100), max_size=5))
def test_pieces_have_the_digests_of_the_whole(pieces: list[bytes]) -> None:
    digests = StreamDigests()
    for piece in pieces:
        digests.feed_blake3(piece)
        digests.feed_sha256(memoryview(piece))
    whole = b"".join(pieces)
    assert digests.blake3() == f"blake3:{blake3(whole).hexdigest()}" == blake3_of(bytearray(whole))
    assert digests.sha256() == f"sha256:{hashlib.sha256(whole).hexdigest()}" == sha256_of(memoryview(whole))


@given(st.lists(st.integers() | st.text() | st.just(-0.0) | st.dictionaries(st.text(), st.integers())))
def test_a_list_digested_value_by_value_is_the_list_digested_at_once(values: list[object]) -> None:
    assert digest_of_each("x", iter(values)) == digest_of("x", values)


def test_a_number_that_is_none_is_refused_value_by_value_too() -> None:
    with pytest.raises(ValueError, match="nan cannot be recorded"):
        digest_of_each("x", [1.0, float("nan")])
