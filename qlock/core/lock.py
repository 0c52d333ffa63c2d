"""The lock: one spec made exact for one environment. No defaults, and nothing that is not pinned.

Lives here: the structs of ``locks/NAME@DEVICE.toml``, the version gate, both digests, and the check that every pin
is there or is listed in ``[[missing]]``. Does not live here: finding the pins (``flows.resolve``) and holding them
against a machine (``core.verify``).

The text of a lock is canonical: reading and writing again must give the same bytes, and ``body_digest`` covers every
other byte of the file. So any edit by hand is seen, also of a comment.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, Protocol, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core import facts
from qlock.core.base import Base, Count, Day, Finite, Name, Positive, refuse_no_day
from qlock.core.canon import check_version, decode_text, read_toml_table, to_whole_struct, toml_text
from qlock.core.digest import Digest, blake3_of
from qlock.core.effects import keyed
from qlock.core.escape import for_message, for_shell, visible
from qlock.core.recipe import RecipeRow
from qlock.core.rules import GateSpec, suite_of
from qlock.core.spec import AnchorSpec, CompareSpec, PromptSpec, Repeats, SamplingSpec
from qlock.errors import InputError

LOCK_VERSION = 1

_NOTE = msgspec.Meta(extra={"effect": "note"})
_BODY_LINE = re.compile(r'^body_digest = "[^"\n]*"$', re.MULTILINE)
_BLANK = 'body_digest = ""'
_FIRST_LINE = "# Written by qlock. Do not edit; renew with: qlock resolve "


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
    trained_context_tokens: Count | UnsetType = UNSET
    """Unset where the file does not say."""
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
    revision: Annotated[str, _NOTE]
    """The commit of a hub source; empty for the others."""
    size_bytes: Count
    sha256: Digest
    blake3: Digest


class SuitePin(Base, frozen=True, kw_only=True):
    """One exam, with every parameter."""

    name: Annotated[Name, _NOTE]
    kind: Name
    ask_version: Positive
    grade_version: Positive
    repeats: Repeats
    items_limit: Annotated[Positive, _NOTE] | UnsetType = UNSET
    """At most so many items of each point: the ``limit``, or as many as there are. What a point was asked is pinned
    with its prompts."""
    items_all: Annotated[bool, _NOTE]
    """Whether the files hold no more than that, as no ``limit`` was reached."""
    points: Annotated[tuple[str, ...], _NOTE]
    reference: Annotated[str, _NOTE]
    """The point that every other is held against; empty where the kind of suite needs none."""
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


class MissingPin(Base, frozen=True, kw_only=True):
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
    frozen_date: Day
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
    missing: tuple[MissingPin, ...]

    def __post_init__(self) -> None:
        """The day is one of the calendar."""
        refuse_no_day(self.frozen_date, key="frozen_date")


def write_lock(lock: Lock, *, spec_path: str) -> bytes:
    """The canonical bytes of a lock, with both digests worked out.

    Args:
        lock: Everything but ``body_digest``, which is worked out here.
        spec_path: How to renew it, relative to where the lock belongs: ``specs/NAME.toml``.
    """
    blank = _text(msgspec.structs.replace(lock, body_digest=""), spec_path)
    return _BODY_LINE.sub(f'body_digest = "{blake3_of(blank.encode())}"', blank, count=1).encode()


def _text(lock: Lock, spec_path: str) -> str:
    return f"{_FIRST_LINE}{visible(spec_path)}\n{toml_text(lock)}"


def read_lock(data: bytes, *, name: str) -> Lock:
    """A lock out of the bytes of its file.

    Raises:
        InputError: Unreadable, of a newer version, edited by hand, or with a pin neither there nor listed missing.
    """
    text = decode_text(data, name=name)
    table = read_toml_table(data, name=name)
    if "spec_version" in table and "lock_version" not in table:
        raise InputError(
            "this is a spec, expected a lock", hint="give the lock that `qlock resolve` makes of it"
        ).in_document(name)
    check_version("lock_version", table, LOCK_VERSION, name=name)
    if "\r\n" in text:
        raise InputError(
            "got line ends CRLF, expected LF",
            hint="let git leave them as they are: `*.toml -text` in .gitattributes",
        ).in_document(name)
    try:
        lock = to_whole_struct(table, Lock, name=name)
        if not is_sealed(text):
            raise InputError("the lock was edited by hand: its body_digest does not fit").in_document(name)
        if write_lock(lock, spec_path=renew_path(text)).decode() != text:
            raise InputError("the lock is not in canonical form").in_document(name)
        _check_pins(lock, name)
        _check_references(lock, name)
    except InputError as error:
        error.hint = _remedy(text)
        raise
    return lock


def is_sealed(text: str) -> bool:
    """Whether the digest in a lock's text fits the rest of it: then qlock wrote it so, this one or another."""
    blank = _BODY_LINE.sub(_BLANK, text, count=1)
    return f'body_digest = "{blake3_of(blank.encode())}"' in text.split("\n")


def _remedy(text: str) -> str:
    """What to do about a lock of this text that cannot be read: one thing where somebody edited it, else another."""
    anew = f"`qlock resolve --upgrade all {for_shell(renew_path(text))}`"
    if is_sealed(text):
        return f"another qlock wrote it: make it anew with {anew}, which may move every pin"
    return f"restore it from git; {anew} makes it anew, and may move every pin"


def renew_path(text: str) -> str:
    """How to renew a lock, as its first line says: ``specs/NAME.toml``; ``SPEC`` where it says nothing."""
    first = text.split("\n", 1)[0]
    return first.removeprefix(_FIRST_LINE) if first.startswith(_FIRST_LINE) else "SPEC"


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_Entry = TypeVar("_Entry", bound=_Named)


def named(table: Iterable[_Entry], name: str) -> _Entry:
    """The entry of this name. There is one: a lock whose names lead nowhere is refused when it is read.

    Raises:
        KeyError: There is none after all, which is a bug.
    """
    for entry in table:
        if entry.name == name:
            return entry
    raise KeyError(name)


def unset_pins(lock: Lock) -> tuple[str, ...]:
    """Paths of the pins that are not there: ``point.Q4@f16kv.canary``."""
    return tuple(_unset(lock, ""))


def _unset(value: Base, path: str) -> Iterator[str]:
    for field in value.__struct_fields__:
        inner = getattr(value, field)
        here = f"{path}.{field}" if path else field
        match inner:
            case UnsetType() if here != "compare":
                yield here
            case Base():
                yield from _unset(inner, here)
            case (Base(), *_) if field != "anchor":
                for key, entry in keyed(inner).items():
                    yield from _unset(entry, f"{here}.{key}")
            case _:
                pass


def _check_pins(lock: Lock, name: str) -> None:
    listed = {entry.pin for entry in lock.missing}
    absent = set(unset_pins(lock))
    for pin in sorted(absent - listed):
        raise InputError(f"the pin `{for_message(pin)}` is neither there nor listed as missing").in_document(
            name
        )
    for pin in sorted(listed - absent):
        raise InputError(f"the pin `{for_message(pin)}` is listed as missing but is there").in_document(name)


def _check_references(lock: Lock, name: str) -> None:
    """Every name that is used stands in its table, once."""
    names = {
        "engine": Counter(entry.name for entry in lock.engine),
        "device": Counter(entry.name for entry in lock.device),
        "model": Counter(entry.name for entry in lock.model),
        "setting": Counter(entry.name for entry in lock.setting),
        "suite": Counter(entry.name for entry in lock.suite),
        "point": Counter(entry.name for entry in lock.point),
    }
    for table, found in names.items():
        for twice in sorted(one for one, count in found.items() if count > 1):
            raise InputError(
                f"got two [[{table}]] of the name `{for_message(twice)}`, expected one"
            ).in_document(name)
    used = [
        (f"point.{point.name}.{table}", table, getattr(point, table))
        for point in lock.point
        for table in ("engine", "device", "model", "setting")
    ]
    used += [
        (f"point.{point.name}.prompts", "suite", prompts.suite)
        for point in lock.point
        for prompts in point.prompts or ()
    ]
    used += [(f"suite.{suite.name}.points", "point", point) for suite in lock.suite for point in suite.points]
    used += [
        (f"suite.{suite.name}.reference", "point", suite.reference) for suite in lock.suite if suite.reference
    ]
    used += [(f"anchor.{index}.model", "model", anchor.model) for index, anchor in enumerate(lock.anchor)]
    used += [(f"anchor.{index}.suite", "suite", anchor.suite) for index, anchor in enumerate(lock.anchor)]
    used += [
        (f"gate.{index}.suite", "suite", suite)
        for index, gate in enumerate(lock.gate)
        if (suite := suite_of(gate))
    ]
    if lock.compare is not UNSET:
        used.append(("compare.reference", "point", lock.compare.reference))
    for where, table, wanted in used:
        if wanted not in names[table]:
            shown = for_message(wanted)
            raise (
                InputError(f"got `{shown}`, expected the name of a [[{table}]]")
                .within(where)
                .in_document(name)
            )


def lock_digest(data: bytes) -> str:
    """The digest of a lock's bytes: names the folder of its runs."""
    return blake3_of(data)
