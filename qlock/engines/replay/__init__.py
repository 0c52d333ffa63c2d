"""An engine that computes nothing: it gives again what another engine was recorded giving.

A question that was not recorded is an ``EngineError``, never a guess.

Does not live here: the tape (``tape``), recording one (``recorder``), and scripted engines for single tests
(``tests/fakes``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from qlock.core.facts import Buffer, ProbeRow, ReadBack
from qlock.engines.interface import (
    Broken,
    Contrasted,
    Deviation,
    Done,
    Generated,
    Kept,
    KeptFile,
    Load,
    Measured,
    Vocabulary,
    Work,
)
from qlock.engines.replay.tape import (
    TAPE,
    DoneOnce,
    Entry,
    Keyed,
    LoadedOnce,
    MappedOnce,
    Named,
    ProbedOnce,
    ReferredOnce,
    SpokenOnce,
    TokenizedOnce,
    load_key,
    name_of,
    probe_key,
    read_tape,
    reference_key,
    text_key,
    vocabulary_key,
    work_key,
)
from qlock.errors import AbsentError, EngineError
from qlock.world.interface import MappedFile

SLOTS_MAX, REPLICAS_MAX = 64, 64


def open_engine(
    *,
    lib_folder: Path | None = None,
    variables: Mapping[str, str] | None = None,  # noqa: ARG001  # every engine takes it
) -> Replay:
    """The engine on the tape in a folder.

    Args:
        lib_folder: The folder.
        variables: As every engine takes them; a tape starts no process.

    Raises:
        AbsentError: There is no tape.
        EngineError: A line of it cannot be read.
    """
    if lib_folder is None:
        raise AbsentError("the replay engine has no tape", hint=f"set `path` to a folder with `{TAPE}`")
    return Replay(read_tape(lib_folder / TAPE))


class Replay:
    """Answers from a tape, as ``engines.interface.Engine`` describes it; work is done in the order it came."""

    def __init__(self, tape: Sequence[Entry]) -> None:
        self._tape: dict[str, Keyed] = {}
        self._named = Named(label="", system_info="")
        self._mapped: tuple[MappedFile, ...] = ()
        for entry in tape:
            match entry:
                case Named():
                    self._named = entry
                case MappedOnce(files=files):
                    self._mapped = files
                case _:
                    self._tape[entry.key] = entry
        self._load: Load | None = None
        self._header: str | None = None
        self._reference: Load | KeptFile | None = None
        self._loaded: LoadedOnce | None = None
        self._waiting: deque[Work] = deque()

    def load(self, load: Load) -> ReadBack:
        """What came of this load."""
        match self._tape.get(load_key(load)):
            case LoadedOnce() as loaded:
                self._load, self._header, self._reference = load, None, None
                self._loaded = loaded
                return loaded.read_back
            case _:
                raise _absent(f"loading `{name_of(load.weights[0])}` under `{load.setting.name}`")

    def refer(self, reference: Load | KeptFile) -> ReadBack | None:
        """What came of this reference."""
        match self._tape.get(reference_key(self._load, reference)):
            case ReferredOnce(read_back=read_back):
                self._reference = reference
                return read_back
            case _:
                raise _absent("this reference")

    def vocabulary(self, header: str) -> Vocabulary:
        """What came of this vocabulary."""
        match self._tape.get(vocabulary_key(header)):
            case SpokenOnce(vocabulary=vocabulary):
                self._load, self._header, self._reference = None, header, None
                return vocabulary
            case _:
                raise _absent(f"loading the vocabulary `{name_of(header)}`")

    def tokenize(
        self, texts: Sequence[str], *, add_special: bool, parse_special: bool
    ) -> list[tuple[int, ...]]:
        """What came of each text."""
        found = []
        for text in texts:
            key = text_key(
                self._load or self._header, text, add_special=add_special, parse_special=parse_special
            )
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
        return () if self._loaded is None else self._loaded.devices

    def deviations(self) -> tuple[Deviation, ...]:
        """What the recorded engine said that was not as it was told."""
        return () if self._loaded is None else self._loaded.deviations

    def memory(self) -> tuple[Buffer, ...]:
        """The buffers that the recorded engine told."""
        return () if self._loaded is None else self._loaded.memory

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


def _with_id(done: Done, name: str) -> Done:
    match done:
        case Generated() | Measured() | Contrasted() | Kept() | Broken():
            return msgspec.structs.replace(done, id=name)


def _absent(what: str) -> EngineError:
    return EngineError(f"the tape holds no answer to {what}")
