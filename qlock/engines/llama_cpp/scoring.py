"""The cost of given tokens, which llama-server does not tell: three ways, in this order.

1. The embedded engine's worker on the build's own libraries, where llama-cpp-python can drive them (``agreement``),
   says the same of the loaded point as the server does, maps the same files, and continues a prompt with the same
   tokens.
2. llama-perplexity, where the build has it, for pieces of the shape that it scores (``perplexity``).
3. The server itself, token by token: the token is forced by a bias, and its log-probability is that of the model before
   any bias. For a few hundred tokens at most; in 32 bits, so some 1e-4 nats beside the other two.

Which way it is depends on the build and the bindings alone. A reference can be held against, and rows can be kept, by
the worker alone. Does not live here: continuing prompts (``spread``).
"""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

import msgspec

from qlock.core.facts import ReadBack, Setting
from qlock.engines.interface import (
    Broken,
    Contrast,
    Contrasted,
    Generate,
    Generated,
    Keep,
    Kept,
    KeptFile,
    Load,
    Measure,
    Measured,
    Reading,
    greedy,
    padded_tokens,
)
from qlock.engines.llama_cpp import perplexity
from qlock.engines.llama_cpp.agreement import disagreement
from qlock.engines.llama_cpp.asked import Room
from qlock.engines.llama_cpp.completion import body_of, done_of, forced_nats
from qlock.engines.llama_cpp.home import Home
from qlock.engines.llama_cpp.server import Answered, Lost, Point
from qlock.engines.llama_cpp.tools import Build
from qlock.engines.llama_cpp.weights import refuse_scattered
from qlock.engines.llama_cpp_python import Deadlines, LlamaCppPython, open_engine
from qlock.errors import AbsentError, EngineError
from qlock.world.interface import MappedFile
from qlock.world.maps import read_maps

FORCED_TOKENS = 512
"""The most tokens that are scored one by one."""

_NO_REFERENCE = "tokens are scored without llama-cpp-python here, so no reference can be held against"
_TRIAL_TOKENS = 24
_TRIAL_STEPS = 8


class Scorer:
    """Costs of tokens at one point.

    Args:
        build: Of the server.
        point: What is loaded.
        home: Where processes run.
        progress_s: How long one may show no progress.
    """

    def __init__(self, build: Build, point: Point, *, home: Home, progress_s: float) -> None:
        self._build = build
        self._point = point
        self._home = home
        self._progress_s = progress_s
        self._worker: LlamaCppPython | None = None
        self._why: str | None = None

    def why_no_worker(self) -> str:
        """Why the embedded engine's worker cannot be used; empty when it is."""
        if self._why is None:
            self._why = self._open_worker()
            if self._why:
                self._point.server.note(f"tokens are scored without llama-cpp-python: {self._why}")
        return self._why

    def read(self, waiting: deque[Reading]) -> Measured | Contrasted | Kept | Broken:
        """Do the first piece that waits, and take it away.

        Raises:
            EngineError: A process died, hung, or does not do as it is told.
        """
        work = waiting.popleft()
        match work:
            case Measure():
                return self._measure(work)
            case Contrast() | Keep():
                why = self.why_no_worker()
                return Broken(id=work.id, why=f"{_NO_REFERENCE}: {why}") if why else self._by_worker(work)

    def refer(self, reference: Load | KeptFile) -> ReadBack | None:
        """As the engine.

        A second point is loaded by the worker alone. What it says of itself is put as servers would say it, which are
        as many as the setting has slots.
        """
        why = self.why_no_worker()
        if why:
            raise EngineError(f"{_NO_REFERENCE}: {why}", hint="take the engine `llama-cpp-python`")
        assert self._worker is not None
        match reference:
            case KeptFile():
                return self._worker.refer(reference)
            case Load(weights=weights, setting=setting):
                refuse_scattered(weights)
                seen = self._worker.refer(Load(weights=weights, setting=_alone(setting)))
                assert seen is not None
                return _as_by_servers(seen, setting)

    def devices(self) -> tuple[str, ...]:
        """Cards that the worker uses; none where there is none."""
        return () if self._worker is None else self._worker.devices()

    def _measure(self, work: Measure) -> Measured | Contrasted | Kept | Broken:
        why = _unfit(work, self._point.room)
        if why:
            return Broken(id=work.id, why=why)
        if not self.why_no_worker():
            return self._by_worker(work)
        if perplexity.is_window(work) and self._build.has("llama-perplexity"):
            return perplexity.measured(
                work, self._point, build=self._build, home=self._home, progress_s=self._progress_s
            )
        count = len(work.tokens) - work.score_from
        if count > FORCED_TOKENS:
            reason = f"cannot score `{count}` tokens one by one, expected at most `{FORCED_TOKENS}`"
            return Broken(id=work.id, why=f"{reason}, and {self._why}")
        return self._by_server(work)

    def shortfall(self) -> str:
        """What a reader of scores should know, in a few words; empty where the worker scores, or nothing was scored."""
        return "tokens scored without llama-cpp-python" if self._why else ""

    def mapped_files(self) -> tuple[MappedFile, ...]:
        """What the worker has mapped; nothing where there is none."""
        return () if self._worker is None else self._worker.mapped_files()

    def close(self) -> None:
        """End the worker; safe to call twice."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _by_worker(self, work: Reading) -> Measured | Contrasted | Kept | Broken:
        assert self._worker is not None
        self._worker.submit(work)
        match self._worker.next_done():
            case Measured() | Contrasted() | Kept() | Broken() as done:
                return done
            case Generated():
                raise EngineError("the engine answered nonsense: got a text, expected the cost of tokens")

    def _open_worker(self) -> str:
        """Start the worker and try it; why it cannot be used, or nothing."""
        folder = Path(self._build.folder).resolve()
        why = disagreement(folder, home=self._home)
        if why:
            return why
        load = self._point.load
        setting = _alone(load.setting)
        deadlines = Deadlines(progress_s=self._progress_s)
        try:
            self._worker = open_engine(
                lib_folder=folder,
                variables=self._home.variables,
                deadlines=deadlines,
            )
            seen = self._worker.load(msgspec.structs.replace(load, setting=setting))
            why = (
                self._differs(seen)
                or self._uses_others()
                or self._maps_others()
                or self._continues_otherwise()
            )
        except (AbsentError, EngineError) as error:
            why = error.message
        if why:
            self.close()
        return why

    def _differs(self, seen: ReadBack) -> str:
        """The first thing that worker and server do not say alike of the loaded point."""
        alone = _alone(self._point.load.setting)
        server = msgspec.structs.replace(
            self._point.read_back, slots=1, batch_tokens=alone.batch_tokens, ubatch_tokens=alone.ubatch_tokens
        )
        for name in ReadBack.__struct_fields__:
            got, expected = getattr(seen, name), getattr(server, name)
            if got != expected:
                return f"the build's libraries say `{name} = {got}` through llama-cpp-python, its server `{expected}`"
        return ""

    def _uses_others(self) -> str:
        """Other cards than those of the server."""
        assert self._worker is not None
        got, expected = self._worker.devices(), self._point.devices_used
        if got == expected:
            return ""
        shown = " and ".join(f"`{', '.join(one) or 'no card'}`" for one in (got, expected))
        return f"llama-cpp-python and the server use different cards: {shown}"

    def _maps_others(self) -> str:
        """A library of llama.cpp that the worker has mapped and the server has not."""
        assert self._worker is not None
        servers = {(one.path, one.inode) for one in read_maps(self._point.server.pid)}
        for one in self._worker.mapped_files():
            if (
                Path(one.path).name.startswith(("libllama", "libggml"))
                and (one.path, one.inode) not in servers
            ):
                return f"llama-cpp-python loads `{one.path}`, which the server does not"
        return ""

    def _continues_otherwise(self) -> str:
        """Whether worker and server continue a prompt with different tokens."""
        assert self._worker is not None
        first = max(0, self._point.read_back.bos_token)
        spread = range(
            first, self._point.room.vocab_tokens, max(1, self._point.room.vocab_tokens // _TRIAL_TOKENS)
        )
        tokens = (first, *spread)[: min(_TRIAL_TOKENS, self._point.room.context_tokens - _TRIAL_STEPS)]
        work = _trial("agreement", tokens, _TRIAL_STEPS)
        self._worker.submit(work)
        mine = self._worker.next_done()
        came = self._ask(body_of(work, self._point.room))
        theirs = done_of(work, self._point.room, status=came.status, data=came.data)
        match mine, theirs:
            case Generated(), Generated() if (mine.tokens, mine.ending) == (theirs.tokens, theirs.ending):
                return ""
            case _:
                return "the build's libraries continue a prompt otherwise through llama-cpp-python than its server"

    def _by_server(self, work: Measure) -> Measured | Broken:
        """Token by token, each from an emptied cache."""
        began_s = time.monotonic()
        room = self._point.room
        nats: list[float] = []
        for place in range(work.score_from, len(work.tokens)):
            token = work.tokens[place]
            asked = _trial(work.id, work.tokens[:place], 1)
            came = self._ask(body_of(asked, room, forced=token))
            match forced_nats(asked, token, room, status=came.status, data=came.data):
                case Broken() as broken:
                    return broken
                case float() as cost:
                    nats.append(cost)
        return Measured(id=work.id, nats=tuple(nats), elapsed_s=time.monotonic() - began_s)

    def _ask(self, body: bytes) -> Answered:
        match self._point.server.ask("/completion", body, deadline_s=self._progress_s):
            case Answered() as answered:
                return answered
            case Lost(why=why):
                raise self._point.server.no_answer(why)


def _alone(setting: Setting) -> Setting:
    """The setting with one slot, and no batch that is longer than the context of that slot."""
    most = padded_tokens(setting.context_tokens)
    return msgspec.structs.replace(
        setting,
        slots=1,
        batch_tokens=min(setting.batch_tokens, most),
        ubatch_tokens=min(setting.ubatch_tokens, most),
    )


def _as_by_servers(seen: ReadBack, setting: Setting) -> ReadBack:
    """What the worker says of a point, as the engine says it of its servers."""
    alone = _alone(setting)
    same = {
        "slots": setting.slots if seen.slots == alone.slots else seen.slots,
        "batch_tokens": setting.batch_tokens
        if seen.batch_tokens == alone.batch_tokens
        else seen.batch_tokens,
        "ubatch_tokens": setting.ubatch_tokens
        if seen.ubatch_tokens == alone.ubatch_tokens
        else seen.ubatch_tokens,
    }
    return msgspec.structs.replace(seen, **same)


def _trial(name: str, tokens: tuple[int, ...], steps: int) -> Generate:
    sampling = greedy(steps, ignore_eos=False)
    return Generate(id=name, tokens=tokens, sampling=sampling, logprobs=steps == 1, logits_digest=False)


def _unfit(work: Measure, room: Room) -> str:
    """Why this work cannot be done at all; empty when it can."""
    count = len(work.tokens)
    strange = [token for token in work.tokens if not 0 <= token < room.vocab_tokens]
    if not count:
        return "got no tokens, expected at least one"
    if strange:
        return f"got token `{strange[0]}`, expected one of `0` to `{room.vocab_tokens - 1}`"
    if count > room.context_tokens:
        return f"got `{count}` tokens to measure, expected at most the context of `{room.context_tokens}`"
    if not 1 <= work.score_from < count:
        return f"got `score_from = {work.score_from}`, expected `1` to `{count - 1}`"
    return ""
