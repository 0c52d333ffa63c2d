"""Whose log-probabilities a kept file holds: the identity that its format does not have, and the log of its parts.

The file is llama.cpp's own (``core.kept_logits``), which says neither model nor text nor settings. Beside it lies a
journal: the identity first, then a line for each part that is written and synced, then one for the whole. A kept file is
named after its identity, so that runs of any lock with an equal one find it; and what lies there is held to it.

Does not live here: writing and finding them (``flows.kept_base``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from qlock.core.base import Base, Count, Finite, Positive
from qlock.core.canon import check_version, from_json
from qlock.core.digest import Digest, digest_of
from qlock.core.effects import what_changes_output
from qlock.core.facts import ReadBack, Setting
from qlock.core.kept_logits import Layout
from qlock.core.lock import Lock, PromptsPin, SuitePin
from qlock.errors import InputError

KEPT_VERSION = 1


class Identity(Base, frozen=True, kw_only=True, tag_field="kind", tag="identity"):
    """First line: what the rows are of. A name that people gave is no part of it."""

    kept_version: int
    model: Digest
    """Of all of the reference's model that can change what it says."""
    tokenizer: Digest
    text: Digest
    """Of the token ids of all windows."""
    window_tokens: Positive
    windows: Positive
    vocab_tokens: Positive
    setting: Setting
    """Without its name."""
    engine: Digest
    """Of everything that the running process maps and that can change output."""
    device: Digest
    plain_text_nats: Finite
    """What the reference does with a plain text."""


class PartLine(Base, frozen=True, kw_only=True, tag_field="kind", tag="part"):
    """One part that is written."""

    part: Count
    blake3: Digest


class WholeLine(Base, frozen=True, kw_only=True, tag_field="kind", tag="whole"):
    """Last line: every part is there."""

    blake3: Digest
    size_bytes: Count


Line = Identity | PartLine | WholeLine
_LINE: Any = Line
"""The union as msgspec takes it; mypy has no type for unions as values."""


class Log(Base, frozen=True, kw_only=True):
    """A journal as read."""

    identity: Identity
    parts: dict[int, Digest]
    whole: WholeLine | None


def identity_of(lock: Lock, suite: SuitePin, prompts: PromptsPin) -> Identity:
    """What a kept file of a suite's reference must be of.

    Args:
        lock: Proved.
        suite: One that is stored.
        prompts: What the points are asked in it: the windows are those of the reference, which has their tokenizer.

    Raises:
        InputError: The reference is not proved yet.
    """
    point = next(pin for pin in lock.point if pin.name == suite.reference)
    model = next(pin for pin in lock.model if pin.name == point.model)
    setting = next(setting for setting in lock.setting if setting.name == point.setting)
    engine = next(entry for entry in lock.engine if entry.name == point.engine)
    device = next(entry for entry in lock.device if entry.name == point.device)
    if not isinstance(point.read_back, ReadBack) or point.plain_text_nats is UNSET:
        raise InputError("the point is not proved yet", hint="run `qlock resolve`").within(
            f"point.{point.name}"
        )
    return Identity(
        kept_version=KEPT_VERSION,
        model=digest_of("kept model", what_changes_output(model)),
        tokenizer=model.tokenizer_digest,
        text=prompts.tokens_digest,
        window_tokens=suite.params["window_tokens"],
        windows=prompts.items,
        vocab_tokens=point.read_back.vocab_tokens,
        setting=replace(setting, name="kept"),
        engine=digest_of("kept engine", what_changes_output(replace(engine, name="kept"))),
        device=digest_of("kept device", what_changes_output(replace(device, name="kept"))),
        plain_text_nats=point.plain_text_nats,
    )


def name_of(identity: Identity) -> str:
    """What a file of this identity is called, without its ending: 16 letters of the digest."""
    ground = what_changes_output(identity)
    return digest_of("kept base", ground).partition(":")[2][:16]


def layout_of(identity: Identity) -> Layout:
    """Where everything lies in a file of this identity."""
    return Layout(
        window_tokens=identity.window_tokens,
        vocab_tokens=identity.vocab_tokens,
        parts=identity.windows,
    )


def read_log(rows: Iterable[bytes], *, name: str) -> Log | None:
    """The journal of a kept file; ``None`` where nothing is written yet.

    Raises:
        InputError: No journal of a kept file, of a newer version, or damaged.
    """
    identity: Identity | None = None
    parts: dict[int, Digest] = {}
    whole: WholeLine | None = None
    for number, row in enumerate(rows, start=1):
        here = f"{name}: line {number}"
        if number == 1:
            check_version("kept_version", from_json(row, dict[str, Any], name=here), KEPT_VERSION, name=here)
        line: Line = from_json(row, _LINE, name=here)
        match line:
            case Identity() if number == 1:
                identity = line
            case PartLine(part=part, blake3=blake3) if identity and part < identity.windows:
                parts[part] = blake3
                whole = None
            case WholeLine() if identity:
                whole = line
            case _:
                raise InputError("the line does not belong there").in_document(here)
    if identity is None:
        return None
    return Log(identity=identity, parts=parts, whole=whole)
