"""The settings of a request to llama-server, every one of them said, and held against those that it echoes.

The server ignores fields that it does not know, so a misspelt or a removed one would pass without a word; what it
echoes is the only proof. Pure. Does not live here: the rest of the request and of its answer (``completion``).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import msgspec

from qlock.core.escape import for_message
from qlock.engines.interface import Generate
from qlock.errors import EngineError

DIGEST_PROBABILITIES = 16
"""How many of the likeliest tokens of each step enter a digest."""

_SEEDS = (1 << 32) - 1
"""The server's seeds have 32 bits, and the largest asks for a random one."""

_FORCE = 10_000.0
"""A bias that no logit comes up against."""

_SAMPLERS = ("penalties", "top_k", "top_p", "min_p", "temperature")

OFF: dict[str, object] = {
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "typical_p": 1.0,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": 0,
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "adaptive_target": -1.0,
    "adaptive_decay": 0.9,
    "n_keep": 0,
    "n_discard": 0,
    "min_keep": 0,
    "grammar": "",
    "post_sampling_probs": False,
    "backend_sampling": False,
    "timings_per_token": False,
    "lora": [],
    "stream": False,
}
"""Everything that qlock has no word for, switched off."""

_NEEDED = (
    *(
        "seed",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repeat_last_n",
        "repeat_penalty",
        "presence_penalty",
    ),
    *("frequency_penalty", "samplers", "n_predict", "ignore_eos", "n_probs", "stop", "stream", "mirostat"),
    *("dry_multiplier", "xtc_probability", "typical_p", "logit_bias", "grammar"),
)
"""What the server must echo; a younger setting may be unknown to an older server."""

OTHERWISE_FIXED: dict[str, tuple[object, ...]] = {
    "chat_format": ("Content-only",),
    "reasoning_format": ("none",),
    "reasoning_in_content": (False,),
    "generation_prompt": ("",),
    "grammar_lazy": (False,),
    "grammar_triggers": ([],),
    "preserved_tokens": ([],),
    "speculative.types": ("none", "none,none"),
    "dry_sequence_breakers": (["\n", ":", '"', "*"],),
    "thinking_forced_open": (False,),
}
"""What the server echoes without being asked in the request, and what it must say."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer may be made of."""

    context_tokens: int
    vocab_tokens: int
    end_tokens: frozenset[int]
    end_texts: dict[int, str]
    """What each of them adds to an answer's text, since special tokens are written out."""
    alias: str
    """By which the server calls its model."""


def asked_of(work: Generate, room: Room, *, forced: int | None = None) -> dict[str, object]:
    """Every setting of a request, by the server's names.

    Args:
        work: What is asked.
        room: Of the loaded model.
        forced: A token that must come next.
    """
    sampling = work.sampling
    return OFF | {
        "seed": sampling.seed % _SEEDS,
        "temperature": max(0.0, sampling.temperature),
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_last_n": sampling.penalty_tokens,
        "repeat_penalty": sampling.repeat_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "samplers": list(_SAMPLERS),
        "n_predict": budget_tokens(work, room),
        "ignore_eos": sampling.ignore_eos,
        "stop": [stop for stop in sampling.stop if stop],
        "n_probs": DIGEST_PROBABILITIES if work.logits_digest else int(work.logprobs),
        "logit_bias": [] if forced is None else [[forced, _FORCE]],
        "return_tokens": True,
    }


def budget_tokens(work: Generate, room: Room) -> int:
    """The token cap, or what the context has room for: the server rounds its context up."""
    return min(work.sampling.answer_tokens, room.context_tokens - len(work.tokens))


def _biased(asked: Mapping[str, object], room: Room) -> list[int]:
    """Tokens with a bias: end tokens, where they are to be ignored, and what the request biases itself."""
    own = [entry[0] for entry in msgspec.convert(asked["logit_bias"], list[tuple[int, float]])]
    return sorted([*own, *(room.end_tokens if asked["ignore_eos"] else ())])


def _tokens_of(bias: object) -> object:
    """Tokens of an echoed bias, or what is echoed instead; the server writes an infinite bias as null."""
    try:
        entries = msgspec.convert(bias, list[dict[str, Any]])
        return sorted(msgspec.convert(entry.get("token"), int) for entry in entries)
    except msgspec.ValidationError:
        return bias


def is_same(got: object, expected: object) -> bool:
    """Equal as the server keeps it: a fraction in 32 bits; `1` is not `true`."""
    match got, expected:
        case bool(), bool():
            return got is expected
        case (bool(), _) | (_, bool()):
            return False
        case ((float() | int()), float()):
            return float(got) == _single(expected) or float(got) == expected
        case _:
            return got == expected


def _single(number: float) -> float:
    """The nearest number of 32 bits."""
    (nearest,) = struct.unpack("f", struct.pack("f", number))
    return float(nearest)


def check_echo(asked: Mapping[str, object], echoed: Mapping[str, object], room: Room) -> None:
    """Hold the settings that the server echoes against those asked for.

    Raises:
        EngineError: One is missing, another one, or not known at all.
    """
    for name in _NEEDED:
        if name not in echoed:
            raise EngineError(f"cannot verify `{name}`: the server does not echo it")
    for name, got in echoed.items():
        expected: tuple[object, ...]
        if name == "max_tokens":
            expected = (asked["n_predict"],)
        elif name == "logit_bias":
            expected = (_biased(asked, room),)
        elif name in asked:
            expected = (asked[name],)
        elif name in OTHERWISE_FIXED:
            expected = OTHERWISE_FIXED[name]
        else:
            raise EngineError(f"the server has a setting that qlock does not know: `{for_message(name)}`")
        seen = _tokens_of(got) if name == "logit_bias" else got
        if not any(is_same(seen, one) for one in expected):
            raise EngineError(
                f"the server does not do as it is told: got `{name} = {for_message(str(seen))}`,"
                f" expected `{for_message(str(expected[0]))}`"
            )
