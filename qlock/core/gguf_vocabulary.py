"""A header cut down to its vocabulary: a GGUF of a few keys and no tensors, which llama.cpp loads ``vocab_only``.

Texts become the same token ids under it as under the whole model. Left out is what no tokenizer looks at and what
differs between quants of one model, so that quants of one model share a vocabulary: labels, quantization, the cut into
shards, and chat templates, which qlock renders itself.

Source: llama.cpp b11434, ``llama_model_base::load_hparams`` and ``llama_vocab::impl::load``: of ``general.`` they look
at the architecture and the name.

Does not live here: reading a header (``core.gguf_reader``) and loading one (``engines``).
"""

from __future__ import annotations

import struct

from qlock.core.digest import Digest, digest_of
from qlock.core.gguf_digests import is_template
from qlock.core.gguf_header import ARRAY, STRING, Header

_KEPT = ("general.architecture", "general.name")
_LEFT_OUT = ("general.", "quantize.", "split.")


def vocabulary_digest(header: Header) -> Digest:
    """Digest of all that a vocabulary may depend on: equal digests, equal token ids."""
    return digest_of("vocabulary", [header.row(key) for key in _keys(header)])


def vocabulary_file(header: Header) -> bytes:
    """The bytes of a GGUF that holds these keys alone, in their order by name."""
    keys = _keys(header)
    head = b"GGUF" + struct.pack("<IQQ", header.version, 0, len(keys))
    return head + b"".join(_row(header, key) for key in keys)


def _keys(header: Header) -> list[str]:
    return [
        key
        for key in sorted(header.values)
        if key in _KEPT or not (key.startswith(_LEFT_OUT) or is_template(key))
    ]


def _row(header: Header, key: str) -> bytes:
    span = header.values[key]
    name = key.encode()
    kind = struct.pack("<I", span.type_id)
    if span.type_id == ARRAY:
        kind += struct.pack("<IQ", span.element_type_id, span.count)
    elif span.type_id == STRING:
        kind += struct.pack("<Q", span.end - span.start)
    return struct.pack("<Q", len(name)) + name + kind + header.raw[span.start : span.end]
