"""A setting as llama.cpp's own parameter structs, every field written out.

A struct that has a field which is not named here is one that this code was not written for: that is an error, not
a default. Does not live here: calling anything with them (``native``).
"""

from __future__ import annotations

import ctypes
from types import ModuleType

from qlock.core.facts import Setting
from qlock.engines.interface import Load
from qlock.errors import EngineError

_TYPES = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "iq4_nl": 20,
    "bf16": 30,
}
"""Numbers of ``ggml_type``."""


def model_params(api: ModuleType, setting: Setting) -> tuple[ctypes.Structure, object]:
    """``llama_model_params``, and what must be kept alive while they are used.

    Without layers to offload the list of devices is empty: llama.cpp would otherwise still send large batches to
    a GPU that is there.
    """
    fields, no_devices = _on_the_cpu(api)
    if setting.gpu_layers:
        # With `none` llama.cpp looks its main GPU up in the list, also in an empty one.
        is_whole = setting.split_mode == "none"
        fields |= {
            "devices": None,
            "n_gpu_layers": setting.gpu_layers,
            "split_mode": api.LLAMA_SPLIT_MODE_NONE if is_whole else api.LLAMA_SPLIT_MODE_LAYER,
        }
    fields |= {
        "load_mode": api.LLAMA_LOAD_MODE_MMAP if setting.mmap else api.LLAMA_LOAD_MODE_NONE,
        "main_gpu": setting.main_gpu,
        "use_extra_bufts": setting.repack,
    }
    return _filled(api.llama_model_params(), fields), no_devices


def same_model(one: Load, other: Load) -> bool:
    """Whether two points differ in nothing but what ``context_params`` reads: one loaded model then serves both."""
    return (one.weights, _of_the_model(one.setting)) == (other.weights, _of_the_model(other.setting))


def _of_the_model(setting: Setting) -> tuple[object, ...]:
    """All that ``model_params`` reads."""
    return setting.gpu_layers, setting.split_mode, setting.main_gpu, setting.mmap, setting.repack


def vocabulary_params(api: ModuleType) -> tuple[ctypes.Structure, object]:
    """The same for a file of which only the vocabulary is loaded."""
    fields, no_devices = _on_the_cpu(api)
    return _filled(api.llama_model_params(), fields | {"vocab_only": True}), no_devices


def _on_the_cpu(api: ModuleType) -> tuple[dict[str, object], object]:
    """Every field of ``llama_model_params`` for a model that uses no device, and what must be kept alive."""
    no_devices = (ctypes.c_void_p * 1)(None)
    fields: dict[str, object] = {
        "devices": ctypes.cast(no_devices, ctypes.c_void_p),
        "tensor_buft_overrides": None,
        "n_gpu_layers": 0,
        "split_mode": api.LLAMA_SPLIT_MODE_LAYER,
        "load_mode": api.LLAMA_LOAD_MODE_NONE,
        "lazy_mode": api.LLAMA_LAZY_MODE_OFF,
        "main_gpu": 0,
        "tensor_split": None,
        "progress_callback": api.llama_progress_callback(),
        "progress_callback_user_data": None,
        "kv_overrides": None,
        "vocab_only": False,
        "check_tensors": False,
        "use_extra_bufts": False,
        "no_host": False,
        "no_alloc": False,
        "load_mtp": False,
    }
    return fields, no_devices


def context_params(api: ModuleType, setting: Setting) -> ctypes.Structure:
    """``llama_context_params``; 0 and −1 in the rope and YaRN fields mean "as the model's file says"."""
    fields: dict[str, object] = {
        "n_ctx": setting.context_tokens * setting.slots,
        "n_batch": setting.batch_tokens,
        "n_ubatch": setting.ubatch_tokens,
        "n_seq_max": setting.slots,
        "n_rs_seq": 0,
        "n_outputs_max": 0,
        "n_outputs_max_per_seq": 1,
        "n_threads": setting.threads,
        "n_threads_batch": setting.batch_threads,
        "ctx_type": 0,
        "rope_scaling_type": api.LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED,
        "pooling_type": api.LLAMA_POOLING_TYPE_NONE,
        "attention_type": api.LLAMA_ATTENTION_TYPE_CAUSAL,
        "flash_attn_type": int(setting.flash_attention),
        "rope_freq_base": 0.0,
        "rope_freq_scale": 0.0,
        "yarn_ext_factor": -1.0,
        "yarn_attn_factor": -1.0,
        "yarn_beta_fast": -1.0,
        "yarn_beta_slow": -1.0,
        "yarn_orig_ctx": 0,
        "defrag_thold": -1.0,
        "cb_eval": api.ggml_backend_sched_eval_callback(),
        "cb_eval_user_data": None,
        "type_k": _TYPES[setting.cache_type_k],
        "type_v": _TYPES[setting.cache_type_v],
        "abort_callback": api.ggml_abort_callback(),
        "abort_callback_data": None,
        "embeddings": False,
        "offload_kqv": setting.kv_offload,
        "no_perf": True,
        "op_offload": setting.op_offload,
        "swa_full": setting.swa_full,
        "kv_unified": False,
        "samplers": None,
        "n_samplers": 0,
        "ctx_other": None,
    }
    return _filled(api.llama_context_params(), fields)


def _filled(struct: ctypes.Structure, fields: dict[str, object]) -> ctypes.Structure:
    known = {field[0] for field in struct._fields_}
    if known != fields.keys():
        strange = ", ".join(f"`{name}`" for name in sorted(known ^ fields.keys()))
        raise EngineError(
            f"this llama-cpp-python has other parameters than qlock knows: {strange}",
            hint="install the version that qlock's extra `embedded` names",
        )
    for name, value in fields.items():
        setattr(struct, name, value)
    return struct
