"""``why``: where the pins of a name came from, as its locks tell.

A lock holds no dates, so since when a pin stands is unknown here; its history in git tells.

Does not live here: asking the Hub what became of it since (``flows.upstream``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import UNSET

from qlock.core.base import Base
from qlock.core.escape import for_message
from qlock.core.facts import Device, Engine, Setting
from qlock.core.lock import Lock, ModelPin, PointPin, SuitePin
from qlock.core.source import FileSource, HubSource, UrlSource, WheelSource, parse_source
from qlock.errors import AbsentError, UsageError
from qlock.flows.locks import read_lock_file
from qlock.world.interface import World

_TABLES = ("engine", "device", "model", "setting", "suite", "point")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks of ``why``."""

    name: str
    locks: tuple[Path, ...]
    """Every lock that is looked into."""


class Row(Base, frozen=True, kw_only=True):
    """One thing that is known."""

    what: str
    told: str


class Reason(Base, frozen=True, kw_only=True):
    """Where one entry of one lock came from."""

    lock: str
    """Name of the lock's file."""
    table: str
    name: str
    row: tuple[Row, ...]


def why(world: World, asked: Asked) -> tuple[Reason, ...]:
    """What every lock says of its entries called so, in the order of the locks.

    Raises:
        AbsentError: There are no locks.
        InputError: A lock is unreadable or edited.
        UsageError: No lock has the name.
    """
    if not asked.locks:
        raise AbsentError(
            "there are no locks here", hint="make one with `qlock resolve`, or name it with --lock"
        )
    found: list[Reason] = []
    names: set[str] = set()
    for path in asked.locks:
        lock, _ = read_lock_file(world, path)
        for table in _TABLES:
            for entry in getattr(lock, table):
                names.add(entry.name)
                if entry.name == asked.name:
                    rows = (*_rows(entry), *_missing(lock, f"{table}.{entry.name}"))
                    found.append(Reason(lock=path.name, table=table, name=entry.name, row=rows))
    if not found:
        raise UsageError(
            f"no lock here has a pin called `{for_message(asked.name)}`",
            hint=f"there are {', '.join(sorted(for_message(name) for name in names))}",
        )
    return tuple(found)


def _rows(entry: Engine | Device | ModelPin | Setting | SuitePin | PointPin) -> Iterator[Row]:
    match entry:
        case ModelPin():
            yield from _came(entry.requested, entry.revision)
            for file in entry.file:
                blake3 = "not known yet" if file.blake3 is UNSET else file.blake3
                yield Row(what="file", told=f"{file.name}, {file.size_bytes} bytes")
                yield Row(what="sha256", told=file.sha256)
                yield Row(what="blake3", told=blake3)
        case SuitePin():
            for data in entry.file:
                yield from _came(data.requested, data.revision)
                yield Row(what="file", told=f"{data.key}: {data.name}, {data.size_bytes} bytes")
                yield Row(what="sha256", told=data.sha256)
        case Engine():
            yield Row(what="seen", told=entry.label or "not looked at yet")
            for mapped in entry.file:
                yield Row(what="file", told=f"{mapped.name} ({mapped.role}) {mapped.blake3}")
        case Device():
            yield Row(what="seen", told=entry.cpu_model)
            for card in entry.gpu:
                yield Row(what="card", told=f"{card.gpu_name}, driver {entry.driver_version}")
        case Setting():
            why_fewer = f": {entry.slots_why}" if entry.slots_why else ""
            yield Row(what="slots", told=f"{entry.slots} of {entry.slots_requested} asked for{why_fewer}")
        case PointPin():
            yield Row(what="made of", told=f"{entry.model}, {entry.setting}, {entry.engine}, {entry.device}")
            said = "not proved yet" if entry.repeatable is UNSET else entry.repeatable
            reason = f": {entry.repeatable_why}" if entry.repeatable_why else ""
            yield Row(what="repeatable", told=f"{said}{reason}")
            for asked in entry.prompts or ():
                date = ", told the date" if asked.uses_date else ""
                yield Row(
                    what="asked",
                    told=f"{asked.suite}, {asked.items} items{date}, tokens {asked.tokens_digest}",
                )


def _came(requested: str, revision: str) -> Iterator[Row]:
    """What was asked for, and what it became."""
    yield Row(what="requested", told=requested)
    match parse_source(requested):
        case HubSource(repository=repository, revision=asked) if asked != revision:
            yield Row(what="became", told=f"`{asked}` of `{repository}` was commit {revision}")
        case HubSource(repository=repository):
            yield Row(what="became", told=f"commit {revision} of `{repository}`, as asked")
        case UrlSource():
            yield Row(what="became", told="the bytes of the digest in the spec")
        case FileSource() | WheelSource():
            yield Row(what="became", told="the bytes that were there")
    yield Row(what="since", told="unknown: a lock holds no dates; `git log` of the lock tells")


def _missing(lock: Lock, place: str) -> Iterator[Row]:
    for entry in lock.missing:
        if entry.pin.startswith(f"{place}."):
            pin = entry.pin.removeprefix(f"{place}.")
            yield Row(what="missing", told=f"{pin} until {entry.until}: {entry.why}")
