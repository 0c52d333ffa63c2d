"""Every model of a spec, weighed: from files that are here, or from what the Hub and single ranges of a file tell.

A pin of an older lock is kept as it is, and costs no request; only ``--upgrade`` asks again what a branch names.

Does not live here: whether a branch has moved since (``flows.upstream``), and downloading (``flows.fetch``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from qlock.core.base import Base
from qlock.core.escape import for_message
from qlock.core.facts import ModelFile
from qlock.core.gguf import Header, describe, shard_names
from qlock.core.lock import Lock, ModelPin
from qlock.core.quants import choose
from qlock.core.source import (
    FileSource,
    HubSource,
    UrlSource,
    WheelSource,
    at_revision,
    file_name,
    parse_source,
)
from qlock.core.spec import ModelSpec
from qlock.core.units import bytes_text, count_text
from qlock.errors import InputError, QlockError
from qlock.flows.headers import at_once, header_at, header_behind, headers_at
from qlock.flows.places import Places, cached, locate, shards, snapshot_of
from qlock.flows.vocabularies import Vocabularies
from qlock.flows.weighing import Origin, Weighed, filled, is_header_of, outline, weigh
from qlock.world.interface import HubFile, HubListing, Snapshot, World


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when models are asked for."""

    base: Path
    """The folder of the project."""
    old: Lock | None
    """The lock whose pins are kept."""
    vocabularies: Vocabularies
    """Takes the vocabularies of headers that are read elsewhere."""
    moving: frozenset[str] = frozenset()
    """Names of models whose pins may move."""
    folders: tuple[Path, ...] = ()
    """Where files of the Hub may lie besides its cache."""
    rehash: bool = False
    tell: Callable[[str], None] = lambda _: None
    """Told of each model before its bytes are read."""


class _Wish(Base, frozen=True, kw_only=True):
    """A model that lies elsewhere and that no lock pins yet."""

    model: ModelSpec
    source: HubSource | UrlSource
    requested: str

    @property
    def repository(self) -> tuple[str, str, str]:
        """What has to be listed: kind, name and revision; of an address, nothing."""
        match self.source:
            case HubSource(repository_kind=kind, repository=name):
                source = parse_source(self.requested)
                assert isinstance(source, HubSource)
                return kind, name, source.revision
            case UrlSource():
                return "", "", ""


def gather(world: World, models: tuple[ModelSpec, ...], order: Order) -> tuple[Weighed, ...]:
    """The models in their order.

    Raises:
        InputError: A model is damaged, none, or has other bytes than pinned.
        AbsentError: A file, a repository or the network is not there.
    """
    found: dict[str, Weighed] = {}
    wishes: list[_Wish] = []
    for model in models:
        match parse_source(model.source):
            case FileSource() | WheelSource():
                found[model.name] = _here(world, model, order)
            case HubSource() | UrlSource() as source:
                requested = _requested(model)
                pinned = None if model.name in order.moving else _kept(order.old, model, requested)
                if pinned is not None:
                    found[model.name] = pinned
                else:
                    wishes.append(_Wish(model=model, source=source, requested=requested))
    if wishes:
        order.tell(
            f"reading the {'header' if len(wishes) == 1 else 'headers'} of {count_text(len(wishes), 'model')}"
        )
    listings = _listings(world, wishes)
    asked = at_once(lambda wish: _asked(world, wish, listings, order.vocabularies), wishes)
    found |= {weighed.pin.name: weighed for weighed in asked}
    return tuple(_with_weights(world, found[model.name], order) for model in models)


def _here(world: World, model: ModelSpec, order: Order) -> Weighed:
    try:
        paths = shards(locate(world, model.source, base=order.base))
    except QlockError as error:
        raise error.within(f"model.{model.name}") from None
    order.tell(_reading(model.name, paths))
    return weigh(world, model, paths, rehash=order.rehash)


def _reading(name: str, paths: tuple[Path, ...]) -> str:
    size = bytes_text(sum(path.stat().st_size for path in paths if path.is_file()))
    return f"model {name}: reading {count_text(len(paths), 'file')} ({size})"


def file_here(world: World, pin: ModelPin, file: ModelFile, places: Places, *, rehash: bool) -> Path | None:
    """Where the pinned bytes of a file lie; ``None`` where they do not. Makes no request.

    A cached file of other bytes is given where nothing better is found, so that whoever uses it says what is wrong.
    """
    for candidate in places.candidates(file.name, pin.requested, pin.revision):
        try:
            if world.files.read_prefix(candidate, 1, "model").size_bytes != file.size_bytes:
                continue
            cache = world.cache_folder
            if file.blake3 is msgspec.UNSET:
                same = world.digests.digest_file(candidate, cache=cache, rehash=rehash).sha256 == file.sha256
            else:
                same = world.digests.blake3_file(candidate, cache=cache, rehash=rehash).blake3 == file.blake3
        except QlockError:
            continue
        if same:
            return candidate
    return cached(world, pin.requested, pin.revision, file.name)


def _requested(model: ModelSpec) -> str:
    try:
        return at_revision(model.source, model.revision)
    except InputError as error:
        raise error.within(f"model.{model.name}") from None


def _kept(old: Lock | None, model: ModelSpec, requested: str) -> Weighed | None:
    """What a lock pins of the same source, under whatever name; without its weights so far."""
    if old is None:
        return None
    same = [pin for pin in old.model if pin.requested == requested]
    for pin in sorted(same, key=lambda pin: pin.name != model.name):
        before, after = f"model.{pin.name}.", f"model.{model.name}."
        missing = tuple(
            msgspec.structs.replace(entry, pin=after + entry.pin.removeprefix(before))
            for entry in old.missing
            if entry.pin.startswith(before)
        )
        renamed = msgspec.structs.replace(pin, name=model.name, trained=model.trained)
        return Weighed(pin=renamed, template=msgspec.UNSET, paths=(), missing=missing)
    return None


def _with_weights(world: World, found: Weighed, order: Order) -> Weighed:
    if found.is_here:
        return found
    pin = found.pin
    places = Places(world, base=order.base, folders=order.folders)
    paths = [file_here(world, pin, file, places, rehash=order.rehash) for file in pin.file]
    here = tuple(path for path in paths if path is not None)
    if len(here) < len(pin.file):
        return found
    order.tell(_reading(pin.name, here))
    return filled(world, found, here, rehash=False)


def _listings(world: World, wishes: list[_Wish]) -> Mapping[tuple[str, str, str], HubListing]:
    """What every repository that is asked for holds, each listed once."""
    wanted = {wish.repository: wish for wish in wishes if wish.repository[0]}

    def listing(wish: _Wish) -> HubListing:
        kind, name, revision = wish.repository
        try:
            return world.hub.listing(name, revision, kind="dataset" if kind == "dataset" else "model")
        except QlockError as error:
            raise error.within(f"model.{wish.model.name}") from None

    return dict(zip(wanted, at_once(listing, tuple(wanted.values())), strict=True))


def with_header(world: World, found: Weighed, vocabularies: Vocabularies) -> Weighed:
    """The same model, kept from an older lock, with what its header tells of prompts; the header is read again.

    Raises:
        InputError: It is another header than the one that was pinned.
        AbsentError: It cannot be read.
    """
    pin = found.pin
    first = pin.file[0]
    match parse_source(pin.requested):
        case HubSource() as source:
            header = header_at(world.hub, snapshot_of(source, pin.revision), first.name, first.size_bytes)
        case UrlSource(url=url):
            header = header_behind(world.remote, url, first.size_bytes, name=first.name)
        case FileSource() | WheelSource():
            raise AssertionError(pin.requested)
    if not is_header_of(header, pin):
        raise InputError(f"`{for_message(first.name)}` has another header there now than is pinned")
    return msgspec.structs.replace(
        found, template=describe(header).template, vocabulary=vocabularies.keep(header)
    )


def _asked(
    world: World,
    wish: _Wish,
    listings: Mapping[tuple[str, str, str], HubListing],
    vocabularies: Vocabularies,
) -> Weighed:
    try:
        match wish.source:
            case HubSource() as source:
                listing = listings[wish.repository]
                files = _chosen(source, listing)
                headers = headers_at(world.hub, [(listing.snapshot, file) for file in files])
                pins = tuple(_hub_file(world, listing.snapshot, file) for file in files)
                commit = listing.snapshot.commit
            case UrlSource() as source:
                pins, headers = _address(world, source)
                commit = ""
    except QlockError as error:
        raise error.within(f"model.{wish.model.name}") from None
    found = outline(wish.model, headers, pins, origin=Origin(requested=wish.requested, revision=commit))
    return msgspec.structs.replace(found, vocabulary=vocabularies.keep(headers[0]))


def _chosen(source: HubSource, listing: HubListing) -> tuple[HubFile, ...]:
    by_path = {file.path: file for file in listing.files}
    chosen = choose(tuple(by_path), source.path, repository=source.repository)
    return tuple(by_path[path] for path in chosen)


def _hub_file(world: World, snapshot: Snapshot, file: HubFile) -> ModelFile:
    """A file as the Hub names it; one that is not in LFS has no digest there, so it is fetched."""
    sha256 = file.sha256
    if sha256 is msgspec.UNSET:
        path = world.hub.fetch(snapshot, file)
        sha256 = world.digests.digest_file(path, cache=world.cache_folder).sha256
    return ModelFile(name=file.path, role="weights", size_bytes=file.size_bytes, sha256=sha256)


def _address(world: World, source: UrlSource) -> tuple[tuple[ModelFile, ...], tuple[Header, ...]]:
    name = file_name(source)
    if len(shard_names(name)) > 1:
        raise InputError(
            f"`{for_message(name)}` is one shard of several, and an address names one file",
            hint="take the model from the Hub, or merge it into one file",
        )
    size = world.remote.size_bytes(source.url)
    header = header_behind(world.remote, source.url, size, name=name)
    file = ModelFile(name=name, role="weights", size_bytes=size, sha256=source.sha256)
    return (file,), (header,)
