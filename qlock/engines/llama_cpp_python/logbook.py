"""llama.cpp's own log: kept since the last mark, and read for what no function of its API tells.

The lines are those of b11434 and its neighbours. A line that is not there, or that says two things, is a fact that
cannot be verified; it is never filled in from what was asked.

Does not live here: catching the lines (``native``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from qlock.core.escape import for_message
from qlock.core.facts import Buffer
from qlock.core.units import bytes_of_mib
from qlock.core.visible import bus_text
from qlock.errors import EngineError, InputError

_CACHE = re.compile(r"llama_kv_cache\w*: *size = .* K \((\w+)\): .* V \((\w+)\):")
_FLASH = re.compile(r"llama_context: *flash_attn *= *(\w+)")
_LAYER = re.compile(r"load_tensors: layer +(\d+) assigned to device ([^,]+),")
_USING = re.compile(r"\w+: using device (\S+) \(.*?\) (?:\(([^()]*)\) )?- \d+ MiB free")
_BUFFER = re.compile(r"\w+: *(\S+) +(\S.*?) buffer size = +(\d+\.\d+) MiB$")
_OFFLOADED = re.compile(r"load_tensors: offloaded (\d+)/(\d+) layers to GPU")
_WEIGHTS = ("model",)
_CACHE_USES = ("KV", "RS")

Said = TypeVar("Said")

_KEPT_LINES = 20_000
_SAID_WORDS = {"enabled": True, "disabled": False}


class LogBook:
    """Lines of llama.cpp since the last mark; the first and the last of too many are kept.

    A message may come in pieces (level ``CONT``), so text is joined until its newline.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._open = ""
        self._errors: list[str] = []

    def mark(self) -> None:
        """Forget what was said so far."""
        self._lines.clear()
        self._errors.clear()
        self._open = ""

    def hear(self, text: str, *, is_error: bool) -> None:
        """Take a piece of text."""
        *whole, self._open = (self._open + text).split("\n")
        for line in whole:
            if is_error:
                self._errors.append(line)
            if len(self._lines) < _KEPT_LINES:
                self._lines.append(line)

    def lines(self) -> tuple[str, ...]:
        """Whole lines since the mark."""
        return tuple(self._lines)

    def complaint(self) -> str:
        """What llama.cpp called an error since the mark, in one line; empty when nothing."""
        return "; ".join(for_message(line.strip()) for line in self._errors[:5])


def cache_types(lines: Sequence[str]) -> tuple[str, str]:
    """Types of the K and the V cache, as the cache reported them (every cache, where a model has several)."""
    return _single(
        "cache_type_k` and `cache_type_v", {(match[1], match[2]) for match in _found(_CACHE, lines)}
    )


def flash_attention(lines: Sequence[str]) -> bool:
    """Whether flash attention is on; a line that says ``auto`` decides nothing."""
    word = _single("flash_attention", {match[1] for match in _found(_FLASH, lines)})
    if word not in _SAID_WORDS:
        raise EngineError(f"cannot verify `flash_attention`: got `{word}`, expected `enabled` or `disabled`")
    return _SAID_WORDS[word]


def layers(lines: Sequence[str]) -> tuple[int, int]:
    """Layers of the model with the output layer, and how many of them lie on a device that is not the CPU."""
    devices = {int(match[1]): match[2].strip() for match in _found(_LAYER, lines)}
    if devices:
        return len(devices), sum(device != "CPU" for device in devices.values())
    offloaded, count = _single(
        "layers_offloaded", {(match[1], match[2]) for match in _found(_OFFLOADED, lines)}
    )
    return int(count), int(offloaded)


def devices(lines: Sequence[str]) -> tuple[str, ...]:
    """Devices that llama.cpp said it uses, in its order: each by its PCI address, or by its name where it tells none.

    Source: ``llama_prepare_model_devices`` in llama.cpp's src/llama.cpp; none of them is the CPU.
    """
    return tuple(dict.fromkeys(_address(match) for match in _found(_USING, lines)))


def buffers(lines: Sequence[str]) -> tuple[Buffer, ...]:
    """Memory that llama.cpp said it took, in its order; none where it told nothing.

    Parts of one kind in one place are added up. Compute buffers are told again each time they are planned anew, so there
    the largest counts.
    """
    sizes: dict[tuple[str, str], int] = {}
    for match in _found(_BUFFER, lines):
        place, use = for_message(match[1]), for_message(match[2])
        size, before = bytes_of_mib(float(match[3])), sizes.get((place, use), 0)
        sizes[place, use] = max(before, size) if use == "compute" else before + size
    return tuple(Buffer(place=place, use=use, size_bytes=size) for (place, use), size in sizes.items())


def of_weights(memory: Sequence[Buffer]) -> tuple[Buffer, ...]:
    """The buffers that weights lie in."""
    return _used_for("weights_buffer", _WEIGHTS, memory)


def of_cache(memory: Sequence[Buffer]) -> tuple[Buffer, ...]:
    """The buffers that the KV cache, or the state of recurrent layers, lies in."""
    return _used_for("cache_buffer", _CACHE_USES, memory)


def _used_for(fact: str, uses: Sequence[str], memory: Sequence[Buffer]) -> tuple[Buffer, ...]:
    found = [buffer for buffer in memory if buffer.use in uses]
    if not found:
        raise EngineError(f"cannot verify `{fact}`: got no line about it in the engine's log, expected one")
    return tuple(sorted(found, key=lambda buffer: (buffer.place, buffer.use)))


def _address(using: re.Match[str]) -> str:
    name, address = using.groups()
    try:
        return bus_text(address or "")
    except InputError:
        return for_message(name)


def _found(pattern: re.Pattern[str], lines: Sequence[str]) -> list[re.Match[str]]:
    return [match for match in map(pattern.search, lines) if match is not None]


def _single(fact: str, said: set[Said]) -> Said:
    if len(said) != 1:
        got = "no line about it" if not said else "lines that differ"
        raise EngineError(f"cannot verify `{fact}`: got {got} in the engine's log, expected one")
    return said.pop()
