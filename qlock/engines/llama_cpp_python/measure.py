"""From logits to numbers, with llama-perplexity's own arithmetic: costs of tokens, and divergences of two models.

A row is one prediction. Rows are reduced some at a time, so that the scratch stays in the processor's cache whatever
the window; what comes of a row depends on that row alone, so rows may be cut and spread over threads at will.

The rounding: ``exp`` and differences are in float32, sums and logarithms in float64. So a divergence is off by some
1e-7 nats, to either side: one of nearly equal predictions may come out a hair below 0 and is given as it is, since a
mean over cut-off ones would be too large. One of equal rows is exactly 0.

Does not live here: decoding (``native``), cutting rows and threads (``reading``), the file of kept rows
(``core.kept_logits``, ``core.kept_top``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qlock.core.kept_logits import LOOSE_SHARE, rounded_exp
from qlock.core.kept_top import TopRows

_BLOCK = 1 << 16
"""Logits reduced at a time: one row of a large vocabulary, some of a small one."""

_NEGLIGIBLE = np.float32(-16)
"""llama-perplexity leaves out tokens to which the kept reference gives a smaller log-probability."""


class NoFiguresError(ArithmeticError):
    """There are no figures to be had; the text says why."""


class NotFiniteError(NoFiguresError):
    """A logit is NaN or infinite."""


class KeptRowError(NoFiguresError):
    """A kept row is none: its probabilities do not sum to 1."""

    def __init__(self) -> None:
        super().__init__("a kept row is none: its probabilities do not sum to 1")


class Divergences(NamedTuple):
    """One number per row in each array; see ``exchange.Diverged``."""

    nats: NDArray[np.float64]
    reference_nats: NDArray[np.float64]
    kld_nats: NDArray[np.float64]
    reverse_kld_nats: NDArray[np.float64]
    same_top: NDArray[np.bool_]
    kld_slack_nats: NDArray[np.float64]
    """No numbers where nothing is missing of ``kld_nats``."""


def nats_of(logits: NDArray[np.float32], targets: NDArray[np.int32]) -> NDArray[np.float64]:
    """``−ln p`` of one target per row; source: ``log_softmax`` in llama.cpp's ``tools/perplexity/perplexity.cpp``.

    The largest logit is taken off in float32, ``exp`` is in float32, the sum and its logarithm are in float64.

    Args:
        logits: Shape ``(rows, vocabulary)``.
        targets: Shape ``(rows,)``.

    Raises:
        NotFiniteError: A logit is NaN or infinite.
    """
    nats = np.empty(len(logits), dtype=np.float64)
    side = _Side(logits.shape)
    for block in _blocks(logits.shape):
        side.take(logits[block])
        nats[block] = side.nats(targets[block])
    return nats


def divergences_of(
    logits: NDArray[np.float32], reference: NDArray[np.float32], targets: NDArray[np.int32]
) -> Divergences:
    """How far each row lies from the reference's row, over the whole vocabulary.

    With ``x`` the logits less their largest, ``S`` the sum of their ``exp``, and ``y`` and ``T`` the same of the
    reference: KL = Σ exp(y)·(y − x) / T − (ln T − ln S), and the other direction alike.

    Args:
        logits: Shape ``(rows, vocabulary)``.
        reference: The same shape.
        targets: Shape ``(rows,)``.

    Raises:
        NotFiniteError: A logit is NaN or infinite.
    """
    found = _no_divergences(len(logits))
    mine = _Side(logits.shape)
    theirs = _Side(logits.shape, whose="logits of the reference")
    apart = np.empty_like(mine.exponentials)
    for block in _blocks(logits.shape):
        mine.take(logits[block])
        theirs.take(reference[block])
        gap = np.subtract(theirs.lowered, mine.lowered, out=apart[: len(mine.lowered)])
        shift = theirs.log_sum - mine.log_sum
        found.nats[block] = mine.nats(targets[block])
        found.reference_nats[block] = theirs.nats(targets[block])
        found.kld_nats[block] = theirs.mean(gap) - shift
        found.reverse_kld_nats[block] = shift - mine.mean(gap)
        found.same_top[block] = mine.top == theirs.top
    return found


def divergences_from_kept(
    logits: NDArray[np.float32], kept: NDArray[np.float32], targets: NDArray[np.int32]
) -> Divergences:
    """The same against kept log-probabilities, as ``llama-perplexity --kl-divergence`` works it out.

    Source: the ``log_softmax`` with ``kl_divergence_result`` in ``tools/perplexity/perplexity.cpp``; ``exp`` is C's, so
    that every digit is the same that it prints. The model's own costs, too, are rounded to float32 as there, some 1e-6
    nats beside those of ``nats_of``. Tokens to which the reference gives less than e^−16 are left out of KL; in the
    other direction they count as likely as their kept value says, which is too much. A kept cost that rounding has
    brought below 0 is 0.

    Args:
        logits: Shape ``(rows, vocabulary)``.
        kept: Log-probabilities of the reference; the same shape.
        targets: Shape ``(rows,)``.

    Raises:
        NotFiniteError: A logit is NaN or infinite.
        KeptRowError: A kept row is none.
    """
    found = _no_divergences(len(logits))
    mine = _Side(logits.shape, exp=rounded_exp)
    shape = mine.exponentials.shape
    apart, likely = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.float32)
    for block in _blocks(logits.shape):
        mine.take(logits[block])
        theirs = kept[block]
        rows = np.arange(len(theirs))
        probabilities = _probabilities(theirs, out=likely[: len(theirs)])
        gap = np.subtract(theirs, logits[block], out=apart[: len(theirs)])
        total = mine.largest + mine.log_sum.astype(np.float32)
        gap += total[:, None]
        found.nats[block] = total - logits[block][rows, targets[block]]
        found.reference_nats[block] = np.maximum(0.0, -theirs[rows, targets[block]].astype(np.float64))
        found.reverse_kld_nats[block] = -mine.mean(gap)
        probabilities *= theirs > _NEGLIGIBLE
        gap *= probabilities
        found.kld_nats[block] = _sums(gap)
        found.same_top[block] = mine.top == theirs.argmax(axis=1)
    return found


def divergences_from_top(
    logits: NDArray[np.float32], kept: TopRows, targets: NDArray[np.int32]
) -> Divergences:
    """The least that both divergences can be, given the likeliest tokens alone, and how much more KL may be at most.

    See ``core.kept_top`` for both bounds.

    Args:
        logits: Shape ``(rows, vocabulary)``.
        kept: As many rows of the reference.
        targets: Shape ``(rows,)``.

    Raises:
        NotFiniteError: A logit is NaN or infinite.
        KeptRowError: A kept row is none.
    """
    found = _no_divergences(len(logits), has_slack=True)
    _refuse_no_top_rows(kept, targets, vocabulary=logits.shape[1])
    mine = _Side(logits.shape)
    for block in _blocks(logits.shape):
        mine.take(logits[block])
        ids, theirs = kept.ids[block], kept.likeliest[block].astype(np.float64)
        own, rest = kept.own[block].astype(np.float64), kept.rest[block].astype(np.float64)
        nats = mine.nats(targets[block])
        point, point_rest, least = mine.cells(ids, targets[block])
        # The scored token is a cell of its own, unless it is among the kept ones.
        is_alone = ~(ids == targets[block][:, None]).any(axis=1)
        found.nats[block] = nats
        found.reference_nats[block] = -own
        found.kld_nats[block] = (
            (np.exp(theirs) * (theirs - point)).sum(axis=1)
            + is_alone * np.exp(own) * (own + nats)
            + np.exp(rest) * (rest - point_rest)
        )
        found.reverse_kld_nats[block] = (
            (np.exp(point) * (point - theirs)).sum(axis=1)
            - is_alone * np.exp(-nats) * (own + nats)
            + np.exp(point_rest) * (point_rest - rest)
        )
        found.kld_slack_nats[block] = np.maximum(
            0.0, np.exp(rest) * (theirs[:, -1] - least - (rest - point_rest))
        )
        found.same_top[block] = mine.top == ids[:, 0]
    return found


class _Side:
    """The rows of a block of one model, made ready; its arrays are used again for the next block."""

    def __init__(
        self, shape: tuple[int, ...], *, whose: str = "logits", exp: Callable[..., object] = np.exp
    ) -> None:
        self._whose = whose
        self._exp = exp
        rows, vocabulary = _block_rows(shape), shape[1]
        self._lowered = np.empty((rows, vocabulary), dtype=np.float32)
        self.exponentials = np.empty((rows, vocabulary), dtype=np.float32)

    def take(self, logits: NDArray[np.float32]) -> None:
        """Work out what the figures need of these rows."""
        rows = len(logits)
        self._rows = np.arange(rows)
        self.top = logits.argmax(axis=1)
        self.largest = logits[self._rows, self.top]
        # NaN passes through both extremes; an infinity is one of them.
        if not (np.isfinite(self.largest).all() and np.isfinite(logits.min(axis=1)).all()):
            raise NotFiniteError(f"{self._whose} are not finite")
        self.lowered = np.subtract(logits, self.largest[:, None], out=self._lowered[:rows])
        self._exp(self.lowered, out=self.exponentials[:rows])
        self._sum = _sums(self.exponentials[:rows])
        self.log_sum = np.log(self._sum)

    def nats(self, targets: NDArray[np.int32]) -> NDArray[np.float64]:
        """Cost of one token per row."""
        lowered: NDArray[np.float32] = self.lowered[self._rows, targets]
        return self.log_sum - lowered.astype(np.float64)

    def cells(
        self, ids: NDArray[np.int64], targets: NDArray[np.int32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Log-probabilities of some tokens of each row, of all that are neither these nor the target, of the least.

        NOTE: spends the exponentials.
        """
        rows = len(ids)
        lowered: NDArray[np.float32] = self.lowered[self._rows[:, None], ids]
        least = self.lowered.min(axis=1) - self.log_sum
        others = self.exponentials[:rows]
        others[self._rows[:, None], ids] = 0
        others[self._rows, targets] = 0
        # Where float32 has rounded all others to 0, they are at least as likely as the least of them.
        rest = np.log(np.maximum(_sums(others) / self._sum, np.exp(least)))
        return lowered.astype(np.float64) - self.log_sum[:, None], rest, least

    def mean(self, values: NDArray[np.float32]) -> NDArray[np.float64]:
        """Mean of each row's values under its probabilities.

        NOTE: spends the exponentials.
        """
        spent = self.exponentials[: len(values)]
        product = np.multiply(spent, values, out=spent)
        return _sums(product) / self._sum


def _sums(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Sum of each row in float64."""
    sums: NDArray[np.float64] = values.sum(axis=1, dtype=np.float64)
    return sums


def _probabilities(kept: NDArray[np.float32], out: NDArray[np.float32]) -> NDArray[np.float32]:
    """``exp`` of kept rows, once they are some: a sum of 1, and what the 16 bits cut off below on top of it."""
    if not (np.isfinite(kept.min(axis=1)).all() and (kept.max(axis=1) <= LOOSE_SHARE).all()):
        raise KeptRowError
    rounded_exp(kept, out=out)
    totals = _sums(out)
    cut_off = kept.shape[1] * math.exp(_NEGLIGIBLE)
    if not ((totals >= 1 - LOOSE_SHARE) & (totals <= 1 + LOOSE_SHARE + cut_off)).all():
        raise KeptRowError
    return out


def _refuse_no_top_rows(kept: TopRows, targets: NDArray[np.int32], *, vocabulary: int) -> None:
    """Tokens that are none or come twice, or probabilities that do not fall, or do not sum to 1."""
    ids, theirs = np.sort(kept.ids, axis=1), kept.likeliest
    if (ids[:, -1:] >= vocabulary).any() or (ids[:, 1:] == ids[:, :-1]).any():
        raise KeptRowError
    numbers = np.concatenate([theirs, kept.own[:, None], kept.rest[:, None]], axis=1)
    if not (np.isfinite(numbers).all() and (numbers <= LOOSE_SHARE).all()):
        raise KeptRowError
    is_alone = ~(kept.ids == targets[:, None]).any(axis=1)
    probabilities = np.exp(numbers, dtype=np.float64)
    totals = probabilities.sum(axis=1) - ~is_alone * probabilities[:, -2]
    if (theirs[:, 1:] > theirs[:, :-1]).any() or (np.abs(totals - 1) > LOOSE_SHARE).any():
        raise KeptRowError


def _no_divergences(rows: int, *, has_slack: bool = False) -> Divergences:
    first, second, third, fourth = (np.empty(rows, dtype=np.float64) for _ in range(4))
    slack = np.empty(rows * has_slack, dtype=np.float64)
    return Divergences(first, second, third, fourth, np.empty(rows, dtype=np.bool_), slack)


def _block_rows(shape: tuple[int, ...]) -> int:
    return max(1, min(shape[0], _BLOCK // shape[1]))


def _blocks(shape: tuple[int, ...]) -> Iterator[slice]:
    step = _block_rows(shape)
    for start in range(0, shape[0], step):
        yield slice(start, start + step)
