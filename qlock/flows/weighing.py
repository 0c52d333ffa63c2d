"""A model file (or all its shards) turned into its pin.

Lives here: digesting bytes and tensors, and putting the pin together. Does not live here: finding the file
(``flows.places``) and reading its header (``flows.headers``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Count
from qlock.core.digest import Digest, digest_of
from qlock.core.escape import for_message
from qlock.core.facts import ModelFile
from qlock.core.gguf import (
    GgufFacts,
    Header,
    check_split,
    describe,
    tensor_spans,
    tensors_digest,
)
from qlock.core.lock import MissingPin, ModelPin
from qlock.core.recipe import unknown_types
from qlock.core.spec import ModelSpec
from qlock.errors import InputError, QlockError
from qlock.flows.headers import header_of
from qlock.world.interface import World

_T = TypeVar("_T")

NOT_HERE = "the weights are not here"


class Weighed(Base, frozen=True, kw_only=True):
    """A model as its files are now, or as they are said to be where they are not here."""

    pin: ModelPin
    template: str | UnsetType
    """The default chat template; unset where there is none, or no header was read."""
    vocab_tokens: Count | UnsetType = UNSET
    """How many tokens the vocabulary has; unset where the header does not say, or none was read."""
    vocabulary: Digest | UnsetType = UNSET
    """Of what ``flows.vocabularies`` keeps; unset where the weights are here, or no header was read."""
    paths: tuple[str, ...]
    """Of its files; empty where they are not here."""
    missing: tuple[MissingPin, ...]

    @property
    def is_here(self) -> bool:
        """Whether the files are at hand."""
        return bool(self.paths)


class Origin(Base, frozen=True, kw_only=True):
    """What a lock says about where a model came from."""

    requested: str
    revision: str = ""
    """The commit of a hub source; empty for the others."""


def weigh(world: World, model: ModelSpec, paths: tuple[Path, ...], *, rehash: bool) -> Weighed:
    """Everything that is pinned of a model whose files are here.

    Raises:
        InputError: A file is damaged, no model, or the shards do not belong together.
    """
    headers = _headers(world, paths, within=f"model.{model.name}")
    files = tuple(_file(world, path, rehash=rehash) for path in paths)
    found = outline(model, headers, files, origin=Origin(requested=model.source))
    pin = msgspec.structs.replace(found.pin, tensors_digest=_tensors(world, paths, headers))
    return msgspec.structs.replace(
        found, pin=pin, paths=tuple(str(path) for path in paths), missing=_without_fetch(found.missing)
    )


def outline(
    model: ModelSpec, headers: tuple[Header, ...], files: tuple[ModelFile, ...], *, origin: Origin
) -> Weighed:
    """What the headers alone tell of a model; what only its weights tell is listed as missing.

    Raises:
        InputError: It is no model, or the shards do not belong together.
    """
    try:
        check_split(tuple((file.name, header) for file, header in zip(files, headers, strict=True)))
        facts = describe(*headers)
    except QlockError as error:
        raise error.within(f"model.{model.name}") from None
    pin = ModelPin(
        name=model.name,
        requested=origin.requested,
        revision=origin.revision,
        trained=model.trained,
        architecture=facts.architecture,
        parameters=facts.parameters,
        bits_per_weight=facts.bits_per_weight,
        expert_count=0 if facts.expert_count is UNSET else facts.expert_count,
        trained_context_tokens=facts.context_length_tokens,
        tensors_digest=UNSET,
        tokenizer_digest=_said(facts.tokenizer_digest, "tokenizer"),
        template_digest=_said(facts.template_digest, "template"),
        metadata_digest=facts.metadata_digest,
        imatrix=dict(facts.imatrix),
        sampling=dict(facts.sampling),
        warnings=facts.warnings,
        recipe=facts.recipe,
        file=files,
    )
    return Weighed(
        pin=pin,
        template=facts.template,
        vocab_tokens=facts.vocab_size,
        paths=(),
        missing=_missing(pin, facts),
    )


def is_header_of(header: Header, pin: ModelPin) -> bool:
    """Whether tokenizer, templates and other metadata of a header are those of a pin."""
    facts = describe(header)
    return (pin.tokenizer_digest, pin.template_digest, pin.metadata_digest) == (
        _said(facts.tokenizer_digest, "tokenizer"),
        _said(facts.template_digest, "template"),
        facts.metadata_digest,
    )


def _said(digest: Digest | UnsetType, what: str) -> Digest:
    """A digest; that of nothing where a header says nothing."""
    return digest_of(what, {}) if digest is UNSET else digest


def filled(world: World, found: Weighed, paths: tuple[Path, ...], *, rehash: bool) -> Weighed:
    """A model that was pinned without its weights, with what only they tell; the files are held against its pin.

    Raises:
        InputError: A file has other bytes than pinned.
        AbsentError: A file cannot be read.
    """
    pin = found.pin
    here = f"model.{pin.name}"
    headers = _headers(world, paths, within=here)
    try:
        files = tuple(
            _held(world, file, path, rehash=rehash) for file, path in zip(pin.file, paths, strict=True)
        )
    except QlockError as error:
        raise error.within(here) from None
    tensors = pin.tensors_digest
    facts = describe(*headers)
    return Weighed(
        pin=msgspec.structs.replace(
            pin, file=files, tensors_digest=_tensors(world, paths, headers) if tensors is UNSET else tensors
        ),
        template=facts.template,
        vocab_tokens=facts.vocab_size,
        paths=tuple(str(path) for path in paths),
        missing=_without_fetch(found.missing),
    )


def _headers(world: World, paths: tuple[Path, ...], *, within: str) -> tuple[Header, ...]:
    try:
        return tuple(header_of(world, path) for path in paths)
    except QlockError as error:
        raise error.within(within) from None


def _held(world: World, file: ModelFile, path: Path, *, rehash: bool) -> ModelFile:
    """A file as pinned, with its blake3, where its bytes are those that are pinned."""
    cache = world.cache_folder
    if file.blake3 is UNSET:
        whole = _steady(lambda: world.digests.digest_file(path, cache=cache, rehash=rehash))
        size, got, expected, blake3 = whole.size_bytes, whole.sha256, file.sha256, whole.blake3
    else:
        quick = _steady(lambda: world.digests.blake3_file(path, cache=cache, rehash=rehash))
        size, got, expected, blake3 = quick.size_bytes, quick.blake3, file.blake3, quick.blake3
    if size != file.size_bytes:
        got, expected = f"{size} bytes", f"{file.size_bytes} bytes"
    if got != expected:
        raise InputError(
            f"`{for_message(file.name)}` in the cache has other bytes than pinned, and is not used: "
            f"got `{got}`, expected `{expected}`",
            hint=f"remove `{for_message(str(path))}` and fetch it again",
        )
    return msgspec.structs.replace(file, blake3=blake3)


def _steady(read: Callable[[], _T]) -> _T:
    """What ``read`` gives, the second time where the file was exchanged the first time.

    Two processes that fetch one file at once may each put theirs in its place, and the bytes are the same.
    """
    try:
        return read()
    except InputError:
        return read()


def _without_fetch(missing: tuple[MissingPin, ...]) -> tuple[MissingPin, ...]:
    return tuple(entry for entry in missing if entry.until != "fetch")


def why_not_runnable(pin: ModelPin) -> str:
    """Why llama.cpp cannot run a model, told from its recipe; empty when it can."""
    unknown = [row.type for row in pin.recipe if row.bytes is UNSET]
    return f"{', '.join(unknown)}: needs ik_llama.cpp?" if unknown else ""


def _file(world: World, path: Path, *, rehash: bool) -> ModelFile:
    digest = world.digests.digest_file(path, cache=world.cache_folder, rehash=rehash)
    return ModelFile(
        name=path.name,
        role="weights",
        size_bytes=digest.size_bytes,
        sha256=digest.sha256,
        blake3=digest.blake3,
    )


def _tensors(world: World, paths: tuple[Path, ...], headers: tuple[Header, ...]) -> str | UnsetType:
    """Unset where a tensor has a type whose size is not known: then nobody can say where its bytes end."""
    if any(unknown_types(header.tensors) for header in headers):
        return UNSET
    digests: dict[str, str] = {}
    for path, header in zip(paths, headers, strict=True):
        spans = tensor_spans(header)
        of_spans = _steady(functools.partial(world.digests.spans_digest, path, [span[1:] for span in spans]))
        digests |= {name: digest for (name, _, _), digest in zip(spans, of_spans, strict=True)}
    return tensors_digest(headers, digests)


def _missing(pin: ModelPin, facts: GgufFacts) -> tuple[MissingPin, ...]:
    here = f"model.{pin.name}"
    why = {
        "bits_per_weight": facts.bits_per_weight_why,
        "trained_context_tokens": f"the file has no `{for_message(facts.architecture)}.context_length`",
    }
    absent = [name for name in why if getattr(pin, name) is UNSET]
    found = [MissingPin(pin=f"{here}.{name}", why=why[name], until="never") for name in absent]
    found += [
        MissingPin(
            pin=f"{here}.recipe.{row.type}.bytes", why="the size of this type is not known", until="never"
        )
        for row in pin.recipe
        if row.bytes is UNSET
    ]
    found += [
        MissingPin(pin=f"{here}.file.{file.name}.blake3", why=NOT_HERE, until="fetch") for file in pin.file
    ]
    if why_not_runnable(pin):
        found.append(MissingPin(pin=f"{here}.tensors_digest", why=facts.bits_per_weight_why, until="never"))
    else:
        found.append(MissingPin(pin=f"{here}.tensors_digest", why=NOT_HERE, until="fetch"))
    return tuple(found)
