"""Traces: a reference model's own answers, as the text that its quants are then held against.

A file of traces is JSON lines: a header that says whose answers to which suite these are, then one line per answer with
the token ids of the prompt exactly as it was asked, and those of the answer, and last the digest of all before it.
Nothing is rendered or tokenized again when it is read, so the digest alone tells that these are still the answers of whom
the header names: a file that is not byte for byte as it was written is none.

Lives here: the structs, reading and writing. Does not live here: taking them out of a run (``flows.traces``), and
scoring them (``suites.kld``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from qlock.core.base import ITEM_ID, SLICE, Base, Positive, Token, is_item_id, wrong_slice
from qlock.core.canon import check_version, from_json, json_bytes
from qlock.core.digest import Digest, blake3_of
from qlock.core.escape import for_message
from qlock.core.exchange import Ending
from qlock.core.facts import Setting
from qlock.errors import InputError

TRACES_VERSION = 1

_CUT = "the last line is no digest of the others, expected a whole file"


class Header(Base, frozen=True, kw_only=True):
    """First line: whose answers these are."""

    traces_version: int
    traces: Positive
    """How many lines follow."""
    suite: str
    point: str
    job_digest: Digest
    """Of the job that they come from."""
    answers_digest: Digest
    """Of that job's record."""
    tensors_digest: Digest
    tokenizer_digest: Digest
    template_digest: Digest
    prompts_digest: Digest
    """The ``tokens_digest`` that the lock pinned of the suite's prompts."""
    setting: Setting


class Trace(Base, frozen=True, kw_only=True):
    """One answer."""

    id: str
    """The item's; of a later turn with ``#2`` and so on behind it."""
    slices: dict[str, str]
    prompt: Annotated[tuple[Token, ...], msgspec.Meta(min_length=1)]
    """Everything before the answer, BOS where the model wants one."""
    answer: Annotated[tuple[Token, ...], msgspec.Meta(min_length=1)]
    ending: Ending


class Closing(Base, frozen=True, kw_only=True):
    """Last line."""

    file_digest: Digest
    """Of every byte before it, as ``closed`` works it out."""


class Traces(Base, frozen=True, kw_only=True):
    """A whole file."""

    header: Header
    trace: tuple[Trace, ...]


def write_traces(header: Header, traces: Iterable[Trace]) -> bytes:
    """The bytes of a file of traces.

    Raises:
        InputError: Two traces have one id, as where an item is called what a later turn of another one is.
    """
    lines, seen = [json_bytes(header)], set[str]()
    for trace in traces:
        if trace.id in seen:
            raise InputError(
                f"got two traces of the name `{for_message(trace.id)}`, expected one",
                hint="give the item another id that does not end as a turn of an item does",
            )
        seen.add(trace.id)
        lines.append(json_bytes(trace))
    return closed(b"".join(line + b"\n" for line in lines))


def closed(lines: bytes) -> bytes:
    """The lines, and behind them the one that binds them."""
    return lines + _closing_line(lines)


def read_traces(data: bytes) -> Traces:
    r"""A file of traces, split on ``\n`` only.

    Raises:
        InputError: No traces, of a newer version, not as it was written, a damaged line, an id twice, or not as many as
            the header says.
    """
    first, *_ = data.split(b"\n", 1)
    header = _header(first)
    _, *lines = _bound(data).split(b"\n")
    traces: dict[str, Trace] = {}
    for number, line in enumerate(lines[:-1], start=2):
        here = f"line {number}"
        trace = from_json(line, Trace, name=here)
        if not _is_name(trace.id):
            raise InputError(
                f"got the id `{for_message(trace.id)}`, expected {ITEM_ID}, and `#2` and so on for a later turn"
            ).in_document(here)
        wrong = wrong_slice(trace.slices)
        if wrong is not None:
            raise InputError(f"got the slice `{for_message(wrong)}`, expected {SLICE}").in_document(here)
        if trace.id in traces:
            raise InputError(f"line {number} is a second trace of `{for_message(trace.id)}`")
        traces[trace.id] = trace
    if len(traces) != header.traces:
        raise InputError(f"got {len(traces)} traces, expected {header.traces} as the header says")
    return Traces(header=header, trace=tuple(traces.values()))


def _closing_line(lines: bytes) -> bytes:
    return json_bytes(Closing(file_digest=blake3_of(b"qlock traces 1\n" + lines))) + b"\n"


def _bound(data: bytes) -> bytes:
    """All before the last line, once that is its digest."""
    start = data.rfind(b"\n", 0, -1) + 1
    lines, last = data[:start], data[start:]
    if last == _closing_line(lines):
        return lines
    message = "the file was changed after it was written: its last line is the digest of other ones"
    try:
        from_json(last, Closing, name="")
    except InputError:
        message = _CUT
    raise InputError(message if last.endswith(b"\n") else _CUT, hint="write it again with `qlock traces`")


def _header(line: bytes) -> Header:
    """The first line; its version is looked at first, since a newer one may have other keys."""
    here = "line 1"
    try:
        plain = from_json(line, dict[str, Any], name=here)
    except InputError:
        plain = {}
    if "traces_version" not in plain:
        raise InputError("got no header, expected a file that `qlock traces` wrote").in_document(here)
    check_version("traces_version", plain, TRACES_VERSION, name=here)
    return from_json(line, Header, name=here)


def _is_name(text: str) -> bool:
    """Whether a trace can be called so: as an item, with the number of a later turn behind it or without."""
    item, mark, turn = text.rpartition("#")
    return is_item_id(text) or bool(mark and turn.isdecimal() and is_item_id(item))
