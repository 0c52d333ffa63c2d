"""How much memory a point needs: its weights and its KV cache, worked out before anything is loaded.

Compute buffers come on top and depend on the build, so this is a lower bound: what does not fit by it cannot run.

Does not live here: how much there is (``world.host``), and refusing (``flows.room``).
"""

from __future__ import annotations

from fractions import Fraction

from qlock.core.base import Base, Count
from qlock.core.facts import CacheType, Setting
from qlock.core.gguf_header import Header

BYTES_PER_VALUE: dict[CacheType, Fraction] = {
    "f32": Fraction(4),
    "f16": Fraction(2),
    "bf16": Fraction(2),
    "q8_0": Fraction(34, 32),
    "q5_1": Fraction(24, 32),
    "q5_0": Fraction(22, 32),
    "q4_1": Fraction(20, 32),
    "q4_0": Fraction(18, 32),
    "iq4_nl": Fraction(18, 32),
}
"""Bytes of one cached value; block types have a scale for every 32 values."""


class Footprint(Base, frozen=True, kw_only=True):
    """Bytes that a loaded point takes at least."""

    weights_bytes: Count
    cache_bytes: Count
    """0 also where the header does not say enough: a lower bound stays one."""

    @property
    def total_bytes(self) -> int:
        """Both together."""
        return self.weights_bytes + self.cache_bytes


def footprint(first: Header, weights_bytes: int, setting: Setting) -> Footprint:
    """The least memory of a model under a setting.

    Args:
        first: The model's only file or first shard, which carries the metadata.
        weights_bytes: Size of all files together.
        setting: Context, slots and cache types.

    Source: ``llama_kv_cache`` of llama.cpp: per layer and position, heads × head length values for K and for V.
    """
    values = _values_per_position(first)
    cache = 0
    if values is not None:
        k, v = values
        positions = setting.context_tokens * setting.slots
        cache = int(
            positions
            * (k * BYTES_PER_VALUE[setting.cache_type_k] + v * BYTES_PER_VALUE[setting.cache_type_v])
        )
    return Footprint(weights_bytes=weights_bytes, cache_bytes=cache)


def _values_per_position(header: Header) -> tuple[int, int] | None:
    """Cached values of K and of V for one position, over all layers; ``None`` where the header does not say."""
    architecture = header.text("general.architecture")
    layers = _whole(header, f"{architecture}.block_count")
    heads = _whole(header, f"{architecture}.attention.head_count")
    cached_heads = _whole(header, f"{architecture}.attention.head_count_kv") or heads
    width = _whole(header, f"{architecture}.embedding_length")
    if not layers or not heads or not cached_heads or not width:
        return None
    length = width // heads
    k = _whole(header, f"{architecture}.attention.key_length") or length
    v = _whole(header, f"{architecture}.attention.value_length") or length
    return layers * cached_heads * k, layers * cached_heads * v


def _whole(header: Header, key: str) -> int | None:
    """A positive whole number of the header; ``None`` where it is an array (one value per layer) or absent."""
    number = header.number(key)
    return int(number) if number is not None and number > 0 and number == int(number) else None
