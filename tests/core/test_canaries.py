from __future__ import annotations

import math

import pytest

from qlock.core.canaries import (
    CANARIES,
    PLAIN_TEXT,
    PROBE_PROMPTS,
    PROBE_STEPS,
    STEPS,
    sane_nats_limit,
)
from qlock.core.digest import digest_of

PINNED = "blake3:ca3739f4c76f9d3e1146c7d8e5575aa292a312d3957746910aa34109b513788f"


def test_the_texts_never_change() -> None:
    # Every lock pins what came of these texts: with other ones, no lock made before could be run.
    found = digest_of("canaries", [STEPS, PLAIN_TEXT, CANARIES, PROBE_PROMPTS, PROBE_STEPS])
    assert found == PINNED


def test_one_canary_is_long_and_the_others_are_short() -> None:
    lengths = {name: len(text) for name, text in CANARIES.items()}
    assert lengths.pop("long-prompt") > 1_400
    assert max(lengths.values()) < 100


def test_the_probe_uses_canaries() -> None:
    assert set(PROBE_PROMPTS) <= set(CANARIES)


@pytest.mark.parametrize("vocab, limit", [(49_152, 7.2), (128_256, 7.84), (258, 3.7)])
def test_the_limit_lies_between_guessing_and_knowing(vocab: int, limit: float) -> None:
    assert sane_nats_limit(vocab) == pytest.approx(limit, abs=0.01)
    assert sane_nats_limit(vocab) < math.log(vocab)
