"""A piece of generation as a request to llama-server, and its answer as something finished.

Pure: structs and bytes in, structs and bytes out. The prompt goes as token ids, every value of every sampler is said,
and the settings that the server echoes are held against them, since it ignores fields that it does not know. The answer
comes whole: a streamed one lacks the ids of tokens that end within a character.

Random draws are llama.cpp's own, so a seed gives other texts here than in the embedded engine; with ``ignore_eos`` the
end tokens are forbidden here, where the embedded engine goes on behind them.

Does not live here: sending it (``server``).
"""

from __future__ import annotations

import math

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.digest import StreamDigests
from qlock.core.escape import for_message
from qlock.core.exchange import Ending
from qlock.core.units import seconds_of_ms
from qlock.engines.interface import Broken, Generate, Generated
from qlock.engines.llama_cpp.asked import Room, asked_of, budget_tokens, check_echo
from qlock.errors import EngineError


class _Timings(msgspec.Struct, frozen=True):
    cache_n: int
    prompt_ms: float
    predicted_ms: float


class _TokenProbability(msgspec.Struct, frozen=True):
    id: int
    logprob: msgspec.Raw


class _StepProbability(msgspec.Struct, frozen=True):
    id: int
    logprob: msgspec.Raw
    top_logprobs: list[_TokenProbability]


class _Completion(msgspec.Struct, frozen=True):
    content: str
    tokens: list[int]
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    generation_settings: dict[str, object]
    truncated: bool
    stop_type: str
    stopping_word: str
    timings: _Timings
    completion_probabilities: list[_StepProbability] | UnsetType = UNSET


class _Fault(msgspec.Struct, frozen=True):
    message: str = ""
    type: str = ""


class _Failed(msgspec.Struct, frozen=True):
    error: _Fault


_COMPLETION = msgspec.json.Decoder(_Completion)
_FAILED = msgspec.json.Decoder(_Failed)


def answered_at_once(work: Generate, room: Room) -> Generated | Broken | None:
    """What needs no server: work that cannot be done, or that is over before it begins."""
    if not work.tokens:
        return Broken(id=work.id, why="got no tokens, expected at least one")
    strange = [token for token in work.tokens if not 0 <= token < room.vocab_tokens]
    if strange:
        last = room.vocab_tokens - 1
        return Broken(id=work.id, why=f"got token `{strange[0]}`, expected one of `0` to `{last}`")
    if len(work.tokens) >= room.context_tokens:
        return _over_before(work, "context", _no_room(len(work.tokens), room.context_tokens))
    if work.sampling.answer_tokens == 0:
        return _over_before(work, "budget", "")
    return None


def body_of(work: Generate, room: Room, *, forced: int | None = None) -> bytes:
    """The request; with ``forced`` for a token that must come next."""
    asked = asked_of(work, room, forced=forced)
    return msgspec.json.encode({"prompt": work.tokens, "cache_prompt": False, "id_slot": 0} | asked)


def done_of(work: Generate, room: Room, *, status: int, data: bytes) -> Generated | Broken:
    """What the server's answer means.

    Args:
        work: What was asked.
        room: Of the loaded model.
        status: HTTP status.
        data: Body.

    Raises:
        EngineError: Another server answered, or this one does not do as it is told.
    """
    if status != 200:
        return _refused(work, room, status, data)
    try:
        said = _COMPLETION.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _nonsense(work, f"got {_quoted(data)}: {error}")
    _prove(work, room, said)
    return _finished(work, room, said)


class Told(msgspec.Struct, frozen=True):
    """What a server printed of each step of an answer."""

    tokens: tuple[int, ...]
    steps: tuple[dict[int, float], ...]
    """Log-probabilities of the likeliest tokens. NOTE: of a step that ends within a character nothing is printed."""
    printed: str
    """Digest of all of it, as printed."""


def told_of(work: Generate, room: Room, *, status: int, data: bytes) -> Told | Broken:
    """The steps of an answer whose work asks for a digest; arguments and errors as ``done_of``."""
    match done_of(work, room, status=status, data=data):
        case Broken() as broken:
            return broken
        case Generated() as done:
            steps = _COMPLETION.decode(data).completion_probabilities
            return Told(
                tokens=done.tokens,
                steps=()
                if steps is UNSET
                else tuple(
                    {one.id: float(msgspec.json.decode(bytes(one.logprob))) for one in step.top_logprobs}
                    for step in steps
                ),
                printed=done.logits_digest,
            )


def forced_nats(work: Generate, token: int, room: Room, *, status: int, data: bytes) -> float | Broken:
    """What a token cost that a request forced to come next; arguments and errors as ``done_of``."""
    if status != 200:
        return Broken(id=work.id, why=f"got HTTP status `{status}` and {_quoted(data)}")
    try:
        said = _COMPLETION.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _nonsense(work, f"got {_quoted(data)}: {error}")
    _prove(work, room, said, forced=token)
    steps = said.completion_probabilities
    if steps is UNSET or [step.id for step in steps] != [token]:
        why = f"got no log-probability of token `{token}`"
        return Broken(id=work.id, why=f"the server leaves out tokens that end within a character: {why}")
    told = msgspec.json.decode(bytes(steps[0].logprob))
    if not isinstance(told, int | float) or not math.isfinite(told):
        return _nonsense(work, f"got the log-probability `{told}`")
    # Rounding of a sum of 32 bits can leave a certain token a hair above certainty.
    return max(0.0, -float(told))


def _prove(work: Generate, room: Room, said: _Completion, *, forced: int | None = None) -> None:
    """Hold an answer against what was asked, and against the server that was started."""
    if said.model != room.alias:
        raise EngineError(
            f"another server answered: got the model `{for_message(said.model)}`, expected `{room.alias}`"
        )
    check_echo(asked_of(work, room, forced=forced), said.generation_settings, room)
    if said.timings.cache_n != 0 or said.tokens_evaluated != len(work.tokens):
        raise EngineError(
            f"the server did not compute the whole prompt: got `{said.tokens_evaluated}` tokens with"
            f" `{said.timings.cache_n}` from a cache, expected `{len(work.tokens)}` with `0`"
        )


def _finished(work: Generate, room: Room, said: _Completion) -> Generated | Broken:
    tokens = list(said.tokens)
    if len(tokens) != said.tokens_predicted or not all(0 <= token < room.vocab_tokens for token in tokens):
        return _nonsense(
            work, f"got ids of `{len(tokens)}` tokens for `{said.tokens_predicted}` tokens generated"
        )
    ending = _ending(work, room, said)
    if isinstance(ending, str):
        return _nonsense(work, ending)
    text = said.content
    if ending[0] == "eos":
        text = text.removesuffix(room.end_texts[tokens.pop()])
    logprobs, digest = _probabilities(work, said, tokens)
    if work.logprobs and len(logprobs) != len(tokens):
        why = f"got log-probabilities of `{len(logprobs)}` tokens, expected `{len(tokens)}`"
        return Broken(id=work.id, why=f"the server leaves out tokens that end within a character: {why}")
    return Generated(
        id=work.id,
        tokens=tuple(tokens),
        text=text,
        ending=ending[0],
        why=ending[1],
        logprobs=logprobs if work.logprobs else (),
        logits_digest=digest if work.logits_digest else "",
        prefill_s=max(0.0, seconds_of_ms(said.timings.prompt_ms)),
        decode_s=max(0.0, seconds_of_ms(said.timings.predicted_ms)),
    )


def _ending(work: Generate, room: Room, said: _Completion) -> tuple[Ending, str] | str:
    """Ending and reason, or what is wrong with what the server says about it."""
    prompt, made = len(work.tokens), len(said.tokens)
    match said.stop_type:
        case "eos":
            if made and said.tokens[-1] in room.end_tokens and not work.sampling.ignore_eos:
                return "eos", ""
            return "got the ending `eos` without an end token"
        case "word":
            if said.stopping_word in work.sampling.stop and said.stopping_word:
                return "stop", said.stopping_word
            return f"got the stop text `{for_message(said.stopping_word)}`, which was not asked for"
        case "limit":
            if made == work.sampling.answer_tokens:
                return "budget", ""
            if said.truncated or prompt + made >= room.context_tokens:
                return "context", f"prompt and answer fill the context of `{room.context_tokens}` tokens"
            return f"got an end at `{made}` tokens, expected one at `{budget_tokens(work, room)}`"
        case other:
            return f"got the ending `{for_message(other)}`, expected `eos`, `word` or `limit`"


def _probabilities(work: Generate, said: _Completion, tokens: list[int]) -> tuple[tuple[float, ...], str]:
    """Log-probabilities of the tokens, and the digest of all that was told of the steps, as printed."""
    if said.completion_probabilities is UNSET:
        return (), ""
    steps = said.completion_probabilities
    digests = StreamDigests()
    digests.feed_blake3(msgspec.json.encode(tokens))
    for step in steps:
        digests.feed_blake3(b"\n%d %s" % (step.id, bytes(step.logprob)))
        for one in step.top_logprobs:
            digests.feed_blake3(b" %d %s" % (one.id, bytes(one.logprob)))
    told = [msgspec.json.decode(bytes(step.logprob)) for step in steps[: len(tokens)]]
    numbers = tuple(float(one) for one in told if isinstance(one, int | float))
    is_whole = [step.id for step in steps[: len(tokens)]] == tokens
    return numbers if is_whole and work.logprobs else (), digests.blake3()


def _refused(work: Generate, room: Room, status: int, data: bytes) -> Generated | Broken:
    try:
        fault = _FAILED.decode(data).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _nonsense(work, f"got HTTP status `{status}` and {_quoted(data)}")
    if fault.type == "exceed_context_size_error":
        return _over_before(work, "context", _no_room(len(work.tokens), room.context_tokens))
    return Broken(
        id=work.id, why=f"the server refused (HTTP status `{status}`): {for_message(fault.message)}"
    )


def _over_before(work: Generate, ending: Ending, why: str) -> Generated:
    return Generated(
        id=work.id,
        tokens=(),
        text="",
        ending=ending,
        why=why,
        logprobs=(),
        logits_digest=StreamDigests().blake3() if work.logits_digest else "",
        prefill_s=0.0,
        decode_s=0.0,
    )


def _no_room(prompt: int, context: int) -> str:
    return f"a prompt of `{prompt}` tokens leaves no room in a context of `{context}`"


def _nonsense(work: Generate, what: str) -> Broken:
    return Broken(id=work.id, why=f"the server answered nonsense: {what}")


def _quoted(data: bytes) -> str:
    return f"`{for_message(data[:200].decode(errors='replace'))}`"
