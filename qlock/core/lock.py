"""The lock: one spec made exact for one environment. No defaults, and nothing that is not pinned.

Lives here: the structs of ``locks/NAME@DEVICE.toml``, the version gate, both digests, and the check that every pin
is there or is listed in ``[[missing]]``. Does not live here: finding the pins (``flows.resolve``) and holding them
against a machine (``core.verify``).

The text of a lock is canonical: reading and writing again must give the same bytes, and ``body_digest`` covers every
other byte of the file. So any edit by hand is seen, also of a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core import facts
from qlock.core.base import Base, Count, Finite, Name, Positive
from qlock.core.canon import decode_text, read_toml_table, to_struct, toml_text
from qlock.core.digest import Digest, blake3_of
from qlock.core.effects import key_of
from qlock.core.recipe import RecipeRow
from qlock.core.spec import AnchorSpec, CompareSpec, GateSpec, PromptSpec, SamplingSpec
from qlock.errors import InputError

LOCK_VERSION = 1

_NOTE = msgspec.Meta(extra={"effect": "note"})
_BODY_LINE = re.compile(r'^body_digest = "[^"\n]*"$', re.MULTILINE)
_BLANK = 'body_digest = ""'


class ModelPin(Base, frozen=True, kw_only=True):
    """A model: its bytes, and its identity split so that a change can be named."""

    name: Annotated[Name, _NOTE]
    requested: Annotated[str, _NOTE]
    revision: Annotated[str, _NOTE]
    """The commit of a hub source; empty for the others."""
    trained: bool
    architecture: str
    parameters: Count
    bits_per_weight: Finite | UnsetType = UNSET
    expert_count: Count
    trained_context_tokens: Count
    tensors_digest: Digest | UnsetType = UNSET
    tokenizer_digest: Digest
    template_digest: Digest
    metadata_digest: Digest
    imatrix: Annotated[dict[str, Any], _NOTE]
    sampling: dict[str, Any]
    """``general.sampling.*`` of the file; qlock sends its own values, so these are compared and shown only."""
    warnings: Annotated[tuple[str, ...], _NOTE]
    recipe: tuple[RecipeRow, ...]
    file: tuple[facts.ModelFile, ...]


class SuiteFile(Base, frozen=True, kw_only=True):
    """A data file of a suite."""

    key: str
    """Which key of the suite names it."""
    name: Annotated[str, _NOTE]
    requested: Annotated[str, _NOTE]
    size_bytes: Count
    sha256: Digest
    blake3: Digest


class SuitePin(Base, frozen=True, kw_only=True):
    """One exam, with every parameter."""

    name: Annotated[Name, _NOTE]
    kind: Name
    ask_version: Positive
    grade_version: Positive
    repeats: Positive
    items_limit: Positive
    """At most so many items of each point: the ``limit``, or as many as there are."""
    points: Annotated[tuple[str, ...], _NOTE]
    params: dict[str, Any]
    sampling: SamplingSpec
    prompt: PromptSpec
    file: tuple[SuiteFile, ...]


class PromptsPin(Base, frozen=True, kw_only=True):
    """What exactly a point is asked in a suite."""

    suite: Name
    items: Positive
    items_digest: Digest
    """Of ids, slices and contents, after selection and in order."""
    text_digest: Digest
    """Of the rendered prompts."""
    tokens_digest: Digest
    """Of their token ids."""
    uses_date: bool
    """Whether the template asks for the date (it gets ``frozen_date``)."""


class PointPin(Base, frozen=True, kw_only=True):
    """A model under a setting, on this engine and device."""

    name: Annotated[str, _NOTE]
    model: Annotated[Name, _NOTE]
    setting: Annotated[Name, _NOTE]
    engine: Annotated[Name, _NOTE]
    device: Annotated[Name, _NOTE]
    repeatable: Literal["bitwise", "tokens", "no"] | UnsetType = UNSET
    repeatable_why: Annotated[str, _NOTE]
    plain_text_nats: Finite | UnsetType = UNSET
    """Mean nats per token of a plain English text: far below that of guessing, or the engine is not sane."""
    read_back: facts.ReadBack | UnsetType = UNSET
    canary: tuple[facts.Canary, ...] | UnsetType = UNSET
    prompts: tuple[PromptsPin, ...] | UnsetType = UNSET
    probe: Annotated[tuple[facts.ProbeRow, ...], _NOTE] | UnsetType = UNSET


class Missing(Base, frozen=True, kw_only=True):
    """A pin that is not known yet, and until when."""

    pin: str
    why: str
    until: Literal["fetch", "prove", "never"]
    """Which verb fills it in; ``never`` where it cannot be known."""


class Lock(Base, frozen=True, kw_only=True):
    """A whole lock. Field order and meaning change only with ``LOCK_VERSION``."""

    lock_version: int
    spec_digest: Digest
    body_digest: str
    frozen_date: Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    """The day that templates are told."""
    name: Name
    engine: tuple[facts.Engine, ...]
    device: tuple[facts.Device, ...]
    model: tuple[ModelPin, ...]
    setting: tuple[facts.Setting, ...]
    suite: tuple[SuitePin, ...]
    point: tuple[PointPin, ...]
    anchor: tuple[AnchorSpec, ...]
    compare: CompareSpec | UnsetType = UNSET
    gate: tuple[GateSpec, ...]
    missing: tuple[Missing, ...]


def write_lock(lock: Lock, *, spec_path: str) -> bytes:
    """The canonical bytes of a lock, with both digests worked out.

    Args:
        lock: Everything but ``body_digest``, which is worked out here.
        spec_path: How to renew it, relative to where the lock belongs: ``specs/NAME.toml``.
    """
    blank = _text(msgspec.structs.replace(lock, body_digest=""), spec_path)
    text = blank.replace(_BLANK, f'body_digest = "{blake3_of(blank.encode())}"', 1)
    return text.encode()


def _text(lock: Lock, spec_path: str) -> str:
    return f"# Written by qlock. Do not edit; renew with: qlock resolve {spec_path}\n{toml_text(lock)}"


def read_lock(data: bytes, *, name: str) -> Lock:
    """A lock out of the bytes of its file.

    Raises:
        InputError: Unreadable, of a newer version, edited by hand, or with a pin neither there nor listed missing.
    """
    text = decode_text(data, name=name)
    table = read_toml_table(data, name=name)
    _check_version(table.get("lock_version"), name)
    renew = _renew_path(text)
    lock = to_struct(table, Lock, name=name)
    blank = _BODY_LINE.sub(_BLANK, text, count=1)
    if lock.body_digest != blake3_of(blank.encode()):
        raise InputError(
            "the lock was edited by hand: its body_digest does not fit",
            hint=f"restore it from git, or renew it with `qlock resolve {renew}`",
        ).within(name)
    if write_lock(lock, spec_path=renew).decode() != text:
        raise InputError(
            "the lock is not in canonical form", hint=f"renew it with `qlock resolve {renew}`"
        ).within(name)
    _check_pins(lock, name)
    _check_references(lock, name)
    return lock


def _renew_path(text: str) -> str:
    first = text.split("\n", 1)[0]
    return first.rpartition("qlock resolve ")[2] or "SPEC"


def _check_version(version: Any, name: str) -> None:
    if not isinstance(version, int) or isinstance(version, bool):
        raise InputError(f"got lock_version `{version}`, expected `{LOCK_VERSION}`").within(name)
    if version > LOCK_VERSION:
        raise InputError(
            f"got lock_version `{version}`, this qlock reads up to `{LOCK_VERSION}`", hint="upgrade qlock"
        ).within(name)
    if version < LOCK_VERSION:
        raise InputError(f"got lock_version `{version}`, expected `{LOCK_VERSION}`").within(name)


def unset_pins(lock: Lock) -> tuple[str, ...]:
    """Paths of the pins that are not there: ``point.Q4@f16kv.canary``."""
    return tuple(_unset(lock, ""))


def _unset(value: Base, path: str) -> Iterator[str]:
    for field in value.__struct_fields__:
        inner = getattr(value, field)
        here = f"{path}.{field}" if path else field
        if inner is UNSET:
            if here != "compare":
                yield here
        elif isinstance(inner, Base):
            yield from _unset(inner, here)
        elif isinstance(inner, tuple):
            for index, entry in enumerate(inner):
                if isinstance(entry, Base) and not isinstance(entry, AnchorSpec):
                    yield from _unset(entry, f"{here}.{key_of(entry, index)}")


def _check_pins(lock: Lock, name: str) -> None:
    listed = {entry.pin for entry in lock.missing}
    absent = set(unset_pins(lock))
    for pin in sorted(absent - listed):
        raise InputError(f"the pin `{pin}` is neither there nor listed as missing").within(name)
    for pin in sorted(listed - absent):
        raise InputError(f"the pin `{pin}` is listed as missing but is there").within(name)


def _check_references(lock: Lock, name: str) -> None:
    tables = {
        "engine": {entry.name for entry in lock.engine},
        "device": {entry.name for entry in lock.device},
        "model": {entry.name for entry in lock.model},
        "setting": {entry.name for entry in lock.setting},
    }
    for point in lock.point:
        for table, names in tables.items():
            wanted = getattr(point, table)
            if wanted not in names:
                raise (
                    InputError(f"got `{wanted}`, expected the name of a [[{table}]]")
                    .within(table)
                    .within(f"point.{point.name}")
                    .within(name)
                )


def lock_digest(data: bytes) -> str:
    """The digest of a lock's bytes: names the folder of its runs."""
    return blake3_of(data)
