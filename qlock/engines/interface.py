"""What every engine can do, in the shapes the driver speaks.

An engine runs llama.cpp in processes of its own. Whatever goes wrong inside one comes out as ``EngineError`` (the
engine) or as a ``Broken`` reply (one item); an engine of which nothing can be promised refuses with ``RefusedError``.
Nothing else crosses this line.

Does not live here: suites, prompts as text, grading.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec import UNSET, UnsetType

from qlock.core.base import Base, Count, Finite, Positive, Seconds, Share, Token
from qlock.core.exchange import Ending
from qlock.core.facts import Buffer, ProbeRow, ReadBack, Setting
from qlock.world.interface import MappedFile


class Sampling(Base, frozen=True, kw_only=True):
    """How the next token is chosen; nothing is left to an engine's or a file's own default."""

    temperature: Finite
    """0 is greedy: the first of the largest logits."""
    top_k: Count
    """0 switches it off."""
    top_p: Share
    """1 switches it off."""
    min_p: Share
    """0 switches it off."""
    repeat_penalty: Finite
    """1 switches it off."""
    presence_penalty: Finite
    frequency_penalty: Finite
    penalty_tokens: Count
    """How many of the last tokens (prompt included) the penalties look at."""
    seed: Count
    """Of this one item: derived from the lock's seed, the item and the repeat, never from the order of work."""
    answer_tokens: Count
    """Cap of the answer."""
    stop: tuple[str, ...]
    """Texts that end the answer and are cut off it."""
    ignore_eos: bool
    """Go on after an end token, for speed tests and probes."""


def tokenizing_s(text: str) -> float:
    """How long tokenizing a text may take, in seconds: a minute, and what a slow tokenizer needs for its length."""
    return 60.0 + len(text) / 100_000


def greedy(answer_tokens: int, *, ignore_eos: bool) -> Sampling:
    """The likeliest token at every step, and nothing else that could choose."""
    return Sampling(
        temperature=0.0,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        repeat_penalty=1.0,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        penalty_tokens=0,
        seed=0,
        answer_tokens=answer_tokens,
        stop=(),
        ignore_eos=ignore_eos,
    )


class Load(Base, frozen=True, kw_only=True):
    """What to load: where the files lie now, and how."""

    weights: tuple[str, ...]
    """Absolute paths: one file, or all shards in order."""
    setting: Setting


class KeptFile(Base, frozen=True, kw_only=True):
    """Log-probabilities of a reference that were written before.

    All of them in the format of ``llama-perplexity`` (``core.kept_logits``), or the likeliest alone in qlock's own
    (``core.kept_top``); the file says which.
    """

    path: str
    """Absolute."""


def padded_tokens(context_tokens: int) -> int:
    """The context that llama.cpp makes of one that is asked for: the next multiple of 256."""
    return -(-context_tokens // 256) * 256


def bare_environment(home: Path) -> dict[str, str]:
    """All that the environment of a process of llama.cpp holds, before anything of its own: nothing is inherited.

    Args:
        home: An empty folder: llama.cpp reads files of options out of it.
    """
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
        "LC_ALL": "C",
        "NO_COLOR": "1",
        "GGML_NO_BACKTRACE": "1",
        # llama.cpp says itself how many threads each region has; nothing else may change that.
        "OMP_DYNAMIC": "FALSE",
        "OMP_PROC_BIND": "FALSE",
        # Threads meet a thousand times for each token. Spinning for milliseconds, as libgomp would by default,
        # makes a machine with anything else to do ten times slower; some microseconds catch most meetings.
        "GOMP_SPINCOUNT": "1000",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


class Vocabulary(Base, frozen=True, kw_only=True, tag_field="kind", tag="vocabulary"):
    """What rendering and tokenizing must know of a model."""

    add_bos: bool
    bos_token: int
    """−1 when there is none."""
    bos_text: str
    eos_text: str
    vocab_tokens: Positive | UnsetType = UNSET
    """Unset where the engine does not tell."""


def vocabulary_of(read_back: ReadBack) -> Vocabulary:
    """The vocabulary of a loaded point."""
    return Vocabulary(
        add_bos=read_back.add_bos,
        bos_token=read_back.bos_token,
        bos_text=read_back.bos_text,
        eos_text=read_back.eos_text,
        vocab_tokens=read_back.vocab_tokens,
    )


class Generate(Base, frozen=True, kw_only=True, tag_field="kind", tag="generate"):
    """Continue token ids."""

    id: str
    tokens: tuple[Token, ...]
    sampling: Sampling
    logprobs: bool
    """Whether to give the natural log-probability of each chosen token before any sampler."""
    logits_digest: bool
    """Whether to digest the logits of every step, or what comes nearest to them that this engine can give."""


class Measure(Base, frozen=True, kw_only=True, tag_field="kind", tag="measure"):
    """Score given token ids from ``score_from`` on; at most ``context_tokens`` of them."""

    id: str
    tokens: tuple[Token, ...]
    score_from: Count


class Contrast(Base, frozen=True, kw_only=True, tag_field="kind", tag="contrast"):
    """Hold the loaded point against the reference that ``Engine.refer`` named, from ``score_from`` on."""

    id: str
    tokens: tuple[Token, ...]
    score_from: Count
    pieces: bool
    """Whether to give the text of each scored token."""


class Keep(Base, frozen=True, kw_only=True, tag_field="kind", tag="keep"):
    """Write the loaded point's log-probabilities of given token ids into a file of kept ones, as part ``part``."""

    id: str
    tokens: tuple[Token, ...]
    score_from: Count
    path: str
    part: Count


Reading = Measure | Contrast | Keep
"""Work that decodes given tokens and writes none."""

Work = Generate | Reading


class Generated(Base, frozen=True, kw_only=True, tag_field="kind", tag="generated"):
    """A finished continuation."""

    id: str
    tokens: tuple[Token, ...]
    """What was generated, without the end token; with ``stop``, up to the token that completed the stop text."""
    text: str
    """Bytes of the tokens joined, decoded as UTF-8 with U+FFFD for what is none; cut before a stop text."""
    ending: Ending
    why: str
    logprobs: tuple[Finite, ...]
    """Empty unless asked for."""
    logits_digest: str
    """Empty unless asked for."""
    prefill_s: Seconds
    decode_s: Seconds
    """Wall time from the first decode to the last; rows share the engine, so times of items overlap."""


class Measured(Base, frozen=True, kw_only=True, tag_field="kind", tag="measured"):
    """Negative log-probabilities, nats, one per token from ``score_from`` on."""

    id: str
    nats: tuple[Finite, ...]
    elapsed_s: Seconds


class Contrasted(Base, frozen=True, kw_only=True, tag_field="kind", tag="contrasted"):
    """What ``Contrast`` found: one number per token from ``score_from`` on in each field; see ``exchange.Diverged``."""

    id: str
    nats: tuple[Finite, ...]
    reference_nats: tuple[Finite, ...]
    kld_nats: tuple[Finite, ...]
    reverse_kld_nats: tuple[Finite, ...]
    same_top: tuple[bool, ...]
    pieces: tuple[str, ...]
    kld_slack_nats: tuple[Finite, ...] = ()
    elapsed_s: Seconds


class Kept(Base, frozen=True, kw_only=True, tag_field="kind", tag="kept"):
    """A part that was written and synced."""

    id: str
    nats: tuple[Finite, ...]
    """As ``Measured`` gives them, of the same decode."""
    blake3: str
    """Of the bytes that were written."""
    elapsed_s: Seconds


class Broken(Base, frozen=True, kw_only=True, tag_field="kind", tag="broken"):
    """This one request could not be done; the engine lives on."""

    id: str
    why: str
    is_disk_full: bool = False
    """Whether the disk, or what one may use of it, is full: no fault of the engine."""


Done = Generated | Measured | Contrasted | Kept | Broken


class Deviation(Base, frozen=True, kw_only=True):
    """One thing that an engine says of a loaded point, beside its read-back, and that is not as it was told."""

    name: str
    """As in ``sampling.temperature``."""
    expected: str
    found: str
    """``missing`` where it does not say."""
    why: str = ""
    """Why it is not known, or what follows."""


class Engine(Protocol):
    """One running engine, with at most one point loaded."""

    def load(self, load: Load) -> ReadBack:
        """Load a point, dropping the one before; raises ``EngineError`` with the engine's own words."""

    def vocabulary(self, header: str) -> Vocabulary:
        """Load a GGUF without tensors (``core.gguf_vocabulary``), dropping the point: texts can be tokenized, no more.

        Raises ``EngineError`` where this engine cannot; one whose process lives on can be given another.
        """

    def tokenize(
        self, texts: Sequence[str], *, add_special: bool, parse_special: bool
    ) -> list[tuple[int, ...]]:
        """Token ids of each text under the vocabulary that is loaded."""

    def submit(self, work: Work) -> None:
        """Queue one piece of work; ids are the caller's and unique among what is under way."""

    def next_done(self) -> Done:
        """Wait for the next finished piece, in finishing order."""

    def refer(self, reference: Load | KeptFile) -> ReadBack | None:
        """Name what ``Contrast`` holds the loaded point against: a second point, loaded beside it, or a kept file.

        The next ``load`` forgets it. With the very files and setting that are loaded nothing is loaded again. What a
        second point tells of itself comes back; ``None`` for a file. Raises ``EngineError`` where the two vocabularies
        differ in size, where a file is not whole, or where this engine cannot do it; then there is no reference, and the
        loaded point stays.
        """

    def probe(self, prompts: Sequence[tuple[int, ...]], *, steps: int) -> tuple[ProbeRow, ...]:
        """Vary the schedule around the prompts and say what stayed the same; nothing may be under way."""

    def mapped_files(self) -> tuple[MappedFile, ...]:
        """Files mapped with code by the process that computes; whole only after a decode."""

    def devices(self) -> tuple[str, ...]:
        """Cards that the loaded point, and a reference beside it, lie on, as PCI addresses (``0000:18:00.0``) in the engine's order.

        One whose address the engine does not tell is given by the engine's own name for it (``SYCL0``).
        """

    def memory(self) -> tuple[Buffer, ...]:
        """Memory that the loaded point took, by the engine's own account; empty where it tells nothing of it."""

    def deviations(self) -> tuple[Deviation, ...]:
        """What the engine says of the loaded point that is not as it was told, beside what is read back."""

    def label(self) -> str:
        """Version text."""

    def system_info(self) -> str:
        """llama.cpp's line of compiled-in features."""

    def log_tail(self) -> str:
        """The last lines that the engine logged."""

    def close(self) -> None:
        """End every process of the engine; safe to call twice."""
