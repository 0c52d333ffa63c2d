"""Where files lie now: by their source when a lock is made, by name and digest when one is obeyed.

Where things are is not in the lock, so a lock moved to another folder or node works unchanged. Looked through, in this
order: the caches of the Hub and of plain addresses, the project, the folders of ``--models`` and ``QLOCK_MODELS`` and
below them, installed packages.

Does not live here: digests (``world.digests``) and what a wrong one means (``core.verify``).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from qlock.core.escape import for_message
from qlock.core.gguf import shard_names
from qlock.core.source import FileSource, HubSource, UrlSource, WheelSource, parse_source
from qlock.core.words import listed
from qlock.errors import AbsentError, InputError
from qlock.world.interface import Snapshot, World

_MOST_FOLDERS = 20_000


def locate(world: World, source: str, *, base: Path) -> Path:
    """The file of this machine that a source names, when a lock is made.

    Args:
        world: The effects.
        source: As written in the spec.
        base: The folder of the project.

    Raises:
        InputError: The source is in no known form, or lies elsewhere (``flows.origins``).
        AbsentError: It is not there.
    """
    match parse_source(source):
        case FileSource(path=path):
            found = base / path
            if not os.path.lexists(found):
                raise AbsentError(f"no file at `{for_message(path)}`", hint=_way_out(base))
            return found
        case WheelSource(package=package, member=member):
            return world.wheels.member(f"{package}/{member}")
        case HubSource() | UrlSource():
            raise InputError(f"got `{for_message(source)}`, expected a file: or wheel: source")


def check_there(sources: Mapping[str, str], *, base: Path) -> None:
    """Stop where several files of a project are not there, and name all of them; one alone is left to ``locate``.

    Args:
        sources: What a spec names, by where in the spec: ``model.A``.
        base: The folder of the project.

    Raises:
        AbsentError: Naming them.
    """
    absent = []
    for where, written in sources.items():
        with contextlib.suppress(InputError):  # told by whoever reads that source
            match parse_source(written):
                case FileSource(path=path) if not os.path.lexists(base / path):
                    absent.append(f"`{path}` ({where})")
                case _:
                    pass
    if len(absent) > 1:
        raise AbsentError(f"{len(absent)} files are not there: {listed(absent)}", hint=_way_out(base))


def _way_out(base: Path) -> str:
    place = for_message(str(base))
    return f"files are looked up from the project folder `{place}`: put them there, or correct the spec"


def own_place(path: Path) -> Path:
    """Where a spec, a lock or a run lies in its project, which is what lies around it.

    That is the path itself where the folders above are called as a project's, so that each of them may be a link to
    another disk; any other path is followed to where its links lead.
    """
    plain = Path(os.path.normpath(path))
    if plain.parent.name in {"specs", "locks"} or plain.parent.parent.name == "runs":
        return plain
    return Path(os.path.realpath(path))


def cached(world: World, requested: str, revision: str, name: str) -> Path | None:
    """Where a locked file of the Hub or of a plain address lies in its cache; ``None`` when it does not.

    Makes no request.

    Args:
        world: The effects.
        requested: The source, as in a lock.
        revision: The commit of a hub source.
        name: Path of the file in its repository.

    Raises:
        InputError: The commit is none, or the path leads out of the repository.
    """
    match parse_source(requested):
        case HubSource() as source if revision:
            return world.hub.cached(snapshot_of(source, revision), name)
        case UrlSource(url=url, sha256=sha256):
            return world.remote.cached(url, sha256)
        case _:
            return None


def snapshot_of(source: HubSource, commit: str) -> Snapshot:
    """The repository of a source at a commit."""
    return Snapshot(repository=source.repository, commit=commit, kind=source.repository_kind)


def shards(path: Path) -> tuple[Path, ...]:
    """The file itself, or all shards of the split model that it is a part of, in order.

    NOTE: symbolic links are kept as they are: resolved, the shards of a Hub cache would lose their names.

    Raises:
        AbsentError: Some of the shards are not there; all of them are named.
    """
    paths = tuple(path.with_name(name) for name in shard_names(path.name))
    absent = [one.name for one in paths if not os.path.lexists(one)]
    if 0 < len(absent) < len(paths):
        raise AbsentError(
            f"`{for_message(path.name)}` lacks {len(absent)} of {len(paths)} shards: {listed(absent, in_backticks=True)}",
            hint="put them beside it",
        )
    return paths


class Places:
    """Finds locked files by name.

    Args:
        world: The effects.
        base: The folder of the lock's project.
        folders: ``--models``, first come first looked at; ``QLOCK_MODELS`` is added to them.
    """

    def __init__(self, world: World, *, base: Path, folders: tuple[Path, ...] = ()) -> None:
        self._world = world
        self._base = base
        variable = world.environment.get("QLOCK_MODELS", "")
        self._folders = (*folders, *(Path(part) for part in variable.split(os.pathsep) if part))
        self._below: dict[str, list[Path]] | None = None

    def candidates(self, name: str, requested: str, revision: str = "") -> Iterator[Path]:
        """Every place where a file of this name lies, best first; the caller takes the one of the right digest.

        Raises:
            InputError: As ``cached``.
        """
        seen: set[Path] = set()
        path = cached(self._world, requested, revision, name)
        if path is not None:
            seen.add(path)
            yield path
        name = name.rpartition("/")[2]
        if name in ("", ".", "..") or "\0" in name:
            return
        for path in self._all(name, requested):
            if path not in seen and path.exists():
                seen.add(path)
                yield path

    def _all(self, name: str, requested: str) -> Iterator[Path]:
        match parse_source(requested):
            case FileSource(path=path):
                yield (self._base / path).with_name(name)
            case WheelSource(package=package, member=member):
                with contextlib.suppress(AbsentError):
                    yield self._world.wheels.member(f"{package}/{member}").with_name(name)
            case HubSource() | UrlSource():
                pass
        for folder in self._folders:
            yield folder / name
        yield self._base / name
        yield from self._index().get(name, ())

    def _index(self) -> dict[str, list[Path]]:
        if self._below is None:
            self._below = {}
            walked = 0
            for top in self._folders:
                for folder, inner, names in os.walk(top):
                    inner.sort()
                    walked += 1
                    if walked > _MOST_FOLDERS:
                        raise AbsentError(
                            f"more than {_MOST_FOLDERS} folders below `{top}`", hint="name a smaller folder"
                        )
                    for name in sorted(names):
                        self._below.setdefault(name, []).append(Path(folder) / name)
        return self._below
