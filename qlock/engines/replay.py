"""An engine that computes nothing: it gives again what another engine was recorded giving.

Lives here: ``Recorder``, which stands around any engine and keeps its answers on a tape, and ``Replay``, which
answers from one. The tape is a file ``tape.jsonl``; each line holds an answer under the digest of what was asked, so
the order of questions does not matter. A question that was not recorded is an ``EngineError``, never a guess.

Does not live here: scripted engines for single tests (``tests/fakes``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from qlock.core.base import Base
from qlock.core.digest import Digest, digest_of
from qlock.core.facts import ProbeRow, ReadBack
from qlock.engines.interface import (
    Broken,
    Contrast,
    Contrasted,
    Done,
    Engine,
    Generated,
    Kept,
    KeptFile,
    Load,
    Measured,
    Work,
)
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


class ReferredOnce(Base, frozen=True, kw_only=True, tag_field="kind", tag="referred"):
    """A reference under one load."""

    key: Digest
    read_back: ReadBack | None
    """``None`` for a kept file."""


class TokenizedOnce(Base, frozen=True, kw_only=True, tag_field="kind", tag="tokenized"):
    """One text under one load."""

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


Entry = Named | LoadedOnce | ReferredOnce | TokenizedOnce | DoneOnce | ProbedOnce | MappedOnce

_ENTRIES = msgspec.json.Decoder(Entry)


def open_engine(
    *,
    lib_folder: Path | None = None,
    cuda_visible_devices: str = "",  # noqa: ARG001  # every engine takes it
) -> Replay:
    """The engine on the tape in a folder.

    Args:
        lib_folder: The folder.
        cuda_visible_devices: As every engine takes it; a tape uses no card.

    Raises:
        AbsentError: There is no tape.
        EngineError: A line of it cannot be read.
    """
    if lib_folder is None:
        raise AbsentError("the replay engine has no tape", hint=f"set `path` to a folder with `{TAPE}`")
    return Replay(read_tape(lib_folder / TAPE))


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


class Replay:
    """Answers from a tape, as ``engines.interface.Engine`` describes it; work is done in the order it came."""

    def __init__(self, tape: Sequence[Entry]) -> None:
        self._tape: dict[str, LoadedOnce | ReferredOnce | TokenizedOnce | DoneOnce | ProbedOnce] = {}
        self._named = Named(label="", system_info="")
        self._mapped: tuple[MappedFile, ...] = ()
        for entry in tape:
            match entry:
                case Named():
                    self._named = entry
                case MappedOnce(files=files):
                    self._mapped = files
                case LoadedOnce() | ReferredOnce() | TokenizedOnce() | DoneOnce() | ProbedOnce():
                    self._tape[entry.key] = entry
        self._load: Load | None = None
        self._reference: Load | KeptFile | None = None
        self._devices: tuple[str, ...] = ()
        self._waiting: deque[Work] = deque()

    def load(self, load: Load) -> ReadBack:
        """What came of this load."""
        match self._tape.get(load_key(load)):
            case LoadedOnce(read_back=read_back, devices=devices):
                self._load = load
                self._reference = None
                self._devices = devices
                return read_back
            case _:
                raise _absent(f"loading `{_name(load.weights[0])}` under `{load.setting.name}`")

    def refer(self, reference: Load | KeptFile) -> ReadBack | None:
        """What came of this reference."""
        match self._tape.get(reference_key(self._load, reference)):
            case ReferredOnce(read_back=read_back):
                self._reference = reference
                return read_back
            case _:
                raise _absent("this reference")

    def tokenize(
        self, texts: Sequence[str], *, add_special: bool, parse_special: bool
    ) -> list[tuple[int, ...]]:
        """What came of each text."""
        found = []
        for text in texts:
            key = text_key(self._load, text, add_special=add_special, parse_special=parse_special)
            match self._tape.get(key):
                case TokenizedOnce(tokens=tokens):
                    found.append(tokens)
                case _:
                    raise _absent(f"tokenizing a text of `{len(text)}` characters")
        return found

    def submit(self, work: Work) -> None:
        """Queue one piece of work."""
        self._waiting.append(work)

    def next_done(self) -> Done:
        """What came of the piece of work that was queued first."""
        if not self._waiting:
            raise ValueError("nothing is under way")
        work = self._waiting.popleft()
        match self._tape.get(work_key(self._load, work, reference=self._reference)):
            case DoneOnce(done=done):
                return _with_id(done, work.id)
            case _:
                raise _absent(f"the work `{work.id}`")

    def probe(self, prompts: Sequence[tuple[int, ...]], *, steps: int) -> tuple[ProbeRow, ...]:
        """What came of this probe."""
        match self._tape.get(probe_key(self._load, prompts, steps)):
            case ProbedOnce(rows=rows):
                return rows
            case _:
                raise _absent(f"probing `{len(prompts)}` prompts for `{steps}` steps")

    def mapped_files(self) -> tuple[MappedFile, ...]:
        """The files that were mapped."""
        return self._mapped

    def devices(self) -> tuple[str, ...]:
        """The cards that the recorded engine used."""
        return self._devices

    def label(self) -> str:
        """Version text of the recorded engine."""
        return self._named.label

    def system_info(self) -> str:
        """Features of the recorded engine."""
        return self._named.system_info

    def log_tail(self) -> str:
        """Nothing: no log is recorded."""
        return ""

    def close(self) -> None:
        """Nothing to end."""


class Recorder:
    """Passes everything on to an engine, and keeps what comes back; ``close`` writes the tape and closes it.

    Args:
        engine: The one that answers.
        folder: Where ``tape.jsonl`` is written.
    """

    def __init__(self, engine: Engine, folder: Path) -> None:
        self._engine = engine
        self._path = folder / TAPE
        self._load: Load | None = None
        self._reference: Load | KeptFile | None = None
        self._under_way: dict[str, Work] = {}
        self._entries: list[Entry] = [Named(label=engine.label(), system_info=engine.system_info())]

    def load(self, load: Load) -> ReadBack:
        """Load, and keep what was read back."""
        read_back = self._engine.load(load)
        self._load = load
        self._reference = None
        self._entries.append(
            LoadedOnce(key=load_key(load), read_back=read_back, devices=self._engine.devices())
        )
        return read_back

    def refer(self, reference: Load | KeptFile) -> ReadBack | None:
        """Refer, and keep what was read back."""
        read_back = self._engine.refer(reference)
        self._reference = reference
        self._entries.append(ReferredOnce(key=reference_key(self._load, reference), read_back=read_back))
        return read_back

    def tokenize(
        self, texts: Sequence[str], *, add_special: bool, parse_special: bool
    ) -> list[tuple[int, ...]]:
        """Tokenize, and keep each text's tokens."""
        found = self._engine.tokenize(texts, add_special=add_special, parse_special=parse_special)
        for text, tokens in zip(texts, found, strict=True):
            key = text_key(self._load, text, add_special=add_special, parse_special=parse_special)
            self._entries.append(TokenizedOnce(key=key, tokens=tokens))
        return found

    def submit(self, work: Work) -> None:
        """Queue one piece of work."""
        self._engine.submit(work)
        self._under_way[work.id] = work

    def next_done(self) -> Done:
        """Wait for the next finished piece, and keep it."""
        done = self._engine.next_done()
        work = self._under_way.pop(done.id)
        self._entries.append(DoneOnce(key=work_key(self._load, work, reference=self._reference), done=done))
        return done

    def probe(self, prompts: Sequence[tuple[int, ...]], *, steps: int) -> tuple[ProbeRow, ...]:
        """Probe, and keep the rows."""
        rows = self._engine.probe(prompts, steps=steps)
        self._entries.append(ProbedOnce(key=probe_key(self._load, prompts, steps), rows=rows))
        return rows

    def mapped_files(self) -> tuple[MappedFile, ...]:
        """Look, and keep what was seen."""
        files = self._engine.mapped_files()
        self._entries.append(MappedOnce(files=files))
        return files

    def devices(self) -> tuple[str, ...]:
        """The engine's own; kept with each load."""
        return self._engine.devices()

    def label(self) -> str:
        """Version text of the engine."""
        return self._engine.label()

    def system_info(self) -> str:
        """Features of the engine."""
        return self._engine.system_info()

    def log_tail(self) -> str:
        """The engine's own."""
        return self._engine.log_tail()

    def close(self) -> None:
        """Write the tape, whole, and close the engine."""
        self._path.write_bytes(b"".join(msgspec.json.encode(entry) + b"\n" for entry in self._entries))
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def load_key(load: Load) -> str:
    """Digest of a load: names of the files (where they lie does not count) and the setting."""
    return digest_of("replay load", ([_name(path) for path in load.weights], load.setting))


def text_key(load: Load | None, text: str, *, add_special: bool, parse_special: bool) -> str:
    """Digest of a text to tokenize."""
    return digest_of("replay text", (_under(load), text, add_special, parse_special))


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
            return digest_of("replay reference", (_under(load), _name(path)))


def probe_key(load: Load | None, prompts: Sequence[tuple[int, ...]], steps: int) -> str:
    """Digest of a probe."""
    return digest_of("replay probe", (_under(load), list(prompts), steps))


def _under(load: Load | None) -> str:
    return "" if load is None else load_key(load)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _with_id(done: Done, name: str) -> Done:
    match done:
        case Generated() | Measured() | Contrasted() | Kept() | Broken():
            return msgspec.structs.replace(done, id=name)


def _absent(what: str) -> EngineError:
    return EngineError(f"the tape holds no answer to {what}")
