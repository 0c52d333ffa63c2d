"""Recording an engine: whatever it answers is kept on a tape.

Does not live here: the tape (``tape``), and answering from one (``replay``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from qlock.core.facts import Buffer, ProbeRow, ReadBack
from qlock.engines.interface import Deviation, Done, Engine, KeptFile, Load, Vocabulary, Work
from qlock.engines.replay.tape import (
    TAPE,
    DoneOnce,
    Entry,
    LoadedOnce,
    MappedOnce,
    Named,
    ProbedOnce,
    ReferredOnce,
    SpokenOnce,
    TokenizedOnce,
    load_key,
    probe_key,
    reference_key,
    text_key,
    vocabulary_key,
    work_key,
)
from qlock.world.interface import MappedFile


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
        self._header: str | None = None
        self._reference: Load | KeptFile | None = None
        self._under_way: dict[str, Work] = {}
        self._entries: list[Entry] = [Named(label=engine.label(), system_info=engine.system_info())]

    def load(self, load: Load) -> ReadBack:
        """Load, and keep what was read back."""
        read_back = self._engine.load(load)
        self._load, self._header, self._reference = load, None, None
        self._entries.append(
            LoadedOnce(
                key=load_key(load),
                read_back=read_back,
                devices=self._engine.devices(),
                memory=self._engine.memory(),
                deviations=self._engine.deviations(),
            )
        )
        return read_back

    def refer(self, reference: Load | KeptFile) -> ReadBack | None:
        """Refer, and keep what was read back."""
        read_back = self._engine.refer(reference)
        self._reference = reference
        self._entries.append(ReferredOnce(key=reference_key(self._load, reference), read_back=read_back))
        return read_back

    def vocabulary(self, header: str) -> Vocabulary:
        """Load a vocabulary, and keep what was told."""
        vocabulary = self._engine.vocabulary(header)
        self._load, self._header, self._reference = None, header, None
        self._entries.append(SpokenOnce(key=vocabulary_key(header), vocabulary=vocabulary))
        return vocabulary

    def tokenize(
        self, texts: Sequence[str], *, add_special: bool, parse_special: bool
    ) -> list[tuple[int, ...]]:
        """Tokenize, and keep each text's tokens."""
        found = self._engine.tokenize(texts, add_special=add_special, parse_special=parse_special)
        for text, tokens in zip(texts, found, strict=True):
            key = text_key(
                self._load or self._header, text, add_special=add_special, parse_special=parse_special
            )
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

    def memory(self) -> tuple[Buffer, ...]:
        """The engine's own; kept with each load."""
        return self._engine.memory()

    def deviations(self) -> tuple[Deviation, ...]:
        """The engine's own; kept with each load."""
        return self._engine.deviations()

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
