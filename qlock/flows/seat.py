"""An engine with a point loaded, that can be started again when it dies.

To whoever asks, a ``Seat`` is an engine; when the process behind it is gone, ``restart`` brings up another one, has it
load the same point, and has it checked again.

Does not live here: deciding when to give up on an item (``flows.driver``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from qlock.core.facts import Buffer, ProbeRow, ReadBack
from qlock.engines.interface import (
    Deviation,
    Done,
    Engine,
    KeptFile,
    Load,
    Vocabulary,
    Work,
)
from qlock.errors import EngineError
from qlock.world.interface import MappedFile


class Seat:
    """A place for one engine at a time.

    Args:
        start: Starts an engine; called again after a death.
    """

    def __init__(self, start: Callable[[], Engine]) -> None:
        self._start = start
        self._engine: Engine | None = None
        self._prepare: Callable[[Engine], object] | None = None
        self._beside: Callable[[Engine], object] | None = None
        self.failure_log = ""
        """The last lines that an engine logged that failed here; empty while none has."""

    def point(self, prepare: Callable[[Engine], object]) -> None:
        """Take a point: ``prepare`` loads it and checks it, now and after every restart."""
        self._prepare, self._beside = prepare, None
        self._take(prepare)

    def beside(self, prepare: Callable[[Engine], object]) -> None:
        """Put something beside the point, such as its reference: now, and after every restart at this point."""
        self._beside = prepare
        self._take(prepare)

    def restart(self) -> None:
        """End what is left of the engine and prepare the point in a new one."""
        self._note_failure()
        self.close()
        for prepare in (self._prepare, self._beside):
            if prepare is not None:
                self._take(prepare)

    def _take(self, prepare: Callable[[Engine], object]) -> None:
        try:
            prepare(self._living())
        except EngineError:
            self._note_failure()
            raise

    def _note_failure(self) -> None:
        if self._engine is not None:
            self.failure_log = self._engine.log_tail() or self.failure_log

    @property
    def is_up(self) -> bool:
        """Whether an engine runs here now."""
        return self._engine is not None

    def _living(self) -> Engine:
        if self._engine is None:
            self._engine = self._start()
        return self._engine

    def load(self, load: Load) -> ReadBack:
        """As the engine."""
        return self._living().load(load)

    def vocabulary(self, header: str) -> Vocabulary:
        """As the engine."""
        return self._living().vocabulary(header)

    def tokenize(
        self, texts: Sequence[str], *, add_special: bool, parse_special: bool
    ) -> list[tuple[int, ...]]:
        """As the engine."""
        return self._living().tokenize(texts, add_special=add_special, parse_special=parse_special)

    def submit(self, work: Work) -> None:
        """As the engine."""
        self._living().submit(work)

    def next_done(self) -> Done:
        """As the engine."""
        return self._living().next_done()

    def refer(self, reference: Load | KeptFile) -> ReadBack | None:
        """As the engine."""
        return self._living().refer(reference)

    def probe(self, prompts: Sequence[tuple[int, ...]], *, steps: int) -> tuple[ProbeRow, ...]:
        """As the engine."""
        return self._living().probe(prompts, steps=steps)

    def mapped_files(self) -> tuple[MappedFile, ...]:
        """As the engine."""
        return self._living().mapped_files()

    def devices(self) -> tuple[str, ...]:
        """As the engine."""
        return self._living().devices()

    def memory(self) -> tuple[Buffer, ...]:
        """As the engine."""
        return self._living().memory()

    def deviations(self) -> tuple[Deviation, ...]:
        """As the engine."""
        return self._living().deviations()

    def label(self) -> str:
        """As the engine."""
        return self._living().label()

    def system_info(self) -> str:
        """As the engine."""
        return self._living().system_info()

    def log_tail(self) -> str:
        """As the engine."""
        return self._living().log_tail()

    def close(self) -> None:
        """End the engine; the seat may be used again."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
