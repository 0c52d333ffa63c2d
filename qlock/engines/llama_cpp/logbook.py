"""What a llama-server says of itself in its log, read once it has loaded its model.

The lines are those that llama.cpp writes at verbosity 4. A line that is not there, or that says two things, is a fact
that cannot be verified; it is never filled in from what was asked.

Does not live here: what the server answers over HTTP (``server``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from qlock.core.base import Base, Count
from qlock.core.escape import for_message
from qlock.core.facts import Buffer
from qlock.engines.interface import Deviation
from qlock.engines.llama_cpp_python.logbook import (
    buffers,
    cache_types,
    devices,
    flash_attention,
    of_cache,
    of_weights,
)
from qlock.errors import EngineError

OWN = "qlock: "
"""What a line of qlock's own in the log begins with."""

_THREADS = re.compile(r"system_info: n_threads = (\d+) \(n_threads_batch = (\d+)\) / \d+ \| (.*)$")
_OFFLOADED = re.compile(r"load_tensors: offloaded (\d+)/(\d+) layers to GPU")
_WEIGHTS = re.compile(r"load_tensors: +(\S+) +model buffer size =")
_UNIFIED = re.compile(r"llama_context: kv_unified +=\s*(true|false)")
_SPECIAL = r"print_info: {} token +=\s+(-?\d+) "
_LISTENING = re.compile(r"listening on http://127\.0\.0\.1:(\d+)")
_ERROR = re.compile(r"^(?:[\d.]+ E |error[: ])|GGML_ASSERT|GGML_ABORT|terminate called")
_HOST_BUFFERS = ("CPU", "AMX", "Host", "BLAS")


class Said(Base, frozen=True, kw_only=True):
    """What one server's log tells."""

    context_tokens: Count
    """Of one sequence, with llama.cpp's own rounding."""
    sequences: Count
    batch_tokens: Count
    ubatch_tokens: Count
    threads: Count
    batch_threads: Count
    cache_type_k: str
    cache_type_v: str
    flash_attention: bool
    layers: Count
    layers_offloaded: Count
    weights_buffer: tuple[Buffer, ...]
    cache_buffer: tuple[Buffer, ...]
    is_kv_unified: bool
    trained_context_tokens: Count
    vocab_tokens: Count
    bos_token: int
    eos_token: int
    end_tokens: tuple[int, ...]
    expert_count: Count
    system_info: str
    devices: tuple[str, ...]
    """Cards that the model lies on, as ``Engine.devices`` gives them."""
    memory: tuple[Buffer, ...]
    """Of this one server."""


def read(lines: Sequence[str]) -> Said:
    """All of it.

    Raises:
        EngineError: A fact cannot be verified.
    """
    cache_type_k, cache_type_v = cache_types(lines)
    threads, batch_threads, system_info = _once("threads", _THREADS, lines)
    layers, layers_offloaded = _layers(lines)
    memory = buffers(lines)
    return Said(
        context_tokens=_number("context_tokens", r"llama_context: n_ctx_seq +=\s*(\d+)", lines),
        sequences=_number("slots", r"llama_context: n_seq_max +=\s*(\d+)", lines),
        batch_tokens=_number("batch_tokens", r"llama_context: n_batch +=\s*(\d+)", lines),
        ubatch_tokens=_number("ubatch_tokens", r"llama_context: n_ubatch +=\s*(\d+)", lines),
        threads=int(threads),
        batch_threads=int(batch_threads),
        cache_type_k=cache_type_k,
        cache_type_v=cache_type_v,
        flash_attention=flash_attention(lines),
        layers=layers,
        layers_offloaded=layers_offloaded,
        weights_buffer=of_weights(memory),
        cache_buffer=of_cache(memory),
        is_kv_unified=_once("kv_unified", _UNIFIED, lines) == ("true",),
        trained_context_tokens=_number(
            "trained_context_tokens", r"print_info: n_ctx_train +=\s*(\d+)", lines
        ),
        vocab_tokens=_number("vocab_tokens", r"print_info: n_vocab +=\s*(\d+)", lines),
        bos_token=_token("BOS", lines),
        eos_token=_token("EOS", lines),
        end_tokens=_end_tokens(lines),
        expert_count=_number("expert_count", r"print_info: n_expert +=\s*(\d+)", lines),
        system_info=system_info.strip(),
        devices=devices(lines),
        memory=memory,
    )


def deviations(said: Said) -> list[Deviation]:
    """What a log tells that is not as the server was told."""
    if said.is_kv_unified:
        return [Deviation(name="kv_unified", expected="false", found="true")]
    return []


def port(lines: Sequence[str]) -> int | None:
    """The port that a server says it listens on; ``None`` when it has not said so yet."""
    found = {match[1] for match in map(_LISTENING.search, lines) if match is not None}
    return int(found.pop()) if len(found) == 1 else None


def complaint(lines: Sequence[str]) -> str:
    """Why a server ended: its first error, else its last lines; for a message."""
    said = [line.strip() for line in lines if line.strip() and not line.startswith(OWN)]
    errors = [line for line in said if _ERROR.search(line)]
    return for_message(" | ".join(errors[:1] or said[-3:]))


def _layers(lines: Sequence[str]) -> tuple[int, int]:
    """Layers with the output layer, and how many of them lie on a GPU.

    A build without GPU support writes no line about offloading; then no weights may lie anywhere but with the CPU.
    """
    offloaded = {(match[1], match[2]) for match in map(_OFFLOADED.search, lines) if match is not None}
    if len(offloaded) == 1:
        on_gpu, layers = offloaded.pop()
        return int(layers), int(on_gpu)
    places = {match[1] for match in map(_WEIGHTS.search, lines) if match is not None}
    strange = sorted(place for place in places if not place.startswith(_HOST_BUFFERS))
    if offloaded or not places or strange:
        raise _unverified("layers_offloaded", "no line about it" if not offloaded else "lines that differ")
    # Where a model has layers for drafting, the second line counts them too, as llama.cpp does when it deals them out.
    name = "n_layer_all" if any("print_info: n_layer_all " in line for line in lines) else "n_layer"
    return _number("layers", rf"print_info: {name} +=\s*(\d+)", lines) + 1, 0


def _end_tokens(lines: Sequence[str]) -> tuple[int, ...]:
    pattern = re.compile(_SPECIAL.format("EOG"))
    found = {int(match[1]) for match in map(pattern.search, lines) if match is not None}
    if not found:
        raise _unverified("end_tokens", "no line about it")
    return tuple(sorted(found))


def _token(name: str, lines: Sequence[str]) -> int:
    """A token that a vocabulary may lack; then −1."""
    pattern = re.compile(_SPECIAL.format(name))
    found = {int(match[1]) for match in map(pattern.search, lines) if match is not None}
    if len(found) > 1:
        raise _unverified(f"{name.lower()}_token", "lines that differ")
    return found.pop() if found else -1


def _number(fact: str, pattern: str, lines: Sequence[str]) -> int:
    (number,) = _once(fact, re.compile(pattern), lines)
    return int(number)


def _once(fact: str, pattern: re.Pattern[str], lines: Sequence[str]) -> tuple[str, ...]:
    found = {match.groups() for match in map(pattern.search, lines) if match is not None}
    if len(found) != 1:
        raise _unverified(fact, "no line about it" if not found else "lines that differ")
    return found.pop()


def _unverified(fact: str, got: str) -> EngineError:
    return EngineError(f"cannot verify `{fact}`: got {got} in the engine's log, expected one")
