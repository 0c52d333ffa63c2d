"""What a suite may ask, what comes back, and what a grader says.

A suite's play yields a ``Request`` and is sent a ``Reply``; its grader returns an ``Outcome``. The driver
(``flows.run``) renders, tokenizes and hands requests to an engine; a suite never sees the engine.

Does not live here: the engine's own shapes (``engines.interface``) and how things are stored (``core.record``).
"""

from __future__ import annotations

from typing import Literal

from qlock.core.base import Base, Count, Finite, Positive, Share, Token

Ending = Literal["eos", "stop", "budget", "context", "error"]
"""Why a reply stopped: end-of-generation token, a stop rule, the token cap, the end of the context, a fault."""


class Message(Base, frozen=True, kw_only=True):
    """One turn of a conversation."""

    role: str
    content: str


class Chat(Base, frozen=True, kw_only=True, tag_field="kind", tag="chat"):
    """A conversation, rendered with the model's chat template before it is tokenized."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, object], ...] = ()
    """JSON-schema descriptions of functions, given to the template as ``tools``."""


class Raw(Base, frozen=True, kw_only=True, tag_field="kind", tag="raw"):
    """Text that is tokenized as it stands, with the model's own BOS rule."""

    text: str


class Complete(Base, frozen=True, kw_only=True, tag_field="kind", tag="complete"):
    """Continue a prompt with the suite's sampling."""

    prompt: Chat | Raw


class Score(Base, frozen=True, kw_only=True, tag_field="kind", tag="score"):
    """Give the negative log-probability of each token from ``score_from`` on, given all before it."""

    tokens: tuple[Token, ...]
    score_from: Positive
    """Index of the first token that is scored; at least 1."""


class Diverge(Base, frozen=True, kw_only=True, tag_field="kind", tag="diverge"):
    """Hold the point's prediction of each token from ``score_from`` on against the reference's, given all before it."""

    tokens: tuple[Token, ...]
    score_from: Positive
    """Index of the first token that is scored; at least 1."""
    pieces: bool
    """Whether to give the text of each scored token."""


class Call(Base, frozen=True, kw_only=True, tag_field="kind", tag="call"):
    """Run tool calls in the sandbox and give their results as text."""

    calls: tuple[str, ...]
    state: dict[str, object]


Request = Complete | Score | Diverge | Call


class Completed(Base, frozen=True, kw_only=True, tag_field="kind", tag="completed"):
    """What a model wrote, and why it stopped."""

    text: str
    """The tokens' bytes joined, then decoded as UTF-8 (bytes that are no UTF-8 become U+FFFD)."""
    tokens: tuple[Token, ...]
    ending: Ending
    prompt_tokens: Count
    why: str = ""
    """With ``error``: what went wrong; with ``stop``: the stop rule that matched."""


class Scored(Base, frozen=True, kw_only=True, tag_field="kind", tag="scored"):
    """Negative log-probabilities in nats, one per scored token, each ≥ 0."""

    nats: tuple[Finite, ...]


class Diverged(Base, frozen=True, kw_only=True, tag_field="kind", tag="diverged"):
    """How far the point's predictions are from the reference's: one number per scored token in each field, in nats."""

    nats: tuple[Finite, ...]
    """Negative log-probability that the point gives the token."""
    reference_nats: tuple[Finite, ...]
    """The same of the reference."""
    kld_nats: tuple[Finite, ...]
    """KL divergence of the point from the reference, over the whole vocabulary: Σ p_ref · ln(p_ref / p_point)."""
    reverse_kld_nats: tuple[Finite, ...]
    """The other direction: Σ p_point · ln(p_point / p_ref)."""
    same_top: tuple[bool, ...]
    """Whether both find the same token likeliest."""
    pieces: tuple[str, ...]
    """The text of each scored token, U+FFFD for bytes that are no UTF-8 alone; empty unless asked for."""
    kld_slack_nats: tuple[Finite, ...] = ()
    """How much more than ``kld_nats`` the divergence may be at most; empty where that is the divergence itself."""


class Called(Base, frozen=True, kw_only=True, tag_field="kind", tag="called"):
    """What the sandbox returned for each call."""

    results: tuple[str, ...]
    state: dict[str, object]


class Failed(Base, frozen=True, kw_only=True, tag_field="kind", tag="failed"):
    """No reply could be had; the item is redone on the next run and never scored."""

    why: str


Reply = Completed | Scored | Diverged | Called | Failed


class Right(Base, frozen=True, kw_only=True, tag_field="kind", tag="right"):
    """The answer passed."""


class Wrong(Base, frozen=True, kw_only=True, tag_field="kind", tag="wrong"):
    """The answer was read and did not pass."""

    why: str


class Partial(Base, frozen=True, kw_only=True, tag_field="kind", tag="partial"):
    """The answer earned a share of the mark."""

    share: Share


class Unparsable(Base, frozen=True, kw_only=True, tag_field="kind", tag="unparsable"):
    """No answer could be read out of the reply; counts as not right, and is listed apart from wrong."""

    why: str


class Ungraded(Base, frozen=True, kw_only=True, tag_field="kind", tag="ungraded"):
    """Not graded yet, or not gradable here."""

    why: str


class Excluded(Base, frozen=True, kw_only=True, tag_field="kind", tag="excluded"):
    """Left out of every figure, for a reason that holds for both sides."""

    why: str


class Nats(Base, frozen=True, kw_only=True, tag_field="kind", tag="nats"):
    """What a window of text cost: the sum over its scored tokens, and the sum of squares for its error."""

    nats_sum: Finite
    nats_square_sum: Finite
    scored_tokens: Count


class Divergence(Base, frozen=True, kw_only=True, tag_field="kind", tag="divergence"):
    """A window's or a trace's divergence from the reference: one number per scored token in each field, in nats."""

    nats: tuple[Finite, ...]
    reference_nats: tuple[Finite, ...]
    kld_nats: tuple[Finite, ...]
    reverse_kld_nats: tuple[Finite, ...]
    same_top: tuple[bool, ...]
    depth_tokens: Count
    """How many tokens stand before the first scored one."""
    token_kinds: tuple[str, ...]
    """What each scored token is part of (``number``, ``function-name`` …); empty where that is not looked at."""
    kld_slack_nats: tuple[Finite, ...] = ()
    """How much more than ``kld_nats`` each may be at most; empty where that is the divergence itself."""


Reading = dict[str, dict[str, str]]
"""What a grader read out of an answer: thing to part to value, such as a function, its arguments and their values in
JSON. Only for showing how two answers differ; no score rests on it. Values are bounded in length."""

Outcome = Right | Wrong | Partial | Unparsable | Ungraded | Excluded | Nats | Divergence
