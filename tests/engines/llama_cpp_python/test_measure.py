from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.engines.llama_cpp_python.measure import NotFiniteError, nats_of


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
