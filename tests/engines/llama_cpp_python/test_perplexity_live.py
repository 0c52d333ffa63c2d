"""Nats of the embedded engine against llama-perplexity of the same build, digit for digit."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from qlock.engines.interface import Load
from qlock.engines.llama_cpp_python import LlamaCppPython
from tests.fakes.decoder import SETTING
from tests.live.perplexity_tool import WINDOW_TOKENS, of_engine, printed

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.mark.parametrize("name", ["smollm2_q4_1", "smollm2_q4_k_m"])
def test_every_digit_that_llama_perplexity_prints_is_ours(
    shared_engine: LlamaCppPython,
    request: pytest.FixtureRequest,
    llama_bin: Path,
    wikitext_beginning: Path,
    name: str,
) -> None:
    model: Path = request.getfixturevalue(name)
    setting = msgspec.structs.replace(
        SETTING, context_tokens=WINDOW_TOKENS, batch_tokens=512, ubatch_tokens=512, slots=1
    )
    shared_engine.load(Load(weights=(str(model),), setting=setting))
    assert of_engine(shared_engine, wikitext_beginning) == printed(llama_bin, model, wikitext_beginning)
