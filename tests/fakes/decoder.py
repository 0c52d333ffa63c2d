"""A model that is arithmetic: logits of a row are a function of what its sequence holds, and of nothing else.

It takes the place of the loaded llama.cpp model under the schedule and the probe, keeps what was decoded, and can be
told to leak: then logits also depend on what a real one must not let them depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from qlock.core.facts import Buffer, ReadBack, Setting
from qlock.engines.interface import greedy

VOCAB_TOKENS = 24
END = 2

SETTING = Setting(
    name="tiny",
    context_tokens=256,
    slots=4,
    slots_requested=4,
    slots_why="",
    replicas=1,
    batch_tokens=64,
    ubatch_tokens=64,
    threads=2,
    batch_threads=2,
    cache_type_k="f16",
    cache_type_v="f16",
    flash_attention=False,
    gpu_layers=0,
    split_mode="none",
    main_gpu=0,
    kv_offload=True,
    op_offload=True,
    swa_full=True,
    repack=True,
    mmap=True,
)

GREEDY = greedy(8, ignore_eos=False)

Leak = Callable[["FakeDecoder", int, int], float]
"""Decoder, row and number of rows → what is added to the row's first logit."""


def read_back_of(setting: Setting, *, vocab_tokens: int = VOCAB_TOKENS) -> ReadBack:
    """What an engine that does as it is told says of itself."""
    return ReadBack(
        context_tokens=setting.context_tokens,
        slots=setting.slots,
        batch_tokens=setting.batch_tokens,
        ubatch_tokens=setting.ubatch_tokens,
        threads=setting.threads,
        batch_threads=setting.batch_threads,
        cache_type_k=setting.cache_type_k,
        cache_type_v=setting.cache_type_v,
        flash_attention=setting.flash_attention,
        layers=3,
        layers_offloaded=0,
        weights_buffer=(Buffer(place="CPU_Mapped", use="model", size_bytes=230_687),),
        cache_buffer=(Buffer(place="CPU", use="KV", size_bytes=262_144),),
        trained_context_tokens=2048,
        vocab_tokens=vocab_tokens,
        add_bos=True,
        add_eos=False,
        bos_token=1,
        eos_token=END,
        bos_text="<s>",
        eos_text="</s>",
        end_tokens=(END,),
        expert_count=0,
    )


class FakeDecoder:
    """Implements ``lockstep.Decoder``."""

    def __init__(self, setting: Setting = SETTING, *, leak: Leak | None = None, weights: int = 0) -> None:
        self.setting = setting
        self.vocab_tokens = VOCAB_TOKENS
        self.end_tokens = frozenset({END})
        self.read_back = read_back_of(setting)
        self.held: list[list[int]] = [[] for _ in range(setting.slots)]
        self.threads = (setting.threads, setting.batch_threads)
        self.batches: list[int] = []
        """Tokens of every prefill batch."""
        self.widths: list[int] = []
        """Rows of every decode."""
        self.puts_back = True
        self.put = 0
        """How often something that was kept was put back."""
        self._leak = leak
        self._weights = weights

    def clear(self, sequence: int) -> None:
        self.held[sequence] = []

    def copy(self, source: int, target: int) -> None:
        self.held[target] = list(self.held[source])

    def keep(self, sequence: int, *, most_bytes: int) -> bytes | None:
        state = msgspec.json.encode(self.held[sequence])
        return state if len(state) <= most_bytes else None

    def put_back(self, sequence: int, kept: bytes) -> bool:
        self.put += 1
        self.held[sequence] = msgspec.json.decode(kept, type=list[int]) if self.puts_back else []
        return self.puts_back

    def extend(
        self, sequence: int, tokens: Sequence[int], *, at: int, logits_from: int
    ) -> NDArray[np.float32]:
        assert at == len(self.held[sequence]), "a prompt is decoded from its start, piece by piece"
        assert len(tokens) <= self.setting.batch_tokens
        self.batches.append(len(tokens))
        rows = []
        for index, token in enumerate(tokens):
            self.held[sequence].append(token)
            if index >= logits_from:
                rows.append(self.logits(self.held[sequence]))
        return np.array(rows, dtype=np.float32).reshape(-1, VOCAB_TOKENS)

    def step(self, tokens: Sequence[int], positions: Sequence[int]) -> NDArray[np.float32]:
        self.widths.append(len(tokens))
        for row, (token, position) in enumerate(zip(tokens, positions, strict=True)):
            assert position == len(self.held[row]), "a row goes on where it ended"
            self.held[row].append(token)
        found = np.stack([self.logits(self.held[row]) for row in range(len(tokens))])
        if self._leak is not None:
            found[:, 0] += np.array(
                [self._leak(self, row, len(tokens)) for row in range(len(tokens))], np.float32
            )
        return found

    def use_threads(self, threads: int, batch_threads: int) -> None:
        self.threads = (threads, batch_threads)

    def piece(self, token: int) -> bytes:
        return bytes([ord("a") + token])

    def logits(self, held: Sequence[int]) -> NDArray[np.float32]:
        seed = int.from_bytes(msgspec.json.encode(list(held))[-60:], "big") + self._weights
        return np.random.Generator(np.random.PCG64(seed)).standard_normal(VOCAB_TOKENS, dtype=np.float32)
