"""Windows of a long text: by hand, then laws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from qlock.core.windows import DEFAULT_WINDOW_TOKENS, score_from, window_name, windows
from qlock.errors import InputError

BOS = 1


def without_bos(text: str) -> tuple[int, ...]:
    """A vocabulary of bytes."""
    return tuple(100 + byte for byte in text.encode())


def with_bos(text: str) -> tuple[int, ...]:
    """A vocabulary of bytes that adds BOS."""
    return (BOS, *without_bos(text))


def cut(
    text: str, size: int = 4, *, wanted: int | UnsetType = UNSET, bos: bool = True
) -> list[tuple[int, ...]]:
    made = windows(text.encode(), with_bos if bos else without_bos, window_tokens=size, windows=wanted)
    return list(made)


def test_bos_takes_the_place_of_the_first_token_of_each_window() -> None:
    # BOS a b c | d e f g | h (dropped): d makes way for BOS, as in llama-perplexity.
    a = 100 + ord("a")
    assert cut("abcdefgh") == [(BOS, a, a + 1, a + 2), (BOS, a + 4, a + 5, a + 6)]
    assert cut("abcdefghi", bos=False) == [(a, a + 1, a + 2, a + 3), (a + 4, a + 5, a + 6, a + 7)]


def test_a_text_that_is_too_short_is_refused_with_both_numbers() -> None:
    with pytest.raises(InputError) as caught:
        cut("abcdef")
    assert str(caught.value) == "the text is too short: got 7 tokens, expected at least 8 (two windows)"
    with pytest.raises(InputError) as caught:
        cut("")
    assert str(caught.value) == "the text is too short: got 1 token, expected at least 8 (two windows)"
    with pytest.raises(InputError) as caught:
        cut("abcdefghijk", wanted=4)
    assert str(caught.value) == "the text is too short: got 3 windows of 4 tokens, expected 4"


def test_bytes_that_are_no_text_are_refused_by_line() -> None:
    with pytest.raises(InputError) as caught:
        windows(b"abc\ndef\xff", with_bos, window_tokens=4)
    assert str(caught.value) == "the text is not UTF-8: line 2, byte 7"


@pytest.mark.parametrize("tokens, first", [(512, 257), (4, 3), (5, 3), (2048, 1025)])
def test_the_last_half_is_scored(tokens: int, first: int) -> None:
    assert score_from(range(tokens)) == first


def test_windows_are_named_by_their_number() -> None:
    assert (window_name(1), window_name(12345)) == ("window-0001", "window-12345")
    assert DEFAULT_WINDOW_TOKENS == 512


@given(st.text(max_size=200), st.integers(4, 9), st.booleans())
def test_windows_hold_the_text_in_order(text: str, size: int, bos: bool) -> None:  # noqa: FBT001
    tokens = with_bos(text) if bos else without_bos(text)
    if len(tokens) < 2 * size:
        with pytest.raises(InputError):
            cut(text, size, bos=bos)
        return
    made = cut(text, size, bos=bos)
    assert len(made) == len(tokens) // size
    for number, window in enumerate(made):
        piece = tokens[number * size : (number + 1) * size]
        assert window == ((BOS, *piece[1:]) if bos else piece)
