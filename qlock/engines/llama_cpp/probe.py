"""The schedule probe of one-slot servers: continue a few prompts, vary what is around them, compare what is printed.

Plain: one prompt after the other on the first server. A variation asks the same again:

- ``repeat``: on the same server, which has computed other things since.
- ``fresh-server``: on a server started anew.
- ``replicas``: on all servers at once, each prompt on another one; with several servers only.
- ``threads``: on a server with another number of threads.

A server prints the log-probabilities of the likeliest tokens of each step; a row counts as bitwise equal when all of them
are, digit for digit. Where two rows part, the steps behind are not compared. The divergence is over the tokens that both
list. Does not live here: what follows from it (``core``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from qlock.core.facts import ProbeRow
from qlock.engines.interface import Broken, Generate, greedy
from qlock.engines.llama_cpp.asked import Room
from qlock.engines.llama_cpp.completion import Told, body_of, told_of
from qlock.engines.llama_cpp.server import Answered, Lost, Server
from qlock.errors import EngineError

Prompt = tuple[int, ...]


class Seat(msgspec.Struct, frozen=True):
    """A server with the point loaded."""

    server: Server
    room: Room


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """What the probe may use."""

    seats: tuple[Seat, ...]
    start: Callable[[int], Seat]
    """A server started anew, with so many threads more than the setting says; ends with the engine."""
    end: Callable[[Seat], None]
    threads: int
    deadline_s: float


def probe(stage: Stage, prompts: Sequence[Prompt], *, steps: int) -> tuple[ProbeRow, ...]:
    """One row for each variation.

    Args:
        stage: Servers with nothing under way.
        prompts: At least one; each with room for ``steps`` more tokens in the context.
        steps: Tokens to continue each prompt with.

    Raises:
        EngineError: There is no prompt, one does not fit, or a server died, hung or answered nonsense.
    """
    room = stage.seats[0].room
    space = room.context_tokens - steps
    if not prompts or steps < 1:
        raise EngineError(f"got `{len(prompts)}` prompts and `{steps}` steps to probe, expected at least one")
    for prompt in prompts:
        if not 0 < len(prompt) <= space or not 0 <= min(prompt) <= max(prompt) < room.vocab_tokens:
            raise EngineError(f"cannot probe with a prompt of `{len(prompt)}` tokens, room is for `{space}`")
    work = [_work(str(place), prompt, steps) for place, prompt in enumerate(prompts)]
    first = stage.seats[0]
    plain = _in_turn(first, work, stage.deadline_s)
    rows = [compared("repeat", plain, _in_turn(first, work, stage.deadline_s))]
    rows.append(compared("fresh-server", plain, _anew(stage, work, 0)))
    if len(stage.seats) > 1:
        rows.append(compared("replicas", plain, _at_once(stage, work)))
    rows.append(compared("threads", plain, _anew(stage, work, 1 if stage.threads == 1 else -1)))
    return tuple(rows)


def compared(variation: str, plain: Sequence[Told], found: Sequence[Told]) -> ProbeRow:
    """How many rows stayed the same, and how far the others moved."""
    difference, kl_nats, steps = 0.0, 0.0, 0
    for one, other in zip(plain, found, strict=True):
        for place, (before, after) in enumerate(zip(one.steps, other.steps, strict=False)):
            shared = before.keys() & after.keys()
            difference = max([difference, *(abs(before[token] - after[token]) for token in shared)])
            kl_nats += max(
                0.0, math.fsum(math.exp(before[t]) * (before[t] - after[t]) for t in sorted(shared))
            )
            steps += 1
            if one.tokens[place : place + 1] != other.tokens[place : place + 1]:
                break
    return ProbeRow(
        variation=variation,
        rows=len(plain),
        rows_bitwise=sum(one == other for one, other in zip(plain, found, strict=True)),
        rows_tokens=sum(one.tokens == other.tokens for one, other in zip(plain, found, strict=True)),
        logit_difference_max=difference,
        kl_nats_mean=kl_nats / max(1, steps),
    )


def _in_turn(seat: Seat, work: Sequence[Generate], deadline_s: float) -> list[Told]:
    return [_told(seat, one, deadline_s) for one in work]


def _at_once(stage: Stage, work: Sequence[Generate]) -> list[Told]:
    with ThreadPoolExecutor(len(stage.seats)) as pool:
        # One prompt further for each server, so that none gets the prompt that the first one had first.
        seats = [stage.seats[(place + 1) % len(stage.seats)] for place in range(len(work))]
        return list(pool.map(lambda seat, one: _told(seat, one, stage.deadline_s), seats, work))


def _anew(stage: Stage, work: Sequence[Generate], more_threads: int) -> list[Told]:
    seat = stage.start(more_threads)
    try:
        return _in_turn(seat, work, stage.deadline_s)
    finally:
        stage.end(seat)


def _told(seat: Seat, work: Generate, deadline_s: float) -> Told:
    match seat.server.ask("/completion", body_of(work, seat.room), deadline_s=deadline_s):
        case Answered(status=status, data=data):
            told = told_of(work, seat.room, status=status, data=data)
            if isinstance(told, Broken):
                raise EngineError(f"cannot probe the schedule: {told.why}")
            return told
        case Lost(why=why):
            raise seat.server.no_answer(why)


def _work(name: str, prompt: Prompt, steps: int) -> Generate:
    sampling = greedy(steps, ignore_eos=True)
    return Generate(id=name, tokens=prompt, sampling=sampling, logprobs=False, logits_digest=True)
