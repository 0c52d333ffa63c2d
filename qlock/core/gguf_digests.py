"""The digests that a model's identity is split into, so that two models can be told apart by what differs.

Lives here: what goes into the digests of tokenizer, chat templates, other metadata and tensors. Does not live
here: reading tensor data: whoever has the file digests the spans of ``tensor_spans`` and hands the digests to
``tensors_digest``.

A key belongs to exactly one of the first three, or, if it only says how a model is cut into files, to none.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, UnsetType

from qlock.core.digest import digest_of
from qlock.core.ggml_types import type_name
from qlock.core.gguf_header import Header, shown
from qlock.errors import InputError

TEMPLATE = "tokenizer.chat_template"
_TOKENIZER = "tokenizer.ggml."
_SPLIT = "split."


def is_template(key: str) -> bool:
    """Whether a chat template stands under ``key``, the default or a named one."""
    return key == TEMPLATE or key.startswith(TEMPLATE + ".")


def template_digest(templates: Mapping[str, str]) -> str | UnsetType:
    """Digest of all chat templates, given by key; unset when there is none."""
    return digest_of("template", dict(templates)) if templates else UNSET


def tokenizer_digest(header: Header) -> str | UnsetType:
    """Digest of every ``tokenizer.ggml.`` key, in any order; unset when there is none."""
    rows = [header.row(key) for key in sorted(header.values) if key.startswith(_TOKENIZER)]
    return digest_of("tokenizer", rows) if rows else UNSET


def metadata_digest(header: Header) -> str:
    """Digest of every key that is neither tokenizer, chat template nor ``split.``, in any order."""
    others = [
        key
        for key in sorted(header.values)
        if not key.startswith((_TOKENIZER, _SPLIT)) and not is_template(key)
    ]
    return digest_of("metadata", [header.row(key) for key in others])


def tensor_spans(header: Header) -> tuple[tuple[str, int, int], ...]:
    """(name, offset in the file, size) of each tensor's data in bytes, without padding, in file order.

    Raises:
        InputError: A tensor's type is unknown, and so is its size.
    """
    spans = []
    for tensor in header.tensors:
        if tensor.size_bytes is UNSET:
            raise InputError(
                f"tensor {shown(tensor.name)} has {type_name(tensor.type_id)}, so the size of its data is unknown"
            )
        spans.append((tensor.name, tensor.offset_bytes, tensor.size_bytes))
    return tuple(spans)


def tensors_digest(headers: tuple[Header, ...], digests_by_tensor: Mapping[str, str]) -> str:
    """The digest of a model's tensors, whatever its metadata, the order of its tensors and its shards.

    Args:
        headers: Headers of all shards, in any order.
        digests_by_tensor: blake3 of exactly each tensor's span (``tensor_spans``), by name.

    Raises:
        InputError: A tensor has no digest, or two tensors have one name.
    """
    tensors = {tensor.name: tensor for header in headers for tensor in header.tensors}
    if len(tensors) != sum(len(header.tensors) for header in headers):
        raise InputError("two shards have tensors of one name")
    rows = []
    for name in sorted(tensors):
        if name not in digests_by_tensor:
            raise InputError(f"tensor {shown(name)} has no digest")
        rows.append((name, tensors[name].type_id, tensors[name].shape, digests_by_tensor[name]))
    return digest_of("tensors", rows)
