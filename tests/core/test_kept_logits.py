from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from qlock.core.kept_logits import (
    HEAD_BYTES,
    MAGIC,
    Layout,
    decoded,
    encoded,
    head_bytes,
    layout_in,
    tokens_in,
)
from qlock.errors import InputError

SMALL = Layout(window_tokens=5, vocab_tokens=3, parts=2)


def rounded(value: float) -> float:
    """To float32."""
    number: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return number


def as_llama(logits: list[float]) -> bytes:
    """One row as llama.cpp's C++ keeps it, step by step in float32."""
    top = max(logits)
    lowest = max(min(logits), rounded(top - 16))
    total = math.fsum(rounded(math.exp(rounded(one - top))) for one in logits)
    log_sum = rounded(math.log(total))
    step = rounded(rounded(top - lowest) / 65535)
    row = struct.pack("<ff", step, rounded(rounded(lowest - top) - log_sum))
    steps = [0] * len(logits)
    if step:
        scale = rounded(1 / step)
        steps = [round(rounded(scale * rounded(one - lowest))) if one > lowest else 0 for one in logits]
    return row + struct.pack(f"<{len(steps)}H", *steps) + b"\0\0" * (len(logits) % 2)


def random_logits(seed: int, rows: int, vocabulary: int, *, width: float = 6.0) -> NDArray[np.float32]:
    random = np.random.Generator(np.random.PCG64(seed))
    return (random.standard_normal((rows, vocabulary)) * width).astype(np.float32)


def test_a_file_of_six_windows_of_a_real_vocabulary_has_the_size_that_llama_perplexity_gave_it() -> None:
    layout = Layout(window_tokens=512, vocab_tokens=49152, parts=6)
    assert (layout.score_from, layout.rows, layout.row_bytes) == (257, 255, 98312)
    assert layout.total_bytes == 150_429_668
    assert layout.offset(0) == 20 + 6 * 512 * 4
    assert layout.offset(1, 2) == layout.offset(0) + 257 * 98312


def test_the_head_tells_the_layout_and_the_tokens() -> None:
    tokens = np.array([[1, 2, 0, 1, 2], [0, 0, 1, 1, 2]], dtype=np.int32)
    head = head_bytes(SMALL, tokens)
    assert head == b"_logits_" + struct.pack("<3i10i", 5, 3, 2, *tokens.reshape(-1).tolist())
    assert len(head) == HEAD_BYTES + SMALL.tokens_bytes == SMALL.offset(0)
    assert layout_in(head) == SMALL
    assert tokens_in(SMALL, head[HEAD_BYTES:]).tolist() == tokens.tolist()
    with pytest.raises(ValueError, match=r"^got tokens of shape `\(1, 5\)`$"):
        head_bytes(SMALL, tokens[:1])


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "it holds no log-probabilities: got `b''`, expected `b'_logits_'`"),
        (
            b"GGUF" + bytes(40),
            "it holds no log-probabilities: got `b'GGUF\\x00\\x00\\x00\\x00'`, expected `b'_logits_'`",
        ),
        (MAGIC + bytes(11), "it holds no log-probabilities: got `b'_logits_'`, expected `b'_logits_'`"),
        (MAGIC + struct.pack("<3i", 2, 3, 1), "got `2` as its window, expected at least `3`"),
        (MAGIC + struct.pack("<3i", 5, 0, 1), "got `0` as its vocabulary, expected at least `1`"),
        (MAGIC + struct.pack("<3i", 2**16, 3, 2**13), "got `536870912` tokens, expected at most `268435456`"),
        (MAGIC + struct.pack("<3i", 5, 3, -1), "got `-1` as its parts, expected at least `1`"),
    ],
)
def test_a_head_that_is_none_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        layout_in(data)
    assert caught.value.message == message


@pytest.mark.parametrize(
    "logits",
    [
        [0.0, 1.0, 2.0],
        [1.5, 1.5, 1.5, 1.5],
        [0.0, -100.0, 3.0, -13.0, -13.000001],
        [2.5],
        [1e-30, 0.0],
        [-1e30, 0.0, 1.0],
    ],
)
def test_a_row_is_kept_as_llama_cpp_keeps_it(logits: list[float]) -> None:
    exact = [rounded(one) for one in logits]
    assert encoded(np.array([exact], dtype=np.float32)) == as_llama(exact)


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 70))
def test_rows_are_kept_as_llama_cpp_keeps_them(seed: int, rows: int, vocabulary: int) -> None:
    logits = random_logits(seed, rows, vocabulary)
    assert encoded(logits) == b"".join(as_llama(row) for row in logits.tolist())


@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 70))
def test_what_is_kept_is_the_log_probability_to_half_a_step_or_the_floor(
    seed: int, rows: int, vocabulary: int
) -> None:
    logits = random_logits(seed, rows, vocabulary)
    wide = logits.astype(np.float64)
    top = wide.max(axis=1, keepdims=True)
    exact = wide - top - np.log(np.exp(wide - top).sum(axis=1, keepdims=True))
    floored = np.maximum(exact, exact.max(axis=1, keepdims=True) - 16)
    kept = decoded(encoded(logits), vocabulary)
    assert kept.steps.shape == (rows, vocabulary)
    assert np.abs(kept.log_probabilities() - floored).max() <= 16 / 65535 / 2 + 1e-5


@given(st.integers(0, 10_000), st.integers(1, 70), st.data())
def test_rows_can_be_cut_anywhere(seed: int, vocabulary: int, data: Any) -> None:
    logits = random_logits(seed, 5, vocabulary)
    cut = data.draw(st.integers(0, 5))
    whole = encoded(logits)
    assert encoded(logits[:cut]) + encoded(logits[cut:]) == whole
    row_bytes = Layout(window_tokens=5, vocab_tokens=vocabulary, parts=1).row_bytes
    assert len(whole) == 5 * row_bytes
    assert (
        decoded(whole[cut * row_bytes :], vocabulary).steps.tolist()
        == decoded(whole, vocabulary).steps[cut:].tolist()
    )


def test_bytes_that_are_no_log_probabilities_become_numbers_without_a_word() -> None:
    row = struct.pack("<ff4H", math.inf, math.nan, 0, 1, 2, 0)
    assert not np.isfinite(decoded(row, 3).log_probabilities()).any()
