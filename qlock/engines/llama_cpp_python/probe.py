"""The schedule probe: decode a few prompts in the plain schedule, vary what is around them, and compare every bit.

Plain: the prompts lie in rows 0, 1, … of a full-width batch (in groups, where there are more of them than slots),
rows without a prompt decode a dummy, tokens are chosen greedily. A variation decodes the same prompts with **the
plain schedule's tokens forced on them**, so that the logits of each step stay comparable after a first difference:

- ``repeat``: the same again, in caches that others have used since.
- ``permute``: rows mirrored, prefilled in the opposite order.
- ``dummies``: each prompt alone, in the last row, with dummies beside it.
- ``copies``: each prompt with copies of itself in all other rows (rows of a mixture-of-experts model then ask the
  same experts); every copy must equal the plain row.
- ``long-neighbours``: one neighbour with a prompt of some hundred tokens.
- ``threads``: another number of threads.
- ``width``: half as many rows in each decode.

A prompt is always prefilled alone, so the first two and ``threads`` say all there is to say about prefilling: again,
into another row, after and beside other prompts, with other threads. The rest vary what is decoded beside a row, and
begin with the caches that the plain schedule had after its prefill, put back bit for bit. Were they not the same bits,
a row would come out otherwise, and count against the model.

With one slot only ``repeat`` and ``threads`` can be varied. Does not live here: what follows from it (``core``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
import numpy as np
from numpy.typing import NDArray

from qlock.core.facts import ProbeRow
from qlock.engines.llama_cpp_python.decoder import Decoder, dummy_token, prefill
from qlock.errors import EngineError

_LONG_TOKENS = 400
"""Length of the long neighbour, where no prompt is long and the context has room for it."""
_LONG_ENOUGH_TOKENS = 300
_MOST_KEPT_BYTES = 1 << 30
"""Of all prompts' caches together; prompts beyond are prefilled again."""

Prompt = tuple[int, ...]
Logits = NDArray[np.float32]


class _Seat(msgspec.Struct, frozen=True):
    """A prompt in a row of the batch."""

    row: int
    prompt: Prompt
    forced: tuple[int, ...] = ()
    """Tokens to go on with; where there are none, the likeliest."""
    copied_from: int | None = None
    """The row whose cache is copied instead of prefilling the prompt again."""
    is_kept: bool = False
    """Whether the cache after the plain prefill is put back, where it was kept, instead of prefilling again."""


class _Plain(msgspec.Struct, frozen=True):
    """What one prompt did in the plain schedule."""

    prompt: Prompt
    logits: tuple[Logits, ...]
    """Of the prefill and of every decode."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """Greedy choices."""
        return tuple(int(np.argmax(logits)) for logits in self.logits)


class _Tally:
    """Compares replayed rows with the plain ones, as they come."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._moved_bits: set[int] = set()
        self._moved_tokens: set[int] = set()
        self._difference = 0.0
        self._kl_nats = 0.0
        self._compared = 0

    def compare(self, index: int, plain: Logits, found: Logits) -> None:
        """Take one step of prompt ``index``."""
        self._seen.add(index)
        self._compared += 1
        if np.array_equal(plain.view(np.uint32), found.view(np.uint32)):
            return
        self._moved_bits.add(index)
        if int(np.argmax(plain)) != int(np.argmax(found)):
            self._moved_tokens.add(index)
        self._difference = max(self._difference, float(np.abs(plain - found).max()))
        self._kl_nats += kl_nats(plain, found)

    def row(self, variation: str) -> ProbeRow:
        """The count."""
        return ProbeRow(
            variation=variation,
            rows=len(self._seen),
            rows_bitwise=len(self._seen - self._moved_bits),
            rows_tokens=len(self._seen - self._moved_tokens),
            logit_difference_max=self._difference,
            kl_nats_mean=self._kl_nats / max(1, self._compared),
        )


class _Stage:
    """Decodes seats in lockstep."""

    def __init__(self, decoder: Decoder, steps: int, alive: Callable[[], None]) -> None:
        self.decoder = decoder
        self.steps = steps
        self.alive = alive
        self.slots = decoder.setting.slots
        self._kept: dict[Prompt, bytes] = {}

    def keep(self, seat: _Seat) -> None:
        """Keep the cache of a seat that was just prefilled."""
        room = _MOST_KEPT_BYTES - sum(map(len, self._kept.values()))
        kept = self.decoder.keep(seat.row, most_bytes=room)
        if kept is not None:
            self._kept[seat.prompt] = kept

    def _put_back(self, seat: _Seat) -> bool:
        kept = self._kept.get(seat.prompt)
        return seat.is_kept and kept is not None and self.decoder.put_back(seat.row, kept)

    def play(
        self, seats: Sequence[_Seat], *, width: int | None = None
    ) -> Iterator[tuple[_Seat, int, Logits]]:
        """Each seat with its logits of the prefill (0), where it has one, and of each decode (1, 2, …).

        Arrays are the caller's to keep.
        """
        width = width or self.slots
        last: dict[int, int] = {}
        for seat in seats:
            if seat.copied_from is not None:
                self.decoder.copy(seat.copied_from, seat.row)
                last[seat.row] = last[seat.copied_from]
                continue
            if self._put_back(seat):
                last[seat.row] = seat.forced[0]
                continue
            logits = prefill(self.decoder, seat.row, seat.prompt, self.alive).copy()
            _refuse_not_finite(logits)
            last[seat.row] = seat.forced[0] if seat.forced else int(np.argmax(logits))
            yield seat, 0, logits
        by_row = {seat.row: seat for seat in seats}
        for step in range(1, self.steps + 1):
            tokens, positions = [], []
            for row in range(width):
                if row in by_row:
                    tokens.append(last[row])
                    positions.append(len(by_row[row].prompt) + step - 1)
                else:
                    self.decoder.clear(row)
                    tokens.append(dummy_token(self.decoder))
                    positions.append(0)
            found = self.decoder.step(tokens, positions).copy()
            self.alive()
            _refuse_not_finite(found)
            for seat in seats:
                last[seat.row] = seat.forced[step] if seat.forced else int(np.argmax(found[seat.row]))
                yield seat, step, found[seat.row]
        for row in range(self.slots):
            self.decoder.clear(row)


Arrange = Callable[[Sequence[int]], tuple[list[_Seat], dict[int, int]]]


def probe(
    decoder: Decoder, prompts: Sequence[Prompt], *, steps: int, alive: Callable[[], None]
) -> tuple[ProbeRow, ...]:
    """One row for each variation that the number of slots allows.

    Args:
        decoder: A loaded model with nothing under way.
        prompts: At least one; each with room for ``steps`` more tokens in the context.
        steps: Decodes after each prefill.
        alive: Called after every decode.

    Raises:
        EngineError: There is no prompt, one does not fit, or logits are not finite.
    """
    room = decoder.setting.context_tokens - steps
    if not prompts or steps < 1:
        raise EngineError(f"got `{len(prompts)}` prompts and `{steps}` steps to probe, expected at least one")
    for prompt in prompts:
        if not 0 < len(prompt) <= room or not 0 <= min(prompt) <= max(prompt) < decoder.vocab_tokens:
            raise EngineError(f"cannot probe with a prompt of `{len(prompt)}` tokens, room is for `{room}`")
    stage = _Stage(decoder, steps, alive)
    return _Probe(stage, _plain(stage, prompts)).rows()


def kl_nats(plain: Logits, found: Logits) -> float:
    """KL divergence of ``softmax(found)`` from ``softmax(plain)``, nats, in float64; never below 0."""
    p, q = _log_softmax(plain), _log_softmax(found)
    return max(0.0, float(np.sum(np.exp(p) * (p - q))))


def _log_softmax(logits: Logits) -> NDArray[np.float64]:
    scores = logits.astype(np.float64)
    scores -= scores.max()
    lowered: NDArray[np.float64] = scores - np.log(np.exp(scores).sum())
    return lowered


def _plain(stage: _Stage, prompts: Sequence[Prompt]) -> tuple[_Plain, ...]:
    kept: list[list[Logits]] = [[] for _ in prompts]
    for group in _groups(len(prompts), stage.slots):
        seats = [_Seat(row, prompts[index]) for row, index in enumerate(group)]
        for seat, step, logits in stage.play(seats):
            if step == 0:
                stage.keep(seat)
            kept[group[seat.row]].append(logits)
    return tuple(_Plain(prompt, tuple(logits)) for prompt, logits in zip(prompts, kept, strict=True))


class _Probe:
    """The variations; each arranges seats for a group of prompts, and says which prompt each compared row holds."""

    def __init__(self, stage: _Stage, plain: tuple[_Plain, ...]) -> None:
        self._stage = stage
        self._plain = plain

    def rows(self) -> tuple[ProbeRow, ...]:
        """All that the number of slots allows."""
        slots = self._stage.slots
        rows = [self._vary("repeat", slots, self._in_order)]
        if slots > 1:
            rows += [
                self._vary("permute", slots, self._mirrored),
                self._vary("dummies", 1, self._in_last_row),
                self._vary("copies", 1, self._in_every_row),
                self._vary("long-neighbours", slots - 1, self._beside_a_long_one),
            ]
        with _other_threads(self._stage.decoder):
            rows.append(self._vary("threads", slots, self._in_order))
        if slots > 1:
            rows.append(self._vary("width", slots // 2, self._in_order_kept, width=slots // 2))
        return tuple(rows)

    def _vary(
        self, variation: str, group_size: int, arrange: Arrange, *, width: int | None = None
    ) -> ProbeRow:
        tally = _Tally()
        for group in _groups(len(self._plain), group_size):
            seats, held = arrange(group)
            for seat, step, logits in self._stage.play(seats, width=width):
                if seat.row in held:
                    index = held[seat.row]
                    tally.compare(index, self._plain[index].logits[step], logits)
        return tally.row(variation)

    def _in_order(self, group: Sequence[int]) -> tuple[list[_Seat], dict[int, int]]:
        return [self._seat(index, row) for row, index in enumerate(group)], dict(enumerate(group))

    def _in_order_kept(self, group: Sequence[int]) -> tuple[list[_Seat], dict[int, int]]:
        return [self._kept(index, row) for row, index in enumerate(group)], dict(enumerate(group))

    def _mirrored(self, group: Sequence[int]) -> tuple[list[_Seat], dict[int, int]]:
        held = {self._stage.slots - 1 - place: index for place, index in enumerate(group)}
        return [self._seat(index, row) for row, index in reversed(held.items())], held

    def _in_last_row(self, group: Sequence[int]) -> tuple[list[_Seat], dict[int, int]]:
        row = self._stage.slots - 1
        return [self._kept(group[0], row)], {row: group[0]}

    def _in_every_row(self, group: Sequence[int]) -> tuple[list[_Seat], dict[int, int]]:
        first = self._kept(group[0], 0)
        copies = [_Seat(row, first.prompt, first.forced, 0) for row in range(1, self._stage.slots)]
        return [first, *copies], dict.fromkeys(range(self._stage.slots), group[0])

    def _beside_a_long_one(self, group: Sequence[int]) -> tuple[list[_Seat], dict[int, int]]:
        held = dict(enumerate(group, start=1))
        return [self._long(0), *(self._kept(index, row) for row, index in held.items())], held

    def _long(self, row: int) -> _Seat:
        """The longest prompt, where it is long; else all of them, again and again."""
        longest = max(range(len(self._plain)), key=lambda index: len(self._plain[index].prompt))
        if len(self._plain[longest].prompt) >= _LONG_ENOUGH_TOKENS:
            return self._kept(longest, row)
        pattern = [token for one in self._plain for token in one.prompt]
        length = min(_LONG_TOKENS, self._stage.decoder.setting.context_tokens - self._stage.steps)
        return _Seat(row, tuple(pattern[place % len(pattern)] for place in range(length)))

    def _seat(self, index: int, row: int) -> _Seat:
        return _Seat(row, self._plain[index].prompt, self._plain[index].tokens)

    def _kept(self, index: int, row: int) -> _Seat:
        return msgspec.structs.replace(self._seat(index, row), is_kept=True)


def _groups(count: int, size: int) -> list[Sequence[int]]:
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


@contextmanager
def _other_threads(decoder: Decoder) -> Iterator[None]:
    """Another number of threads, and the setting's own again afterwards."""
    setting = decoder.setting
    decoder.use_threads(
        *(count - 1 if count > 1 else 2 for count in (setting.threads, setting.batch_threads))
    )
    try:
        yield
    finally:
        decoder.use_threads(setting.threads, setting.batch_threads)


def _refuse_not_finite(logits: Logits) -> None:
    if not np.isfinite(logits).all():
        raise EngineError("cannot probe the schedule: logits are not finite")
