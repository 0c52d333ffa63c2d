"""What a ready server says of itself, as a setting is read back.

llama.cpp rounds a context up and cuts a batch down to it. Where that is all that it did, the setting is as it was asked
for. Does not live here: asking a server (``server``, ``questions``).
"""

from __future__ import annotations

from qlock.core.facts import ReadBack, Setting
from qlock.engines.interface import padded_tokens
from qlock.engines.llama_cpp.server import Seen


def read_back_of(seen: Seen, setting: Setting, *, add_bos: bool, add_eos: bool) -> ReadBack:
    """One server as it runs.

    Args:
        seen: What it says.
        setting: What it was told.
        add_bos: Whether it puts BOS before a text; its log does not tell.
        add_eos: The same of EOS behind one.
    """
    said = seen.said
    return ReadBack(
        context_tokens=_context(setting, seen),
        slots=max(seen.slots, said.sequences),
        # A batch is never longer than the context; for prompts that fit into it, that changes nothing.
        batch_tokens=_unclamped(setting.batch_tokens, said.batch_tokens, said.context_tokens),
        ubatch_tokens=_unclamped(setting.ubatch_tokens, said.ubatch_tokens, said.context_tokens),
        threads=said.threads,
        batch_threads=said.batch_threads,
        cache_type_k=said.cache_type_k,
        cache_type_v=said.cache_type_v,
        flash_attention=said.flash_attention,
        layers=said.layers,
        layers_offloaded=said.layers_offloaded,
        weights_buffer=said.weights_buffer,
        cache_buffer=said.cache_buffer,
        trained_context_tokens=said.trained_context_tokens,
        vocab_tokens=said.vocab_tokens,
        add_bos=add_bos,
        add_eos=add_eos,
        bos_token=said.bos_token,
        eos_token=said.eos_token,
        bos_text=seen.bos_text,
        eos_text=seen.eos_text,
        end_tokens=said.end_tokens,
        expert_count=said.expert_count,
    )


def _context(setting: Setting, seen: Seen) -> int:
    """What was asked for, when the server has it with nothing but llama.cpp's own rounding; else what it has.

    NOTE: a slot never has more than the model was trained with, while the cache is rounded up beyond that.
    """
    asked = setting.context_tokens
    padded = padded_tokens(asked)
    has_it = seen.said.context_tokens == padded and asked <= seen.context_tokens <= padded
    return asked if has_it else min(seen.context_tokens, seen.said.context_tokens)


def _unclamped(asked: int, got: int, most: int) -> int:
    """What was asked for, where llama.cpp has cut it to the most that there can be and to nothing less."""
    return asked if got == min(asked, most) else got
