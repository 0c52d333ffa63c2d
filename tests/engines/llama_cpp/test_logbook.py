"""What a server's log tells, and what it must not be taken to tell."""

from __future__ import annotations

import pytest

from qlock.core.facts import Buffer
from qlock.engines.interface import Deviation
from qlock.engines.llama_cpp.logbook import Said, complaint, deviations, port, read
from qlock.errors import EngineError

LOG = """\
0.00.001 I cmn  common_param: system_info: n_threads = 2 (n_threads_batch = 3) / 8 | CPU : AVX2 = 1 | REPACK = 1 |
0.00.002 I llama_prepare_model_devices: using device CUDA0 (NVIDIA L4) (0000:18:00.0) - 22478 MiB free
0.00.002 I print_info: n_ctx_train           = 2048
0.00.002 I print_info: n_layer               = 2
0.00.002 I print_info: n_expert              = 0
0.00.002 I print_info: n_vocab               = 320
0.00.002 I print_info: BOS token             = 1 '<s>'
0.00.002 I print_info: EOS token             = 2 '</s>'
0.00.002 I print_info: EOG token             = 7 '<|end|>'
0.00.002 I print_info: EOG token             = 2 '</s>'
0.00.003 I load_tensors:   CPU_Mapped model buffer size =     0.22 MiB
0.00.004 I llama_context: n_seq_max             = 1
0.00.004 I llama_context: n_ctx                 = 512
0.00.004 I llama_context: n_ctx_seq             = 512
0.00.004 I llama_context: n_batch               = 64
0.00.004 I llama_context: n_ubatch              = 32
0.00.004 I llama_context: flash_attn            = enabled
0.00.004 I llama_context: kv_unified            = false
0.00.005 I llama_kv_cache:        CPU KV buffer size =     0.12 MiB
0.00.005 I llama_kv_cache: size =    0.12 MiB (   512 cells,   2 layers,  1/1 seqs), K (q8_0):    0.06 MiB, V (f16): 1 MiB
"""


def lines(log: str = LOG, *, without: str = "", more: str = "") -> list[str]:
    return [line for line in log.split("\n") if not without or without not in line] + [more]


def refusal(said: list[str]) -> str:
    with pytest.raises(EngineError) as caught:
        read(said)
    return caught.value.message


def test_lines_of_our_own_are_no_complaint() -> None:
    assert complaint(["qlock: GGML_ASSERT of another process", "the end"]) == "the end"


def test_all_of_it_is_read() -> None:
    assert read(lines()) == Said(
        context_tokens=512,
        sequences=1,
        batch_tokens=64,
        ubatch_tokens=32,
        threads=2,
        batch_threads=3,
        cache_type_k="q8_0",
        cache_type_v="f16",
        flash_attention=True,
        layers=3,
        layers_offloaded=0,
        weights_buffer=(Buffer(place="CPU_Mapped", use="model", size_bytes=230_687),),
        cache_buffer=(Buffer(place="CPU", use="KV", size_bytes=125_829),),
        is_kv_unified=False,
        trained_context_tokens=2048,
        vocab_tokens=320,
        bos_token=1,
        eos_token=2,
        end_tokens=(2, 7),
        expert_count=0,
        system_info="CPU : AVX2 = 1 | REPACK = 1 |",
        devices=("0000:18:00.0",),
        memory=(
            Buffer(place="CPU_Mapped", use="model", size_bytes=230_687),
            Buffer(place="CPU", use="KV", size_bytes=125_829),
        ),
    )


@pytest.mark.parametrize(
    "without, fact",
    [
        ("n_ctx_seq", "context_tokens"),
        ("n_seq_max", "slots"),
        ("n_batch  ", "batch_tokens"),
        ("n_ubatch", "ubatch_tokens"),
        ("system_info", "threads"),
        ("llama_kv_cache", "cache_type_k` and `cache_type_v"),
        ("flash_attn", "flash_attention"),
        ("n_layer ", "layers"),
        ("model buffer", "layers_offloaded"),
        ("n_ctx_train", "trained_context_tokens"),
        ("n_vocab", "vocab_tokens"),
        ("EOG token", "end_tokens"),
        ("n_expert", "expert_count"),
        ("KV buffer", "cache_buffer"),
        ("kv_unified", "kv_unified"),
    ],
)
def test_a_fact_without_a_line_cannot_be_verified(without: str, fact: str) -> None:
    expected = f"cannot verify `{fact}`: got no line about it in the engine's log, expected one"
    assert refusal(lines(without=without)) == expected


@pytest.mark.parametrize(
    "more, fact",
    [
        ("llama_context: n_batch  = 65", "batch_tokens"),
        ("print_info: BOS token = 9 '<b>'", "bos_token"),
        (
            "load_tensors: offloaded 1/3 layers to GPU\nload_tensors: offloaded 2/3 layers to GPU",
            "layers_offloaded",
        ),
    ],
)
def test_lines_that_differ_verify_nothing(more: str, fact: str) -> None:
    expected = f"cannot verify `{fact}`: got lines that differ in the engine's log, expected one"
    assert refusal([*lines(), *more.split("\n")]) == expected


def test_layers_on_a_gpu_are_counted() -> None:
    said = read(lines(more="0.00.003 I load_tensors: offloaded 2/3 layers to GPU"))
    assert (said.layers, said.layers_offloaded) == (3, 2)


def test_weights_on_a_gpu_without_a_line_about_layers_verify_nothing() -> None:
    said = lines(more="load_tensors:        CUDA0 model buffer size =   100.00 MiB")
    assert refusal(said) == (
        "cannot verify `layers_offloaded`: got no line about it in the engine's log, expected one"
    )


def test_layers_for_drafting_are_counted_too() -> None:
    assert read(lines(more="0.00.002 I print_info: n_layer_all           = 5")).layers == 6


def test_one_cache_for_all_sequences_is_a_deviation() -> None:
    assert deviations(read(lines())) == []
    unified = lines(LOG.replace("kv_unified            = false", "kv_unified            = true"))
    assert deviations(read(unified)) == [Deviation(name="kv_unified", expected="false", found="true")]


def test_a_vocabulary_may_have_no_bos() -> None:
    assert read(lines(without="BOS token")).bos_token == -1


def test_a_port_is_read_once_it_is_said() -> None:
    said = "0.1 I srv  llama_server: listening on http://127.0.0.1:4321"
    assert (port(lines()), port([said]), port([said, said])) == (None, 4321, 4321)
    assert port([said, said.replace("4321", "80")]) is None


def test_the_first_error_is_quoted_else_the_last_lines() -> None:
    assert complaint(["a", "0.1.2 E srv: no memory", "0.1.3 E srv: gone", "b"]) == "0.1.2 E srv: no memory"
    assert complaint(["error: invalid argument: --x", "usage"]) == "error: invalid argument: --x"
    assert complaint(["one", "two", "", "three", "\x1b[2Kfour", ""]) == r"two | three | \x1b[2Kfour"
    assert complaint([]) == ""
