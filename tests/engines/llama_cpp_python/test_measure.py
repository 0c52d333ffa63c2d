from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import log_softmax, rel_entr

from qlock.core.kept_logits import decoded, encoded
from qlock.core.kept_top import TopRows, top_decoded, top_encoded
from qlock.engines.llama_cpp_python.measure import (
    KeptRowError,
    NotFiniteError,
    divergences_from_kept,
    divergences_from_top,
    divergences_of,
    nats_of,
)

ROUNDING = 2e-6
"""Nats: float32 with logits of some tens."""


def random_logits(
    seed: int, rows: int, vocabulary: int, *, apart: float = 1.0
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int32]]:
    """Logits of a model and of its reference, and targets."""
    random = np.random.Generator(np.random.PCG64(seed))
    reference = random.standard_normal((rows, vocabulary)) * 4
    logits = reference + random.standard_normal((rows, vocabulary)) * apart
    targets = random.integers(0, vocabulary, rows)
    return logits.astype(np.float32), reference.astype(np.float32), targets.astype(np.int32)


def exact_kld(of: NDArray[np.float32], given: NDArray[np.float32]) -> NDArray[np.float64]:
    """KL divergence of rows of logits from others, in float64 over the whole vocabulary."""
    p, q = (np.exp(log_softmax(rows.astype(np.float64), axis=1)) for rows in (given, of))
    total: NDArray[np.float64] = rel_entr(p, q).sum(axis=1)
    return total


def test_nats_of_equal_logits_are_the_log_of_the_vocabulary() -> None:
    nats = nats_of(np.zeros((3, 8), dtype=np.float32), np.array([0, 3, 7], dtype=np.int32))
    assert nats.tolist() == pytest.approx([math.log(8)] * 3)


def test_no_rows_are_no_nats() -> None:
    assert nats_of(np.empty((0, 8), dtype=np.float32), np.empty(0, dtype=np.int32)).tolist() == []


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 17, 39])
def test_a_logit_that_is_not_finite_is_refused(bad: float, place: int) -> None:
    logits = np.zeros((40, 8), dtype=np.float32)
    logits[place, 5] = bad
    with pytest.raises(NotFiniteError):
        nats_of(logits, np.zeros(40, dtype=np.int32))


def test_the_logits_are_left_as_they_are() -> None:
    logits = np.arange(32, dtype=np.float32).reshape(4, 8)
    nats_of(logits, np.zeros(4, dtype=np.int32))
    assert logits.tolist() == np.arange(32).reshape(4, 8).tolist()


@given(st.integers(1, 50), st.integers(2, 60), st.integers(0, 1000))
def test_nats_are_the_exact_ones_to_float32_and_never_negative_by_more(
    rows: int, vocabulary: int, seed: int
) -> None:
    random = np.random.Generator(np.random.PCG64(seed))
    logits = (random.standard_normal((rows, vocabulary)) * 8).astype(np.float32)
    targets = random.integers(0, vocabulary, rows).astype(np.int32)
    wide = logits.astype(np.float64)
    exact = np.log(np.exp(wide - wide.max(1)[:, None]).sum(1)) + wide.max(1) - wide[np.arange(rows), targets]
    nats = nats_of(logits, targets)
    assert nats == pytest.approx(exact, abs=1e-5)
    assert (nats >= 0).all()


def test_a_divergence_by_hand() -> None:
    half, quarter = math.log(0.5), math.log(0.25)
    logits = np.array([[half, quarter, quarter]], dtype=np.float32)
    reference = np.array([[quarter, half, quarter]], dtype=np.float32)
    found = divergences_of(logits, reference, np.array([1], dtype=np.int32))
    assert found.nats.tolist() == pytest.approx([-quarter])
    assert found.reference_nats.tolist() == pytest.approx([-half])
    assert found.kld_nats.tolist() == pytest.approx([0.25 * math.log(2)])
    assert found.reverse_kld_nats.tolist() == pytest.approx([0.25 * math.log(2)])
    assert found.same_top.tolist() == [False]


def test_equal_rows_are_exactly_zero_apart() -> None:
    logits, _, targets = random_logits(3, 40, 300)
    found = divergences_of(logits, logits.copy(), targets)
    assert not found.kld_nats.any()
    assert not found.reverse_kld_nats.any()
    assert found.same_top.all()
    assert found.nats.tolist() == found.reference_nats.tolist()


def test_the_likeliest_token_is_the_first_of_equal_ones() -> None:
    logits = np.array([[1, 2, 2], [2, 1, 2]], dtype=np.float32)
    reference = np.array([[1, 2, 1], [1, 1, 2]], dtype=np.float32)
    found = divergences_of(logits, reference, np.zeros(2, dtype=np.int32))
    assert found.same_top.tolist() == [True, False]


def test_a_row_that_both_find_certain_is_no_trap() -> None:
    logits = np.array([[0, 500, -500, 20]], dtype=np.float32)
    found = divergences_of(logits, logits[:, ::-1].copy(), np.array([0], dtype=np.int32))
    assert found.kld_nats.tolist() == pytest.approx([1000.0])
    assert found.nats.tolist() == [500.0]


@given(st.integers(1, 40), st.integers(2, 60), st.integers(0, 1000), st.sampled_from([1e-3, 0.1, 1.0, 10.0]))
def test_divergences_are_the_exact_ones_to_the_rounding(
    rows: int, vocabulary: int, seed: int, apart: float
) -> None:
    logits, reference, targets = random_logits(seed, rows, vocabulary, apart=apart)
    found = divergences_of(logits, reference, targets)
    assert found.kld_nats == pytest.approx(exact_kld(logits, reference), rel=1e-6, abs=ROUNDING)
    assert found.reverse_kld_nats == pytest.approx(exact_kld(reference, logits), rel=1e-6, abs=ROUNDING)
    assert (found.kld_nats >= -ROUNDING).all()
    assert (found.same_top == (logits.argmax(axis=1) == reference.argmax(axis=1))).all()


@given(st.integers(1, 40), st.integers(2, 60), st.integers(0, 1000))
def test_costs_beside_a_divergence_are_the_very_ones_without_it(
    rows: int, vocabulary: int, seed: int
) -> None:
    logits, reference, targets = random_logits(seed, rows, vocabulary)
    found = divergences_of(logits, reference, targets)
    assert found.nats.tolist() == nats_of(logits, targets).tolist()
    assert found.reference_nats.tolist() == nats_of(reference, targets).tolist()


@given(st.integers(1, 40), st.integers(2, 60), st.integers(0, 1000))
def test_the_other_way_round_is_the_other_direction(rows: int, vocabulary: int, seed: int) -> None:
    logits, reference, targets = random_logits(seed, rows, vocabulary)
    there, back = divergences_of(logits, reference, targets), divergences_of(reference, logits, targets)
    assert there.kld_nats.tolist() == back.reverse_kld_nats.tolist()
    assert there.nats.tolist() == back.reference_nats.tolist()
    assert there.same_top.tolist() == back.same_top.tolist()


@given(st.integers(2, 40), st.integers(0, 1000), st.data())
def test_rows_can_be_cut_anywhere(rows: int, seed: int, data: st.DataObject) -> None:
    logits, reference, targets = random_logits(seed, rows, 30)
    cut = data.draw(st.integers(0, rows))
    kept = decoded(encoded(reference), 30).log_probabilities()
    for reduce, theirs in ((divergences_of, reference), (divergences_from_kept, kept)):
        whole = reduce(logits, theirs, targets)
        first = reduce(logits[:cut], theirs[:cut], targets[:cut])
        rest = reduce(logits[cut:], theirs[cut:], targets[cut:])
        for column, one, other in zip(whole, first, rest, strict=True):
            assert column.tolist() == [*one.tolist(), *other.tolist()]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", ["logits", "logits of the reference"])
def test_a_divergence_of_what_is_not_finite_is_refused(bad: float, side: str) -> None:
    logits, reference, targets = random_logits(1, 40, 20)
    (logits if side == "logits" else reference)[17, 5] = bad
    with pytest.raises(NotFiniteError) as caught:
        divergences_of(logits, reference, targets)
    assert str(caught.value) == f"{side} are not finite"


def as_llama(
    logits: NDArray[np.float32], kept: NDArray[np.float32], target: int
) -> tuple[float, float, float, bool]:
    """One row as llama.cpp's C++ works it out, step by step; ``exp`` alone is not C's."""
    f = np.float32
    top = f(logits.max())
    total = f(math.log(math.fsum(float(np.exp(f(one - top))) for one in logits)))
    nats = f(f(top + total) - logits[target])
    shifted = f(top + total)
    divergence = 0.0
    for mine, theirs in zip(logits, kept, strict=True):
        if theirs > -16:
            divergence += float(f(np.exp(theirs) * f(f(theirs - mine) + shifted)))
    return float(nats), float(-kept[target]), divergence, bool(kept.argmax() == logits.argmax())


@given(st.integers(1, 12), st.integers(2, 60), st.integers(0, 1000))
def test_divergences_from_kept_rows_are_those_of_llama_perplexity(
    rows: int, vocabulary: int, seed: int
) -> None:
    logits, reference, targets = random_logits(seed, rows, vocabulary)
    kept = decoded(encoded(reference), vocabulary).log_probabilities()
    found = divergences_from_kept(logits, kept, targets)
    expected = [as_llama(*row) for row in zip(logits, kept, targets.tolist(), strict=True)]
    nats, reference_nats, kld_nats, same_top = zip(*expected, strict=True)
    assert found.nats == pytest.approx(nats, abs=ROUNDING)
    assert found.reference_nats.tolist() == [max(0.0, cost) for cost in reference_nats]
    assert found.kld_nats == pytest.approx(kld_nats, rel=1e-6, abs=ROUNDING)
    assert found.same_top.tolist() == list(same_top)


@given(st.integers(1, 12), st.integers(2, 60), st.integers(0, 1000))
def test_a_model_lies_no_further_from_its_own_kept_rows_than_their_rounding(
    rows: int, vocabulary: int, seed: int
) -> None:
    logits, _, targets = random_logits(seed, rows, vocabulary)
    kept = decoded(encoded(logits), vocabulary).log_probabilities()
    found = divergences_from_kept(logits, kept, targets)
    assert np.abs(found.kld_nats).max() < 3e-4
    assert (found.reference_nats - found.nats).max() < 2e-4


@pytest.mark.parametrize(
    "damage",
    [
        lambda row: row.fill(np.nan),
        lambda row: row.fill(0.0),
        lambda row: row.fill(-np.inf),
        lambda row: row.__setitem__(4, np.nan),
        lambda row: row.__setitem__(4, -np.inf),
        lambda row: row.__setitem__(4, 100.0),
        lambda row: row.__iadd__(-0.01),
        lambda row: row.__iadd__(0.01),
    ],
)
def test_a_kept_row_whose_probabilities_do_not_sum_to_one_is_refused(
    damage: Callable[[NDArray[np.float32]], object],
) -> None:
    logits, reference, targets = random_logits(1, 40, 20)
    kept = decoded(encoded(reference), 20).log_probabilities()
    damage(kept[17])
    with pytest.raises(KeptRowError) as caught:
        divergences_from_kept(logits, kept, targets)
    assert str(caught.value) == "a kept row is none: its probabilities do not sum to 1"


def test_tokens_that_are_cut_off_below_may_add_to_the_sum_of_a_kept_row() -> None:
    reference = np.full((1, 30_000), -40, dtype=np.float32)
    reference[0, 7] = 0
    kept = decoded(encoded(reference), 30_000).log_probabilities()
    assert 1.003 < np.exp(kept.astype(np.float64)).sum() < 1.004
    found = divergences_from_kept(reference, kept, np.array([7], dtype=np.int32))
    assert found.kld_nats.tolist() == pytest.approx([0.0], abs=1e-6)
    with pytest.raises(NotFiniteError, match=r"^logits are not finite$"):
        divergences_from_kept(reference * np.float32(np.nan), kept, np.array([7], dtype=np.int32))


def top_of(logits: NDArray[np.float32], targets: NDArray[np.int32], kept_tokens: int) -> TopRows:
    """The likeliest tokens, as they are kept and read."""
    data = top_encoded(logits, targets, kept_tokens)
    return top_decoded(data, vocab_tokens=logits.shape[1], kept_tokens=kept_tokens)


@given(
    st.integers(1, 12), st.integers(4, 60), st.integers(0, 1000), st.sampled_from([0.0, 0.1, 1.0]), st.data()
)
def test_the_likeliest_tokens_bound_both_divergences(
    rows: int, vocabulary: int, seed: int, apart: float, data: st.DataObject
) -> None:
    logits, reference, targets = random_logits(seed, rows, vocabulary, apart=apart)
    kept_tokens = data.draw(st.integers(1, vocabulary - 2))
    found = divergences_from_top(logits, top_of(reference, targets, kept_tokens), targets)
    true = divergences_of(logits, reference, targets)
    assert (found.kld_nats <= true.kld_nats + ROUNDING).all()
    assert (true.kld_nats <= found.kld_nats + found.kld_slack_nats + ROUNDING).all()
    assert (found.reverse_kld_nats <= true.reverse_kld_nats + ROUNDING).all()
    assert (found.kld_nats >= -ROUNDING).all()
    assert (found.reverse_kld_nats >= -ROUNDING).all()
    assert found.nats.tolist() == true.nats.tolist()
    assert found.same_top.tolist() == true.same_top.tolist()
    assert found.reference_nats == pytest.approx(true.reference_nats, abs=ROUNDING)


@given(st.integers(1, 12), st.integers(4, 60), st.integers(0, 1000), st.data())
def test_the_least_divergence_is_that_of_the_cells(
    rows: int, vocabulary: int, seed: int, data: st.DataObject
) -> None:
    logits, reference, targets = random_logits(seed, rows, vocabulary)
    kept_tokens = data.draw(st.integers(1, vocabulary - 2))
    kept = top_of(reference, targets, kept_tokens)
    found = divergences_from_top(logits, kept, targets)
    for row in range(rows):
        cells = set(kept.ids[row].tolist()) | {int(targets[row])}
        others = [token for token in range(vocabulary) if token not in cells]
        p, q = (
            np.array([*one[sorted(cells)], one[others].sum()])
            for one in (np.exp(log_softmax(side[row].astype(np.float64))) for side in (reference, logits))
        )
        assert found.kld_nats[row] == pytest.approx(rel_entr(p, q).sum(), rel=1e-5, abs=ROUNDING)
        assert found.reverse_kld_nats[row] == pytest.approx(rel_entr(q, p).sum(), rel=1e-5, abs=ROUNDING)


def test_a_model_is_no_further_from_its_own_likeliest_tokens_than_the_rounding() -> None:
    logits, _, targets = random_logits(1, 40, 300)
    found = divergences_from_top(logits, top_of(logits, targets, 20), targets)
    assert np.abs(found.kld_nats).max() < ROUNDING
    assert np.abs(found.reverse_kld_nats).max() < ROUNDING


def test_others_that_float32_rounds_away_are_as_likely_as_the_least() -> None:
    logits = np.array([[0, -200, -210, -220]], dtype=np.float32)
    reference = np.array([[0, -1, -2, -3]], dtype=np.float32)
    targets = np.array([0], dtype=np.int32)
    found = divergences_from_top(logits, top_of(reference, targets, 1), targets)
    true = divergences_of(logits, reference, targets)
    assert found.kld_nats[0] + found.kld_slack_nats[0] >= true.kld_nats[0] > 50
    assert np.isfinite(found.kld_nats).all()


@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: kept.ids[17].__setitem__(0, 30),
        lambda kept: kept.ids[17].__setitem__(0, kept.ids[17, 1]),
        lambda kept: kept.likeliest[17].__setitem__(0, -20.0),
        lambda kept: kept.likeliest[17].__setitem__(3, np.nan),
        lambda kept: kept.likeliest[17].fill(0.0),
        lambda kept: kept.rest.__setitem__(17, 0.5),
        lambda kept: kept.rest.__setitem__(17, -np.inf),
        lambda kept: kept.own.__setitem__(17, np.nan),
        lambda kept: kept.own.__setitem__(17, -0.1),
    ],
)
def test_a_row_of_likeliest_tokens_that_is_none_is_refused(damage: Callable[[TopRows], object]) -> None:
    logits, reference, targets = random_logits(1, 40, 30)
    targets[17] = reference[17].argmin()
    kept = top_of(reference, targets, 20)
    damage(kept)
    with pytest.raises(KeptRowError):
        divergences_from_top(logits, kept, targets)
