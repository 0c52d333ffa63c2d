"""What can be seen of an engine, a device, a setting and a model: the same structs in a lock and at run time.

Because a lock pins these very structs, ``core.verify`` compares two trees of one type leaf by leaf, and nothing
can be pinned that is not checked. A leaf's effect says what a change of it can do:

- ``output`` (the default): it can change what a model says; ``run`` refuses.
- ``timing``: it can change speed or energy only.
- ``note``: recorded, compared, never refused.

Does not live here: reading any of it (``world``, ``engines``).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Count, Finite, Name, Positive
from qlock.core.digest import Digest

_TIMING = msgspec.Meta(extra={"effect": "timing"})
_NOTE = msgspec.Meta(extra={"effect": "note"})

EngineRole = Literal["build", "math", "driver", "system", "python"]
"""``build``: llama.cpp itself; ``math``: libm, libgomp, cuBLAS …; ``driver``; these change output. Others do not."""

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]


class EngineFile(Base, frozen=True, kw_only=True):
    """One file that the running engine mapped."""

    name: str
    """File name without its folder: where it lies is not locked."""
    role: EngineRole
    size_bytes: Count
    sha256: Digest
    blake3: Digest
    build_id: Annotated[str, _NOTE]
    """The linker's, in hex, by which distributions and debuggers know the file; empty where it has none."""
    code_digest: Digest | UnsetType = UNSET
    """Over the code sections alone; unset when the file is no ELF. Says "rebuilt elsewhere" from "other code"."""


class Engine(Base, frozen=True, kw_only=True):
    """An engine, known by the files it maps."""

    name: Name
    kind: str
    label: Annotated[str, _NOTE]
    """Version text of the build; identifies nothing."""
    system_info: str
    """llama.cpp's own line of compiled-in features (``AVX512 = 1 | …``)."""
    environment: dict[str, str]
    """Variables that the spec gives the engine's processes, beside qlock's own; nothing else reaches them."""
    file: tuple[EngineFile, ...]


class Gpu(Base, frozen=True, kw_only=True):
    """One card, without anything that belongs to one copy of it (UUID, serial)."""

    gpu_name: str
    """The whole card's, as its driver writes it: ``NVIDIA A100-SXM4-40GB``."""
    pci_device_id: str
    """Maker and model, as ``lspci`` writes them: ``10de:20b0``. NVIDIA gives PCIe and SXM cards other ones; of AMD's
    cards with the revision, ``1002:744c (rev c8)``, since only that tells some of them apart."""
    memory_bytes: Count | UnsetType = UNSET
    """Of the slice, where it is one. Unset where memory is shared with the CPU and the driver tells none."""
    compute_capability: str | UnsetType = UNSET
    """``8.0``; of AMD's cards the target, ``gfx90a``, unset where ROCm does not know the card."""
    sm_count: Positive | UnsetType = UNSET
    """Multiprocessors (AMD: compute units) of the card or slice; llama.cpp cuts its work up by their number."""
    mig_profile: str
    """``1g.5gb``, of AMD's cards the partition (``DPX/NPS1``); empty for the whole card."""
    ecc: bool | UnsetType = UNSET
    cuda_version: str | UnsetType = UNSET
    """The newest that the driver offers; unset without NVIDIA's driver."""
    power_limit_mw: Annotated[Count, _TIMING] | UnsetType = UNSET


class Device(Base, frozen=True, kw_only=True):
    """The machine as far as arithmetic is concerned."""

    name: Name
    kind: Literal["cpu", "gpu"]
    cpu_model: str
    cpu_family: Count
    cpu_model_number: Count
    cpu_stepping: Annotated[Count, _NOTE]
    instruction_sets: tuple[str, ...]
    """Sorted flags of the CPU that llama.cpp has kernels for."""
    cores: Annotated[Positive, _TIMING]
    driver_version: str
    """Empty without a GPU."""
    gpu: tuple[Gpu, ...]


class Setting(Base, frozen=True, kw_only=True):
    """Run-time choices, completely written out."""

    name: Name
    context_tokens: Positive
    """Of one slot."""
    slots: Positive
    """Rows in every decode: exactly so many, since another width gives other bits."""
    slots_requested: Annotated[Positive, _NOTE]
    slots_why: Annotated[str, _NOTE]
    """Why fewer slots than asked; empty when as asked."""
    replicas: Annotated[Positive, _TIMING]
    """Processes that share the items among them, each with all its slots; answers do not depend on how many there are."""
    batch_tokens: Positive
    ubatch_tokens: Positive
    threads: Positive
    batch_threads: Positive
    cache_type_k: CacheType
    cache_type_v: CacheType
    flash_attention: bool
    gpu_layers: Count
    split_mode: Literal["none", "layer"]
    main_gpu: Count
    kv_offload: bool
    op_offload: bool
    swa_full: bool
    repack: bool
    """llama.cpp's rearranged weights (``use_extra_bufts``); other kernels, so other bits."""
    mmap: Annotated[bool, _TIMING]

    @property
    def at_once(self) -> int:
        """How many items are answered side by side, over all processes."""
        return self.slots * self.replicas


class ModelFile(Base, frozen=True, kw_only=True):
    """One file of a model."""

    name: str
    """File name, or path inside its repository."""
    role: Literal["weights", "mmproj", "lora", "draft", "template"]
    size_bytes: Count
    sha256: Digest
    blake3: Digest | UnsetType = UNSET


class Canary(Base, frozen=True, kw_only=True):
    """A fixed prompt and what exactly came of it."""

    name: str
    tokens_digest: Digest
    """Of the greedily decoded token ids."""
    logits_digest: Digest
    """Of the values of every step, in order: the float32 logits of the embedded engine, or the likeliest
    log-probabilities that a server prints. Never compared across kinds of engine."""


class Buffer(Base, frozen=True, kw_only=True):
    """Memory that an engine took for a loaded point, by its own account."""

    place: str
    """As llama.cpp names it: ``CPU``, ``CPU_Mapped`` (the file itself), ``CUDA0``, ``CUDA_Host``."""
    use: str
    """``model``, ``KV``, ``compute``, ``output`` …"""
    size_bytes: Count
    """To the hundredth of a MiB that llama.cpp prints."""


class ReadBack(Base, frozen=True, kw_only=True):
    """What the running engine says of itself after loading, to be held against the setting."""

    context_tokens: Count
    slots: Count
    batch_tokens: Count
    ubatch_tokens: Count
    threads: Count
    batch_threads: Count
    cache_type_k: str
    cache_type_v: str
    flash_attention: bool
    layers: Count
    """Layers of the model, the output layer counted, as llama.cpp counts them."""
    layers_offloaded: Count
    weights_buffer: tuple[Buffer, ...]
    """Where the weights lie, sorted by place."""
    cache_buffer: tuple[Buffer, ...]
    """Where the KV cache (or the state of recurrent layers) lies, of one process."""
    trained_context_tokens: Count
    vocab_tokens: Positive
    add_bos: bool
    add_eos: bool
    bos_token: int
    """−1 when the vocabulary has none."""
    eos_token: int
    bos_text: str
    eos_text: str
    end_tokens: tuple[int, ...]
    """Every token that ends generation, sorted."""
    expert_count: Count


class ProbeRow(Base, frozen=True, kw_only=True):
    """One variation of the schedule against the plain one: how many rows stayed the same."""

    variation: str
    """What was varied, as the engine calls it: ``repeat``, ``permute``, ``replicas``, ``threads`` …"""
    rows: Count
    rows_bitwise: Count
    """Rows whose logits are equal bit for bit at every step."""
    rows_tokens: Count
    """Rows whose greedy tokens are equal."""
    logit_difference_max: Finite
    kl_nats_mean: Finite
    """Mean KL divergence per step from the plain schedule, nats."""
