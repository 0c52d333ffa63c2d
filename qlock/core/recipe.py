"""The recipe of a model: which quantization type each of its tensors has.

Lives here: the table by type, bits per weight, the table by class of tensor, and the difference of two recipes.
Does not live here: reading tensor tables (``core.gguf_reader``), and how any of it is shown.

A file's name and its ``general.file_type`` are labels: files of one label hold different recipes, so everything
here is computed from the tensor table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Count
from qlock.core.ggml_types import GGML_TYPES, type_name
from qlock.core.gguf_header import TensorInfo

_K = TypeVar("_K")


class RecipeRow(Base, frozen=True, kw_only=True):
    """How much of a model has one quantization type."""

    type: str
    """``Q4_K``, or ``type 156 (unknown)``."""
    tensors: Count
    elements: Count
    bytes: Count | UnsetType = UNSET
    """Without padding; unset when the type is unknown."""


class ClassRow(Base, frozen=True, kw_only=True):
    """How much of one class of tensors has one quantization type."""

    tensor_class: str
    """``attn_q``, ``ffn_down``, ``token_embd`` …, see ``tensor_class``."""
    type: str
    tensors: Count
    elements: Count
    bytes: Count | UnsetType = UNSET


class TypeChange(Base, frozen=True, kw_only=True):
    """A tensor that both models have, each in another type."""

    tensor: str
    type_a: str
    type_b: str


class RecipeDifference(Base, frozen=True, kw_only=True):
    """Two recipes side by side, tensor by tensor; every list is in name order."""

    tensors_in_both: Count
    changed: tuple[TypeChange, ...]
    reshaped: tuple[str, ...]
    """Tensors of both whose dimensions differ: then these are two models, not two quants of one."""
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether both models have the same tensors in the same types and shapes."""
        return not (self.changed or self.reshaped or self.only_in_a or self.only_in_b)

    def sentence(self, a: str = "A", b: str = "B") -> str:
        """One line for people: ``212 of 310 tensors have another type, 1 is only in A``; ``a`` and ``b`` name the sides."""
        if self.same:
            return f"the same recipe in all {_tensors(self.tensors_in_both)}"
        parts = []
        if self.changed:
            have = "has" if len(self.changed) == 1 else "have"
            parts.append(f"{len(self.changed)} of {_tensors(self.tensors_in_both)} {have} another type")
        if self.reshaped:
            have = "has" if len(self.reshaped) == 1 else "have"
            parts.append(f"{len(self.reshaped)} of {_tensors(self.tensors_in_both)} {have} another shape")
        for side, names in ((a, self.only_in_a), (b, self.only_in_b)):
            if names:
                parts.append(f"{len(names)} {'is' if len(names) == 1 else 'are'} only in {side}")
        return ", ".join(parts)


def recipe_of(tensors: Iterable[TensorInfo]) -> tuple[RecipeRow, ...]:
    """The table by type, in the order of the types' names; the order of the tensors does not matter."""
    totals = _totals((type_name(tensor.type_id), tensor) for tensor in tensors)
    return tuple(
        RecipeRow(type=name, tensors=total.tensors, elements=total.elements, bytes=total.size_bytes)
        for name, total in sorted(totals.items())
    )


def recipe_by_class(tensors: Iterable[TensorInfo]) -> tuple[ClassRow, ...]:
    """The table by class of tensor and type, in the order of their names."""
    totals = _totals(((tensor_class(tensor.name), type_name(tensor.type_id)), tensor) for tensor in tensors)
    return tuple(
        ClassRow(
            tensor_class=group,
            type=name,
            tensors=total.tensors,
            elements=total.elements,
            bytes=total.size_bytes,
        )
        for (group, name), total in sorted(totals.items())
    )


def bits_per_weight(tensors: Iterable[TensorInfo]) -> float | UnsetType:
    """All bytes of tensor data times eight over all elements; unset when unknown.

    It is unknown when a tensor's type is (``unknown_types`` names it) or when there are no elements.
    """
    total_bytes = elements = 0
    for tensor in tensors:
        if tensor.size_bytes is UNSET:
            return UNSET
        total_bytes += tensor.size_bytes
        elements += tensor.elements
    return total_bytes * 8 / elements if elements else UNSET


def unknown_types(tensors: Iterable[TensorInfo]) -> tuple[tuple[int, int], ...]:
    """Each type number that is not in the table, with how many tensors have it, in order."""
    found = Counter(tensor.type_id for tensor in tensors if tensor.type_id not in GGML_TYPES)
    return tuple(sorted(found.items()))


def tensor_class(name: str) -> str:
    """What a tensor is, whatever its block: ``blk.7.attn_q.weight`` → ``attn_q``.

    Block numbers and a closing ``weight`` go; everything else stays (``attn_q.bias``, ``v.attn_q``,
    ``ffn_down_exps``, ``attn_q.weight.lora_a``).
    """
    parts = name.split(".")
    if len(parts) > 1 and parts[-1] == "weight":
        parts.pop()
    kept: list[str] = []
    for part in parts:
        if kept and kept[-1] == "blk" and part.isdecimal():
            kept.pop()
        else:
            kept.append(part)
    return ".".join(kept) or name


def recipe_difference(a: Iterable[TensorInfo], b: Iterable[TensorInfo]) -> RecipeDifference:
    """Compare two models tensor by tensor, matched by name.

    Args:
        a: Tensors of side A, of all its shards.
        b: Tensors of side B.
    """
    of_a = {tensor.name: tensor for tensor in a}
    of_b = {tensor.name: tensor for tensor in b}
    both = sorted(of_a.keys() & of_b.keys())
    return RecipeDifference(
        tensors_in_both=len(both),
        changed=tuple(
            TypeChange(
                tensor=name, type_a=type_name(of_a[name].type_id), type_b=type_name(of_b[name].type_id)
            )
            for name in both
            if of_a[name].type_id != of_b[name].type_id
        ),
        reshaped=tuple(name for name in both if of_a[name].shape != of_b[name].shape),
        only_in_a=tuple(sorted(of_a.keys() - of_b.keys())),
        only_in_b=tuple(sorted(of_b.keys() - of_a.keys())),
    )


class _Total(msgspec.Struct):
    """A sum in the making."""

    tensors: int = 0
    elements: int = 0
    size_bytes: int | UnsetType = 0


def _totals(keyed: Iterable[tuple[_K, TensorInfo]]) -> dict[_K, _Total]:
    totals: dict[_K, _Total] = {}
    for key, tensor in keyed:
        total = totals.setdefault(key, _Total())
        total.tensors += 1
        total.elements += tensor.elements
        if total.size_bytes is not UNSET:
            total.size_bytes = UNSET if tensor.size_bytes is UNSET else total.size_bytes + tensor.size_bytes
    return totals


def _tensors(count: int) -> str:
    return f"{count} tensor{'' if count == 1 else 's'}"
