"""What became upstream of files that are pinned: whether a branch has moved, which commit changed a file, and what in it.

Nothing here moves a pin; it only says. Does not live here: pinning (``flows.origins``).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import Base
from qlock.core.escape import for_message
from qlock.core.facts import ModelFile
from qlock.core.gguf import Header
from qlock.core.lock import Lock, ModelPin, SuiteFile
from qlock.core.recipe import RecipeDifference, recipe_difference
from qlock.core.source import HubSource, parse_source
from qlock.core.spec import ModelSpec
from qlock.core.words import listed
from qlock.errors import AbsentError, InputError, QlockError
from qlock.flows.headers import at_once, header_at, headers_at
from qlock.flows.moving import model_why
from qlock.flows.places import snapshot_of
from qlock.flows.weighing import Origin, is_header_of, outline
from qlock.world.hub.account import is_offline
from qlock.world.interface import HubChange, HubFile, Missing, RepositoryKind, World

MOST_TOLD = 3
"""Models whose change is looked at; each costs a few requests and a header."""


class _Held(Base, frozen=True, kw_only=True):
    """A model or suite that is kept at a commit."""

    name: str
    commit: str
    files: tuple[ModelFile | SuiteFile, ...]
    model: ModelPin | UnsetType = UNSET


class _Branch(Base, frozen=True, kw_only=True):
    """What is followed in a repository."""

    kind: RepositoryKind
    repository: str
    revision: str

    @property
    def source(self) -> HubSource:
        """As a source, whatever the file."""
        return HubSource(
            repository=self.repository, path="-", revision=self.revision, repository_kind=self.kind
        )


def upstream_notes(world: World, old: Lock, new: Lock) -> tuple[str, ...]:
    """A line for each branch that names another commit than is pinned and kept, and what has changed there.

    One request for each repository; more only where one has moved.
    """
    held = _held(old, new)
    if not held or is_offline(world.environment):
        return ()
    notes: list[str] = []
    silent: dict[str, list[str]] = {}
    heads = at_once(lambda branch: _head(world, branch), tuple(held))
    for branch, head in zip(held, heads, strict=True):
        match head:
            case Missing(why=why):
                silent.setdefault(why, []).append(branch.repository)
            case str():
                notes += _moved(world, branch, held[branch], head)
    for why, names in silent.items():
        notes.append(f"not asked whether {listed(names, in_backticks=True)} moved, all pins are kept: {why}")
    return tuple(notes)


class Upstream:
    """Says of files that are not as locked what became of them on the Hub; of the first few only.

    Args:
        world: The effects; without network nothing is said.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._left = 0 if is_offline(world.environment) else MOST_TOLD

    def why_absent(self, model: ModelPin, file: ModelFile | SuiteFile) -> str:
        """Whether a file that is not here can still be fetched; empty where it can, or nobody knows."""
        match self._source(model):
            case HubSource() as source:
                try:
                    self._world.hub.listing(
                        source.repository, model.revision, kind=source.repository_kind, paths=[file.name]
                    )
                except QlockError as error:
                    return error.message
            case None:
                pass
        return ""

    def why_changed(self, model: ModelPin, file: ModelFile | SuiteFile) -> str:
        """Which commit upstream changed a file, and what in it; empty where nobody knows."""
        match self._source(model):
            case HubSource() as source:
                return change_of(self._world, model, source, file)
            case None:
                return ""

    def _source(self, model: ModelPin) -> HubSource | None:
        source = parse_source(model.requested)
        match source:
            case HubSource() if self._left > 0:
                self._left -= 1
                return source
            case _:
                return None


def change_of(world: World, model: ModelPin, source: HubSource, file: ModelFile | SuiteFile) -> str:
    """``upstream commit … changed it: template differs; …``, or why there is nothing to say."""
    try:
        change = world.hub.changed_since(
            snapshot_of(source, model.revision), file.name, revision=source.revision
        )
    except (AbsentError, InputError) as error:
        return f"upstream: {error.message}"
    match change:
        case Missing(why=why):
            return f"upstream: {why}"
        case HubChange():
            what = _difference(world, model, source, change)
            title = for_message(change.title)
            return f"upstream commit `{change.commit[:7]}` of {change.date} (`{title}`) changed it: {what}"


def _difference(world: World, model: ModelPin, source: HubSource, change: HubChange) -> str:
    """What a change made of a model, told from the new headers."""
    try:
        listing = world.hub.listing(
            source.repository,
            change.commit,
            kind=source.repository_kind,
            paths=[file.name for file in model.file],
        )
        if len(listing.files) != len(model.file):
            return "its shards are no longer the same files"
        headers = headers_at(world.hub, [(listing.snapshot, file) for file in listing.files])
        files = tuple(
            msgspec.structs.replace(pinned, size_bytes=file.size_bytes, blake3=UNSET)
            for pinned, file in zip(model.file, listing.files, strict=True)
        )
        spec = ModelSpec(name=model.name, source=model.requested, trained=model.trained)
        after = outline(spec, headers, files, origin=Origin(requested=model.requested)).pin
    except QlockError as error:
        return f"its header cannot be compared: {error.message}"
    return model_why(model, after, _recipes(world, model, source, headers))


def _recipes(
    world: World, model: ModelPin, source: HubSource, now: tuple[Header, ...]
) -> RecipeDifference | None:
    """The recipe that was pinned against the one of now, tensor by tensor; ``None`` where the old header is gone."""
    snapshot = snapshot_of(source, model.revision)
    try:
        before = at_once(lambda file: header_at(world.hub, snapshot, file.name, file.size_bytes), model.file)
    except QlockError:
        return None
    if not is_header_of(before[0], model):
        return None
    tensors = [[tensor for header in headers for tensor in header.tensors] for headers in (before, now)]
    return recipe_difference(*tensors)


def _held(old: Lock, new: Lock) -> dict[_Branch, list[_Held]]:
    """What the new lock has from the Hub at the commit of the old one, by the branch that is followed."""
    before = {(pin.requested, pin.revision) for pin in old.model}
    before |= {(file.requested, file.revision) for suite in old.suite for file in suite.file}
    found: dict[_Branch, list[_Held]] = {}
    for requested, held in _pins(new):
        source = parse_source(requested)
        match source:
            case HubSource(revision=revision) if (
                revision != held.commit and (requested, held.commit) in before
            ):
                branch = _Branch(kind=source.repository_kind, repository=source.repository, revision=revision)
                found.setdefault(branch, []).append(held)
            case _:
                pass
    return found


def _pins(lock: Lock) -> Iterator[tuple[str, _Held]]:
    for pin in lock.model:
        yield pin.requested, _Held(name=pin.name, commit=pin.revision, files=pin.file, model=pin)
    for suite in lock.suite:
        for file in suite.file:
            yield file.requested, _Held(name=suite.name, commit=file.revision, files=(file,))


def _head(world: World, branch: _Branch) -> str | Missing:
    try:
        return world.hub.commit_of(branch.repository, branch.revision, kind=branch.kind)
    except (AbsentError, InputError) as error:
        return Missing(why=error.message)


def _moved(world: World, branch: _Branch, held: list[_Held], head: str) -> Iterator[str]:
    behind = [one for one in held if one.commit != head]
    if not behind:
        return
    commits = sorted({one.commit[:7] for one in behind})
    moved = (
        f"`{for_message(branch.revision)}` of `{branch.repository}` has moved "
        f"from {listed(commits, in_backticks=True)} to `{head[:7]}`"
    )
    names = [file.name for one in behind for file in one.files]
    try:
        listing = world.hub.listing(branch.repository, head, kind=branch.kind, paths=names)
    except (AbsentError, InputError) as error:
        yield f"{moved}: {error.message}; what is pinned stays"
        return
    now = {file.path: file for file in listing.files}
    changed = [one for one in behind if not all(_is_same(file, now) for file in one.files)]
    if not changed:
        yield f"{moved}: nothing that is pinned has changed there"
    else:
        upgrade = changed[0].name if len(changed) == 1 else "NAME"
        yield (
            f"{moved}: {listed((one.name for one in changed), in_backticks=True)} changed there; "
            f"what is pinned stays, `--upgrade {upgrade}` lets it move"
        )
    yield from _vanished(world, branch, behind[0])
    for one in changed[:MOST_TOLD]:
        if one.model is not UNSET:
            yield f"model {one.name}: {change_of(world, one.model, branch.source, one.files[0])}"


def _vanished(world: World, branch: _Branch, held: _Held) -> Iterator[str]:
    try:
        world.hub.listing(branch.repository, held.commit, kind=branch.kind, paths=[held.files[0].name])
    except (AbsentError, InputError) as error:
        yield f"{error.message}; files that are here and as locked can still be run"


def _is_same(file: ModelFile | SuiteFile, now: dict[str, HubFile]) -> bool:
    """Whether a pinned file is the same upstream; where the Hub publishes no digest, its size has to do."""
    found = now.get(file.name)
    if found is None or found.size_bytes != file.size_bytes:
        return False
    return found.sha256 in (UNSET, file.sha256)
