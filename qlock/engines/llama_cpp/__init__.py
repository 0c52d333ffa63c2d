"""The engine `llama.cpp`: a build folder of one's own, its llama-server started, proven and supervised.

Lives here: the engine as ``engines.interface.Engine`` describes it. It starts one-slot servers (``server``), as many as
the setting has replicas, spreads the work over them (``spread``), and lets ``scoring`` give the cost of tokens, which a
server cannot. Does not live here: command lines (``options``), requests (``completion``), environment (``home``).

Outputs are the same for any number of replicas. Each of them computes with the setting's threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from qlock.core.base import Base
from qlock.core.facts import Buffer, ProbeRow, ReadBack
from qlock.engines.interface import (
    Deviation,
    Done,
    Generate,
    KeptFile,
    Load,
    Reading,
    Vocabulary,
    Work,
    tokenizing_s,
)
from qlock.engines.llama_cpp import logbook, tools
from qlock.engines.llama_cpp.asked import Room
from qlock.engines.llama_cpp.home import SYSTEM_OPTIONS, Home
from qlock.engines.llama_cpp.options import options_of
from qlock.engines.llama_cpp.probe import Seat, Stage, probe
from qlock.engines.llama_cpp.questions import added_of, room_of, tokens_of
from qlock.engines.llama_cpp.reading import open_reader
from qlock.engines.llama_cpp.scoring import Scorer
from qlock.engines.llama_cpp.server import Point, Seen, Server
from qlock.engines.llama_cpp.spread import Spread
from qlock.engines.llama_cpp.told import read_back_of
from qlock.engines.llama_cpp.weights import identity, refuse_scattered
from qlock.engines.llama_cpp_python import LlamaCppPython
from qlock.errors import AbsentError, EngineError
from qlock.world.interface import MappedFile
from qlock.world.maps import read_maps

SLOTS_MAX, REPLICAS_MAX = 1, 64

_TAIL_LINES = 40


class Deadlines(Base, frozen=True, kw_only=True):
    """How long the processes may be silent, seconds."""

    start_s: float = 60.0
    """For a program that only prints."""
    load_s: float = 1_800.0
    """Until a model is loaded: a large one comes over the network."""
    progress_s: float = 600.0
    """Between two signs of progress while it computes."""
    close_s: float = 5.0
    """For ending by itself when it is told to."""


def open_engine(
    *,
    lib_folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
    deadlines: Deadlines | None = None,
    system_options: Path = SYSTEM_OPTIONS,
) -> LlamaCpp:
    """Look at a build; no server is started before a point is loaded.

    Args:
        lib_folder: The build folder: ``llama-server``, the other programs, and their libraries.
        variables: Of the processes' environment, beside qlock's own: what leaves them the cards of the device alone.
        deadlines: How long the processes may be silent.
        system_options: Where llama.cpp looks for the system's options.

    Raises:
        AbsentError: There is no build.
        EngineError: It cannot be used.
    """
    if lib_folder is None:
        raise AbsentError(
            "the engine `llama.cpp` needs the folder of a build",
            hint="give `path` in `[engine]`, or `--engine`",
        )
    home = Home(variables=variables or {}, system_options=system_options)
    try:
        return LlamaCpp(tools.Build(folder=str(lib_folder)), home=home, deadlines=deadlines or Deadlines())
    except BaseException:
        home.close()
        raise


class LlamaCpp:
    """The engine; a context manager. Not for use from several threads at once.

    After an ``EngineError`` about its processes it can only be closed.
    """

    def __init__(self, build: tools.Build, *, home: Home, deadlines: Deadlines) -> None:
        self._build = build
        self._home = home
        self._deadlines = deadlines
        self._program = build.program("llama-server")
        printed = self._printed("--version")
        self._label = tools.version(printed)
        self._build_info = tools.build_info(printed)
        self._options = options_of(self._printed("--help"))
        self._servers: list[Server] = []
        self._rooms: list[Room] = []
        self._seen: Seen | None = None
        self._spread: Spread | None = None
        self._scorer: Scorer | None = None
        self._reader: LlamaCppPython | None = None
        self._readings: deque[Reading] = deque()
        self._under_way: set[str] = set()
        self._tail = ""
        self._devices = 0
        self._load: Load | None = None
        self._extra: list[Server] = []

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the servers."""
        return tuple(server.pid for server in self._servers)

    def load(self, load: Load) -> ReadBack:
        """Load a point into as many servers as the setting has replicas, dropping the one before."""
        self._refuse_while_busy("load a model")
        self._drop()
        refuse_scattered(load.weights)
        before = [identity(path) for path in load.weights]
        try:
            read_back, seen = self._start(load)
            if [identity(path) for path in load.weights] != before:
                raise EngineError(f"`{load.weights[0]}` was changed while the engine loaded it")
        except EngineError as error:
            raise self._failure(error.message, hint=error.hint) from error
        except BaseException:
            self._drop()
            raise
        self._load = load
        self._spread = Spread(self._servers, self._rooms, progress_s=self._deadlines.progress_s)
        point = Point(
            load=load,
            read_back=read_back,
            server=self._servers[0],
            room=self._rooms[0],
            devices=self._devices,
            devices_used=seen.said.devices,
        )
        self._scorer = Scorer(self._build, point, home=self._home, progress_s=self._deadlines.progress_s)
        return read_back

    def vocabulary(self, header: str) -> Vocabulary:
        """Load a vocabulary alone, dropping the point."""
        self._refuse_while_busy("load a vocabulary")
        if self._reader is None:
            self._drop()
            self._reader = open_reader(self._build, home=self._home, progress_s=self._deadlines.progress_s)
        return self._reader.vocabulary(header)

    def tokenize(
        self, texts: Sequence[str], *, add_special: bool, parse_special: bool
    ) -> list[tuple[int, ...]]:
        """Token ids of each text under the vocabulary that is loaded."""
        if self._reader is not None:
            return self._reader.tokenize(texts, add_special=add_special, parse_special=parse_special)
        self._loaded()
        try:
            return [
                tokens_of(
                    self._servers[0],
                    text,
                    add_special=add_special,
                    parse_special=parse_special,
                    deadline_s=min(tokenizing_s(text), self._deadlines.progress_s),
                )
                for text in texts
            ]
        except EngineError as error:
            if not any(server.how_ended() for server in self._servers):
                raise
            raise self._failure(error.message, hint=error.hint) from error

    def submit(self, work: Work) -> None:
        """Queue one piece of work."""
        if work.id in self._under_way:
            raise ValueError(f"`{work.id}` is under way already")
        spread, _ = self._loaded()
        match work:
            case Generate():
                spread.submit(work)
            case _:
                self._readings.append(work)
        self._under_way.add(work.id)

    def next_done(self) -> Done:
        """Wait for the next finished piece, in finishing order."""
        if not self._under_way:
            raise ValueError("nothing is under way")
        spread, scorer = self._loaded()
        done: Done
        try:
            done = scorer.read(self._readings) if self._readings else spread.next_done()
        except EngineError as error:
            raise self._failure(error.message, hint=error.hint) from error
        self._under_way.discard(done.id)
        return done

    def refer(self, reference: Load | KeptFile) -> ReadBack | None:
        """Name what ``Contrast`` holds the loaded point against."""
        self._refuse_while_busy("name a reference")
        _, scorer = self._loaded()
        return scorer.refer(reference)

    def probe(self, prompts: Sequence[tuple[int, ...]], *, steps: int) -> tuple[ProbeRow, ...]:
        """Vary the schedule around the prompts and say what stayed the same."""
        self._refuse_while_busy("probe the schedule")
        self._loaded()
        load = self._load
        assert load is not None
        stage = Stage(
            seats=tuple(Seat(server, room) for server, room in zip(self._servers, self._rooms, strict=True)),
            start=lambda more: self._started_anew(load, more),
            end=self._end,
            threads=load.setting.threads,
            deadline_s=self._deadlines.progress_s,
        )
        try:
            return probe(stage, prompts, steps=steps)
        except EngineError as error:
            raise self._failure(error.message, hint=error.hint) from error

    def mapped_files(self) -> tuple[MappedFile, ...]:
        """Files mapped with code by the servers, and by the process that scores; whole only after a decode."""
        _, scorer = self._loaded()
        try:
            found = {file for pid in self.pids for file in read_maps(pid)}
        except AbsentError as error:
            raise EngineError(f"cannot read what the engine has mapped: {error.message}") from error
        return tuple(sorted(found | set(scorer.mapped_files()), key=lambda file: (file.path, file.inode)))

    def devices(self) -> tuple[str, ...]:
        """Cards that every server has its model on, as its log tells, and those of a reference."""
        _, scorer = self._loaded()
        assert self._seen is not None
        return tuple(dict.fromkeys((*self._seen.said.devices, *scorer.devices())))

    def memory(self) -> tuple[Buffer, ...]:
        """Buffers of all servers together, as their logs tell; a mapped file is there once for all of them."""
        self._loaded()
        assert self._seen is not None
        return tuple(
            msgspec.structs.replace(buffer, size_bytes=buffer.size_bytes * copies)
            for buffer in self._seen.said.memory
            for copies in (1 if buffer.place.endswith("_Mapped") else len(self._servers),)
        )

    def deviations(self) -> tuple[Deviation, ...]:
        """What every server says of itself that is not as it was told."""
        self._loaded()
        assert self._seen is not None
        return self._seen.deviations

    def label(self) -> str:
        """Version text; also that tokens are not scored by llama-cpp-python, once that is known."""
        said = "" if self._scorer is None else self._scorer.shortfall()
        return f"{self._label}, {said}" if said else self._label

    def system_info(self) -> str:
        """llama.cpp's line of compiled-in features."""
        if self._seen is None:
            raise EngineError("no model is loaded")
        return self._seen.said.system_info

    def log_tail(self) -> str:
        """The last lines that the engine logged; also after its end."""
        if self._servers:
            self._tail = "\n".join(self._servers[0].last_lines(_TAIL_LINES))
        return self._tail

    def close(self) -> None:
        """End every process and remove the folder; safe to call twice."""
        self._drop()
        self._home.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _printed(self, argument: str) -> str:
        return tools.printed(self._program, argument, home=self._home, deadline_s=self._deadlines.start_s)

    def _start(self, load: Load) -> tuple[ReadBack, Seen]:
        """Start all servers at once, wait for each, and hold them against one another."""
        setting, weights = load.setting, str(load.weights[0])
        if setting.gpu_layers:
            self._devices = len(tools.devices(self._printed("--list-devices")))
        for _ in range(setting.replicas):
            self._servers.append(self._new_server())
            self._servers[-1].start(setting, weights, self._options, devices=self._devices)
        found, looks = [], []
        for server in self._servers:
            seen, read_back, room = self._ready(server, load)
            looks.append(seen)
            found.append(read_back)
            self._rooms.append(room)
        told = {(seen.said.devices, seen.deviations) for seen in looks}
        if any(one != found[0] for one in found) or len(told) > 1:
            raise EngineError(
                "the servers do not say the same of themselves, started with the same command line"
            )
        self._seen = looks[0]
        return found[0], looks[0]

    def _ready(self, server: Server, load: Load) -> tuple[Seen, ReadBack, Room]:
        """What a server is, once it is ready."""
        server.wait_ready(self._deadlines.load_s)
        seen = server.look(load.weights[0], build_info=self._build_info)
        bos_token, eos_token, deadline_s = (
            seen.said.bos_token,
            seen.said.eos_token,
            self._deadlines.progress_s,
        )
        add_bos, add_eos = added_of(server, bos_token=bos_token, eos_token=eos_token, deadline_s=deadline_s)
        read_back = read_back_of(seen, load.setting, add_bos=add_bos, add_eos=add_eos)
        return seen, read_back, room_of(server, read_back, deadline_s=deadline_s)

    def _new_server(self) -> Server:
        home = self._home
        return Server(self._program, folder=home.server_folder(), env=home.environment(), cwd=home.work)

    def _started_anew(self, load: Load, more_threads: int) -> Seat:
        """One more server with the point loaded; with another number of threads where that is meant to be seen."""
        setting = msgspec.structs.replace(
            load.setting,
            threads=max(1, load.setting.threads + more_threads),
            batch_threads=max(1, load.setting.batch_threads + more_threads),
        )
        server = self._new_server()
        self._extra.append(server)
        server.start(setting, load.weights[0], self._options, devices=self._devices)
        _, _, room = self._ready(server, load)
        return Seat(server, room)

    def _end(self, seat: Seat) -> None:
        seat.server.close(self._deadlines.close_s)
        self._extra.remove(seat.server)

    def _loaded(self) -> tuple[Spread, Scorer]:
        if self._spread is None or self._scorer is None:
            raise EngineError("no model is loaded")
        return self._spread, self._scorer

    def _refuse_while_busy(self, what: str) -> None:
        if self._under_way:
            raise ValueError(f"cannot {what} while work is under way")

    def _drop(self) -> None:
        """End all that a point has started."""
        self.log_tail()
        for worker in (self._scorer, self._reader):
            if worker is not None:
                worker.close()
        for server in (*self._servers, *self._extra):
            server.close(self._deadlines.close_s)
        if self._spread is not None:
            self._spread.close()
        self._servers, self._rooms, self._extra = [], [], []
        self._seen = self._spread = self._scorer = self._reader = self._load = None
        self._readings.clear()

    def _failure(self, message: str, *, hint: str = "") -> EngineError:
        """End everything; the error to raise, with what was said last where a process died."""
        died = any(server.how_ended() for server in self._servers)
        said = logbook.complaint(self.log_tail().split("\n")) if died else ""
        self._drop()
        return EngineError(message if not said or said in message else f"{message}: {said}", hint=hint)
