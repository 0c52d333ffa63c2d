"""Nats of the engine of a build against that build's own llama-perplexity, digit for digit."""

from __future__ import annotations

from pathlib import Path

import pytest

from qlock.engines.llama_cpp import LlamaCpp
from tests.engines.llama_cpp.conftest import load_of
from tests.live.perplexity_tool import WINDOW_TOKENS, of_engine, printed

pytestmark = [pytest.mark.live, pytest.mark.slow]


def test_every_digit_that_llama_perplexity_prints_is_ours(
    real: LlamaCpp, build_bin: Path, smollm2_q4_k_m: Path, wikitext_beginning: Path
) -> None:
    load = load_of(smollm2_q4_k_m, context_tokens=WINDOW_TOKENS, batch_tokens=512, ubatch_tokens=512)
    real.load(load)
    ours = of_engine(real, wikitext_beginning)
    assert real.label().endswith(")"), "the build's libraries were not driven by llama-cpp-python"
    assert ours == printed(build_bin, smollm2_q4_k_m, wikitext_beginning)
