"""The suite `perplexity`: windows, and what is asked of them."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.exchange import Completed, Failed, Nats, Reply, Score, Scored, Ungraded
from qlock.errors import InputError
from qlock.suites import perplexity
from qlock.suites.interface import Answer, Item, play_back
from qlock.suites.perplexity import Params

BOS = 1


def bytes_as_tokens(text: str) -> tuple[int, ...]:
    """A vocabulary of bytes without BOS."""
    return tuple(100 + byte for byte in text.encode())


def bytes_after_bos(text: str) -> tuple[int, ...]:
    """A vocabulary of bytes that adds BOS."""
    return (BOS, *bytes_as_tokens(text))


def windows(text: str, params: Params, *, bos: bool = True) -> list[list[int]]:
    made = perplexity.items({"text": text.encode()}, params, bytes_after_bos if bos else bytes_as_tokens)
    return [tokens for item in made for tokens in item.body.values() if isinstance(tokens, list)]


def params(window_tokens: int = 4, windows: int | msgspec.UnsetType = msgspec.UNSET) -> Params:
    return Params(text="file:t", window_tokens=window_tokens, windows=windows)


def test_the_whole_text_is_cut_and_bos_replaces_the_first_token_of_each_window() -> None:
    # BOS a b c | d e f g | h (dropped): d makes way for BOS, as in llama-perplexity.
    a = 100 + ord("a")
    assert windows("abcdefgh", params()) == [[BOS, a, a + 1, a + 2], [BOS, a + 4, a + 5, a + 6]]


def test_a_vocabulary_without_bos_keeps_every_token() -> None:
    a = 100 + ord("a")
    assert windows("abcdefghi", params(), bos=False) == [
        [a, a + 1, a + 2, a + 3],
        [a + 4, a + 5, a + 6, a + 7],
    ]


def test_windows_are_named_and_counted_from_one() -> None:
    made = perplexity.items({"text": b"abcdefghijkl"}, params(windows=2), bytes_as_tokens)
    assert [item.id for item in made] == ["window-0001", "window-0002"]
    assert [item.slices for item in made] == [{}, {}]


def test_a_short_text_is_refused_with_both_numbers() -> None:
    with pytest.raises(InputError) as caught:
        windows("abcdef", params())
    assert str(caught.value) == "the text is too short: got 7 tokens, expected at least 8 (two windows)"
    assert caught.value.hint == "give a longer text or lower `window_tokens`"


def test_more_windows_than_there_are_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        windows("abcdefghijk", params(windows=4))
    assert str(caught.value) == "the text is too short: got 3 windows of 4 tokens, expected 4"
    assert caught.value.hint == "lower `windows`, or leave it out to take all"


def test_a_vocabulary_that_adds_a_last_token_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        perplexity.items({"text": b"abcdefgh"}, params(), lambda text: (*bytes_after_bos(text), 2))
    assert str(caught.value) == (
        "the vocabulary adds tokens at the end of a text: got 2 tokens for an empty text, expected at most 1 (BOS)"
    )


def test_a_text_whose_tokens_lack_the_bos_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        perplexity.items({"text": b"abcdefgh"}, params(), lambda text: bytes_as_tokens(text) or (BOS,))
    assert str(caught.value) == "the tokens of the text do not start with BOS: got `197`, expected `1`"


def test_a_text_that_is_no_utf_8_is_refused_by_line() -> None:
    with pytest.raises(InputError) as caught:
        perplexity.items({"text": b"abc\ndef\xff"}, params(), bytes_as_tokens)
    assert str(caught.value) == "the text is not UTF-8: line 2, byte 7"


def test_line_ends_are_not_touched() -> None:
    made = windows("a\r\nb\u2028c", params(), bos=False)
    assert made == [[100 + byte for byte in b"a\r\nb"], [100 + byte for byte in "\u2028c".encode()]]


def item_of(tokens: int) -> Item:
    return Item(id="window-0001", slices={}, body={"tokens": list(range(tokens))})


@pytest.mark.parametrize("tokens, first, scored", [(512, 257, 255), (4, 3, 1), (5, 3, 2), (2048, 1025, 1023)])
def test_the_last_half_is_scored(tokens: int, first: int, scored: int) -> None:
    play = perplexity.ask(item_of(tokens), params())
    request = next(play)
    play.close()
    assert request == Score(tokens=tuple(range(tokens)), score_from=first)
    assert tokens - first == scored


def outcome(*nats: float, tokens: int = 6) -> object:
    return perplexity.grade(item_of(tokens), Answer(nats=nats), params())


def test_costs_become_their_sums() -> None:
    assert outcome(1.0, 2.0) == Nats(nats_sum=3.0, nats_square_sum=5.0, scored_tokens=2)


@pytest.mark.parametrize("cost", [math.nan, math.inf, -math.inf, -0.5, 1e300])
def test_a_cost_that_is_none_is_not_graded(cost: float) -> None:
    assert outcome(1.0, cost) == Ungraded(
        why=f"scored token 1: got `{cost}` nats, expected a number of at least 0"
    )


@pytest.mark.parametrize("nats", [(), (1.0,), (1.0, 1.0, 1.0)])
def test_too_few_or_too_many_costs_are_not_graded(nats: tuple[float, ...]) -> None:
    assert outcome(*nats) == Ungraded(why=f"got {len(nats)} scored tokens, expected 2")


@pytest.mark.parametrize(
    "reply, failed",
    [
        (Failed(why="no memory"), "no memory"),
        (
            Completed(text="x", tokens=(1,), ending="eos", prompt_tokens=1),
            "the engine answered something else: expected the cost of each token",
        ),
    ],
)
def test_without_costs_there_is_no_answer(reply: Reply, failed: str) -> None:
    play = perplexity.ask(item_of(4), params())
    next(play)
    with pytest.raises(StopIteration) as stop:
        play.send(reply)
    assert stop.value.value == Answer(failed=failed)


def test_recorded_costs_play_back() -> None:
    assert play_back(perplexity.ask(item_of(4), params()), (Scored(nats=(0.5,)),)) == Answer(nats=(0.5,))


def test_there_are_no_trials() -> None:
    assert perplexity.trials((item_of(4),), params()) == ()


@given(st.text(max_size=200), st.integers(4, 9), st.booleans())
def test_windows_hold_the_text_in_order(text: str, size: int, bos: bool) -> None:  # noqa: FBT001
    tokens = bytes_after_bos(text) if bos else bytes_as_tokens(text)
    if len(tokens) < 2 * size:
        with pytest.raises(InputError):
            windows(text, params(size), bos=bos)
        return
    made = windows(text, params(size), bos=bos)
    assert len(made) == len(tokens) // size
    for number, window in enumerate(made):
        piece = list(tokens[number * size : (number + 1) * size])
        assert window == ([BOS, *piece[1:]] if bos else piece)


@given(st.lists(st.floats(), max_size=6))
def test_any_costs_give_an_outcome(nats: list[float]) -> None:
    match outcome(*nats, tokens=6):
        case Nats(nats_sum=total, nats_square_sum=squares):
            assert 0 <= total < math.inf
            assert 0 <= squares < math.inf
        case other:
            assert isinstance(other, Ungraded)
