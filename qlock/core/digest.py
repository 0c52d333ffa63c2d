"""Digests: whole, named, and always over bytes.

Lives here: the two algorithms, their written form, and the digest of a struct. Does not live here: reading
files (``world.files`` feeds what it reads).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from blake3 import blake3

from qlock.core.canon import refuse_non_finite, without_negative_zero

Digest = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(blake3|sha256):[0-9a-f]{64}\Z",
        description="`blake3:` or `sha256:` and 64 lower-case hex digits",
    ),
]
"""``blake3:`` or ``sha256:`` and 64 lower-case hex digits; never shortened in a file."""

_WRITTEN = re.compile(r"(blake3|sha256):[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """Whether ``text`` is a digest in its written form."""
    return _WRITTEN.fullmatch(text) is not None


def blake3_of(data: bytes | bytearray | memoryview) -> str:
    """``blake3:…`` of the bytes."""
    return f"blake3:{blake3(data).hexdigest()}"


def sha256_of(data: bytes | bytearray | memoryview) -> str:
    """``sha256:…`` of the bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def digest_of(label: str, value: Any) -> str:
    """``blake3:…`` of a struct or plain value, over its canonical JSON with a written prefix.

    The bytes are ``qlock <label> 1\\n`` and then JSON with sorted keys, so that neither the order of keys nor
    the type's name matters while any changed value does. −0.0 is 0.0, as in a file of TOML.

    Args:
        label: What is digested (``"spec"``, ``"items"`` …); two kinds of thing never share a digest.
        value: Anything msgspec can encode; floats must be finite.

    Raises:
        ValueError: A float is NaN or infinite, which JSON would write as ``null``.
    """
    return blake3_of(f"qlock {label} 1\n".encode() + _canonical(value))


def digest_of_each(label: str, values: Iterable[Any]) -> str:
    """What ``digest_of`` gives for the list of these values, which need not be in memory at the same time.

    Args:
        label: What is digested.
        values: Each as for ``digest_of``.

    Raises:
        ValueError: As ``digest_of``.
    """
    hasher = blake3(f"qlock {label} 1\n".encode())
    start = b"["
    for value in values:
        hasher.update(start + _canonical(value))
        start = b","
    hasher.update(b"[]" if start == b"[" else b"]")
    return f"blake3:{hasher.hexdigest()}"


def _canonical(value: Any) -> bytes:
    plain = msgspec.to_builtins(value)
    body = msgspec.json.encode(plain, order="sorted")
    # Walking every token id of a large record in Python would take minutes; these bytes say that it is needed.
    if b"null" in body:
        refuse_non_finite(plain)
    if b"-0.0" in body:
        body = msgspec.json.encode(without_negative_zero(plain), order="sorted")
    return body


class StreamDigests:
    """blake3 (on several threads) and sha256 over the same bytes, fed piece by piece."""

    def __init__(self) -> None:
        self._blake3 = blake3(max_threads=blake3.AUTO)
        self._sha256 = hashlib.sha256()

    def feed_blake3(self, piece: bytes | memoryview) -> None:
        """Take the next bytes into blake3; large pieces are hashed on all cores."""
        self._blake3.update(piece)

    def feed_sha256(self, piece: bytes | memoryview) -> None:
        """Take the next bytes into sha256; the interpreter lock is free meanwhile."""
        self._sha256.update(piece)

    def blake3(self) -> str:
        """``blake3:…`` of all bytes fed so far."""
        return f"blake3:{self._blake3.hexdigest()}"

    def sha256(self) -> str:
        """``sha256:…`` of all bytes fed so far."""
        return f"sha256:{self._sha256.hexdigest()}"
