"""One llama-server with one slot: started, waited for, proven to be the one that was started, asked, ended.

It listens on a socket in a folder that only this user can enter; where that folder's path is too long for a socket, on a
port of this machine that the kernel picked, behind a key. Either way it must answer by the name that it was given, and
a port must belong to its process: another server may listen where ours was meant to.

Does not live here: what is asked (``completion``), several servers at once (``spread``).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx
import msgspec

from qlock.core.base import Base
from qlock.core.escape import for_message
from qlock.core.facts import ReadBack, Setting
from qlock.engines.interface import Deviation, Load
from qlock.engines.llama_cpp import logbook, props
from qlock.engines.llama_cpp.asked import Room
from qlock.engines.llama_cpp.options import Place, arguments, for_server
from qlock.errors import EngineError
from qlock.world.process import ServerChild
from qlock.world.scratch import filling

_SOCKET_BYTES = 100
"""The kernel takes 107; a path that is nearly too long is no better."""
_ANSWER_BYTES = 1 << 28
LOG_BYTES = 1 << 24
"""The most that a server may write before it is ready, and that is kept of its log afterwards."""
SETTLE_S = 5.0
"""How long a line of its log may come after the server says that it is ready."""
_TAIL_BYTES = 1 << 14
_KEPT_LINES = 100
_PAUSE_S = (0.005, 0.2)
_SHORT_S = 10.0
"""For questions that need no computing."""
_LOOK_S = 1.0
_EXIT_S = 1.0
_DECODES = re.compile(
    rb"^llamacpp:(?:n_decode_total|prompt_tokens_total|tokens_predicted_total) (\S+)$", re.MULTILINE
)


class Answered(msgspec.Struct, frozen=True):
    """What a server sent back."""

    status: int
    data: bytes


class Lost(msgspec.Struct, frozen=True):
    """Why nothing came back."""

    why: str


class Seen(Base, frozen=True, kw_only=True):
    """What a server that is ready says of itself."""

    said: logbook.Said
    slots: int
    context_tokens: int
    """Of its one slot."""
    bos_text: str
    eos_text: str
    deviations: tuple[Deviation, ...]
    """What of it is not as it was told."""


class Server:
    """A running llama-server.

    Args:
        program: The executable, by its absolute path.
        folder: A folder of its own: socket, key and log lie there.
        env: The whole environment.
        cwd: An empty folder.
    """

    def __init__(self, program: Path, *, folder: Path, env: Mapping[str, str], cwd: Path) -> None:
        self.alias = f"qlock-{secrets.token_hex(8)}"
        self._program = program
        self._env = env
        self._cwd = cwd
        self._log = folder / "log"
        self._socket = folder / "s.sock"
        self._by_socket = len(os.fsencode(self._socket)) < _SOCKET_BYTES
        self._key_file = folder / "key"
        self._key = secrets.token_hex(16)
        self._child: ServerChild | None = None
        self._client: httpx.Client | None = None
        self._ended = "it did not start"
        self._is_read = False
        self._passed: tuple[str, ...] = ()

    @property
    def pid(self) -> int:
        """Its process id."""
        if self._child is None:
            raise EngineError(f"the engine has ended: {self._ended}")
        return self._child.pid

    def start(
        self, setting: Setting, model: str, options: Sequence[tuple[str, ...]], *, devices: int
    ) -> None:
        """Start it; it is not ready yet.

        Raises:
            AbsentError: No process could be started.
            RefusedError: The build has other options than qlock knows.
        """
        if not self._by_socket:
            with filling():
                self._key_file.touch(mode=0o600)
                self._key_file.write_text(self._key)
        place = Place(
            model=model,
            alias=self.alias,
            host=str(self._socket) if self._by_socket else "127.0.0.1",
            api_key_file="" if self._by_socket else str(self._key_file),
        )
        given = for_server(setting, place, devices=devices)
        passed = arguments(given, options)
        self._passed = passed
        argv = (str(self._program), *passed)
        self._child = ServerChild(argv, env=self._env, cwd=self._cwd, log=self._log)
        if self._by_socket:
            self._client = httpx.Client(
                transport=httpx.HTTPTransport(uds=str(self._socket)), base_url="http://qlock", trust_env=False
            )

    def wait_ready(self, deadline_s: float) -> None:
        """Wait until the model is loaded.

        Raises:
            EngineError: It ended, or is not ready in time.
        """
        until = time.monotonic() + deadline_s
        pause_s, most_s = _PAUSE_S
        state = "it does not answer"
        while True:
            self._refuse_ended()
            if self._log_bytes() > LOG_BYTES:
                raise EngineError(f"the server wrote more than `{LOG_BYTES}` bytes before it was ready")
            match self._health():
                case Answered(status=200):
                    return
                case Answered(status=status, data=data):
                    state = (
                        f"got HTTP status `{status}` and `{for_message(data[:200].decode(errors='replace'))}`"
                    )
                case Lost():
                    pass
            if time.monotonic() >= until:
                raise EngineError(f"the server was not ready after {deadline_s:g} s: {state}")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, most_s)

    def look(self, model: str, *, build_info: str) -> Seen:
        """Prove that it is the server that was started, and read back what it is.

        Args:
            model: The path that it was given.
            build_info: What it must say of its build; empty where nobody knows.

        Raises:
            EngineError: It is another one, or a fact cannot be verified.
        """
        told = self._props()
        expected = props.Expected(alias=self.alias, model=model, build_info=build_info, passed=self._passed)
        props.refuse_another(told, expected)
        self._prove_port()
        context_tokens = props.context_tokens(told)
        said = self._said()
        self._is_read = True
        return Seen(
            said=said,
            slots=props.told("slots", told.total_slots),
            context_tokens=context_tokens,
            bos_text=props.told("bos_text", told.bos_token),
            eos_text=props.told("eos_text", told.eos_token),
            deviations=(*props.deviations(told, expected), *logbook.deviations(said)),
        )

    def ask(self, path: str, body: bytes, *, deadline_s: float | None) -> Answered | Lost:
        """Post a request and read the answer; ``None`` waits until the server ends."""
        return self._exchange("POST", path, body, deadline_s)

    def progress(self) -> str | None:
        """Counters that move while it computes; ``None`` when it does not say."""
        match self._exchange("GET", "/metrics", b"", _LOOK_S):
            case Answered(status=200, data=data):
                return " ".join(number.decode(errors="replace") for number in _DECODES.findall(data))
            case _:
                return None

    def how_ended(self, wait_s: float = 0.0) -> str:
        """How its process ended; empty while it runs."""
        if self._child is None:
            return self._ended
        ended = self._child.wait_ended(wait_s)
        return "" if ended is None else ended.how

    def no_answer(self, why: str) -> EngineError:
        """The error to raise where an answer was lost: that the process died, if it did."""
        # The kernel closes the connections of a dying process a moment before its exit can be seen.
        how = self.how_ended(_EXIT_S)
        return EngineError(f"the engine died ({how})" if how else f"the engine gave no answer: {why}")

    def lines(self) -> list[str]:
        """Its log so far: of a very long one, the beginning."""
        with contextlib.suppress(OSError), self._log.open("rb") as file:
            return file.read(LOG_BYTES).decode(errors="replace").split("\n")
        return []

    def last_lines(self, count: int) -> list[str]:
        """The end of its log."""
        with contextlib.suppress(OSError), self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode(errors="replace").rstrip("\n").split("\n")[-count:]
        return []

    def note(self, text: str) -> None:
        """Write a line of qlock's own into its log."""
        with contextlib.suppress(OSError), self._log.open("ab") as file:
            file.write(f"{logbook.OWN}{for_message(text)}\n".encode())

    def close(self, grace_s: float) -> None:
        """End it; safe to call twice."""
        if self._child is not None:
            self._ended = self._child.close(grace_s)
            self._child = None
        if self._client is not None:
            self._client.close()
            self._client = None

    def _said(self) -> logbook.Said:
        """What its log tells; a thread of the server's own writes it, which may be behind."""
        until = time.monotonic() + SETTLE_S
        while True:
            try:
                return logbook.read(self.lines())
            except EngineError:
                if time.monotonic() >= until:
                    raise
            time.sleep(_PAUSE_S[1])

    def _log_bytes(self) -> int:
        try:
            return self._log.stat().st_size
        except OSError:
            return 0

    def _cut_log(self) -> None:
        """Keep the end of a log that has grown long; the server appends, so it goes on behind that."""
        if not self._is_read or self._log_bytes() <= LOG_BYTES:
            return
        end = "\n".join(self.last_lines(_KEPT_LINES))
        with contextlib.suppress(OSError):
            os.truncate(self._log, 0)
            with self._log.open("ab") as file:
                file.write(f"{end}\n".encode())

    def _health(self) -> Answered | Lost:
        if self._by_socket and not _accepts(self._socket):
            return Lost("nobody listens")
        if self._client is None:
            port = logbook.port(self.lines())
            if port is None:
                return Lost("it has said no port")
            self._client = httpx.Client(
                base_url=f"http://127.0.0.1:{port}",
                headers={"Authorization": f"Bearer {self._key}"},
                trust_env=False,
            )
        return self._exchange("GET", "/health", b"", _LOOK_S)

    def _exchange(self, method: str, path: str, body: bytes, deadline_s: float | None) -> Answered | Lost:
        client = self._client
        # Not only faster: httpx would leave a socket open that it cannot connect.
        if client is None or self.how_ended():
            return Lost("it is not running")
        self._cut_log()
        data = bytearray()
        try:
            with client.stream(method, path, content=body, timeout=deadline_s) as response:
                for piece in response.iter_raw():
                    data += piece
                    if len(data) > _ANSWER_BYTES:
                        return Lost(f"it sent more than `{_ANSWER_BYTES}` bytes")
                return Answered(response.status_code, bytes(data))
        except (httpx.HTTPError, httpx.StreamError, RuntimeError) as error:
            return Lost(for_message(f"{type(error).__name__}: {error}"))

    def _refuse_ended(self) -> None:
        how = self.how_ended()
        if how:
            raise EngineError(f"the server did not start ({how}): {logbook.complaint(self.lines())}")

    def _props(self) -> props.Props:
        match self._exchange("GET", "/props", b"", _SHORT_S):
            case Answered(status=200, data=data):
                return props.props_of(data)
            case Answered(status=status):
                raise props.unverified("model_alias", f"`/props` answers with HTTP status `{status}`")
            case Lost(why=why):
                raise props.unverified("model_alias", f"`/props` gives no answer: {why}")

    def _prove_port(self) -> None:
        """Where it listens on a port, the port must be its own."""
        port = logbook.port(self.lines())
        if port is None:
            return
        if not listens(self.pid, port):
            raise EngineError(f"port `{port}` does not belong to the server that was started")


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """What is loaded, and a server that has it."""

    load: Load
    read_back: ReadBack
    server: Server
    room: Room
    devices: int
    """GPUs that the build sees."""
    devices_used: tuple[str, ...]
    """Cards that the model lies on."""


def _accepts(path: Path) -> bool:
    """Whether somebody listens; httpx would leave a socket open that it cannot connect."""
    with socket.socket(socket.AF_UNIX) as tried:
        tried.settimeout(_LOOK_S)
        try:
            tried.connect(str(path))
        except OSError:
            return False
    return True


def listens(pid: int, port: int) -> bool:
    """Whether a process holds the socket that listens on this port of 127.0.0.1."""
    inodes = set()
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1] == f"0100007F:{port:04X}" and fields[3] == "0A":
                inodes.add(f"socket:[{fields[9]}]")
    held = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                held.add(str(entry.readlink()))
    return bool(inodes) and inodes <= held
