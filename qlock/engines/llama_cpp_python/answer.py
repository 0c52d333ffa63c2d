"""One answer while it is being made: its tokens, its text, and why it stopped.

Pure: logits of a step go in, the next token comes out, or the end. Does not live here: decoding, and which row of
the batch an answer has (``lockstep``).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet

import numpy as np

from qlock.core.digest import StreamDigests
from qlock.core.exchange import Ending
from qlock.engines.interface import Broken, Generate, Generated
from qlock.engines.llama_cpp_python.sampler import Row, choose, log_probability


class Answer:
    """The answer to one ``Generate``.

    Args:
        work: What was asked.
        piece: Bytes of a token.
        end_tokens: Tokens that end generation.
        context_tokens: Room for prompt and answer together.
    """

    def __init__(
        self,
        work: Generate,
        piece: Callable[[int], bytes],
        *,
        end_tokens: AbstractSet[int],
        context_tokens: int,
    ) -> None:
        self.work = work
        self.tokens: list[int] = []
        self._piece = piece
        self._end_tokens = end_tokens
        self._context_tokens = context_tokens
        self._stops = [(stop, stop.encode()) for stop in work.sampling.stop]
        self._longest_stop = max((len(data) for _, data in self._stops), default=0)
        self._bytes = bytearray()
        self._history = list(work.tokens)
        self._logprobs: list[float] = []
        self._digests = StreamDigests()
        self._ending: Ending | None = None
        self._why = ""
        self._broken = ""
        self._check_room()

    @property
    def is_over(self) -> bool:
        """Whether no further step is wanted."""
        return self._ending is not None or bool(self._broken)

    @property
    def length_tokens(self) -> int:
        """Prompt and answer so far."""
        return len(self._history)

    def take(self, logits: Row) -> None:
        """Choose the next token from the logits of a step, or find that the answer is over."""
        if not np.isfinite(logits).all():
            self._broken = f"logits are not finite at step `{len(self.tokens)}`"
            return
        if self.work.logits_digest:
            self._digests.feed_blake3(logits.astype("<f4", copy=False).tobytes())
        sampling = self.work.sampling
        token = choose(logits, self._history, sampling, step=len(self.tokens))
        if token in self._end_tokens and not sampling.ignore_eos:
            self._ending = "eos"
            return
        if self.work.logprobs:
            self._logprobs.append(log_probability(logits, token))
        self.tokens.append(token)
        self._history.append(token)
        self._bytes += self._piece(token)
        if not self._cut_at_stop(len(self._piece(token))):
            self._check_room()

    def done(self, *, prefill_s: float, decode_s: float) -> Generated | Broken:
        """The finished answer."""
        if self._broken:
            return Broken(id=self.work.id, why=self._broken)
        assert self._ending is not None
        return Generated(
            id=self.work.id,
            tokens=tuple(self.tokens),
            text=self._bytes.decode("utf-8", "replace"),
            ending=self._ending,
            why=self._why,
            logprobs=tuple(self._logprobs),
            logits_digest=self._digests.blake3() if self.work.logits_digest else "",
            prefill_s=prefill_s,
            decode_s=decode_s,
        )

    def _check_room(self) -> None:
        """End at the token cap, else at the end of the context."""
        prompt, room = len(self.work.tokens), self._context_tokens
        if prompt >= room and not self.tokens:
            self._ending = "context"
            self._why = f"a prompt of `{prompt}` tokens leaves no room in a context of `{room}`"
        elif len(self.tokens) >= self.work.sampling.answer_tokens:
            self._ending = "budget"
        elif len(self._history) >= room:
            self._ending = "context"
            self._why = f"prompt and answer fill the context of `{room}` tokens"

    def _cut_at_stop(self, new_bytes: int) -> bool:
        """End at the stop text that begins first among those that the last token completed."""
        start = max(0, len(self._bytes) - new_bytes - self._longest_stop + 1)
        places = [(self._bytes.find(data, start), stop) for stop, data in self._stops if data]
        found = min(((place, stop) for place, stop in places if place >= 0), default=None)
        if found is None:
            return False
        del self._bytes[found[0] :]
        self._ending, self._why = "stop", found[1]
        return True
