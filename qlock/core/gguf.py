"""What a GGUF model is, told from its header alone.

Lives here: the facts of a model. Does not live here: the walk over the bytes (``core.gguf_reader``), the digests
(``core.gguf_digests``), the recipe (``core.recipe``) and sets of shards (``core.gguf_split``).

The names that the rest of qlock needs can all be imported from here.
"""

from __future__ import annotations

import math

from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Count, Finite
from qlock.core.digest import Digest
from qlock.core.ggml_types import file_type_name, type_name
from qlock.core.gguf_digests import (
    TEMPLATE,
    is_template,
    metadata_digest,
    template_digest,
    tensor_spans,
    tensors_digest,
    tokenizer_digest,
)
from qlock.core.gguf_header import Header, NeedMore, TensorInfo, ValueSpan, shown
from qlock.core.gguf_reader import MAX_HEADER_BYTES, read_header
from qlock.core.gguf_split import Split, check_split, shard_names, split_of
from qlock.core.recipe import RecipeRow, bits_per_weight, recipe_of, unknown_types
from qlock.errors import InputError

__all__ = [
    "MAX_HEADER_BYTES",
    "GgufFacts",
    "Header",
    "NeedMore",
    "RecipeRow",
    "Split",
    "TensorInfo",
    "ValueSpan",
    "check_split",
    "describe",
    "is_imatrix",
    "metadata_digest",
    "read_header",
    "shard_names",
    "split_of",
    "tensor_spans",
    "tensors_digest",
    "tokenizer_digest",
]

_SAMPLING = "general.sampling."
_IMATRIX = "quantize.imatrix."
_MOST_PARAMETERS = 2**63 - 1


class GgufFacts(Base, frozen=True, kw_only=True):
    """A model as its header describes it. Whatever the header does not say is unset."""

    architecture: str
    name: str | UnsetType = UNSET
    """``general.name``; a label."""
    general_type: str | UnsetType = UNSET
    """``general.type``: ``model``, ``adapter``, ``mmproj`` …"""
    parameters: Count
    """Elements of all tensors."""
    context_length_tokens: Count | UnsetType = UNSET
    block_count: Count | UnsetType = UNSET
    vocab_size: Count | UnsetType = UNSET
    expert_count: Count | UnsetType = UNSET
    """Unset or 0 for a dense model."""
    recipe: tuple[RecipeRow, ...]
    bits_per_weight: Finite | UnsetType = UNSET
    bits_per_weight_why: str
    """Why there are no bits per weight; empty when there are."""
    file_type: str | UnsetType = UNSET
    """Label of ``general.file_type``; the recipe is what counts."""
    template: str | UnsetType = UNSET
    """The default chat template."""
    named_templates: dict[str, str]
    """Further chat templates by name, such as ``tool_use``."""
    template_digest: Digest | UnsetType = UNSET
    """Over all chat templates; unset when there is none."""
    tokenizer_digest: Digest | UnsetType = UNSET
    """Over every ``tokenizer.ggml.`` key; unset when there is none."""
    metadata_digest: Digest
    """Over every other key except chat templates and ``split.``."""
    sampling: dict[str, str | float | bool]
    """The ``general.sampling.`` keys without that prefix: llama.cpp takes them as its defaults."""
    imatrix: dict[str, str | float | bool]
    """The ``quantize.imatrix.`` keys without that prefix: claims of the publisher, hashed by nobody."""
    bos_token: Count | UnsetType = UNSET
    eos_token: Count | UnsetType = UNSET
    add_bos: bool | UnsetType = UNSET
    split: Split | UnsetType = UNSET
    """Of the first shard; unset for a model in one file."""
    warnings: tuple[str, ...]
    """Oddities that do not stop a model from loading, for the lock and the top of a report."""


def is_imatrix(header: Header) -> bool:
    """Whether the file is an importance matrix, which is a GGUF too but no model."""
    names = (header.text("general.type"), header.text("general.architecture"))
    return "imatrix" in names or any(key.startswith("imatrix.") for key in header.values)


def describe(first: Header, *others: Header) -> GgufFacts:
    """The facts of a model.

    Args:
        first: Its only file, or its first shard, which alone carries the metadata.
        others: The other shards; they only add tensors (``check_split`` sees whether they belong).

    Raises:
        InputError: The file is no model, or a key that matters is of the wrong type.
    """
    if is_imatrix(first):
        raise InputError("the file is an imatrix, not a model", hint="name the model's own GGUF")
    tensors = tuple(tensor for header in (first, *others) for tensor in header.tensors)
    parameters = sum(tensor.elements for tensor in tensors)
    if parameters > _MOST_PARAMETERS:
        raise InputError("the tensors together have more than 2^63 - 1 elements")
    architecture = _architecture(first)
    file_type = _count(first, "general.file_type")
    templates = _templates(first)
    return GgufFacts(
        architecture=architecture,
        name=_text(first, "general.name"),
        general_type=_text(first, "general.type"),
        parameters=parameters,
        context_length_tokens=_count(first, f"{architecture}.context_length"),
        block_count=_count(first, f"{architecture}.block_count"),
        vocab_size=_vocab_size(first, architecture),
        expert_count=_count(first, f"{architecture}.expert_count"),
        recipe=recipe_of(tensors),
        bits_per_weight=bits_per_weight(tensors),
        bits_per_weight_why=_why_no_bits(tensors, parameters),
        file_type=UNSET if file_type is UNSET else file_type_name(file_type),
        template=templates.get(TEMPLATE, UNSET),
        named_templates={
            key.removeprefix(TEMPLATE + "."): text for key, text in templates.items() if key != TEMPLATE
        },
        template_digest=template_digest(templates),
        tokenizer_digest=tokenizer_digest(first),
        metadata_digest=metadata_digest(first),
        sampling=_sampling(first),
        imatrix=_under(first, _IMATRIX),
        bos_token=_count(first, "tokenizer.ggml.bos_token_id"),
        eos_token=_count(first, "tokenizer.ggml.eos_token_id"),
        add_bos=_truth(first, "tokenizer.ggml.add_bos_token"),
        split=split_of(first),
        warnings=_warnings((first, *others), tensors),
    )


def _architecture(header: Header) -> str:
    found = header.text("general.architecture")
    if found is None:
        raise InputError(
            f"`general.architecture` is {header.shown_value('general.architecture')}, expected a string"
        )
    return found


def _text(header: Header, key: str) -> str | UnsetType:
    found = header.text(key)
    return UNSET if found is None else found


def _count(header: Header, key: str) -> int | UnsetType:
    """The whole number under ``key``; unset when it is absent."""
    if key not in header.values:
        return UNSET
    found = header.value(key)
    if type(found) is not int or found < 0:
        raise InputError(f"{shown(key)} is {header.shown_value(key)}, expected a whole number")
    return found


def _truth(header: Header, key: str) -> bool | UnsetType:
    """The bool under ``key``; unset when it is absent."""
    found = header.value(key)
    if key in header.values and type(found) is not bool:
        raise InputError(f"{shown(key)} is {header.shown_value(key)}, expected a bool")
    return bool(found) if key in header.values else UNSET


def _under(header: Header, prefix: str) -> dict[str, str | float | bool]:
    """The single, finite values whose keys begin with ``prefix``, by the rest of the key, in key order."""
    found: dict[str, str | float | bool] = {}
    for key in sorted(header.values):
        value = header.value(key) if key.startswith(prefix) else None
        if value is not None and (isinstance(value, str) or math.isfinite(value)):
            found[key.removeprefix(prefix)] = value
    return found


def _sampling(header: Header) -> dict[str, str | float | bool]:
    found = _under(header, _SAMPLING)
    for key in header.values:
        if key.startswith(_SAMPLING) and key.removeprefix(_SAMPLING) not in found:
            raise InputError(f"{shown(key)} is {header.shown_value(key)}, expected one finite value")
    return found


def _templates(header: Header) -> dict[str, str]:
    """Chat templates by key."""
    templates = {}
    for key in filter(is_template, header.values):
        text = header.text(key)
        if text is None:
            raise InputError(f"{shown(key)} is {header.shown_value(key)}, expected a string")
        templates[key] = text
    return templates


def _vocab_size(header: Header, architecture: str) -> int | UnsetType:
    tokens = header.values.get("tokenizer.ggml.tokens")
    return tokens.count if tokens is not None else _count(header, f"{architecture}.vocab_size")


def _why_no_bits(tensors: tuple[TensorInfo, ...], parameters: int) -> str:
    unknown = unknown_types(tensors)
    if unknown:
        return (
            f"{', '.join(type_name(type_id) for type_id, _ in unknown)}: the size of its tensors is not known"
        )
    return "" if parameters else "there are no tensors"


def _warnings(headers: tuple[Header, ...], tensors: tuple[TensorInfo, ...]) -> tuple[str, ...]:
    first = headers[0]
    warnings = []
    if "tokenizer.ggml.tokens" in first.values and not first.text("tokenizer.ggml.pre"):
        if first.text("tokenizer.ggml.model") == "gpt2":
            effect = "llama.cpp falls back to its default and says that the quality will be degraded"
        else:
            effect = "llama.cpp needs it for BPE vocabularies only"
        warnings.append(f"`tokenizer.ggml.pre` is missing: {effect}")
    warnings += [
        f"{count} of {len(tensors)} tensors have {type_name(type_id)}: only a fork of llama.cpp can load them"
        for type_id, count in unknown_types(tensors)
    ]
    for number, header in enumerate(headers, start=1):
        extra = _trailing_bytes(header)
        if extra:
            warnings.append(f"file {number} has {extra} bytes after its last tensor")
    split = split_of(first)
    if split is not UNSET and split.count != len(headers):
        warnings.append(f"the facts cover {len(headers)} of {split.count} shards")
    return tuple(warnings)


def _trailing_bytes(header: Header) -> int:
    """Bytes behind the last tensor and its padding; 0 when its size is unknown."""
    if not header.tensors or header.tensors[-1].size_bytes is UNSET:
        return 0
    end = header.tensors[-1].offset_bytes + header.tensors[-1].size_bytes
    padded = -(-end // header.alignment) * header.alignment
    return max(0, header.file_bytes - padded)
