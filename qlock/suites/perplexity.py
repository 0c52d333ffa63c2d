"""The suite `perplexity`: what a long text costs the model, measured exactly as llama-perplexity does.

The whole text becomes tokens once and is cut into windows that do not overlap; the rest at the end is dropped.
Only the last half of each window is scored, so that every scored token has at least half a window before it.

Lives here: cutting the text, what is asked of each window, and the formulas over all windows. Does not live
here: token ids (the caller's ``tokens_of``) and log-probabilities (the engine).

Source: ``tools/perplexity/perplexity.cpp`` of llama.cpp, function ``perplexity``, with ``--ppl-stride 0``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Count, Finite, Positive
from qlock.core.exchange import (
    Called,
    Completed,
    Excluded,
    Failed,
    Nats,
    Outcome,
    Partial,
    Right,
    Score,
    Scored,
    Ungraded,
    Unparsable,
    Wrong,
)
from qlock.core.stats import CannotTell
from qlock.errors import InputError
from qlock.suites.interface import Answer, Data, Item, Play, TokensOf, Trial

ASK_VERSION = 1
GRADE_VERSION = 1
SOURCES = ("text",)

_LARGEST_COST = 1e6  # nats; float32 logits of a working model give under 200, and squares must stay finite
_LARGEST_MEAN = 300.0  # nats; beyond it the perplexity and its error would leave what a float can hold


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


class Perplexity(Base, frozen=True, kw_only=True):
    """The figure over all windows, with two standard errors of it."""

    perplexity: Finite
    """exp of the mean cost of a scored token."""
    standard_error: Finite | CannotTell
    """llama-perplexity's own ``+/-``: it takes tokens for independent of each other, so it is too small."""
    cluster_error: Finite | CannotTell
    """The same, but with windows as clusters: tokens of one window may depend on each other in any way."""
    scored_tokens: Count
    windows: Count


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
        case Completed() | Called():
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


def perplexity_of(outcomes: Iterable[Outcome]) -> Perplexity | CannotTell:
    """The figure over all windows, or why there is none.

    With the sum S and the sum of squares Q over n scored tokens, and m = S / n:

    - perplexity = exp(m);
    - standard error = exp(m) · sqrt((Q / n - m²) / (n - 1)), as llama-perplexity prints it;
    - cluster error = exp(m) · sqrt(k / (k - 1) · Σ (S_w - n_w · m)²) / n over the k windows w (CR1, as
      ``stats.cluster_mean``; windows taken as independent).

    Every outcome must be a window's ``Nats``: a figure over the windows that happened to work would be another
    figure under the same name.
    """
    windows: list[Nats] = []
    for number, outcome in enumerate(outcomes):
        match outcome:
            case Nats():
                windows.append(outcome)
            case Right() | Wrong() | Partial() | Unparsable() | Ungraded() | Excluded():
                return CannotTell(why=f"window {number + 1} has no cost")
    count = sum(window.scored_tokens for window in windows)
    if count == 0:
        return CannotTell(why="no token was scored")
    mean = math.fsum(window.nats_sum for window in windows) / count
    if mean > _LARGEST_MEAN:
        return CannotTell(why=f"got a mean cost of `{mean}` nats, expected at most `{_LARGEST_MEAN}`")
    perplexity = math.exp(mean)
    return Perplexity(
        perplexity=perplexity,
        standard_error=_token_error(windows, mean=mean, perplexity=perplexity),
        cluster_error=_cluster_error(windows, mean=mean, perplexity=perplexity),
        scored_tokens=count,
        windows=len(windows),
    )


def _token_error(windows: Sequence[Nats], *, mean: float, perplexity: float) -> float | CannotTell:
    count = sum(window.scored_tokens for window in windows)
    if count < 2:
        return CannotTell(why="one scored token has no spread")
    variance = math.fsum(window.nats_square_sum for window in windows) / count - mean * mean
    # Rounding can leave the variance of equal costs a hair below zero.
    return perplexity * math.sqrt(max(variance, 0.0) / (count - 1))


def _cluster_error(windows: Sequence[Nats], *, mean: float, perplexity: float) -> float | CannotTell:
    many = len(windows)
    if many < 2:
        return CannotTell(why="one window has no spread")
    count = sum(window.scored_tokens for window in windows)
    spread = math.fsum((window.nats_sum - window.scored_tokens * mean) ** 2 for window in windows)
    return perplexity * math.sqrt(many / (many - 1) * spread) / count
