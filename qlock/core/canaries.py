"""The fixed prompts that fingerprint an environment by what it does.

A few short continuations would pass where a kernel is broken for long prompts only, so one canary is long; and a
broken kernel must not pin its own gibberish, so one is a plain English text whose cost in nats has to be sane. Greedy
answers are the same whatever a sampler does, so one is drawn with every rule of the sampler at work.

The texts never change: every lock pins what came of them. Does not live here: decoding them (``flows.proving``).
"""

from __future__ import annotations

import math

STEPS = 16
"""Tokens decoded from each canary."""

SAMPLED = "sampled"
"""The canary whose tokens are drawn (by which rules: ``flows.proving.DRAWN``); the others are decoded greedily."""

PLAIN_TEXT = (
    "The lighthouse stood at the end of a long stone pier. Every evening, a little before sunset, the keeper walked "
    "out along the pier with a lantern in one hand and a small bag of bread in the other. He climbed the stairs "
    "slowly, because there were one hundred and twelve of them, and because there was no reason to hurry. At the top "
    "he cleaned the glass, filled the lamp with oil, and waited for the light to go out of the sky. Then he lit the "
    "lamp. On most nights nothing happened. The sea moved, the lamp turned, and far away a ship or two went by on "
    "the way to the harbour. In the morning he put out the lamp, walked back along the pier, and made breakfast for "
    "himself and for his dog."
)
"""Ordinary English, written for this purpose; the mean cost of its tokens is pinned and must be sane."""

_PARAGRAPH = (
    "A ledger of {n} lines lay open on the desk. Line {n} said that {n} barrels of apples had been sold for {m} coins "
    "each, that the buyer came from the town by the river, and that the barrels were to be sent before the first snow. "
)

_SHORT = "The capital of France is"

CANARIES: dict[str, str] = {
    "short": _SHORT,
    "code": "def add(a, b):\n    return",
    "words": "Guten Tag, bonjour, buenos días, こんにちは, здравствуйте: five ways to say",
    "long-prompt": "".join(_PARAGRAPH.format(n=n, m=3 * n + 1) for n in range(2, 9))
    + "The line before the last said",
    SAMPLED: _SHORT,
}
"""Name to prompt, tokenized as plain text with the model's own BOS rule."""

PROBE_PROMPTS = ("short", "code", "words", "long-prompt")
PROBE_STEPS = 6


def sane_nats_limit(vocab_tokens: int) -> float:
    """Mean nats per token of the plain text above which an engine is not sane.

    Guessing evenly costs ln(vocabulary); a trained model, however small or strongly quantized, costs far less on
    plain English. Two thirds of guessing lies between the two (ln 49,152 = 10.8, limit 7.2; a 135M model at
    4 bits: about 3).
    """
    return 2.0 / 3.0 * math.log(vocab_tokens)
