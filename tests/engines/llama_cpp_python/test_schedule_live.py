"""On real llama.cpp: what comes of an item is the same bits whatever is decoded beside it, before it and after it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from qlock.core.facts import Setting
from qlock.engines.interface import Done, Generate, Generated, Load, Measure, Measured, Work
from qlock.engines.llama_cpp_python import LlamaCppPython, open_engine
from tests.fakes.decoder import GREEDY, SETTING
from tests.fakes.tiny_models import VOCAB_TOKENS

pytestmark = pytest.mark.live

WARM = msgspec.structs.replace(GREEDY, temperature=0.9, top_p=0.95, repeat_penalty=1.1, penalty_tokens=32)
WIDE = msgspec.structs.replace(SETTING, context_tokens=512, batch_tokens=128, ubatch_tokens=128)


def works(vocabulary: int, *, count: int = 20) -> list[Work]:
    """Prompts and answers of very different lengths, greedy and sampled, and some windows to measure."""
    random = np.random.Generator(np.random.PCG64(5))
    made: list[Work] = []
    for number in range(count):
        length = int(random.choice([1, 3, 9, 40, 200]))
        tokens = tuple(random.integers(3, vocabulary, length).tolist())
        sampling = msgspec.structs.replace(
            WARM if number % 3 else GREEDY, seed=number, answer_tokens=int(random.integers(1, 25))
        )
        if number % 7 == 6:
            made.append(Measure(id=f"{number}", tokens=(*tokens, 5, 6), score_from=1))
        else:
            made.append(
                Generate(id=f"{number}", tokens=tokens, sampling=sampling, logprobs=True, logits_digest=True)
            )
    return made


def play(engine: LlamaCppPython, chosen: Iterable[Work]) -> dict[str, Done]:
    ids = set()
    for work in chosen:
        engine.submit(work)
        ids.add(work.id)
    done = {one.id: timeless(one) for one in (engine.next_done() for _ in ids)}
    assert done.keys() == ids
    return done


def timeless(done: Done) -> Done:
    match done:
        case Generated():
            return msgspec.structs.replace(done, prefill_s=0.0, decode_s=0.0)
        case Measured():
            return msgspec.structs.replace(done, elapsed_s=0.0)
        case _:
            raise AssertionError(done)


def load(engine: LlamaCppPython, model: Path, setting: Setting) -> None:
    engine.load(Load(weights=(str(model),), setting=setting))


@pytest.mark.parametrize("slots", [1, 8, 16])
@pytest.mark.parametrize("name", ["tiny", "tiny_mixture"])
def test_the_order_of_work_changes_no_bit(
    shared_engine: LlamaCppPython, request: pytest.FixtureRequest, name: str, slots: int
) -> None:
    model: Path = request.getfixturevalue(name)
    load(shared_engine, model, msgspec.structs.replace(WIDE, slots=slots))
    all_of_it = works(VOCAB_TOKENS)
    straight = play(shared_engine, all_of_it)
    assert play(shared_engine, reversed(all_of_it)) == straight
    assert play(shared_engine, all_of_it[::2]) | play(shared_engine, all_of_it[1::2]) == straight


def test_a_new_engine_goes_on_where_another_was_killed(shared_engine: LlamaCppPython, tiny: Path) -> None:
    setting = msgspec.structs.replace(WIDE, slots=8)
    all_of_it = works(VOCAB_TOKENS)
    load(shared_engine, tiny, setting)
    whole = play(shared_engine, all_of_it)
    with open_engine() as first:
        load(first, tiny, setting)
        for work in all_of_it:
            first.submit(work)
        before = {done.id: timeless(done) for done in (first.next_done() for _ in range(7))}
    with open_engine() as second:
        load(second, tiny, setting)
        after = play(second, [work for work in all_of_it if work.id not in before])
    assert before | after == whole


def test_threads_and_how_the_file_is_read_change_no_bit(shared_engine: LlamaCppPython, tiny: Path) -> None:
    seen = []
    for change in (
        {},
        {"threads": 1, "batch_threads": 1},
        {"threads": 3, "batch_threads": 3},
        {"mmap": False},
    ):
        load(shared_engine, tiny, msgspec.structs.replace(WIDE, slots=8, **change))
        seen.append(play(shared_engine, works(VOCAB_TOKENS)))
    assert seen[1:] == seen[:1] * 3


def test_another_context_changes_no_bit(shared_engine: LlamaCppPython, tiny: Path) -> None:
    seen = []
    for context_tokens in (512, 1024):
        load(shared_engine, tiny, msgspec.structs.replace(WIDE, slots=8, context_tokens=context_tokens))
        seen.append(play(shared_engine, works(VOCAB_TOKENS)))
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    "change",
    [
        {"flash_attention": False},
        {"flash_attention": True},
        {"flash_attention": True, "cache_type_k": "q8_0", "cache_type_v": "q8_0"},
    ],
)
def test_the_same_on_a_trained_model_with_k_quants(
    shared_engine: LlamaCppPython, smollm2_q4_k_m: Path, change: dict[str, object]
) -> None:
    setting = msgspec.structs.replace(WIDE, slots=8, **change)
    load(shared_engine, smollm2_q4_k_m, setting)
    all_of_it = works(49152, count=9)
    straight = play(shared_engine, all_of_it)
    assert play(shared_engine, reversed(all_of_it)) == straight


def test_the_probe_finds_a_dense_model_repeatable_and_a_mixture_of_k_quants_not(
    shared_engine: LlamaCppPython, smollm2_q4_k_m: Path, mixture_q5_k: Path
) -> None:
    load(shared_engine, smollm2_q4_k_m, msgspec.structs.replace(WIDE, slots=8))
    prompts = shared_engine.tokenize(["The capital of", "One, two,"], add_special=False, parse_special=False)
    dense = {row.variation: row for row in shared_engine.probe(prompts, steps=3)}
    moved = {name for name, row in dense.items() if row.rows_bitwise < row.rows}
    assert moved == {"width"}
    assert dense["width"].kl_nats_mean > 0
    load(shared_engine, mixture_q5_k, msgspec.structs.replace(WIDE, slots=8))
    prompts = [(1, 70 + number, 80, 90 + number) for number in range(4)]
    mixture = {row.variation: row for row in shared_engine.probe(prompts, steps=6)}
    assert mixture["repeat"].rows_bitwise == mixture["permute"].rows_bitwise == 4
    assert mixture["copies"].rows_bitwise < 4
