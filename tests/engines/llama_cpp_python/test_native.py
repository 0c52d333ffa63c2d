"""What the engine says of itself and does, on real llama.cpp and a tiny model."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from qlock.core.facts import Buffer, ReadBack
from qlock.core.footprint import footprint
from qlock.core.gguf_header import Header
from qlock.core.gguf_reader import read_header
from qlock.engines.interface import Broken, Generate, Generated, Load, Measure, Measured
from qlock.engines.llama_cpp_python import LlamaCppPython
from qlock.errors import EngineError
from tests.fakes.decoder import GREEDY, SETTING
from tests.fakes.tiny_models import BOS, EOS, VOCAB_TOKENS, Shape, byte_token, write_tiny

pytestmark = pytest.mark.live


def test_a_load_is_read_back_from_the_engine(shared_engine: LlamaCppPython, tiny: Path) -> None:
    assert shared_engine.load(Load(weights=(str(tiny),), setting=SETTING)) == ReadBack(
        context_tokens=256,
        slots=4,
        batch_tokens=64,
        ubatch_tokens=64,
        threads=2,
        batch_threads=2,
        cache_type_k="f16",
        cache_type_v="f16",
        flash_attention=False,
        layers=3,
        layers_offloaded=0,
        weights_buffer=(Buffer(place="CPU_Mapped", use="model", size_bytes=230_687),),
        cache_buffer=(Buffer(place="CPU", use="KV", size_bytes=262_144),),
        trained_context_tokens=2048,
        vocab_tokens=VOCAB_TOKENS,
        add_bos=True,
        add_eos=False,
        bos_token=BOS,
        eos_token=EOS,
        bos_text="<s>",
        eos_text="</s>",
        end_tokens=(EOS,),
        expert_count=0,
    )


def test_what_a_point_takes_is_told_to_the_byte_or_nearly(shared_engine: LlamaCppPython, tiny: Path) -> None:
    shared_engine.load(Load(weights=(str(tiny),), setting=SETTING))
    told = {one.use: one.size_bytes for one in shared_engine.memory()}
    hundredth_of_a_mib = 10_486
    data = tiny.read_bytes()
    header = read_header(data, len(data))
    assert isinstance(header, Header)
    needed = footprint(header, len(data), SETTING)
    assert told["KV"] == pytest.approx(needed.cache_bytes, abs=hundredth_of_a_mib)
    assert 0 < told["model"] <= needed.weights_bytes + hundredth_of_a_mib
    assert told["compute"] > 0


@pytest.mark.parametrize(
    "change, seen",
    [
        ({"slots": 1, "context_tokens": 512}, {"slots": 1, "context_tokens": 512}),
        ({"slots": 8, "context_tokens": 1000}, {"slots": 8, "context_tokens": 1000}),
        (
            {"flash_attention": True, "cache_type_v": "q8_0", "cache_type_k": "q4_0"},
            {"flash_attention": True, "cache_type_v": "q8_0", "cache_type_k": "q4_0"},
        ),
        ({"cache_type_k": "bf16", "cache_type_v": "f32"}, {"cache_type_k": "bf16", "cache_type_v": "f32"}),
        ({"threads": 1, "batch_threads": 3}, {"threads": 1, "batch_threads": 3}),
        ({"batch_tokens": 32, "ubatch_tokens": 16}, {"batch_tokens": 32, "ubatch_tokens": 16}),
        ({"batch_tokens": 4096}, {"batch_tokens": 1024}),
        ({"mmap": False, "repack": False, "split_mode": "layer"}, {"layers_offloaded": 0}),
        ({"gpu_layers": 9}, {"layers_offloaded": 0}),
    ],
)
def test_each_choice_is_seen(
    shared_engine: LlamaCppPython, tiny: Path, change: dict[str, object], seen: dict[str, object]
) -> None:
    read_back = shared_engine.load(
        Load(weights=(str(tiny),), setting=msgspec.structs.replace(SETTING, **change))
    )
    assert {name: getattr(read_back, name) for name in seen} == seen


def test_experts_are_counted(shared_engine: LlamaCppPython, tiny_mixture: Path) -> None:
    assert shared_engine.load(Load(weights=(str(tiny_mixture),), setting=SETTING)).expert_count == 4


@pytest.mark.parametrize(
    "change, why",
    [
        (
            {"cache_type_v": "q8_0"},
            (
                "llama.cpp could not make a context: llama_init_from_model: quantized V cache requires flash_attn to be"
                " enabled"
            ),
        ),
        (
            {"context_tokens": 4096},
            "got `context_tokens = 4096`, expected at most the `2048` that the model was trained with",
        ),
        (
            {"slots": 65, "context_tokens": 256},
            "got `batch_tokens = 64`, expected at least one for each of `65` slots",
        ),
        (
            {"slots": 300, "batch_tokens": 512, "context_tokens": 256},
            (
                "llama.cpp could not make a context: llama_init_from_model: failed to initialize the context: n_seq_max"
                " must be <= 256"
            ),
        ),
    ],
)
def test_what_llama_cpp_cannot_do_is_said_in_its_words_and_another_load_is_possible(
    shared_engine: LlamaCppPython, tiny: Path, change: dict[str, object], why: str
) -> None:
    with pytest.raises(EngineError) as caught:
        shared_engine.load(Load(weights=(str(tiny),), setting=msgspec.structs.replace(SETTING, **change)))
    expected = f"the engine could not load the model: {why}"
    assert caught.value.message[: len(expected)] == expected
    assert shared_engine.load(Load(weights=(str(tiny),), setting=SETTING)).slots == 4


def test_a_file_that_is_not_there_is_said(shared_engine: LlamaCppPython, tmp_path: Path) -> None:
    path = tmp_path / "none.gguf"
    with pytest.raises(EngineError) as caught:
        shared_engine.load(Load(weights=(str(path),), setting=SETTING))
    assert caught.value.message.startswith(
        f"the engine could not load the model: llama.cpp could not load `{path}`: gguf_init_from_file: failed to open"
    )


def test_a_truncated_file_is_said(shared_engine: LlamaCppPython, tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "half.gguf"
    path.write_bytes(tiny.read_bytes()[:-1000])
    with pytest.raises(EngineError) as caught:
        shared_engine.load(Load(weights=(str(path),), setting=SETTING))
    assert "model is corrupted or incomplete" in caught.value.message


def test_after_a_failed_load_nothing_is_loaded(shared_engine: LlamaCppPython, tmp_path: Path) -> None:
    with pytest.raises(EngineError):
        shared_engine.load(Load(weights=(str(tmp_path / "none.gguf"),), setting=SETTING))
    with pytest.raises(EngineError, match=r"^the engine could not tokenize: no model is loaded$"):
        shared_engine.tokenize(["a"], add_special=False, parse_special=False)


def test_texts_become_tokens_with_and_without_special_ones(shared_engine: LlamaCppPython, tiny: Path) -> None:
    shared_engine.load(Load(weights=(str(tiny),), setting=SETTING))
    plain, empty, odd = shared_engine.tokenize(["é</s>", "", "\x00"], add_special=False, parse_special=False)
    assert [token for token in plain if token in map(byte_token, b"\xc3\xa9</>")] == [
        byte_token(value) for value in "é</>".encode()
    ]
    assert EOS not in plain
    assert empty == ()
    assert odd[-1] == byte_token(0)
    (special,) = shared_engine.tokenize(["</s>"], add_special=True, parse_special=True)
    assert (special[0], special[-1]) == (BOS, EOS)


def test_shards_load_like_the_whole(shared_engine: LlamaCppPython, tiny: Path, tmp_path: Path) -> None:
    write_tiny(tmp_path / "part.gguf", tensors_per_file=8)
    parts = tuple(sorted(str(path) for path in tmp_path.iterdir()))
    assert len(parts) == 3
    work = Generate(id="a", tokens=(BOS, 70), sampling=GREEDY, logprobs=False, logits_digest=True)
    seen = []
    for weights in ((str(tiny),), parts):
        shared_engine.load(Load(weights=weights, setting=SETTING))
        shared_engine.submit(work)
        done = shared_engine.next_done()
        assert isinstance(done, Generated)
        seen.append((done.tokens, done.logits_digest))
    assert seen[0] == seen[1]


def test_an_answer_and_its_text_are_the_model_s(shared_engine: LlamaCppPython, tiny: Path) -> None:
    shared_engine.load(Load(weights=(str(tiny),), setting=SETTING))
    shared_engine.submit(
        Generate(id="a", tokens=(BOS, 70, 80), sampling=GREEDY, logprobs=True, logits_digest=True)
    )
    done = shared_engine.next_done()
    assert isinstance(done, Generated)
    assert (len(done.tokens), done.ending) == (GREEDY.answer_tokens, "budget")
    assert len(done.logprobs) == len(done.tokens)
    # Greedy: the chosen token is at least as likely as any of the others.
    assert all(logprob >= -6 for logprob in done.logprobs)
    shared_engine.submit(Measure(id="m", tokens=(BOS, 70, 80, *done.tokens), score_from=3))
    measured = shared_engine.next_done()
    assert isinstance(measured, Measured)
    assert measured.nats == pytest.approx([-logprob for logprob in done.logprobs], abs=5e-3)


def test_work_may_be_queued_and_texts_tokenized_while_work_is_under_way(
    shared_engine: LlamaCppPython, tiny: Path
) -> None:
    shared_engine.load(Load(weights=(str(tiny),), setting=SETTING))
    for number in range(20):
        shared_engine.submit(
            Generate(
                id=f"{number}",
                tokens=(BOS, number + 70),
                sampling=GREEDY,
                logprobs=False,
                logits_digest=False,
            )
        )
        assert shared_engine.tokenize(["a"], add_special=True, parse_special=False)[0][0] == BOS
    shared_engine.submit(Measure(id="bad", tokens=(1, 2), score_from=9))
    done = {one.id: one for one in (shared_engine.next_done() for _ in range(21))}
    assert sorted(done) == sorted([*map(str, range(20)), "bad"])
    assert done["bad"] == Broken(id="bad", why="got `score_from = 9`, expected `1` to `1`")


def test_a_model_with_nan_weights_breaks_items_and_not_the_engine(
    shared_engine: LlamaCppPython, tmp_path: Path
) -> None:
    path = write_tiny(tmp_path / "nan.gguf", Shape(seed=3))
    data = bytearray(path.read_bytes())
    data[-8:] = b"\xff\x7f" * 4
    path.write_bytes(data)
    shared_engine.load(Load(weights=(str(path),), setting=SETTING))
    shared_engine.submit(
        Generate(id="a", tokens=(BOS, 70), sampling=GREEDY, logprobs=False, logits_digest=False)
    )
    assert shared_engine.next_done() == Broken(id="a", why="logits are not finite at step `0`")
    shared_engine.submit(Measure(id="b", tokens=(BOS, 70, 80), score_from=1))
    assert shared_engine.next_done() == Broken(id="b", why="logits are not finite")
