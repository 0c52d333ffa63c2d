"""A model file (or all its shards) turned into its pin.

Lives here: reading the header, digesting bytes and tensors, and putting the pin together. Does not live here:
finding the file (``flows.places``) and reading header bytes (``core.gguf``).
"""

from __future__ import annotations

from pathlib import Path

from msgspec import UNSET, UnsetType

from qlock.core.base import Base
from qlock.core.digest import digest_of
from qlock.core.escape import for_message
from qlock.core.facts import ModelFile
from qlock.core.gguf import (
    GgufFacts,
    Header,
    NeedMore,
    check_split,
    describe,
    read_header,
    tensor_spans,
    tensors_digest,
)
from qlock.core.lock import Missing, ModelPin
from qlock.core.recipe import unknown_types
from qlock.core.spec import ModelSpec
from qlock.errors import QlockError
from qlock.world.interface import World

_FIRST_BYTES = 4 << 20


class Weighed(Base, frozen=True, kw_only=True):
    """A model as its files are now."""

    pin: ModelPin
    facts: GgufFacts
    paths: tuple[str, ...]
    missing: tuple[Missing, ...]


def header_of(world: World, path: Path) -> Header:
    """The header of a GGUF file, reading no more of it than needed.

    Raises:
        InputError: It is no GGUF, or a damaged one.
        AbsentError: It cannot be read.
    """
    wanted = _FIRST_BYTES
    while True:
        prefix = world.files.read_prefix(path, wanted, "model")
        header = read_header(prefix.data, prefix.size_bytes, name=path.name)
        match header:
            case NeedMore(at_least_bytes=more):
                wanted = max(more, 2 * wanted)
            case Header():
                return header


def weigh(world: World, model: ModelSpec, paths: tuple[Path, ...], *, rehash: bool) -> Weighed:
    """Everything that is pinned of a model.

    Raises:
        InputError: A file is damaged, no model, or the shards do not belong together.
    """
    try:
        headers = tuple(header_of(world, path) for path in paths)
        check_split(tuple((path.name, header) for path, header in zip(paths, headers, strict=True)))
        facts = describe(*headers)
    except QlockError as error:
        raise error.within(f"model.{model.name}") from None
    files = tuple(_file(world, path, rehash=rehash) for path in paths)
    pin = ModelPin(
        name=model.name,
        requested=model.source,
        revision="",
        trained=model.trained,
        architecture=facts.architecture,
        parameters=facts.parameters,
        bits_per_weight=facts.bits_per_weight,
        expert_count=0 if facts.expert_count is UNSET else facts.expert_count,
        trained_context_tokens=facts.context_length_tokens,
        tensors_digest=_tensors(world, paths, headers),
        tokenizer_digest=digest_of("tokenizer", {})
        if facts.tokenizer_digest is UNSET
        else facts.tokenizer_digest,
        template_digest=digest_of("template", {})
        if facts.template_digest is UNSET
        else facts.template_digest,
        metadata_digest=facts.metadata_digest,
        imatrix=dict(facts.imatrix),
        sampling=dict(facts.sampling),
        warnings=facts.warnings,
        recipe=facts.recipe,
        file=files,
    )
    return Weighed(
        pin=pin, facts=facts, paths=tuple(str(path) for path in paths), missing=_missing(pin, facts)
    )


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
        of_spans = world.digests.spans_digest(path, [(offset, size) for _, offset, size in spans])
        digests |= {name: digest for (name, _, _), digest in zip(spans, of_spans, strict=True)}
    return tensors_digest(headers, digests)


def _missing(pin: ModelPin, facts: GgufFacts) -> tuple[Missing, ...]:
    why = {
        "bits_per_weight": facts.bits_per_weight_why,
        "trained_context_tokens": f"the file has no `{for_message(facts.architecture)}.context_length`",
        "tensors_digest": facts.bits_per_weight_why,
    }
    absent = [name for name in why if getattr(pin, name) is UNSET]
    found = [Missing(pin=f"model.{pin.name}.{name}", why=why[name], until="never") for name in absent]
    found += [
        Missing(
            pin=f"model.{pin.name}.recipe.{row.type}.bytes",
            why="the size of this type is not known",
            until="never",
        )
        for row in pin.recipe
        if row.bytes is UNSET
    ]
    return tuple(found)
