"""Files of log-probabilities that are of something else, not whole, or no log-probabilities."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.engines.interface import Measure
from qlock.engines.llama_cpp.perplexity import Expected, is_final, is_window, nats_in
from qlock.errors import EngineError

TOKENS = (1, 4, 2, 0, 3, 4, 1, 2)
VOCABULARY = 5
EXPECTED = Expected(tokens=TOKENS, vocab_tokens=VOCABULARY)


def logits(
    *,
    magic: bytes = b"_logits_",
    head: tuple[int, int, int] = (8, VOCABULARY, 1),
    tokens: tuple[int, ...] = TOKENS,
    rows: int = 3,
    scale: float = 0.5,
    lowest: float = -4.0,
) -> bytes:
    """A file as llama-perplexity writes it: token `t` of each row is `scale · t` above the lowest."""
    row = struct.pack("<ff", scale, lowest) + struct.pack("<6H", 0, 1, 2, 3, 4, 0)
    return magic + struct.pack("<iii", *head) + struct.pack(f"<{len(tokens)}i", *tokens) + rows * row


def refusal(data: bytes) -> str:
    with pytest.raises(EngineError) as caught:
        nats_in(data, EXPECTED)
    return caught.value.message


def test_costs_of_the_last_half_are_read() -> None:
    # Scored are tokens[5:], which are 4, 1 and 2.
    assert nats_in(logits(), EXPECTED) == (2.0, 3.5, 3.0)


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "llama-perplexity wrote no logits: got `0` bytes"),
        (logits(magic=b"_logitz_"), "llama-perplexity wrote no logits: got `100` bytes"),
        (logits()[:40], "llama-perplexity wrote no logits: got `40` bytes"),
        (logits(head=(16, 5, 1)), "llama-perplexity wrote other logits: got `window = 16`, expected `8`"),
        (logits(head=(8, 6, 1)), "llama-perplexity wrote other logits: got `vocabulary = 6`, expected `5`"),
        (logits(head=(8, 5, 2)), "llama-perplexity wrote other logits: got `windows = 2`, expected `1`"),
        (
            logits(tokens=(1, 4, 2, 0, 3, 4, 1, 1)),
            "llama-perplexity wrote other logits: the text became other tokens than those asked for",
        ),
        (logits(rows=2), "llama-perplexity wrote logits that are not whole: got `92` bytes, expected `112`"),
        (logits()[:-1], "llama-perplexity wrote logits that are not whole: got `111` bytes, expected `112`"),
        (logits(rows=4), "llama-perplexity wrote logits that are not whole: got `132` bytes, expected `112`"),
        (
            logits(scale=math.nan),
            "llama-perplexity gave a cost of `nan` nats, expected a number of at least 0",
        ),
        (
            logits(lowest=-math.inf),
            "llama-perplexity gave a cost of `inf` nats, expected a number of at least 0",
        ),
        (logits(lowest=4.0), "llama-perplexity gave a cost of `-6.0` nats, expected a number of at least 0"),
    ],
)
def test_a_file_that_is_not_whole_or_of_something_else_is_refused(data: bytes, message: str) -> None:
    # Two files are cut or marked otherwise, so that only their length is told.
    expected = message.replace("`100`", f"`{len(logits())}`")
    assert refusal(data) == expected


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    refusal(data)


def test_the_closing_line_says_the_same_or_is_lost() -> None:
    nats = (2.0, 3.5, 3.0)
    line = f"[1]1,ETA 0.1 I Final estimate: PPL = {math.exp(8.5 / 3):.4f} +/- 1.0\n"
    assert is_final(line, nats)
    assert not is_final("[1]17.0", nats)
    assert not is_final("", nats)
    assert not is_final("Final estimate: PPL = nan +/- nan", nats)
    # No line at all, since its figure need not be whole.
    assert not is_final(line.partition(" +/-")[0], nats)


@pytest.mark.parametrize(
    "said, message",
    [
        (
            "Final estimate: PPL = 19.0000 +/- 1.0",
            f"llama-perplexity printed a perplexity of `19.0000`, and its logits give `{math.exp(8.5 / 3):.4f}`",
        ),
        (
            2 * "Final estimate: PPL = 17.0000 +/- 1.0\n",
            "llama-perplexity printed `2` closing lines, expected one",
        ),
    ],
)
def test_another_closing_line_is_refused(said: str, message: str) -> None:
    with pytest.raises(EngineError) as caught:
        is_final(said, (2.0, 3.5, 3.0))
    assert caught.value.message == message


def test_what_the_program_scores() -> None:
    assert is_window(Measure(id="a", tokens=TOKENS, score_from=5))
    assert not is_window(Measure(id="a", tokens=TOKENS, score_from=4))
    assert not is_window(Measure(id="a", tokens=TOKENS[:4], score_from=3))
