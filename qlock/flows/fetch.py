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
from qlock.core.facts import ModelFile
from qlock.core.lock import Lock, Missing, ModelPin, SuitePin, write_lock
from qlock.core.source import HubSource, UrlSource, parse_source
from qlock.errors import AbsentError, QlockError
from qlock.flows.beside import renew_label
from qlock.flows.data_files import located
from qlock.flows.layout import project_of
from qlock.flows.origins import file_here
from qlock.flows.places import Places, snapshot_of
from qlock.flows.resolve import read_lock_file
from qlock.flows.weighing import Weighed, filled
from qlock.flows.writing import write_file
from qlock.world.interface import World


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks of ``fetch``."""

    lock_path: Path
    models: tuple[Path, ...] = ()
    """Folders where files may lie already."""
    rehash: bool = False


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


class Fetched(Base, frozen=True, kw_only=True):
    """What is here now."""

    file: tuple[FetchedFile, ...]
    pins: tuple[str, ...]
    """Pins that were filled in."""
    missing: tuple[Missing, ...]
    """What the lock still misses."""
    renew: str
    """The spec of the lock, as its first line names it."""


Talk = Callable[[Progress], None]


def fetch(world: World, asked: Asked, talk: Talk) -> Fetched:
    """Bring what a lock names from the Hub and from addresses; ``file:`` and ``wheel:`` sources are left alone.

    Raises:
        InputError: The lock is unreadable or edited, or a file has other bytes than pinned.
        AbsentError: A file, a repository, the network or the space is not there.
    """
    lock, data = read_lock_file(world, asked.lock_path)
    places = Places(world, base=project_of(asked.lock_path), folders=asked.models)
    files: list[FetchedFile] = []
    pins: list[str] = []
    for model in lock.model:
        if _is_elsewhere(model.requested):
            brought, weighed = _model(world, model, lock, _Bench(places, asked.rehash, talk))
            files += brought
            pins += _fill(world, asked.lock_path, model, weighed)
    for suite in lock.suite:
        files += _suite(world, suite, base=project_of(asked.lock_path))
    left, _ = read_lock_file(world, asked.lock_path)
    return Fetched(file=tuple(files), pins=tuple(pins), missing=left.missing, renew=renew_label(data))


class _Bench(msgspec.Struct, frozen=True):
    """What bringing a model's files works with."""

    places: Places
    rehash: bool
    talk: Talk


def _is_elsewhere(requested: str) -> bool:
    match parse_source(requested):
        case HubSource() | UrlSource():
            return True
        case _:
            return False


def _model(world: World, model: ModelPin, lock: Lock, bench: _Bench) -> tuple[list[FetchedFile], Weighed]:
    files: list[FetchedFile] = []
    try:
        for file in model.file:
            here = file_here(world, model, file, bench.places, rehash=bench.rehash)
            path = here or _download(world, model, file, bench.talk)
            files.append(
                FetchedFile(
                    owner=f"model {model.name}",
                    file=file.name,
                    path=str(path),
                    size_bytes=file.size_bytes,
                    is_new=here is None,
                )
            )
    except QlockError as error:
        raise error.within(f"model.{model.name}") from None
    missing = tuple(entry for entry in lock.missing if entry.pin.startswith(f"model.{model.name}."))
    found = Weighed(pin=model, template=UNSET, paths=(), missing=missing)
    return files, filled(world, found, tuple(Path(one.path) for one in files), rehash=False)


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


def _fill(world: World, lock_path: Path, before: ModelPin, weighed: Weighed) -> list[str]:
    """Write a model's new pins into the lock as it is now; gives what was filled in.

    The lock is read again: others may have written it during the download.
    """
    lock, data = read_lock_file(world, lock_path)
    if weighed.pin == before or before not in lock.model:
        return []
    here = f"model.{before.name}."
    gone = [entry.pin for entry in lock.missing if entry.pin.startswith(here) and entry.until == "fetch"]
    filled_in = msgspec.structs.replace(
        lock,
        model=tuple(weighed.pin if pin == before else pin for pin in lock.model),
        missing=tuple(entry for entry in lock.missing if entry.pin not in gone),
    )
    write_file(world, lock_path, write_lock(filled_in, spec_path=renew_label(data)))
    return gone


def _suite(world: World, suite: SuitePin, *, base: Path) -> list[FetchedFile]:
    files = []
    for file in suite.file:
        if _is_elsewhere(file.requested):
            try:
                place = located(world, file.requested, base=base, pinned=file)
            except QlockError as error:
                raise error.within(f"suite.{suite.name}.{file.key}") from None
            files.append(
                FetchedFile(
                    owner=f"suite {suite.name}",
                    file=file.name,
                    path=str(place.path),
                    size_bytes=file.size_bytes,
                    is_new=not place.was_here,
                )
            )
    return files
