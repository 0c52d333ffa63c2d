from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import log_softmax

from qlock.core.kept_top import (
    HEAD_BYTES,
    MAGIC,
    Sizes,
    sizes_in,
    top_decoded,
    top_encoded,
    top_head_bytes,
    top_layout_in,
    top_tokens_in,
)
from qlock.errors import InputError

SIZES = Sizes(vocab_tokens=10, parts=2, kept_tokens=3)
PARTS = [((1, 2, 3, 4), 2), ((5, 6), 1)]


def random_logits(seed: int, rows: int, vocabulary: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    random = np.random.Generator(np.random.PCG64(seed))
    logits = (random.standard_normal((rows, vocabulary)) * 4).astype(np.float32)
    return logits, random.integers(0, vocabulary, rows).astype(np.int32)


def test_the_head_tells_sizes_shapes_and_tokens() -> None:
    head = top_head_bytes(SIZES, PARTS)
    assert head == b"_qlktop_" + struct.pack("<3i4i6i", 10, 2, 3, 4, 2, 2, 1, 1, 2, 3, 4, 5, 6)
    assert sizes_in(head) == SIZES
    layout = top_layout_in(SIZES, head[HEAD_BYTES : HEAD_BYTES + SIZES.shapes_bytes])
    assert [layout.shape_of(part) for part in range(2)] == [(4, 2), (2, 1)]
    tokens = head[layout.tokens_at : layout.tokens_at + layout.tokens_bytes]
    assert [row.tolist() for row in top_tokens_in(layout, tokens)] == [[1, 2, 3, 4], [5, 6]]
    assert len(head) == layout.offset(0)
    with pytest.raises(ValueError, match=r"^got `1` parts, expected `2`$"):
        top_head_bytes(SIZES, PARTS[:1])


def test_rows_lie_one_behind_another_whatever_the_length_of_their_part() -> None:
    head = top_head_bytes(SIZES, PARTS)
    layout = top_layout_in(SIZES, head[HEAD_BYTES : HEAD_BYTES + SIZES.shapes_bytes])
    assert layout.row_bytes == 8 + 3 * (4 + 2)
    assert [layout.offset(0, row) - len(head) for row in range(2)] == [0, 26]
    assert (layout.offset(1) - len(head), layout.total_bytes - len(head)) == (52, 78)


def test_ids_of_a_large_vocabulary_take_four_bytes() -> None:
    for vocabulary, row_bytes in ((65_536, 8 + 3 * 6), (65_537, 8 + 3 * 8)):
        sizes = Sizes(vocab_tokens=vocabulary, parts=1, kept_tokens=3)
        assert top_layout_in(sizes, struct.pack("<ii", 2, 1)).row_bytes == row_bytes
    logits = np.zeros((1, 70_000), dtype=np.float32)
    logits[0, [69_999, 65_536, 3]] = (9, 8, 7)
    data = top_encoded(logits, np.array([69_998], dtype=np.int32), 3)
    assert len(data) == 8 + 3 * 8
    assert top_decoded(data, vocab_tokens=70_000, kept_tokens=3).ids.tolist() == [[69_999, 65_536, 3]]


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "it holds no kept tokens: got `b''`, expected `b'_qlktop_'`"),
        (b"_logits_" + bytes(20), "it holds no kept tokens: got `b'_logits_'`, expected `b'_qlktop_'`"),
        (MAGIC + struct.pack("<3i", 3, 1, 1), "got `3` as its vocabulary, expected at least `4`"),
        (MAGIC + struct.pack("<3i", 9, 0, 1), "got `0` as its parts, expected at least `1`"),
        (MAGIC + struct.pack("<3i", 9, 1, -1), "got `-1` as its kept tokens, expected at least `1`"),
        (MAGIC + struct.pack("<3i", 9, 1, 8), "got `8` as its kept tokens, expected at most `7`"),
        (
            MAGIC + struct.pack("<3i", 9, 2**29, 1),
            "got `536870912` as its parts, expected at most `268435456`",
        ),
    ],
)
def test_a_head_that_is_none_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        sizes_in(data)
    assert caught.value.message == message


@pytest.mark.parametrize(
    "shapes, message",
    [
        ((4, 2, 2, 2), "part `1` has `2` tokens scored from `2` on"),
        ((4, 0, 2, 1), "part `0` has `4` tokens scored from `0` on"),
        ((-4, 1, 2, 1), "part `0` has `-4` tokens scored from `1` on"),
        ((2**28, 1, 2, 1), "got `268435458` tokens, expected at most `268435456`"),
    ],
)
def test_shapes_that_are_none_are_refused(shapes: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError) as caught:
        top_layout_in(SIZES, struct.pack("<4i", *shapes))
    assert caught.value.message == message


def test_a_row_by_hand() -> None:
    shares = np.array([[0.1, 0.4, 0.05, 0.3, 0.15], [0.2, 0.2, 0.2, 0.2, 0.2]])
    data = top_encoded(np.log(shares).astype(np.float32), np.array([2, 0], dtype=np.int32), 2)
    rows = top_decoded(data, vocab_tokens=5, kept_tokens=2)
    assert rows.ids[0].tolist() == [1, 3]
    assert np.exp(rows.likeliest[0]).tolist() == pytest.approx([0.4, 0.3])
    assert np.exp(rows.own).tolist() == pytest.approx([0.05, 0.2])
    assert math.exp(rows.rest[0]) == pytest.approx(0.25)
    assert math.exp(rows.rest[1]) == pytest.approx(1 - 0.2 * len({0, *rows.ids[1].tolist()}))


@given(st.integers(0, 1000), st.integers(1, 5), st.integers(4, 60), st.data())
def test_what_is_kept_is_the_log_probability_of_the_likeliest(
    seed: int, rows: int, vocabulary: int, data: st.DataObject
) -> None:
    logits, targets = random_logits(seed, rows, vocabulary)
    kept_tokens = data.draw(st.integers(1, vocabulary - 2))
    exact = log_softmax(logits.astype(np.float64), axis=1)
    kept = top_decoded(
        top_encoded(logits, targets, kept_tokens), vocab_tokens=vocabulary, kept_tokens=kept_tokens
    )
    for row in range(rows):
        order = sorted(range(vocabulary), key=lambda token: (-logits[row, token], token))
        assert kept.ids[row].tolist() == order[:kept_tokens]
        assert kept.likeliest[row] == pytest.approx(exact[row, order[:kept_tokens]], abs=1e-5)
        assert kept.own[row] == pytest.approx(exact[row, targets[row]], abs=1e-5)
        others = [token for token in order[kept_tokens:] if token != targets[row]]
        assert kept.rest[row] == pytest.approx(math.log(np.exp(exact[row, others]).sum()), abs=1e-5)


@given(st.integers(0, 1000), st.data())
def test_rows_can_be_cut_anywhere(seed: int, data: st.DataObject) -> None:
    logits, targets = random_logits(seed, 5, 30)
    cut = data.draw(st.integers(0, 5))
    whole = top_encoded(logits, targets, 7)
    assert top_encoded(logits[:cut], targets[:cut], 7) + top_encoded(logits[cut:], targets[cut:], 7) == whole
