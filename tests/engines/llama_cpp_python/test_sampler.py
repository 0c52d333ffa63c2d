from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from qlock.engines.interface import Sampling
from qlock.engines.llama_cpp_python import sampler
from qlock.engines.llama_cpp_python.sampler import choose, log_probability, penalized, surviving, uniform
from tests.fakes.decoder import GREEDY

LOGITS = np.array([1.0, 3.0, 2.0, 3.0, -1.0, 0.5, 2.5, 0.0], dtype=np.float32)
WARM = msgspec.structs.replace(GREEDY, temperature=1.0)


def softmax(logits: np.typing.NDArray[np.float32]) -> np.typing.NDArray[np.float64]:
    weights = np.exp(logits.astype(np.float64) - logits.max())
    shares: np.typing.NDArray[np.float64] = weights / weights.sum()
    return shares


def change(sampling: Sampling, **fields: float) -> Sampling:
    return msgspec.structs.replace(sampling, **fields)


def left(**fields: float) -> list[int]:
    tokens: list[int] = surviving(LOGITS.astype(np.float64), change(WARM, **fields)).tolist()
    return tokens


def test_greedy_takes_the_first_of_the_largest() -> None:
    assert choose(LOGITS, [], GREEDY, step=0) == 1


def test_greedy_is_after_the_penalties() -> None:
    assert choose(LOGITS, [1], change(GREEDY, repeat_penalty=1.1, penalty_tokens=8), step=0) == 3


def test_top_k_of_one_is_greedy_at_any_temperature() -> None:
    assert {
        choose(LOGITS, [], change(WARM, top_k=1, seed=seed, temperature=5.0), step=3) for seed in range(50)
    } == {1}


def test_of_equal_logits_the_smaller_id_comes_first() -> None:
    assert left() == list(range(8))
    assert left(top_k=1) == [1]
    assert left(top_k=3) == [1, 3, 6]


def test_top_p_keeps_the_shortest_head_that_reaches_the_share() -> None:
    shares = softmax(LOGITS)[[1, 3, 6, 2]]
    assert left(top_p=float(shares[0]) - 1e-9) == [1]
    assert left(top_p=float(shares[0]) + 1e-9) == [1, 3]
    assert left(top_p=float(shares[:3].sum()) + 1e-9) == [1, 2, 3, 6]
    assert left(top_p=0.0) == [1]


def test_top_p_looks_at_what_top_k_left() -> None:
    two = softmax(LOGITS[[1, 3]])
    assert left(top_k=2, top_p=float(two[0]) + 1e-9) == [1, 3]
    assert left(top_k=2, top_p=float(two[0]) - 1e-9) == [1]


def test_min_p_keeps_what_is_likely_enough_beside_the_best() -> None:
    assert left(min_p=float(np.exp(-0.6))) == [1, 3, 6]
    assert left(min_p=1.0) == [1, 3]


def test_penalties_are_those_of_llama_cpp() -> None:
    sampling = change(
        GREEDY, repeat_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.5, penalty_tokens=8
    )
    scores = penalized(LOGITS, [1, 4, 4], sampling)
    assert scores[1] == 3.0 / 2 - 0.5 - 0.25
    assert scores[4] == -1.0 * 2 - 2 * 0.5 - 0.25
    assert scores[[0, 2, 3, 5, 6, 7]].tolist() == LOGITS[[0, 2, 3, 5, 6, 7]].tolist()


def test_penalties_look_at_the_last_tokens_alone() -> None:
    sampling = change(GREEDY, presence_penalty=1.0, penalty_tokens=2)
    scores = penalized(LOGITS, [1, 2, 3], sampling)
    assert (LOGITS - scores).tolist() == [0, 0, 1, 1, 0, 0, 0, 0]


def test_no_penalty_tokens_is_no_penalty() -> None:
    assert choose(LOGITS, [1], change(GREEDY, repeat_penalty=9.0), step=0) == 1


def test_the_number_of_a_step_is_pinned() -> None:
    assert [uniform(7, step) for step in range(3)] == [
        0.8720734548204873,
        0.0828426870273763,
        0.014107696329258346,
    ]
    assert uniform(7, 1) != uniform(8, 1)
    assert uniform(1 << 127, 0) != uniform(0, 0)


def test_log_probability_is_the_softmax_of_the_raw_logits() -> None:
    assert np.exp(log_probability(LOGITS, 6)) == pytest.approx(softmax(LOGITS)[6], rel=1e-14)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax(temperature: float) -> None:
    draws = [
        choose(LOGITS, [], change(WARM, temperature=temperature, seed=seed), step=seed % 5)
        for seed in range(4000)
    ]
    shares = softmax((LOGITS / temperature).astype(np.float32))
    assert chisquare(np.bincount(draws, minlength=8), 4000 * shares).pvalue > 0.01


def test_draws_of_the_steps_of_one_item_follow_the_softmax_too() -> None:
    draws = [choose(LOGITS, [], change(WARM, seed=11), step=step) for step in range(4000)]
    assert chisquare(np.bincount(draws, minlength=8), 4000 * softmax(LOGITS)).pvalue > 0.01


rows = st.lists(st.floats(-20, 20, width=32) | st.sampled_from([0.0, 1.0]), min_size=1, max_size=40).map(
    lambda values: np.array(values, dtype=np.float32)
)
ways = st.builds(
    lambda temperature, top_k, top_p, min_p, seed: change(
        GREEDY, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed
    ),
    st.floats(0.01, 5),
    st.integers(0, 50),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 1 << 64),
)


@given(rows, ways, st.integers(0, 1000))
def test_what_is_drawn_survived_and_the_best_always_does(
    logits: np.typing.NDArray[np.float32], way: Sampling, step: int
) -> None:
    kept = surviving(logits.astype(np.float64), way).tolist()
    assert int(np.argmax(logits)) in kept
    assert kept == sorted(set(kept))
    assert len(kept) <= (way.top_k or len(logits))
    assert choose(logits, [], way, step=step) in kept


@given(rows, ways)
def test_survivors_are_those_of_a_full_sort(logits: np.typing.NDArray[np.float32], way: Sampling) -> None:
    scores = logits.astype(np.float64)
    order = sorted(range(len(scores)), key=lambda token: (-scores[token], token))
    kept = order[: way.top_k or None]
    if way.top_p < 1:
        weights = np.exp(scores[kept] - scores[kept[0]])
        reached = [bool(share >= way.top_p * weights.sum() * (1 - 1e-12)) for share in np.cumsum(weights)]
        loose = reached.index(True) + 1
        tight = 1 + sum(bool(share < way.top_p * weights.sum() * (1 + 1e-12)) for share in np.cumsum(weights))
        bounds = (kept[:loose], kept[:tight])
    else:
        bounds = (kept, kept)
    if way.min_p > 0:
        edge = scores[kept[0]] + np.log(way.min_p)
        bounds = tuple([token for token in one if scores[token] >= edge] for one in bounds)  # type: ignore[assignment]  # two of two
    found = surviving(scores, way).tolist()
    assert set(bounds[0]) <= set(found) <= set(bounds[1])


@given(rows, ways)
def test_how_many_are_looked_at_first_does_not_matter(
    logits: np.typing.NDArray[np.float32], way: Sampling
) -> None:
    scores = logits.astype(np.float64)
    found = surviving(scores, way).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "_FIRST_LOOK", 1)
        assert surviving(scores, way).tolist() == found


def test_a_long_tail_is_looked_at_in_growing_pieces() -> None:
    scores = np.zeros(5000)
    assert surviving(scores, change(WARM, top_p=0.9)).tolist() == list(itertools.islice(range(5000), 4500))
