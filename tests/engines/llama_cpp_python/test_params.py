from __future__ import annotations

import ctypes
from types import ModuleType

import msgspec
import pytest

from qlock.core.facts import CacheType, Setting
from qlock.engines.interface import Load
from qlock.engines.llama_cpp_python.params import context_params, model_params, same_model, vocabulary_params
from qlock.errors import EngineError
from tests.fakes.decoder import SETTING

_NUMBERS = [
    "LLAMA_SPLIT_MODE_NONE",
    "LLAMA_SPLIT_MODE_LAYER",
    "LLAMA_LOAD_MODE_NONE",
    "LLAMA_LOAD_MODE_MMAP",
    "LLAMA_LAZY_MODE_OFF",
    "LLAMA_POOLING_TYPE_NONE",
    "LLAMA_ATTENTION_TYPE_CAUSAL",
]

_MODEL = [
    "n_gpu_layers",
    "split_mode",
    "load_mode",
    "lazy_mode",
    "main_gpu",
    "vocab_only",
    "check_tensors",
    "use_extra_bufts",
    "no_host",
    "no_alloc",
    "load_mtp",
]
_MODEL_POINTERS = [
    "devices",
    "tensor_buft_overrides",
    "tensor_split",
    "progress_callback_user_data",
    "kv_overrides",
]
_CONTEXT = [
    "n_ctx",
    "n_batch",
    "n_ubatch",
    "n_seq_max",
    "n_rs_seq",
    "n_outputs_max",
    "n_outputs_max_per_seq",
    "n_threads",
    "n_threads_batch",
    "ctx_type",
    "rope_scaling_type",
    "pooling_type",
    "attention_type",
    "flash_attn_type",
    "yarn_orig_ctx",
    "type_k",
    "type_v",
    "embeddings",
    "offload_kqv",
    "no_perf",
    "op_offload",
    "swa_full",
    "kv_unified",
    "n_samplers",
]
_CONTEXT_FLOATS = [
    "rope_freq_base",
    "rope_freq_scale",
    "yarn_ext_factor",
    "yarn_attn_factor",
    "yarn_beta_fast",
    "yarn_beta_slow",
    "defrag_thold",
]
_CONTEXT_POINTERS = ["cb_eval_user_data", "abort_callback_data", "samplers", "ctx_other"]

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_bool)


def bindings(*more: str) -> ModuleType:
    """A module shaped like llama-cpp-python's, with the fields in some other order and perhaps some more."""
    api = ModuleType("bindings")
    for number, name in enumerate(_NUMBERS):
        setattr(api, name, 100 + number)
    api.LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED = -1  # type: ignore[attr-defined]  # made here
    for name in ("llama_progress_callback", "ggml_backend_sched_eval_callback", "ggml_abort_callback"):
        setattr(api, name, _CALLBACK)

    class ModelParams(ctypes.Structure):
        _fields_ = [
            *((name, ctypes.c_int) for name in (*_MODEL, *more)),
            *((name, ctypes.c_void_p) for name in _MODEL_POINTERS),
            ("progress_callback", _CALLBACK),
        ]

    class ContextParams(ctypes.Structure):
        _fields_ = [
            *((name, ctypes.c_int) for name in (*_CONTEXT, *more)),
            *((name, ctypes.c_float) for name in _CONTEXT_FLOATS),
            *((name, ctypes.c_void_p) for name in _CONTEXT_POINTERS),
            ("cb_eval", _CALLBACK),
            ("abort_callback", _CALLBACK),
        ]

    api.llama_model_params = ModelParams  # type: ignore[attr-defined]  # made here
    api.llama_context_params = ContextParams  # type: ignore[attr-defined]  # made here
    return api


def model(**changes: object) -> dict[str, object]:
    params, _ = model_params(bindings(), msgspec.structs.replace(SETTING, **changes))
    return {name: getattr(params, name) for name in (*_MODEL, *_MODEL_POINTERS)}


def context(**changes: object) -> dict[str, object]:
    params = context_params(bindings(), msgspec.structs.replace(SETTING, **changes))
    return {name: getattr(params, name) for name in _CONTEXT}


CHANGED: dict[str, object] = {
    "name": "other",
    "context_tokens": 512,
    "slots": 2,
    "replicas": 2,
    "slots_requested": 2,
    "slots_why": "why",
    "batch_tokens": 32,
    "ubatch_tokens": 32,
    "threads": 1,
    "batch_threads": 1,
    "cache_type_k": "q8_0",
    "cache_type_v": "q8_0",
    "flash_attention": True,
    "gpu_layers": 7,
    "split_mode": "layer",
    "main_gpu": 1,
    "kv_offload": False,
    "op_offload": False,
    "swa_full": False,
    "repack": False,
    "mmap": False,
}


@pytest.mark.parametrize("field", Setting.__struct_fields__)
@pytest.mark.parametrize("gpu_layers", [0, 7])
def test_a_model_serves_two_points_where_it_would_be_loaded_alike(field: str, gpu_layers: int) -> None:
    changed = CHANGED[field] if field != "gpu_layers" else 7 - gpu_layers
    one = msgspec.structs.replace(SETTING, gpu_layers=gpu_layers)
    other = msgspec.structs.replace(one, **{field: changed})
    loads = [Load(weights=("/a",), setting=setting) for setting in (one, other)]
    alike = [
        {name: getattr(model_params(bindings(), setting)[0], name) for name in _MODEL}
        for setting in (one, other)
    ]
    if same_model(*loads):
        assert alike[0] == alike[1]
        assert field not in {"mmap", "repack", "gpu_layers"}
    assert not same_model(loads[0], msgspec.structs.replace(loads[0], weights=("/b",)))


def test_the_cache_may_differ_between_points_of_one_model() -> None:
    one = Load(weights=("/a",), setting=SETTING)
    setting = msgspec.structs.replace(
        SETTING, name="other", cache_type_k="q8_0", flash_attention=True, threads=1, slots=1
    )
    assert same_model(one, Load(weights=("/a",), setting=setting))


def test_without_layers_to_offload_no_device_is_left() -> None:
    params, kept = model_params(bindings(), SETTING)
    devices = ctypes.cast(params.devices, ctypes.POINTER(ctypes.c_void_p))
    assert devices[0] is None
    assert kept is not None
    assert (params.n_gpu_layers, params.split_mode) == (0, 101)


def test_with_layers_to_offload_the_devices_are_llama_cpp_s_own() -> None:
    params = model(gpu_layers=7, main_gpu=2)
    assert params["devices"] is None
    assert (params["n_gpu_layers"], params["split_mode"], params["main_gpu"]) == (7, 100, 2)
    assert model(gpu_layers=7, split_mode="layer")["split_mode"] == 101


def test_mapping_and_rearranging_weights_are_said() -> None:
    assert (model()["load_mode"], model(mmap=False)["load_mode"]) == (103, 102)
    assert (model()["use_extra_bufts"], model(repack=False)["use_extra_bufts"]) == (1, 0)


def test_the_context_is_that_of_all_slots_and_never_unified() -> None:
    params = context(slots=8, context_tokens=512)
    assert (params["n_ctx"], params["n_seq_max"], params["kv_unified"]) == (4096, 8, 0)


@pytest.mark.parametrize(
    "change, field, value",
    [
        ({"batch_tokens": 77}, "n_batch", 77),
        ({"ubatch_tokens": 66}, "n_ubatch", 66),
        ({"threads": 5}, "n_threads", 5),
        ({"batch_threads": 6}, "n_threads_batch", 6),
        ({"flash_attention": True}, "flash_attn_type", 1),
        ({"flash_attention": False}, "flash_attn_type", 0),
        ({"kv_offload": False}, "offload_kqv", 0),
        ({"op_offload": False}, "op_offload", 0),
        ({"swa_full": False}, "swa_full", 0),
    ],
)
def test_each_choice_reaches_its_field(change: dict[str, object], field: str, value: int) -> None:
    assert context(**change)[field] == value


@pytest.mark.parametrize(
    "cache_type, number",
    [
        ("f32", 0),
        ("f16", 1),
        ("q4_0", 2),
        ("q4_1", 3),
        ("q5_0", 6),
        ("q5_1", 7),
        ("q8_0", 8),
        ("iq4_nl", 20),
        ("bf16", 30),
    ],
)
def test_cache_types_have_ggml_s_numbers(cache_type: CacheType, number: int) -> None:
    assert context(cache_type_k=cache_type)["type_k"] == number
    assert context(cache_type_v=cache_type)["type_v"] == number


def test_a_field_that_is_not_written_out_here_is_refused() -> None:
    for made in (model_params, context_params):
        with pytest.raises(EngineError) as caught:
            made(bindings("new_default"), SETTING)
        assert caught.value.message == (
            "this llama-cpp-python has other parameters than qlock knows: `new_default`"
        )
        assert caught.value.hint == "install the version that qlock's extra `embedded` names"


def test_for_a_vocabulary_alone_no_device_and_no_weights_are_touched() -> None:
    params, kept = vocabulary_params(bindings())
    assert ctypes.cast(params.devices, ctypes.POINTER(ctypes.c_void_p))[0] is None
    assert kept is not None
    assert (params.vocab_only, params.n_gpu_layers) == (1, 0)
    assert model()["vocab_only"] == 0
