"""The embedded engine: llama.cpp through llama-cpp-python's low-level functions, in a child process of qlock.

Lives here: the side of it that lives in qlock's own process. It starts the child, keeps deadlines, and turns every
way the child can fail into ``EngineError``. Does not live here: anything that touches llama.cpp (``worker`` and what
it imports; an assertion in C ends that process alone).

The child gets a built environment and nothing of qlock's own: no ``LLAMA_*``, ``GGML_*`` or ``OMP_*`` variable from
outside reaches it, its home is an empty folder, and so is the folder it runs in.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from qlock.core.base import Base
from qlock.core.escape import for_message
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
    bare_environment,
    tokenizing_s,
)
from qlock.engines.llama_cpp_python import wire
from qlock.errors import AbsentError, EngineError
from qlock.world.interface import MappedFile
from qlock.world.maps import read_maps
from qlock.world.process import Ended, Flooded, LineChild, Silent
from qlock.world.scratch import scratch

SLOTS_MAX, REPLICAS_MAX = 64, 1

_MODULE = "qlock.engines.llama_cpp_python.worker"
_SOURCE = Path(__file__).resolve().parents[3]
_TAIL_BYTES = 1 << 14
_VOCABULARY_S = 300.0
"""For loading a vocabulary, which lies on a disk of this machine; one of 262,144 tokens takes half a second."""
_TAIL_LINES = 40
_FATAL = ("GGML_ASSERT", "GGML_ABORT", "terminate called", "Fatal Python error", "ggml_abort")


class Deadlines(Base, frozen=True, kw_only=True):
    """How long the child may be silent, seconds."""

    start_s: float = 60.0
    """Until its libraries are loaded."""
    load_s: float = 1_800.0
    """For loading a model: a large one comes over the network."""
    progress_s: float = 1_800.0
    """Between two signs of life while it computes; it gives one after every batch."""
    write_s: float = 60.0
    """For taking an order."""


def open_engine(
    *,
    lib_folder: Path | None = None,
    python: str = sys.executable,
    variables: Mapping[str, str] | None = None,
    deadlines: Deadlines | None = None,
) -> LlamaCppPython:
    """Start the engine's child process.

    Args:
        lib_folder: Where ``libllama.so`` lies; by default the one inside llama-cpp-python.
        python: The interpreter to run, by its absolute path.
        variables: Of the child's environment, beside qlock's own: what leaves it the cards of the device alone.
        deadlines: How long the child may be silent.

    Raises:
        EngineError: It did not start.
    """
    return LlamaCppPython(
        argv=(python, "-P", "-s", "-X", "utf8", "-m", _MODULE),
        lib_folder=lib_folder,
        variables=variables or {},
        deadlines=deadlines or Deadlines(),
    )


class LlamaCppPython:
    """The engine, as ``engines.interface.Engine`` describes it; a context manager.

    Not for use from several threads at once. After an ``EngineError`` about its process it can only be closed.
    """

    def __init__(
        self,
        *,
        argv: tuple[str, ...],
        lib_folder: Path | None,
        variables: Mapping[str, str],
        deadlines: Deadlines,
    ) -> None:
        self._deadlines = deadlines
        self._finished: deque[Done] = deque()
        self._under_way: set[str] = set()
        self._tail = ""
        self._devices: tuple[str, ...] = ()
        self._memory: tuple[Buffer, ...] = ()
        self._devices_of_reference: tuple[str, ...] = ()
        self._ended = ""
        self._folder = scratch("qlock-engine-", folders=("work", "home"), files=("log",))
        self._log = self._folder / "log"
        work, home = self._folder / "work", self._folder / "home"
        self._child: LineChild | None = None
        try:
            environment = _environment(home, lib_folder, variables)
            self._child = LineChild(argv, env=environment, cwd=work, log=self._log)
            hello = self._answer(deadlines.start_s, "start")
        except AbsentError as error:
            self.close()
            raise EngineError(f"the engine did not start: {error.message}") from error
        except BaseException:
            self.close()
            raise
        if not isinstance(hello, wire.Hello):
            raise self._nonsense(hello, "hello")
        self._hello = hello

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._living().pid

    def load(self, load: Load) -> ReadBack:
        """Load a point, dropping the one before."""
        self._refuse_while_busy("load a model")
        self._forget_point()
        self._send(wire.LoadOrder(load=load))
        match self._answer(self._deadlines.load_s, "load the model"):
            case wire.Loaded(read_back=read_back, devices=devices, memory=memory):
                self._devices, self._memory = devices, memory
                return read_back
            case other:
                raise self._nonsense(other, "loaded")

    def refer(self, reference: Load | KeptFile) -> ReadBack | None:
        """Name what ``Contrast`` holds the loaded point against."""
        self._refuse_while_busy("name a reference")
        self._devices_of_reference = ()
        match reference:
            case Load():
                self._send(wire.ReferOrder(load=reference))
            case KeptFile():
                self._send(wire.ReferFileOrder(file=reference))
        match self._answer(self._deadlines.load_s, "load the reference"):
            case wire.Referred(read_back=read_back, devices=devices):
                self._devices_of_reference = devices
                return read_back
            case other:
                raise self._nonsense(other, "referred")

    def vocabulary(self, header: str) -> Vocabulary:
        """Load a vocabulary alone, dropping the point."""
        self._refuse_while_busy("load a vocabulary")
        self._forget_point()
        self._send(wire.VocabularyOrder(header=header))
        match self._answer(min(self._deadlines.load_s, _VOCABULARY_S), "load the vocabulary"):
            case Vocabulary() as vocabulary:
                return vocabulary
            case other:
                raise self._nonsense(other, "vocabulary")

    def tokenize(
        self, texts: Sequence[str], *, add_special: bool, parse_special: bool
    ) -> list[tuple[int, ...]]:
        """Token ids of each text under the vocabulary that is loaded."""
        found = []
        for text in texts:
            self._send(wire.TokenizeOrder(text=text, add_special=add_special, parse_special=parse_special))
            match self._answer(min(tokenizing_s(text), self._deadlines.progress_s), "tokenize"):
                case wire.Tokens(tokens=tokens):
                    found.append(tokens)
                case other:
                    raise self._nonsense(other, "tokens")
        return found

    def submit(self, work: Work) -> None:
        """Queue one piece of work."""
        if work.id in self._under_way:
            raise ValueError(f"`{work.id}` is under way already")
        self._send(work)
        self._under_way.add(work.id)

    def next_done(self) -> Done:
        """Wait for the next finished piece, in finishing order."""
        if not self._under_way:
            raise ValueError("nothing is under way")
        if not self._finished:
            self._finished.append(self._read_done())
        done = self._finished.popleft()
        self._under_way.discard(done.id)
        return done

    def probe(self, prompts: Sequence[tuple[int, ...]], *, steps: int) -> tuple[ProbeRow, ...]:
        """Vary the schedule around the prompts and say what stayed the same."""
        self._refuse_while_busy("probe the schedule")
        self._send(wire.ProbeOrder(prompts=tuple(prompts), steps=steps))
        match self._answer(self._deadlines.progress_s, "probe the schedule"):
            case wire.Probed(rows=rows):
                return rows
            case other:
                raise self._nonsense(other, "probed")

    def mapped_files(self) -> tuple[MappedFile, ...]:
        """Files mapped with code by the child; whole only after a decode."""
        try:
            return read_maps(self._living().pid)
        except AbsentError as error:
            raise EngineError(f"cannot read what the engine has mapped: {error.message}") from error

    def devices(self) -> tuple[str, ...]:
        """Cards that the loaded point and its reference lie on, as the log told when they were loaded."""
        return tuple(dict.fromkeys((*self._devices, *self._devices_of_reference)))

    def memory(self) -> tuple[Buffer, ...]:
        """Buffers of the loaded point, as its log told when it was loaded."""
        return self._memory

    def deviations(self) -> tuple[Deviation, ...]:
        """None: what the library says of itself is all read back."""
        return ()

    def label(self) -> str:
        """Version text."""
        return self._hello.label

    def system_info(self) -> str:
        """llama.cpp's line of compiled-in features."""
        return self._hello.system_info

    def log_tail(self) -> str:
        """The last lines that the engine logged; also after its end."""
        with contextlib.suppress(OSError), self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).decode(errors="replace").split("\n")
            self._tail = "\n".join(lines[-_TAIL_LINES - 1 :]).strip("\n")
        return self._tail

    def close(self) -> None:
        """End the child and its group, and remove its folder; safe to call twice."""
        if self._child is not None:
            self._ended = self._child.close()
            self._child = None
        self.log_tail()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _forget_point(self) -> None:
        """Whether or not the order that follows is done, the point and its reference are no longer what was told of."""
        self._devices, self._memory, self._devices_of_reference = (), (), ()

    def _living(self) -> LineChild:
        if self._child is None:
            raise EngineError(f"the engine has ended: {self._ended or 'it did not start'}")
        return self._child

    def _refuse_while_busy(self, what: str) -> None:
        if self._under_way:
            raise ValueError(f"cannot {what} while work is under way")

    def _send(self, order: wire.Order) -> None:
        match self._living().write_line(wire.encode(order), self._deadlines.write_s):
            case None:
                return
            case Ended(how=how):
                raise self._died(how)
            case Silent(after_s=after_s):
                raise self._failure(f"the engine took no orders for {after_s:g} s")

    def _read_done(self) -> Done:
        match self._word(self._deadlines.progress_s, "compute"):
            case Generated() | Measured() | Contrasted() | Kept() | Broken() as done:
                return self._asked_for(done)
            case other:
                raise self._nonsense(other, "a finished piece of work")

    def _answer(self, deadline_s: float, what: str) -> wire.Word:
        """The next word that is no finished work; finished work is kept."""
        while True:
            match self._word(deadline_s, what):
                case Generated() | Measured() | Contrasted() | Kept() | Broken() as done:
                    self._finished.append(self._asked_for(done))
                case other:
                    return other

    def _asked_for(self, done: Done) -> Done:
        """The same, once it answers what is still under way."""
        if done.id not in self._under_way or any(done.id == other.id for other in self._finished):
            raise self._failure(
                f"the engine answered nonsense: got an answer to `{for_message(done.id)}`, which was not asked"
            )
        return done

    def _word(self, deadline_s: float, what: str) -> wire.Word:
        """The next word that says more than that the child is alive."""
        while True:
            match self._living().read_line(deadline_s, wire.MAX_LINE_BYTES):
                case bytes() as line:
                    word = self._decoded(line)
                    match word:
                        case wire.Alive():
                            continue
                        case wire.Refused(why=why):
                            raise EngineError(f"the engine could not {what}: {why}")
                        case _:
                            return word
                case Ended(how=how):
                    raise self._died(how)
                case Silent(after_s=after_s):
                    raise self._failure(f"the engine gave no sign of life for {after_s:g} s, asked to {what}")
                case Flooded(max_bytes=max_bytes):
                    raise self._failure(
                        f"the engine answered nonsense: got a line of more than `{max_bytes}` bytes"
                    )

    def _decoded(self, line: bytes) -> wire.Word:
        try:
            return wire.word_from(line)
        except EngineError as error:
            raise self._failure(error.message) from error

    def _nonsense(self, got: wire.Word, expected: str) -> EngineError:
        kind = type(got).__name__.lower()
        return self._failure(f"the engine answered nonsense: got the word `{kind}`, expected `{expected}`")

    def _died(self, how: str) -> EngineError:
        return self._failure(f"the engine died ({how})")

    def _failure(self, message: str) -> EngineError:
        """End the child; the error to raise, with what it said last."""
        self.close()
        said = last_words(self._tail)
        return EngineError(message + (f": {said}" if said else ""))


def last_words(log: str) -> str:
    """The lines of a log that say why a process ended: its assertion if there is one, else the last three."""
    lines = [line.strip() for line in log.split("\n") if line.strip()]
    fatal = [line for line in lines if any(mark in line for mark in _FATAL)]
    return " | ".join(map(for_message, fatal[:3] or lines[-3:]))


def _environment(home: Path, lib_folder: Path | None, variables: Mapping[str, str]) -> dict[str, str]:
    """All that the child's environment holds."""
    environment = bare_environment(home) | {
        "PYTHONPATH": str(_SOURCE),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    if lib_folder is not None:
        environment["LLAMA_CPP_LIB_PATH"] = str(lib_folder)
    return environment | dict(variables)
