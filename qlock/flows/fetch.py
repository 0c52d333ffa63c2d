"""``fetch``: bring the files that a lock names to this machine, and pin what could not be known without them.

Files of the Hub go into huggingface_hub's own cache, others into qlock's; what lies here already in the pinned bytes is
not fetched again. Every file is held against its pin. Of the lock, only blake3 and tensor digests that were missing are
filled in, model by model, so that nothing is lost when it is stopped.

Does not live here: proving the points (``flows.resolve``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import UNSET

from qlock.core.base import Base, Count
from qlock.core.escape import for_message
from qlock.core.facts import ModelFile
from qlock.core.lock import Lock, MissingPin, ModelPin, SuiteFile, SuitePin, renew_path, write_lock
from qlock.core.source import HubSource, UrlSource, parse_source
from qlock.core.words import did_you_mean, listed
from qlock.errors import AbsentError, QlockError, UsageError
from qlock.flows.data_files import located
from qlock.flows.layout import project_of
from qlock.flows.locks import read_lock_file
from qlock.flows.origins import file_here
from qlock.flows.places import Places, cached, snapshot_of
from qlock.flows.weighing import Weighed, filled
from qlock.flows.writing import write_file
from qlock.world.interface import World


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks of ``fetch``."""

    lock_path: Path
    models: tuple[Path, ...] = ()
    """Folders where files may lie already."""
    rehash: bool = False
    only: tuple[str, ...] = ()
    """Names of models; empty for all of them. Data are brought whatever it says."""
    may_download: bool = True
    """Whether to bring what is not here; otherwise it is only told."""


class Progress(Base, frozen=True, kw_only=True):
    """How much of a file is here."""

    file: str
    done_bytes: Count
    size_bytes: Count


class FetchedFile(Base, frozen=True, kw_only=True):
    """A file that is here now, in the pinned bytes."""

    owner: str
    """``model Q4_K_M`` or ``suite orders``."""
    file: str
    path: str
    size_bytes: Count
    is_new: bool
    """Whether it was downloaded just now."""


class AbsentFile(Base, frozen=True, kw_only=True):
    """A file that is not here, and was not to be downloaded."""

    owner: str
    file: str
    size_bytes: Count


class Fetched(Base, frozen=True, kw_only=True):
    """What is here now."""

    file: tuple[FetchedFile, ...]
    absent: tuple[AbsentFile, ...]
    """Empty where downloading was allowed."""
    pins: tuple[str, ...]
    """Pins that were filled in."""
    missing: tuple[MissingPin, ...]
    """What the lock still misses."""
    renew: str
    """The spec of the lock, as its first line names it."""


Talk = Callable[[Progress], None]


def fetch(world: World, asked: Asked, talk: Talk) -> Fetched:
    """Bring what a lock names from the Hub and from addresses; ``file:`` and ``wheel:`` sources are left alone.

    Raises:
        InputError: The lock is unreadable or edited, or a file has other bytes than pinned.
        AbsentError: A file, a repository, the network or the space is not there.
        UsageError: ``only`` names no model.
    """
    lock, data = read_lock_file(world, asked.lock_path)
    _check_names(asked.only, [model.name for model in lock.model])
    base = project_of(asked.lock_path)
    bench = _Bench(world, Places(world, base=base, folders=asked.models), asked, talk)
    files: list[FetchedFile] = []
    absent: list[AbsentFile] = []
    pins: list[str] = []
    for model in lock.model:
        if _is_elsewhere(model.requested) and (not asked.only or model.name in asked.only):
            brought, lacking = _model(bench, model)
            files += brought
            absent += lacking
            if not lacking:
                pins += _fill(bench, model, lock, brought)
    for suite in lock.suite:
        for file in suite.file:
            if _is_elsewhere(file.requested):
                match _data(bench, suite, file, base=base):
                    case FetchedFile() as one:
                        files.append(one)
                    case AbsentFile() as one:
                        absent.append(one)
    left, _ = read_lock_file(world, asked.lock_path)
    return Fetched(
        file=tuple(files),
        absent=tuple(absent),
        pins=tuple(pins),
        missing=left.missing,
        renew=renew_path(data.decode()),
    )


def _check_names(names: tuple[str, ...], known: list[str]) -> None:
    """Refuse a name that no model has.

    Raises:
        UsageError: With the nearest one that there is.
    """
    for name in names:
        if name not in known:
            raise UsageError(
                f"got `--model {for_message(name)}`, expected the name of a model of the lock",
                hint=did_you_mean(name, known) or f"one of {listed(known)}",
            )


class _Bench(msgspec.Struct, frozen=True):
    """What bringing files works with."""

    world: World
    places: Places
    asked: Asked
    talk: Talk


def _is_elsewhere(requested: str) -> bool:
    match parse_source(requested):
        case HubSource() | UrlSource():
            return True
        case _:
            return False


def _model(bench: _Bench, model: ModelPin) -> tuple[list[FetchedFile], list[AbsentFile]]:
    """The files of a model that are here now, and those that are not."""
    owner = f"model {model.name}"
    files: list[FetchedFile] = []
    absent: list[AbsentFile] = []
    try:
        for file in model.file:
            here = file_here(bench.world, model, file, bench.places, rehash=bench.asked.rehash)
            if here is None and not bench.asked.may_download:
                absent.append(AbsentFile(owner=owner, file=file.name, size_bytes=file.size_bytes))
                continue
            path = here or _download(bench.world, model, file, bench.talk)
            files.append(
                FetchedFile(
                    owner=owner,
                    file=file.name,
                    path=str(path),
                    size_bytes=file.size_bytes,
                    is_new=here is None,
                )
            )
    except QlockError as error:
        raise error.within(f"model.{model.name}") from None
    return files, absent


def _download(world: World, model: ModelPin, file: ModelFile, talk: Talk) -> Path:
    def progress(done_bytes: int) -> None:
        talk(Progress(file=file.name, done_bytes=done_bytes, size_bytes=file.size_bytes))

    progress(0)
    match parse_source(model.requested):
        case HubSource() as source:
            listing = world.hub.listing(
                source.repository, model.revision, kind=source.repository_kind, paths=[file.name]
            )
            if not listing.files:
                raise AbsentError(f"`{source.repository}` has no file `{file.name}` at `{model.revision}`")
            return world.hub.fetch(snapshot_of(source, model.revision), listing.files[0], progress=progress)
        case UrlSource(url=url, sha256=sha256):
            return world.remote.fetch(url, sha256=sha256, progress=progress)
        case _:
            raise AssertionError(model.requested)


def _fill(bench: _Bench, before: ModelPin, lock: Lock, files: list[FetchedFile]) -> list[str]:
    """Hold a model's files against its pin, and write what they add into the lock as it is now; gives what was added.

    The lock is read again: others may have written it during the download.
    """
    world, lock_path = bench.world, bench.asked.lock_path
    here = f"model.{before.name}."
    missing = tuple(entry for entry in lock.missing if entry.pin.startswith(here))
    found = Weighed(pin=before, template=UNSET, paths=(), missing=missing)
    pin = filled(world, found, tuple(Path(one.path) for one in files), rehash=False).pin
    lock, data = read_lock_file(world, lock_path)
    if pin == before or before not in lock.model:
        return []
    gone = [entry.pin for entry in lock.missing if entry.pin.startswith(here) and entry.until == "fetch"]
    filled_in = msgspec.structs.replace(
        lock,
        model=tuple(pin if old == before else old for old in lock.model),
        missing=tuple(entry for entry in lock.missing if entry.pin not in gone),
    )
    write_file(world, lock_path, write_lock(filled_in, spec_path=renew_path(data.decode())))
    return gone


def _data(bench: _Bench, suite: SuitePin, file: SuiteFile, *, base: Path) -> FetchedFile | AbsentFile:
    owner = f"suite {suite.name}"
    world = bench.world
    if not bench.asked.may_download and cached(world, file.requested, file.revision, file.name) is None:
        return AbsentFile(owner=owner, file=file.name, size_bytes=file.size_bytes)
    try:
        place = located(world, file.requested, base=base, pinned=file)
    except QlockError as error:
        raise error.within(f"suite.{suite.name}.{file.key}") from None
    return FetchedFile(
        owner=owner,
        file=file.name,
        path=str(place.path),
        size_bytes=file.size_bytes,
        is_new=not place.was_here,
    )
