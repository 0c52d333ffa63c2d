"""Real GGUF files with random weights, small enough to make in a moment: llama.cpp loads them like any other.

The vocabulary is SentencePiece's kind: 256 byte tokens, so that any text can be written and characters of several
bytes are several tokens, and a few pieces. Same seed, same bytes.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import msgspec
import numpy as np
from numpy.typing import NDArray

UNKNOWN, BOS, EOS = 0, 1, 2
FIRST_BYTE = 3
Tensor = NDArray[np.float16] | NDArray[np.float32]

_PIECES = ("▁", "e", "t", "a", "o", "n", "th", "the", "▁the", "▁a", "is", "▁is", "er", "in", "▁in", "s")
VOCAB_TOKENS = FIRST_BYTE + 256 + len(_PIECES) + 45
"""A multiple of 32, so that every matrix can be quantized in blocks of 32."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a tiny model."""

    width: int = 64
    layers: int = 2
    heads: int = 2
    kv_heads: int = 1
    inner: int = 128
    experts: int = 0
    experts_used: int = 0
    context: int = 2048
    seed: int = 1


DENSE = Shape()
"""About 0.3 million weights."""

MIXTURE = Shape(width=256, heads=4, kv_heads=2, inner=256, experts=4, experts_used=2, seed=2)
"""About 2.3 million weights; rows of 256, so that K-quants apply."""


def byte_token(value: int) -> int:
    """The token of one byte."""
    return FIRST_BYTE + value


def write_tiny(path: Path, shape: Shape = DENSE, *, tensors_per_file: int = 0) -> Path:
    """Write a model of the ``llama`` architecture in F16; with ``tensors_per_file`` as shards beside ``path``."""
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=tensors_per_file)
    _write_sizes(writer, shape)
    _write_vocabulary(writer)
    for name, tensor in _tensors(shape).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_sizes(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_name("tiny")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_vocab_size(VOCAB_TOKENS)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.experts_used)


def _write_vocabulary(writer: gguf.GGUFWriter) -> None:
    kinds = gguf.TokenType
    words = [("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL)]
    words += [(f"<0x{value:02X}>", kinds.BYTE) for value in range(256)]
    words += [(piece, kinds.NORMAL) for piece in _PIECES]
    words += [(f"w{number}", kinds.NORMAL) for number in range(VOCAB_TOKENS - len(words))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([word for word, _ in words])
    writer.add_token_scores([-float(number) for number in range(len(words))])
    writer.add_token_types([int(kind) for _, kind in words])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_unk_token_id(UNKNOWN)
    writer.add_add_bos_token(True)


def _tensors(shape: Shape) -> dict[str, Tensor]:
    random = np.random.Generator(np.random.PCG64(shape.seed))

    def matrix(*sizes: int, scale: float = 1.0) -> NDArray[np.float16]:
        """Weights that keep the size of what passes through, ``scale`` times."""
        values: NDArray[np.float64] = random.standard_normal(sizes) * (scale / np.sqrt(sizes[-1]))
        return values.astype(np.float16)

    width, inner, experts = shape.width, shape.inner, shape.experts
    kv_width = width // shape.heads * shape.kv_heads
    ones = np.ones(width, dtype=np.float32)
    tensors: dict[str, Tensor] = {
        "token_embd.weight": matrix(VOCAB_TOKENS, width, scale=8.0),
        "output_norm.weight": ones,
        "output.weight": matrix(VOCAB_TOKENS, width, scale=2.0),
    }
    for layer in range(shape.layers):
        block: dict[str, Tensor] = {
            "attn_norm": ones,
            "attn_q": matrix(width, width),
            "attn_k": matrix(kv_width, width),
            "attn_v": matrix(kv_width, width),
            "attn_output": matrix(width, width),
            "ffn_norm": ones,
        }
        if experts:
            block["ffn_gate_inp"] = matrix(experts, width).astype(np.float32)
            block["ffn_gate_exps"] = matrix(experts, inner, width)
            block["ffn_down_exps"] = matrix(experts, width, inner)
            block["ffn_up_exps"] = matrix(experts, inner, width)
        else:
            block["ffn_gate"] = matrix(inner, width)
            block["ffn_down"] = matrix(width, inner)
            block["ffn_up"] = matrix(inner, width)
        tensors |= {f"blk.{layer}.{name}.weight": tensor for name, tensor in block.items()}
    return tensors
