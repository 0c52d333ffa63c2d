"""A long text cut into windows that do not overlap, exactly as llama-perplexity cuts it.

The whole text becomes tokens once; the rest at the end is dropped. Only the last half of each window is scored, so
that every scored token has at least half a window before it.

Does not live here: token ids (the caller's ``tokens_of``), and what is asked of a window (the suites).

Source: ``tools/perplexity/perplexity.cpp`` of llama.cpp, function ``perplexity``, with ``--ppl-stride 0``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import UNSET, UnsetType

from qlock.core.units import count_text
from qlock.errors import InputError

DEFAULT_WINDOW_TOKENS = 512
"""As llama-perplexity, whose figures everybody publishes."""


def windows(
    text: bytes,
    tokens_of: Callable[[str], tuple[int, ...]],
    *,
    window_tokens: int,
    windows: int | UnsetType = UNSET,
) -> tuple[tuple[int, ...], ...]:
    """The windows, in the order of the text, each with BOS in front where the vocabulary adds one.

    Args:
        text: UTF-8, taken byte for byte.
        tokens_of: Text to token ids, BOS added where the model wants one.
        window_tokens: Length of one window.
        windows: How many from the start of the text; unset means all that fit.

    Raises:
        InputError: The text is no UTF-8, is shorter than two windows or than the windows asked for, or the
            vocabulary adds a token at the end, which would land in the middle of nowhere.
    """
    whole = _decoded(text)
    added, tokens = tokens_of(""), tokens_of(whole)
    if len(added) > 1:
        raise InputError(
            f"the vocabulary adds tokens at the end of a text: got {len(added)} tokens for an empty text, "
            "expected at most 1 (BOS)"
        )
    if added and tokens[:1] != added:
        raise InputError(
            f"the tokens of the text do not start with BOS: got `{tokens[0] if tokens else 'nothing'}`, "
            f"expected `{added[0]}`"
        )
    size = window_tokens
    if len(tokens) < 2 * size:
        raise InputError(
            f"the text is too short: got {count_text(len(tokens), 'token')}, expected at least {2 * size} (two windows)",
            hint="give a longer text or lower `window_tokens`",
        )
    there = len(tokens) // size
    wanted = there if windows is UNSET else windows
    if wanted > there:
        raise InputError(
            f"the text is too short: got {count_text(there, 'window')} of {size} tokens, expected {wanted}",
            hint="lower `windows`, or leave it out to take all",
        )
    return tuple(
        (*added, *tokens[number * size + len(added) : (number + 1) * size]) for number in range(wanted)
    )


def window_name(number: int) -> str:
    """The id of a window, counted from 1."""
    return f"window-{number:04d}"


def score_from(tokens: Sequence[int]) -> int:
    """Index of the first scored token of a window: the logits at its half are the first that are used."""
    return len(tokens) // 2 + 1


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise InputError(f"the text is not UTF-8: line {line}, byte {error.start}") from None
