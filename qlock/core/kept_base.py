"""Whose log-probabilities a kept file holds: the identity that its format does not have, and the log of its parts.

The file is llama.cpp's own (``core.kept_logits``) or, where the likeliest tokens alone are kept, ``core.kept_top``; both
say neither model nor text nor settings. Beside it lies a journal: the identity first, then a line for each part that is
written and synced, then one for the whole. A kept file is named after its identity, so that runs of any lock with an
equal one find it; and what lies there is held to it.

Does not live here: writing and finding them (``flows.kept_base``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from qlock.core.base import Base, Count, Finite, Positive
from qlock.core.canon import check_version, from_json
from qlock.core.digest import Digest, digest_of
from qlock.core.effects import what_changes_output
from qlock.core.facts import ReadBack, Setting
from qlock.core.kept_logits import Layout, head_bytes
from qlock.core.kept_top import SPARE_TOKENS, Sizes, TopLayout, top_head_bytes
from qlock.core.lock import Lock, PromptsPin, SuitePin, named
from qlock.core.traces import read_traces
from qlock.errors import InputError

KEPT_VERSION = 1

Shapes = tuple[tuple[int, int], ...]
"""Of each part, how many tokens it has, and the index of the first that is scored."""


class Identity(Base, frozen=True, kw_only=True, tag_field="kind", tag="identity"):
    """First line: what the rows are of. A name that people gave is no part of it."""

    kept_version: int
    model: Digest
    """Of all of the reference's model that can change what it says."""
    tokenizer: Digest
    text: Digest
    """Of the token ids of all windows, or of the traces."""
    window_tokens: Positive | UnsetType = UNSET
    """Unset of traces, which have lengths of their own."""
    parts: Positive
    """Windows or traces."""
    vocab_tokens: Positive
    kept_tokens: Positive | UnsetType = UNSET
    """How many of the likeliest tokens are kept of each row; unset where all are."""
    setting: Setting
    """Without its name."""
    engine: Digest
    """Of everything that the running process maps and that can change output."""
    device: Digest
    plain_text_nats: Finite
    """What the reference does with a plain text."""


class PartLine(Base, frozen=True, kw_only=True, tag_field="kind", tag="part"):
    """One part that is written."""

    part: Count
    blake3: Digest


class WholeLine(Base, frozen=True, kw_only=True, tag_field="kind", tag="whole"):
    """Last line: every part is there."""

    blake3: Digest
    size_bytes: Count


Line = Identity | PartLine | WholeLine
_LINE: Any = Line
"""The union as msgspec takes it; mypy has no type for unions as values."""


class Log(Base, frozen=True, kw_only=True):
    """A journal as read."""

    identity: Identity
    parts: dict[int, Digest]
    whole: WholeLine | None


def identity_of(lock: Lock, suite: SuitePin, prompts: PromptsPin) -> Identity:
    """What a kept file of a suite's reference must be of.

    Args:
        lock: Proved.
        suite: One that is stored.
        prompts: What the points are asked in it: the windows are those of the reference, which has their tokenizer.

    Raises:
        InputError: The reference is not proved yet, or its vocabulary is smaller than what is to be kept of it.
    """
    point = named(lock.point, suite.reference)
    model = named(lock.model, point.model)
    setting = named(lock.setting, point.setting)
    engine = named(lock.engine, point.engine)
    device = named(lock.device, point.device)
    if not isinstance(point.read_back, ReadBack) or point.plain_text_nats is UNSET:
        raise InputError("the point is not proved yet", hint="run `qlock resolve`").within(
            f"point.{point.name}"
        )
    window_tokens = suite.params.get("window_tokens", UNSET)
    return Identity(
        kept_version=KEPT_VERSION,
        model=digest_of("kept model", what_changes_output(model)),
        tokenizer=model.tokenizer_digest,
        # Contents of traces tell where the answers begin, which the tokens alone do not.
        text=prompts.items_digest if window_tokens is UNSET else prompts.tokens_digest,
        window_tokens=window_tokens,
        parts=prompts.items,
        vocab_tokens=point.read_back.vocab_tokens,
        kept_tokens=_kept_tokens(suite, point.read_back.vocab_tokens),
        setting=replace(setting, name="kept"),
        engine=digest_of("kept engine", what_changes_output(replace(engine, name="kept"))),
        device=digest_of("kept device", what_changes_output(replace(device, name="kept"))),
        plain_text_nats=point.plain_text_nats,
    )


def check_stored_tokens(suites: Iterable[SuitePin], vocab_tokens: Mapping[str, int]) -> None:
    """Refuse suites that are to store more tokens of a row than their reference can have.

    Args:
        suites: Of any kind.
        vocab_tokens: How many tokens the vocabulary of a point has, by its name; a reference of which it is not known
            is passed over.

    Raises:
        InputError: With the suite's path in front.
    """
    for suite in suites:
        if suite.reference in vocab_tokens:
            _kept_tokens(suite, vocab_tokens[suite.reference])


def _kept_tokens(suite: SuitePin, vocab_tokens: int) -> int | UnsetType:
    kept: int | UnsetType = suite.params.get("stored_tokens", UNSET)
    most = vocab_tokens - SPARE_TOKENS
    if kept is not UNSET and kept > most:
        whole = "leave it out: then the whole vocabulary is stored"
        raise InputError(
            f"got `{kept}` as `stored_tokens`, expected at most `{most}`",
            # Traces have no window, and whole rows are stored of windows alone.
            hint=whole if "window_tokens" in suite.params else f"give it at most `{most}`",
        ).within(f"suite.{suite.name}")
    return kept


def name_of(identity: Identity) -> str:
    """What a file of this identity is called, without its ending: 16 letters of the digest."""
    ground = what_changes_output(identity)
    return digest_of("kept base", ground).partition(":")[2][:16]


def shapes_of(identity: Identity, data: Mapping[str, bytes]) -> Shapes:
    """Of each part, how many tokens it has, and the index of the first that is scored.

    Args:
        identity: Of the file.
        data: Of the suite.

    Raises:
        InputError: The data are traces and cannot be read.
    """
    if identity.window_tokens is not UNSET:
        return ((identity.window_tokens, identity.window_tokens // 2 + 1),) * identity.parts
    chosen = read_traces(data["traces"]).trace[: identity.parts]
    return tuple((len(trace.prompt) + len(trace.answer), len(trace.prompt)) for trace in chosen)


def layout_of(identity: Identity, shapes: Shapes) -> Layout | TopLayout:
    """Where everything lies in a file of this identity, whose parts have these shapes."""
    if identity.kept_tokens is not UNSET:
        return TopLayout(_sizes(identity, identity.kept_tokens), shapes)
    (window_tokens,) = {tokens for tokens, _ in shapes}
    return Layout(window_tokens=window_tokens, vocab_tokens=identity.vocab_tokens, parts=identity.parts)


def head_of(identity: Identity, parts: Sequence[tuple[Sequence[int], int]]) -> bytes:
    """Everything in front of the rows.

    Args:
        identity: Of the file.
        parts: Token ids of each as they stand in the text, and the index of the first that is scored.
    """
    import numpy as np

    if identity.kept_tokens is not UNSET:
        return top_head_bytes(_sizes(identity, identity.kept_tokens), parts)
    tokens = np.array([ids for ids, _ in parts], dtype=np.int32)
    layout = Layout(window_tokens=tokens.shape[1], vocab_tokens=identity.vocab_tokens, parts=identity.parts)
    return head_bytes(layout, tokens)


def _sizes(identity: Identity, kept_tokens: int) -> Sizes:
    return Sizes(vocab_tokens=identity.vocab_tokens, parts=identity.parts, kept_tokens=kept_tokens)


def read_log(rows: Iterable[bytes], *, name: str) -> Log | None:
    """The journal of a kept file; ``None`` where nothing is written yet.

    Raises:
        InputError: No journal of a kept file, of a newer version, or damaged.
    """
    identity: Identity | None = None
    parts: dict[int, Digest] = {}
    whole: WholeLine | None = None
    for number, row in enumerate(rows, start=1):
        here = f"{name}: line {number}"
        if number == 1:
            check_version("kept_version", from_json(row, dict[str, Any], name=here), KEPT_VERSION, name=here)
        line: Line = from_json(row, _LINE, name=here)
        match line:
            case Identity() if number == 1:
                identity = line
            case PartLine(part=part, blake3=blake3) if identity and part < identity.parts:
                parts[part] = blake3
                whole = None
            case WholeLine() if identity:
                whole = line
            case _:
                raise InputError("the line does not belong there").in_document(here)
    if identity is None:
        return None
    return Log(identity=identity, parts=parts, whole=whole)
