"""The suite `kld`: how far a point's predictions lie from the reference's, token by token.

Either on a long ``text``, cut and scored as by ``perplexity``, or on ``traces``: the reference's own answers to any
suite, with the prompts exactly as they were asked. Of a trace only the answer is scored, and each token is told by what
it is part of.

Lives here: what is asked of a window or a trace, and its grade. Does not live here: cutting the text (``core.windows``),
reading traces (``core.traces``), what tokens are part of (``core.token_kinds``), the divergences (the engine), and the
figures (``core.kld``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Positive, Token
from qlock.core.exchange import (
    Called,
    Completed,
    Diverge,
    Diverged,
    Divergence,
    Failed,
    Outcome,
    Scored,
    Ungraded,
)
from qlock.core.kept_logits import LEAST_NATS
from qlock.core.perplexity import LARGEST_NATS
from qlock.core.rules import Rule
from qlock.core.token_kinds import token_kinds
from qlock.core.traces import read_traces
from qlock.core.windows import DEFAULT_WINDOW_TOKENS, score_from, window_name, windows
from qlock.suites.interface import Answer, Data, Item, Play, TokensOf, Trial

ASK_VERSION = 1
GRADE_VERSION = 1
SOURCES = ("text", "traces")
GATES: tuple[Rule, ...] = ("kld",)
"""Nothing is right or wrong, nothing is written, and the reference is asked in the same time as the point."""
REFERENCE = True

_LEAST = -1e-4
"""Nats: what rounding can do to a sum over a vocabulary in float32."""


class Params(Base, frozen=True, kw_only=True):
    """The suite's own keys; exactly one of ``text`` and ``traces``."""

    text: str | UnsetType = UNSET
    """Source of a text, for instance ``file:data/wiki.test.raw``; UTF-8, taken byte for byte."""
    traces: str | UnsetType = UNSET
    """Source of traces, as ``qlock traces`` writes them."""
    window_tokens: Annotated[int, msgspec.Meta(ge=4)] | UnsetType = UNSET
    """Tokens of one window of the text; 512 when left out."""
    windows: Positive | UnsetType = UNSET
    """How many windows from the start of the text; unset means all that fit."""
    stored: bool = False
    """Whether the reference's log-probabilities are written to a file once and read from there, instead of loading the
    reference beside every point."""
    stored_tokens: Positive | UnsetType = UNSET
    """How many of the likeliest tokens are stored of each row; unset means all, in 16 bits."""

    def __post_init__(self) -> None:
        """One source; a window is written out where there is a text."""
        if (self.text is UNSET) == (self.traces is UNSET):
            which = "neither" if self.text is UNSET else "both"
            raise ValueError(f"got {which} of `text` and `traces`, expected one of them")
        if self.stored_tokens is not UNSET and not self.stored:
            raise ValueError(f"stored_tokens: got `{self.stored_tokens}` without `stored = true`")
        if self.stored and self.traces is not UNSET and self.stored_tokens is UNSET:
            raise ValueError(
                "stored: got `true` with `traces` and no `stored_tokens`: whole rows are stored of windows of one length"
            )
        for key in ("window_tokens", "windows"):
            if self.traces is not UNSET and getattr(self, key) is not UNSET:
                raise ValueError(f"{key}: got `{getattr(self, key)}` with `traces`, which have no windows")
        if self.text is not UNSET and self.window_tokens is UNSET:
            msgspec.structs.force_setattr(self, "window_tokens", DEFAULT_WINDOW_TOKENS)


class Body(Base, frozen=True, kw_only=True):
    """What an item's ``body`` holds."""

    tokens: tuple[Token, ...]
    score_from: Positive


def tokenizer_of(data: Data, params: Params) -> str:
    """The tokenizer whose token ids the traces are; a text has none yet."""
    return "" if params.traces is UNSET else read_traces(data["traces"]).header.tokenizer_digest


def tensors_of(data: Data, params: Params) -> str:
    """The tensors of the model that gave the answers; a text has none."""
    return "" if params.traces is UNSET else read_traces(data["traces"]).header.tensors_digest


def items(data: Data, params: Params, tokens_of: TokensOf) -> tuple[Item, ...]:
    """The windows in the order of the text, or the traces in the order of their file.

    Raises:
        InputError: As ``core.windows`` or ``core.traces`` raises it.
    """
    if params.traces is not UNSET:
        return tuple(
            _item(trace.id, trace.slices, (*trace.prompt, *trace.answer), first=len(trace.prompt))
            for trace in read_traces(data["traces"]).trace
        )
    assert params.window_tokens is not UNSET  # written out beside a text
    cut = windows(data["text"], tokens_of, window_tokens=params.window_tokens, windows=params.windows)
    return tuple(
        _item(window_name(number), {}, tokens, first=score_from(tokens))
        for number, tokens in enumerate(cut, start=1)
    )


def _item(id_: str, slices: dict[str, str], tokens: tuple[int, ...], *, first: int) -> Item:
    return Item(id=id_, slices=slices, body={"tokens": list(tokens), "score_from": first})


def _body(item: Item) -> Body:
    return msgspec.convert(item.body, Body)


def ask(item: Item, params: Params) -> Play:
    """One request; the text of the tokens is needed where they are answers."""
    body = _body(item)
    reply = yield Diverge(tokens=body.tokens, score_from=body.score_from, pieces=params.traces is not UNSET)
    match reply:
        case Diverged():
            return Answer(diverged=reply)
        case Failed(why=why):
            return Answer(failed=why)
        case Completed() | Scored() | Called():
            return Answer(failed="the engine answered something else: expected divergences from a reference")


def grade(item: Item, answer: Answer, params: Params) -> Outcome:
    """The numbers as they are, or ``Ungraded`` where they cannot be what they say.

    A number that is infinite, NaN, negative by more than rounding, or one too few, means that the engine is broken;
    such an item never enters a figure.
    """
    body, found = _body(item), answer.diverged
    if found is None:
        return Ungraded(why="got no divergences")
    scored = len(body.tokens) - body.score_from
    is_rounded = params.stored and params.stored_tokens is UNSET
    least = _LEAST + LEAST_NATS if is_rounded else _LEAST
    for name, numbers, low in (
        ("nats", found.nats, 0.0),
        ("reference_nats", found.reference_nats, least),
        ("kld_nats", found.kld_nats, least),
        ("reverse_kld_nats", found.reverse_kld_nats, least),
    ):
        if len(numbers) != scored:
            return Ungraded(why=f"got {len(numbers)} scored tokens in `{name}`, expected {scored}")
        for position, number in enumerate(numbers):
            if not low <= number <= LARGEST_NATS:  # NaN fails both
                return Ungraded(
                    why=f"scored token {position}: got `{number}` {name}, expected a number of at least 0"
                )
    pieces = scored if params.traces is not UNSET else 0
    if (len(found.same_top), len(found.pieces)) != (scored, pieces):
        return Ungraded(
            why=f"got {len(found.same_top)} likeliest tokens and {len(found.pieces)} pieces, "
            f"expected {scored} and {pieces}"
        )
    # The reference's own job is held against itself, whatever is stored: nothing is missing there.
    missing = found.kld_slack_nats
    if len(missing) not in ((0,) if params.stored_tokens is UNSET else (0, scored)):
        return Ungraded(why=f"got {len(missing)} bounds of what is missing of a divergence")
    if not all(0 <= nats <= LARGEST_NATS for nats in missing):
        return Ungraded(why="a bound of what is missing of a divergence is no number of at least 0")
    return Divergence(
        nats=found.nats,
        reference_nats=found.reference_nats,
        kld_nats=found.kld_nats,
        reverse_kld_nats=found.reverse_kld_nats,
        same_top=found.same_top,
        depth_tokens=body.score_from,
        token_kinds=token_kinds(found.pieces),
        kld_slack_nats=found.kld_slack_nats,
    )


def trials(items: Sequence[Item], params: Params) -> tuple[Trial, ...]:  # noqa: ARG001 - as in every suite
    """None: no distance is right, so no canned reply must pass or fail.

    What a broken engine would send is refused by ``grade`` at any time.
    """
    return ()
