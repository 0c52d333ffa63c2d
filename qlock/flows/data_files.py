"""The data file of a suite, wherever it lies: here, on the Hub, or behind an address. What lies elsewhere is fetched.

Does not live here: models, which are pinned without being fetched (``flows.origins``).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from qlock.core.escape import for_message
from qlock.core.lock import SuiteFile
from qlock.core.source import (
    FileSource,
    HubSource,
    UrlSource,
    WheelSource,
    at_revision,
    file_name,
    parse_source,
)
from qlock.errors import AbsentError
from qlock.flows.places import locate, snapshot_of
from qlock.world.interface import World


class Located(msgspec.Struct, frozen=True, kw_only=True):
    """A data file that is here."""

    path: Path
    name: str
    """As a lock has it: the file's name, or its path in the repository."""
    requested: str
    revision: str
    """The commit of a hub source; empty for the others."""
    was_here: bool
    """Whether nothing had to be fetched."""


def located(world: World, source: str, *, base: Path, pinned: SuiteFile | None = None) -> Located:
    """The file that a source names, fetched where it is not here.

    Args:
        world: The effects.
        source: As written in the spec.
        base: The folder of the project.
        pinned: What a lock has of it; the commit of the same source is kept.

    Raises:
        InputError: The source is in no known form, or what was fetched is not what is named.
        AbsentError: It is not there.
    """
    parsed = parse_source(source)
    match parsed:
        case FileSource() | WheelSource():
            path = locate(world, source, base=base)
            return Located(path=path, name=file_name(parsed), requested=source, revision="", was_here=True)
        case HubSource():
            return _of_hub(world, parsed, requested=at_revision(source, "main"), pinned=pinned)
        case UrlSource(url=url, sha256=sha256):
            here = world.remote.cached(url, sha256)
            path = here or world.remote.fetch(url, sha256=sha256)
            return Located(
                path=path,
                name=file_name(parsed),
                requested=source,
                revision="",
                was_here=here is not None,
            )


def _of_hub(world: World, source: HubSource, *, requested: str, pinned: SuiteFile | None) -> Located:
    if pinned is not None and pinned.requested == requested:
        commit = pinned.revision
    else:
        commit = world.hub.commit_of(
            source.repository, source.revision or "main", kind=source.repository_kind
        )
    here = world.hub.cached(snapshot_of(source, commit), source.path)
    return Located(
        path=here or _fetched(world, source, commit=commit),
        name=source.path,
        requested=requested,
        revision=commit,
        was_here=here is not None,
    )


def _fetched(world: World, source: HubSource, *, commit: str) -> Path:
    listing = world.hub.listing(source.repository, commit, kind=source.repository_kind, paths=[source.path])
    if not listing.files:
        raise AbsentError(f"`{source.repository}` has no file `{for_message(source.path)}` at `{commit}`")
    return world.hub.fetch(listing.snapshot, listing.files[0])
