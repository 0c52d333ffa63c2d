"""The suite `perplexity`: what a long text costs the model, measured exactly as llama-perplexity does.

Lives here: what is asked of each window, and its grade. Does not live here: cutting the text (``core.windows``), token
ids (the caller's ``tokens_of``), log-probabilities (the engine), and the figure over all windows
(``core.perplexity``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Positive, Token
from qlock.core.exchange import Called, Completed, Diverged, Failed, Nats, Outcome, Score, Scored, Ungraded
from qlock.core.perplexity import LARGEST_NATS
from qlock.core.rules import Rule
from qlock.core.windows import DEFAULT_WINDOW_TOKENS, score_from, window_name, windows
from qlock.suites.interface import Answer, Data, Item, Play, TokensOf, Trial

ASK_VERSION = 1
GRADE_VERSION = 1
SOURCES = ("text",)
GATES: tuple[Rule, ...] = ("speed-at-least",)
"""Nothing is right or wrong, and nothing is written."""


class Params(Base, frozen=True, kw_only=True):
    """The suite's own keys."""

    text: str
    """Source of the text, for instance ``file:data/wiki.test.raw``; UTF-8, taken byte for byte."""
    window_tokens: Annotated[int, msgspec.Meta(ge=4)] = DEFAULT_WINDOW_TOKENS
    """Tokens of one window; a perplexity is comparable only with others of the same window."""
    windows: Positive | UnsetType = UNSET
    """How many windows from the start of the text; unset means all that fit."""


class Body(Base, frozen=True, kw_only=True):
    """What an item's ``body`` holds."""

    tokens: tuple[Token, ...]


def items(data: Data, params: Params, tokens_of: TokensOf) -> tuple[Item, ...]:
    """The windows, in the order of the text.

    Raises:
        InputError: As ``core.windows`` raises it.
    """
    cut = windows(data["text"], tokens_of, window_tokens=params.window_tokens, windows=params.windows)
    return tuple(
        Item(id=window_name(number), slices={}, body={"tokens": list(tokens)})
        for number, tokens in enumerate(cut, start=1)
    )


def ask(item: Item, params: Params) -> Play:  # noqa: ARG001 - every suite's play takes its parameters
    """One request: the cost of each token in the window's last half."""
    tokens = msgspec.convert(item.body, Body).tokens
    reply = yield Score(tokens=tokens, score_from=score_from(tokens))
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
    expected = len(tokens) - score_from(tokens)
    nats = answer.nats
    if len(nats) != expected:
        return Ungraded(why=f"got {len(nats)} scored tokens, expected {expected}")
    for position, cost in enumerate(nats):
        if not 0 <= cost <= LARGEST_NATS:  # NaN fails both
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
