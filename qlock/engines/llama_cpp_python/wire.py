"""What qlock and the engine's child process say to each other: one JSON object a line, told apart by ``kind``.

Orders go down, words come up. The child's words are read within a bound and decoded strictly; whatever else it
sends is nonsense, and nonsense is an ``EngineError``.

Does not live here: how lines travel (``world.process``) and what either side does with them.
"""

from __future__ import annotations

import msgspec

from qlock.core.base import Base, Count
from qlock.core.escape import for_message
from qlock.core.facts import Buffer, ProbeRow, ReadBack
from qlock.engines.interface import (
    Broken,
    Contrast,
    Contrasted,
    Generate,
    Generated,
    Keep,
    Kept,
    KeptFile,
    Load,
    Measure,
    Measured,
    Vocabulary,
)
from qlock.errors import EngineError

MAX_LINE_BYTES = 1 << 28
"""The longest line either side takes: ten million tokens or so."""


class LoadOrder(Base, frozen=True, kw_only=True, tag_field="kind", tag="load"):
    """Drop what is loaded and load this."""

    load: Load


class ReferOrder(Base, frozen=True, kw_only=True, tag_field="kind", tag="refer"):
    """Hold what is loaded against a second point from now on."""

    load: Load


class ReferFileOrder(Base, frozen=True, kw_only=True, tag_field="kind", tag="refer-file"):
    """Hold what is loaded against a kept file from now on."""

    file: KeptFile


class VocabularyOrder(Base, frozen=True, kw_only=True, tag_field="kind", tag="vocabulary"):
    """Drop what is loaded and load the vocabulary of this GGUF alone."""

    header: str


class TokenizeOrder(Base, frozen=True, kw_only=True, tag_field="kind", tag="tokenize"):
    """Turn one text into token ids."""

    text: str
    add_special: bool
    parse_special: bool


class ProbeOrder(Base, frozen=True, kw_only=True, tag_field="kind", tag="probe"):
    """Vary the schedule around these prompts."""

    prompts: tuple[tuple[int, ...], ...]
    steps: Count


Order = (
    LoadOrder
    | ReferOrder
    | ReferFileOrder
    | VocabularyOrder
    | TokenizeOrder
    | ProbeOrder
    | Generate
    | Measure
    | Contrast
    | Keep
)


class Hello(Base, frozen=True, kw_only=True, tag_field="kind", tag="hello"):
    """The libraries are in; first word of the child."""

    label: str
    system_info: str


class Loaded(Base, frozen=True, kw_only=True, tag_field="kind", tag="loaded"):
    """The model and its context are ready."""

    read_back: ReadBack
    devices: tuple[str, ...]
    """Cards that it lies on, as ``Engine.devices`` gives them."""
    memory: tuple[Buffer, ...]
    """As ``Engine.memory`` gives it."""


class Referred(Base, frozen=True, kw_only=True, tag_field="kind", tag="referred"):
    """The reference is ready."""

    read_back: ReadBack | None
    """``None`` for a kept file."""
    devices: tuple[str, ...]
    """Cards that it lies on; none for a kept file."""


class Tokens(Base, frozen=True, kw_only=True, tag_field="kind", tag="tokens"):
    """The token ids of one text."""

    tokens: tuple[int, ...]


class Probed(Base, frozen=True, kw_only=True, tag_field="kind", tag="probed"):
    """What the variations of the schedule left the same."""

    rows: tuple[ProbeRow, ...]


class Alive(Base, frozen=True, kw_only=True, tag_field="kind", tag="alive"):
    """A decode has ended since the last word: slow, but not stuck."""


class Refused(Base, frozen=True, kw_only=True, tag_field="kind", tag="refused"):
    """The last order could not be carried out; the child lives on and may be given another."""

    why: str


Word = (
    Hello
    | Loaded
    | Referred
    | Vocabulary
    | Tokens
    | Probed
    | Alive
    | Refused
    | Generated
    | Measured
    | Contrasted
    | Kept
    | Broken
)

_ORDERS = msgspec.json.Decoder(Order)
_WORDS = msgspec.json.Decoder(Word)


def encode(message: Order | Word) -> bytes:
    """One line without its newline."""
    return msgspec.json.encode(message)


def order_from(line: bytes) -> Order:
    """The order in a line; raises ``msgspec.ValidationError`` or ``DecodeError``, which are bugs of our own."""
    return _ORDERS.decode(line)


def word_from(line: bytes) -> Word:
    """The word in a line of the child.

    Raises:
        EngineError: It is none.
    """
    try:
        return _WORDS.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        shown = for_message(line[:80].decode(errors="replace"))
        raise EngineError(f"the engine answered nonsense: got `{shown}`, expected a word: {error}") from error
