"""An engine in memory that keeps `qlock.engines.interface.Engine`, for tests of the flows.

Its model is a hash: the same weights, tokens and seed give the same reply, whatever was asked beside it. Tokens are
bytes; BOS and EOS stand above them. A `Script` outlives the engines that are opened with it: it says how they shall
behave, and counts what they were asked.

What is not here: llama.cpp (`tests/fakes/decoder.py` stands in for it, one floor below).
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np

from qlock.core.canaries import CANARIES
from qlock.core.digest import blake3_of
from qlock.core.exchange import Ending
from qlock.core.facts import Buffer, ProbeRow, ReadBack
from qlock.core.gguf import Header, read_header
from qlock.core.kept_logits import KeptRows, Layout, encoded
from qlock.core.kept_top import TopLayout, TopRows, top_encoded
from qlock.engines.interface import (
    Broken,
    Contrast,
    Contrasted,
    Deviation,
    Done,
    Generate,
    Generated,
    Keep,
    Kept,
    KeptFile,
    Load,
    Measure,
    Measured,
    Vocabulary,
    Work,
)
from qlock.engines.llama_cpp_python.kept import KeptFileError, Parts
from qlock.errors import EngineError
from qlock.world.interface import MappedFile

BOS, EOS = 256, 257
ON_CARD = (Buffer(place="CUDA0", use="model", size_bytes=524_288),)
VOCAB_TOKENS = 258
LOOKS = ("repeat", "permute", "dummies", "copies", "long-neighbours", "threads", "width")
_OWN_WORK = (*CANARIES, "plain-text")
"""What qlock asks for itself, beside the items of suites."""


class Script:
    """How the engines of a test behave, and what they were asked.

    Args:
        folder: Where the files lie that the engine maps; three are made when it is empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            for name in ("libllama.so", "libm.so.6", "libc.so.6"):
                (folder / name).write_bytes(f"code of {name}".encode())
        self.label = "b6000 (fake)"
        self.system_info = "CPU : FAKE = 1"
        self.read_back: dict[str, object] = {}
        """Fields that the engine says otherwise than it was told."""
        self.deviations: tuple[Deviation, ...] = ()
        """What else it says that is not as it was told."""
        self.salt = ""
        """Changes everything that the model says."""
        self.sampler = ""
        """Changes what is drawn, and nothing that is decoded greedily."""
        self.nats = 2.0
        """Mean cost of a token."""
        self.shaky: set[str] = set()
        """File names of weights whose rows depend on one another while there are several."""
        self.replies: dict[str, str | Broken] = {}
        """Item to what is answered instead of the hash."""
        self.takes: Callable[[list[str]], int] = lambda _: 0
        """Which of the items under way is finished next."""
        self.kills: Counter[str] = Counter()
        """Item to how many engines die at it."""
        self.last_words = "the engine died (signal SIGSEGV)"
        self.before_item: Callable[[str], None] = lambda _: None
        """Called before each item of a suite is answered."""
        self.before_load: Callable[[Load], None] = lambda _: None
        self.kind: type[FakeEngine] = FakeEngine
        """What opens."""
        self.start_error = ""
        """Why no engine starts; empty when one does."""
        self.cards: list[str] = []
        """The cards that each engine was given."""
        self.memory: tuple[Buffer, ...] = (
            Buffer(place="CPU_Mapped", use="model", size_bytes=2_000_000),
            Buffer(place="CPU", use="KV", size_bytes=1_000_000),
            Buffer(place="CPU", use="compute", size_bytes=500_000),
        )
        """What every point takes, as the engine tells."""
        self.variables: list[dict[str, str]] = []
        """The variables that each engine was given."""
        self.devices: Callable[[str], tuple[str, ...]] = lambda _: ()
        """The PCI addresses that an engine uses, of the cards that it was given."""
        self.opened = 0
        self.closed = 0
        self.no_vocabulary = ""
        """Why an engine loads no vocabulary alone; its process ends at it."""
        self.vocabularies: list[str] = []
        """Names of the headers that were loaded alone."""
        self.loads: list[str] = []
        """Names of the first file of each load."""
        self.loaded_paths: list[Path] = []
        """The same files, where they lay."""
        self.references: list[str] = []
        """Names of the first file of each reference, or of the kept file."""
        self.probes: list[str] = []
        """Names of the weights at each probe: one for each proof of a point."""
        self.asked: list[str] = []
        """Items of suites, in the order in which they were answered."""
        self.work: list[Work] = []
        """Every piece of work for items of suites, as it was submitted."""

    def open_engine(
        self, *, lib_folder: Path | None = None, variables: Mapping[str, str] | None = None
    ) -> FakeEngine:
        """As the opener of an engine's module."""
        cards = ",".join((variables or {}).values())
        self.cards.append(cards)
        self.variables.append(dict(variables or {}))
        if self.start_error:
            raise EngineError(self.start_error)
        self.opened += 1
        return self.kind(self, lib_folder or self.folder, self.devices(cards))


class FakeEngine:
    """One engine of a script."""

    def __init__(self, script: Script, folder: Path, devices: tuple[str, ...]) -> None:
        self._script = script
        self._folder = folder
        self._devices = devices
        self._under_way: dict[str, Work] = {}
        self._model = b""
        self._reference: bytes | str = b""
        """The model that is held against, or the path of a kept file; empty before one is named."""
        self._name = ""
        self._read_back: ReadBack | None = None
        self._mapped: tuple[MappedFile, ...] = ()
        self._is_alive = True

    def load(self, load: Load) -> ReadBack:
        self._live()
        self._script.before_load(load)
        self._model = _model_of(load)
        self._reference = b""
        self._name = Path(load.weights[0]).name
        self._script.loads.append(self._name)
        self._script.loaded_paths.append(Path(load.weights[0]))
        self._mapped = tuple(_mapped(path) for path in sorted(self._folder.iterdir()))
        self._read_back = self._seen(load)
        return self._read_back

    def refer(self, reference: Load | KeptFile) -> ReadBack | None:
        self._live()
        assert self._read_back is not None
        match reference:
            case Load():
                self._script.before_load(reference)
                self._script.references.append(Path(reference.weights[0]).name)
                self._reference = _model_of(reference)
                return self._seen(reference)
            case KeptFile(path=path):
                self._script.references.append(Path(path).name)
                try:
                    with closing(Parts(path)):
                        self._reference = path
                except KeptFileError as error:
                    raise EngineError(str(error)) from error
                return None

    def _seen(self, load: Load) -> ReadBack:
        setting = load.setting
        plain = ReadBack(
            context_tokens=setting.context_tokens,
            slots=setting.slots,
            batch_tokens=setting.batch_tokens,
            ubatch_tokens=setting.ubatch_tokens,
            threads=setting.threads,
            batch_threads=setting.batch_threads,
            cache_type_k=setting.cache_type_k,
            cache_type_v=setting.cache_type_v,
            flash_attention=setting.flash_attention,
            layers=3,
            layers_offloaded=0,
            weights_buffer=(Buffer(place="CPU_Mapped", use="model", size_bytes=230_687),),
            cache_buffer=(Buffer(place="CPU", use="KV", size_bytes=262_144),),
            trained_context_tokens=2048,
            vocab_tokens=VOCAB_TOKENS,
            add_bos=True,
            add_eos=False,
            bos_token=BOS,
            eos_token=EOS,
            bos_text="<s>",
            eos_text="</s>",
            end_tokens=(EOS,),
            expert_count=0,
        )
        if setting.gpu_layers:
            plain = msgspec.structs.replace(plain, weights_buffer=ON_CARD, cache_buffer=ON_CARD)
        return msgspec.structs.replace(plain, **self._script.read_back)

    def vocabulary(self, header: str) -> Vocabulary:
        self._live()
        data = Path(header).read_bytes()
        assert isinstance(read := read_header(data, len(data)), Header)
        assert read.tensors == ()
        self._script.vocabularies.append(Path(header).name)
        if self._script.no_vocabulary:
            self._is_alive = False
            raise EngineError(self._script.no_vocabulary)
        return Vocabulary(add_bos=True, bos_token=BOS, bos_text="<s>", eos_text="</s>")

    def tokenize(
        self, texts: Sequence[str], *, add_special: bool, parse_special: bool
    ) -> list[tuple[int, ...]]:
        self._live()
        head = (BOS,) if add_special else ()
        found = []
        for text in texts:
            special = parse_special and text.startswith("<s>")
            body = tuple(text.removeprefix("<s>").encode() if special else text.encode())
            found.append((*head, *((BOS,) if special else ()), *body))
        return found

    def submit(self, work: Work) -> None:
        self._live()
        assert work.id not in self._under_way
        if work.id not in _OWN_WORK:
            self._script.work.append(work)
        self._under_way[work.id] = work

    def next_done(self) -> Done:
        self._live()
        for item in self._under_way:
            if self._script.kills[item] > 0:
                self._script.kills[item] -= 1
                self._is_alive = False
                raise EngineError(self._script.last_words)
        names = list(self._under_way)
        work = self._under_way.pop(names[self._script.takes(names)])
        if work.id not in _OWN_WORK:
            self._script.before_item(work.id)
            self._script.asked.append(work.id)
        return self._done(work)

    def probe(self, prompts: Sequence[tuple[int, ...]], *, steps: int) -> tuple[ProbeRow, ...]:
        self._live()
        assert self._read_back is not None
        self._script.probes.append(self._name)
        is_shaky = self._name in self._script.shaky and self._read_back.slots > 1
        rows = len(prompts)
        return tuple(
            ProbeRow(
                variation=look,
                rows=rows,
                rows_bitwise=0 if is_shaky else rows,
                rows_tokens=rows,
                logit_difference_max=0.25 if is_shaky else 0.0,
                kl_nats_mean=0.001 if is_shaky else 0.0,
            )
            for look in LOOKS
        )

    def mapped_files(self) -> tuple[MappedFile, ...]:
        self._live()
        return self._mapped

    def devices(self) -> tuple[str, ...]:
        self._live()
        return self._devices

    def memory(self) -> tuple[Buffer, ...]:
        self._live()
        return self._script.memory

    def deviations(self) -> tuple[Deviation, ...]:
        self._live()
        return self._script.deviations

    def label(self) -> str:
        return self._script.label

    def system_info(self) -> str:
        return self._script.system_info

    def log_tail(self) -> str:
        return "the last line"

    def close(self) -> None:
        self._script.closed += self._is_alive
        self._is_alive = False

    def _live(self) -> None:
        if not self._is_alive:
            raise EngineError("the engine has ended: signal SIGSEGV")

    def _done(self, work: Work) -> Done:
        reply = self._script.replies.get(work.id)
        match work, reply:
            case _, Broken():
                return reply
            case Measure(), _:
                return Measured(id=work.id, nats=self._nats(work, self._model), elapsed_s=0.5)
            case Contrast(), _:
                return self._contrasted(work)
            case Keep(), _:
                return self._kept(work)
            case Generate(), text:
                return self._generated(work, text)

    def _contrasted(self, work: Contrast) -> Contrasted | Broken:
        """Zero where both are the same model; otherwise something that grows with how far the costs lie apart."""
        if not self._reference:
            return Broken(id=work.id, why="no reference was named")
        nats, reference_nats = self._nats(work, self._model), self._reference_nats(work)
        if not reference_nats:
            return Broken(id=work.id, why="the kept file has no part of these tokens")
        apart = [abs(a - b) for a, b in zip(nats, reference_nats, strict=True)]
        return Contrasted(
            id=work.id,
            nats=nats,
            reference_nats=reference_nats,
            kld_nats=tuple(one / 4 for one in apart),
            reverse_kld_nats=tuple(one / 5 for one in apart),
            same_top=tuple(one < self._script.nats / 2 for one in apart),
            pieces=tuple(_piece(token) for token in work.tokens[work.score_from :]) if work.pieces else (),
            kld_slack_nats=tuple(one / 8 for one in apart) if self._is_compact() else (),
            elapsed_s=0.5,
        )

    def _is_compact(self) -> bool:
        if not isinstance(self._reference, str):
            return False
        with closing(Parts(self._reference)) as parts:
            return isinstance(parts.layout, TopLayout)

    def _reference_nats(self, work: Contrast) -> tuple[float, ...]:
        match self._reference:
            case bytes() as model:
                return self._nats(work, model)
            case path:
                with closing(Parts(path)) as parts:
                    part = parts.part_of(work.tokens, bos_token=BOS)
                    if part is None:
                        return ()
                    rows = parts.rows(part, 0, len(work.tokens) - work.score_from)
                match rows:
                    case TopRows(own=own):
                        return tuple(-float(one) for one in own)
                    case KeptRows():
                        scored = work.tokens[work.score_from :]
                        kept = rows.log_probabilities()
                        return tuple(-float(row[token]) for row, token in zip(kept, scored, strict=True))

    def _kept(self, work: Keep) -> Kept | Broken:
        """Rows in which the scored token has its cost, and all others are equal."""
        nats = self._nats(work, self._model)
        logits = np.zeros((len(nats), VOCAB_TOKENS), dtype=np.float32)
        for row, token, cost in zip(logits, work.tokens[work.score_from :], nats, strict=True):
            row[:] = np.log(-np.expm1(-cost) / (VOCAB_TOKENS - 1))
            row[token] = -cost
        try:
            with closing(Parts(work.path, is_writable=True)) as parts:
                if not parts.is_of(work.part, work.tokens, bos_token=BOS):
                    return Broken(id=work.id, why=f"part `{work.part}` of the kept file is of other tokens")
                match parts.layout:
                    case Layout():
                        data = encoded(logits)
                    case TopLayout(kept_tokens=kept_tokens):
                        targets = np.array(work.tokens[work.score_from :], dtype=np.int32)
                        data = top_encoded(logits, targets, kept_tokens)
                digest = parts.write(work.part, [data])
        except KeptFileError as error:
            return Broken(id=work.id, why=str(error))
        return Kept(id=work.id, nats=nats, blake3=digest, elapsed_s=0.5)

    def _nats(self, work: Measure | Contrast | Keep, model: bytes) -> tuple[float, ...]:
        """Costs around the script's mean that depend on the model and on all tokens before."""
        before = hashlib.sha256(model + self._script.salt.encode())
        costs = []
        for token in work.tokens:
            before.update(token.to_bytes(2))
            costs.append(self._script.nats * (0.5 + before.digest()[0] / 255))
        return tuple(costs[work.score_from :])

    def _generated(self, work: Generate, text: str | None) -> Generated:
        assert self._read_back is not None
        room = self._read_back.context_tokens - len(work.tokens)
        drawn = f"{work.sampling.seed}{self._script.sampler}" if work.sampling.temperature else "0"
        ground = f"{work.tokens}{drawn}"
        said = str(self._hash(ground.encode())[0] % 10) if text is None else text
        tokens = tuple(said.encode())
        ending: Ending = "eos"
        why = ""
        if room <= 0:
            said, tokens, ending = "", (), "context"
            why = f"a prompt of `{len(work.tokens)}` tokens leaves no room in a context of `{room + len(work.tokens)}`"
        elif len(tokens) > work.sampling.answer_tokens:
            tokens, ending = tokens[: work.sampling.answer_tokens], "budget"
            said = bytes(tokens).decode(errors="replace")
        return Generated(
            id=work.id,
            tokens=tokens,
            text=said,
            ending=ending,
            why=why,
            logprobs=(),
            logits_digest=blake3_of(self._hash(ground.encode())) if work.logits_digest else "",
            prefill_s=0.25,
            decode_s=0.5,
        )

    def _hash(self, data: bytes) -> bytes:
        return hashlib.sha256(self._model + self._script.salt.encode() + data).digest()


def _model_of(load: Load) -> bytes:
    return b"".join(hashlib.sha256(Path(path).read_bytes()).digest() for path in load.weights)


def _piece(token: int) -> str:
    return bytes([token]).decode(errors="replace") if token < BOS else ""


def _mapped(path: Path) -> MappedFile:
    """A file as a process has it mapped from now on, whatever the name leads to later."""
    seen = path.stat()
    device = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}"
    return MappedFile(path=str(path), device=device, inode=seen.st_ino, deleted=False)
