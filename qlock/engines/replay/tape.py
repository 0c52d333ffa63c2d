"""A tape: what an engine once answered, each answer under the digest of what was asked.

It is a file ``tape.jsonl``, one answer a line, so the order of questions does not matter. Where files lie does not
count. Does not live here: recording one and answering from one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from qlock.core.base import Base
from qlock.core.digest import Digest, digest_of
from qlock.core.facts import Buffer, ProbeRow, ReadBack
from qlock.engines.interface import Contrast, Deviation, Done, KeptFile, Load, Vocabulary, Work
from qlock.errors import AbsentError, EngineError
from qlock.world.interface import MappedFile

TAPE = "tape.jsonl"


class Named(Base, frozen=True, kw_only=True, tag_field="kind", tag="named"):
    """What the engine said of itself."""

    label: str
    system_info: str


class LoadedOnce(Base, frozen=True, kw_only=True, tag_field="kind", tag="loaded"):
    """A load, known by the names of its files and its setting."""

    key: Digest
    read_back: ReadBack
    devices: tuple[str, ...] = ()
    memory: tuple[Buffer, ...] = ()
    deviations: tuple[Deviation, ...] = ()


class ReferredOnce(Base, frozen=True, kw_only=True, tag_field="kind", tag="referred"):
    """A reference under one load."""

    key: Digest
    read_back: ReadBack | None
    """``None`` for a kept file."""


class SpokenOnce(Base, frozen=True, kw_only=True, tag_field="kind", tag="spoken"):
    """A vocabulary loaded alone, known by the name of its file."""

    key: Digest
    vocabulary: Vocabulary


class TokenizedOnce(Base, frozen=True, kw_only=True, tag_field="kind", tag="tokenized"):
    """One text under one load, or under one vocabulary."""

    key: Digest
    tokens: tuple[int, ...]


class DoneOnce(Base, frozen=True, kw_only=True, tag_field="kind", tag="done"):
    """One piece of work under one load, whatever it was called."""

    key: Digest
    done: Done
    """Its id is that of the recording."""


class ProbedOnce(Base, frozen=True, kw_only=True, tag_field="kind", tag="probed"):
    """A probe under one load."""

    key: Digest
    rows: tuple[ProbeRow, ...]


class MappedOnce(Base, frozen=True, kw_only=True, tag_field="kind", tag="mapped"):
    """The files that were mapped when it was last asked."""

    files: tuple[MappedFile, ...]


Keyed = LoadedOnce | ReferredOnce | SpokenOnce | TokenizedOnce | DoneOnce | ProbedOnce
Entry = Named | MappedOnce | Keyed

_ENTRIES = msgspec.json.Decoder(Entry)


def read_tape(path: Path) -> tuple[Entry, ...]:
    """The entries of a tape.

    Raises:
        AbsentError: There is none.
        EngineError: A line cannot be read.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise AbsentError(f"got no tape at `{path}`: {error.strerror}") from error
    entries = []
    for number, line in enumerate(lines, start=1):
        if line:
            try:
                entries.append(_ENTRIES.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise EngineError(f"line `{number}` of the tape is none: {error}") from error
    return tuple(entries)


def load_key(load: Load) -> str:
    """Digest of a load: names of the files (where they lie does not count) and the setting."""
    return digest_of("replay load", ([name_of(path) for path in load.weights], load.setting))


def vocabulary_key(header: str) -> str:
    """Digest of a vocabulary loaded alone: the name of its file."""
    return digest_of("replay vocabulary", name_of(header))


def text_key(loaded: Load | str | None, text: str, *, add_special: bool, parse_special: bool) -> str:
    """Digest of a text to tokenize under a load, or under the vocabulary of a path."""
    return digest_of("replay text", (_under(loaded), text, add_special, parse_special))


def work_key(load: Load | None, work: Work, *, reference: Load | KeptFile | None = None) -> str:
    """Digest of a piece of work without its id; with the reference where it is held against one."""
    bare = msgspec.structs.replace(work, id="")
    match work:
        case Contrast() if reference is not None:
            return digest_of("replay contrast", (reference_key(load, reference), bare))
        case _:
            return digest_of("replay work", (_under(load), bare))


def reference_key(load: Load | None, reference: Load | KeptFile) -> str:
    """Digest of a reference; where a file lies does not count."""
    match reference:
        case Load():
            return digest_of("replay reference", (_under(load), load_key(reference)))
        case KeptFile(path=path):
            return digest_of("replay reference", (_under(load), name_of(path)))


def probe_key(load: Load | None, prompts: Sequence[tuple[int, ...]], steps: int) -> str:
    """Digest of a probe."""
    return digest_of("replay probe", (_under(load), list(prompts), steps))


def _under(loaded: Load | str | None) -> str:
    match loaded:
        case Load():
            return load_key(loaded)
        case str():
            return vocabulary_key(loaded)
        case None:
            return ""


def name_of(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]
