"""The suite `perplexity`: what a long text costs the model, measured exactly as llama-perplexity does.

The whole text becomes tokens once and is cut into windows that do not overlap; the rest at the end is dropped.
Only the last half of each window is scored, so that every scored token has at least half a window before it.

Lives here: cutting the text, and what is asked of each window. Does not live here: token ids (the caller's
``tokens_of``), log-probabilities (the engine), and the figure over all windows (``core.perplexity``).

Source: ``tools/perplexity/perplexity.cpp`` of llama.cpp, function ``perplexity``, with ``--ppl-stride 0``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Positive
from qlock.core.exchange import Called, Completed, Diverged, Failed, Nats, Outcome, Score, Scored, Ungraded
from qlock.errors import InputError
from qlock.suites.interface import Answer, Data, Item, Play, TokensOf, Trial

ASK_VERSION = 1
GRADE_VERSION = 1
SOURCES = ("text",)
GATES = ()
"""Nothing is right or wrong, and nothing is written."""

_LARGEST_COST = 1e6  # nats; float32 logits of a working model give under 200, and squares must stay finite


class Params(Base, frozen=True, kw_only=True):
    """The suite's own keys."""

    text: str
    """Source of the text, for instance ``file:data/wiki.test.raw``; UTF-8, taken byte for byte."""
    window_tokens: Annotated[int, msgspec.Meta(ge=4)] = 512
    """Tokens of one window; a perplexity is comparable only with others of the same window."""
    windows: Positive | UnsetType = UNSET
    """How many windows from the start of the text; unset means all that fit."""


class Body(Base, frozen=True, kw_only=True):
    """What an item's ``body`` holds."""

    tokens: tuple[int, ...]


def items(data: Data, params: Params, tokens_of: TokensOf) -> tuple[Item, ...]:
    """The windows, in the order of the text, each with BOS in front where the vocabulary adds one.

    Raises:
        InputError: The text is no UTF-8, is shorter than two windows or than the windows asked for, or the
            vocabulary adds a token at the end, which would land in the middle of nowhere.
    """
    text = _decoded(data["text"])
    added = tokens_of("")
    tokens = tokens_of(text)
    if len(added) > 1:
        raise InputError(
            f"the vocabulary adds tokens at the end of a text: got {len(added)} tokens for an empty text, "
            "expected at most 1 (BOS)"
        )
    if added and tokens[:1] != added:
        raise InputError(
            f"the tokens of the text do not start with BOS: got `{tokens[0] if tokens else 'nothing'}`, "
            f"expected `{added[0]}`"
        )
    size = params.window_tokens
    if len(tokens) < 2 * size:
        raise InputError(
            f"the text is too short: got {len(tokens)} tokens, expected at least {2 * size} (two windows)",
            hint="give a longer text or lower `window_tokens`",
        )
    there = len(tokens) // size
    wanted = there if params.windows is UNSET else params.windows
    if wanted > there:
        raise InputError(
            f"the text is too short: got {there} windows of {size} tokens, expected {wanted}",
            hint="lower `windows`, or leave it out to take all",
        )
    return tuple(
        Item(
            id=f"window-{number + 1:04d}",
            slices={},
            body={"tokens": [*added, *tokens[number * size + len(added) : (number + 1) * size]]},
        )
        for number in range(wanted)
    )


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise InputError(f"the text is not UTF-8: line {line}, byte {error.start}") from None


def _score_from(tokens: Sequence[int]) -> int:
    """Index of the first scored token: the logits at half the window are the first that are used."""
    return len(tokens) // 2 + 1


def ask(item: Item, params: Params) -> Play:  # noqa: ARG001 - every suite's play takes its parameters
    """One request: the cost of each token in the window's last half."""
    tokens = msgspec.convert(item.body, Body).tokens
    reply = yield Score(tokens=tokens, score_from=_score_from(tokens))
    match reply:
        case Scored(nats=nats):
            return Answer(nats=nats)
        case Failed(why=why):
            return Answer(failed=why)
        case Completed() | Diverged() | Called():
            return Answer(failed="the engine answered something else: expected the cost of each token")


def grade(item: Item, answer: Answer, params: Params) -> Outcome:  # noqa: ARG001 - as in every suite
    """The window's sums, or ``Ungraded`` where the costs cannot be costs.

    A cost that is negative, infinite or NaN, or one too few, means that the engine is broken; such a window
    never enters a figure.
    """
    tokens = msgspec.convert(item.body, Body).tokens
    expected = len(tokens) - _score_from(tokens)
    nats = answer.nats
    if len(nats) != expected:
        return Ungraded(why=f"got {len(nats)} scored tokens, expected {expected}")
    for position, cost in enumerate(nats):
        if not 0 <= cost <= _LARGEST_COST:  # NaN fails both
            return Ungraded(
                why=f"scored token {position}: got `{cost}` nats, expected a number of at least 0"
            )
    return Nats(
        nats_sum=math.fsum(nats),
        nats_square_sum=math.fsum(cost * cost for cost in nats),
        scored_tokens=len(nats),
    )


def trials(items: Sequence[Item], params: Params) -> tuple[Trial, ...]:  # noqa: ARG001 - as in every suite
    """None: a text has no right answer, so no canned reply must pass or fail.

    What a broken engine would send (too few costs, NaN, negative ones) is refused by ``grade`` at any time.
    """
    return ()
