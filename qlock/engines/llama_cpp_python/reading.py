"""Work that decodes given tokens and writes none: their cost, their divergence from a reference, rows to keep.

Rows are reduced where they lie, in shares spread over as many threads as the model decodes with; no logits are kept.
What comes of a row is the same in any share, so a ``Contrast`` gives the costs that a ``Measure`` gives, to the bit.

Does not live here: decoding (``decoder``), arithmetic (``measure``, ``core.kept_logits``), the file (``kept``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from qlock.core.kept_logits import KeptRows, Layout, encoded
from qlock.core.kept_top import TopLayout, TopRows, top_encoded
from qlock.engines.interface import Broken, Contrast, Contrasted, Keep, Kept, Measure, Measured, Reading
from qlock.engines.llama_cpp_python.decoder import Decoder, Predictions, predictions, unfit
from qlock.engines.llama_cpp_python.kept import KeptFileError, Parts
from qlock.engines.llama_cpp_python.measure import (
    Divergences,
    NoFiguresError,
    NotFiniteError,
    divergences_from_kept,
    divergences_from_top,
    divergences_of,
    nats_of,
)

Reference = Decoder | Parts
"""A second model, or rows that were kept of one."""

_SHARE = 1 << 20
"""Logits that a thread reduces in one go; some megabytes of scratch, whatever the vocabulary."""
_MOST_THREADS = 8
"""More would wait for memory."""

_ROW_OF_REFERENCE = 0
"""Whatever row of the loaded model is free, the reference has all of its own."""

T = TypeVar("T")
_Pair = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int32]]


class Reader:
    """Reads for one loaded model.

    Args:
        decoder: The model.
        alive: Called after every decode.
    """

    def __init__(self, decoder: Decoder, alive: Callable[[], None]) -> None:
        self._decoder = decoder
        self._alive = alive
        self._reference: Reference | None = None
        # Its threads end with this object.
        self._pool = ThreadPoolExecutor(min(decoder.setting.batch_threads, _MOST_THREADS))

    def refer(self, reference: Reference | None) -> None:
        """Hold the model against this from now on, or against nothing; a second model may be this very one."""
        self._reference = reference

    def read(self, work: Reading, row: int) -> Measured | Contrasted | Kept | Broken:
        """Do it in an emptied row, and empty that again."""
        try:
            match work:
                case Measure():
                    return self._measure(work, row)
                case Contrast():
                    return self._contrast(work, row)
                case Keep():
                    return self._keep(work, row)
        except KeptFileError as error:
            return Broken(id=work.id, why=str(error), is_disk_full=error.is_disk_full)
        except NoFiguresError as error:
            return Broken(id=work.id, why=str(error))
        finally:
            self._decoder.clear(row)

    def _measure(self, work: Measure, row: int) -> Measured:
        began_s = time.monotonic()
        nats: list[float] = []
        for logits, targets in self._predictions(work, row):
            for share in self._spread(nats_of, logits, targets):
                nats += share.tolist()
        return Measured(id=work.id, nats=tuple(nats), elapsed_s=time.monotonic() - began_s)

    def _contrast(self, work: Contrast, row: int) -> Contrasted | Broken:
        began_s = time.monotonic()
        match self._reference:
            case None:
                return Broken(id=work.id, why="no reference was named")
            case Parts() as parts:
                found = list(self._from_kept(work, row, parts))
            case reference:
                why = unfit(work, reference)
                if why:
                    return Broken(id=work.id, why=f"the reference: {why}")
                found = list(self._side_by_side(work, row, reference))
        columns = [np.concatenate(column) for column in zip(*found, strict=True)]
        if not all(np.isfinite(column).all() for column in columns):
            raise NotFiniteError("a divergence is not finite")
        nats, reference_nats, kld_nats, reverse_kld_nats, same_top, kld_slack_nats = (
            tuple(column.tolist()) for column in columns
        )
        return Contrasted(
            id=work.id,
            nats=nats,
            reference_nats=reference_nats,
            kld_nats=kld_nats,
            reverse_kld_nats=reverse_kld_nats,
            same_top=same_top,
            kld_slack_nats=kld_slack_nats,
            pieces=tuple(map(self._piece, work.tokens[work.score_from :])) if work.pieces else (),
            elapsed_s=time.monotonic() - began_s,
        )

    def _keep(self, work: Keep, row: int) -> Kept:
        began_s = time.monotonic()
        nats: list[float] = []

        def pieces(layout: Layout | TopLayout) -> Iterator[bytes]:
            for logits, targets in self._predictions(work, row):
                for cost, data in self._spread(partial(_kept, layout), logits, targets):
                    nats.extend(cost.tolist())
                    yield data

        with closing(Parts(work.path, is_writable=True)) as parts:
            if work.part >= parts.layout.parts:
                raise KeptFileError(f"got part `{work.part}`, expected less than `{parts.layout.parts}`")
            self._refuse_other_shape(work, parts, work.part)
            if not parts.is_of(work.part, work.tokens, bos_token=self._bos):
                raise KeptFileError(f"part `{work.part}` of the kept file is of other tokens")
            digest = parts.write(work.part, pieces(parts.layout))
        return Kept(id=work.id, nats=tuple(nats), blake3=digest, elapsed_s=time.monotonic() - began_s)

    def _side_by_side(self, work: Contrast, row: int, reference: Decoder) -> Iterator[Divergences]:
        mine = self._predictions(work, row)
        pairs: Iterator[_Pair]
        if reference is self._decoder:
            pairs = ((logits, logits, targets) for logits, targets in mine)
        else:
            pairs = _aligned(mine, predictions(reference, _ROW_OF_REFERENCE, work, self._alive))
        for pair in pairs:
            yield from self._spread(divergences_of, *pair)

    def _from_kept(self, work: Contrast, row: int, parts: Parts) -> Iterator[Divergences]:
        part = parts.part_of(work.tokens, bos_token=self._bos)
        if part is None:
            raise KeptFileError("the kept file has no part of these tokens")
        self._refuse_other_shape(work, parts, part)

        def reduced(
            logits: NDArray[np.float32], targets: NDArray[np.int32], places: NDArray[np.int64]
        ) -> Divergences:
            match parts.rows(part, int(places[0]), int(places[-1]) + 1):
                case KeptRows() as kept:
                    return divergences_from_kept(logits, kept.log_probabilities(), targets)
                case TopRows() as kept:
                    return divergences_from_top(logits, kept, targets)

        at = 0
        for logits, targets in self._predictions(work, row):
            places = np.arange(at, at + len(logits))
            yield from self._spread(reduced, logits, targets, places)
            at += len(logits)

    def _refuse_other_shape(self, work: Contrast | Keep, parts: Parts, part: int) -> None:
        count, first = parts.layout.shape_of(part)
        for fact, got, expected in (
            ("vocabulary", self._decoder.vocab_tokens, parts.layout.vocab_tokens),
            ("tokens", len(work.tokens), count),
            ("score_from", work.score_from, first),
        ):
            if got != expected:
                raise KeptFileError(f"got `{fact} = {got}`, expected the kept file's `{expected}`")

    def _predictions(self, work: Reading, row: int) -> Predictions:
        return predictions(self._decoder, row, work, self._alive)

    def _spread(self, reduce: Callable[..., T], *arrays: NDArray[np.generic]) -> Iterator[T]:
        """What comes of each share of the arrays' rows, in their order; all of it is done when the first is given."""
        rows, vocabulary = arrays[0].shape
        step = max(1, _SHARE // vocabulary)
        shares = [[array[at : at + step] for array in arrays] for at in range(0, rows, step)]
        found = [self._pool.submit(reduce, *share) for share in shares]
        # Also where one of them fails: none may still read what the next decode overwrites.
        wait(found)
        yield from [one.result() for one in found]

    def _piece(self, token: int) -> str:
        return self._decoder.piece(token).decode("utf-8", "replace")

    @property
    def _bos(self) -> int:
        return self._decoder.read_back.bos_token


def _aligned(mine: Predictions, theirs: Predictions) -> Iterator[_Pair]:
    """Rows of two models side by side, however each cuts the tokens into batches.

    A model decodes its next batch when all rows of the last one are used up, and not before.
    """
    others = np.empty((0, 0), dtype=np.float32)
    for logits, targets in mine:
        at = 0
        while at < len(logits):
            if not len(others):
                others, _ = next(theirs)
            count = min(len(logits) - at, len(others))
            yield logits[at : at + count], others[:count], targets[at : at + count]
            at, others = at + count, others[count:]


def _kept(
    layout: Layout | TopLayout, logits: NDArray[np.float32], targets: NDArray[np.int32]
) -> tuple[NDArray[np.float64], bytes]:
    """Costs of rows, and how they are kept."""
    nats = nats_of(logits, targets)
    match layout:
        case Layout():
            return nats, encoded(logits)
        case TopLayout(kept_tokens=kept_tokens):
            return nats, top_encoded(logits, targets, kept_tokens)
