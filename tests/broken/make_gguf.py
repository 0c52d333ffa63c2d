"""GGUF files packed byte by byte, whole ones and broken ones, without any GGUF library.

``BROKEN`` holds one file per failure, by its name. ``python -m tests.broken.make_gguf FOLDER`` writes them out, to
be tried on other programs.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from pathlib import Path

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", U64: "Q", I64: "q", F64: "d"}


def string(text: str | bytes) -> bytes:
    """Length and bytes."""
    content = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(content)) + content


def payload(type_id: int, value: str | bytes | float) -> bytes:
    """The bytes of one value; a bool is given as an int so that 7 can be written."""
    if isinstance(value, str | bytes):
        return string(value)
    return struct.pack("<" + ("B" if type_id == BOOL else _CODES[type_id]), value)


def kv(key: str | bytes, type_id: int, value: str | bytes | float) -> bytes:
    """One key with a single value."""
    return string(key) + struct.pack("<I", type_id) + payload(type_id, value)


def array(key: str | bytes, type_id: int, values: Sequence[str | bytes | float]) -> bytes:
    """One key with an array."""
    body = b"".join(payload(type_id, value) for value in values)
    return string(key) + struct.pack("<IIQ", ARRAY, type_id, len(values)) + body


def tensor(name: str | bytes, shape: tuple[int, ...], type_id: int = 0, offset: int = 0) -> bytes:
    """One row of the tensor table; type 0 is F32."""
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, type_id, offset)


def gguf(
    keys: list[bytes], tensors: list[bytes], data: bytes = b"", *, version: int = 3, alignment: int = 32
) -> bytes:
    """A whole file: ``data`` begins at the next multiple of ``alignment`` after the tensor table."""
    head = (
        b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)
    )
    return head + bytes(-len(head) % alignment) + data if tensors else head


def counted(tensors: int, keys: int, rest: bytes = b"") -> bytes:
    """A header that states counts, with whatever follows."""
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + rest


LLAMA = kv("general.architecture", STRING, "llama")
ROW = bytes(range(128))
"""Data of a tensor of 32 F32."""
WHOLE = gguf([LLAMA], [tensor("t", (32,))], ROW)
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 98362432\n"
BIG_ENDIAN = b"GGUF" + struct.pack(">IQQ", 3, 0, 1) + bytes(64)
NESTED = counted(0, 1, string("k") + struct.pack("<I", ARRAY) + struct.pack("<IQ", ARRAY, 1) * 5000)
ALIGNMENT = "general.alignment"


def _one(key: bytes, rest: bytes = b"") -> bytes:
    return counted(0, 1, key + rest)


def _array_of(type_id: int, count: int, rest: bytes = b"") -> bytes:
    return _one(string("k") + struct.pack("<IIQ", ARRAY, type_id, count) + rest)


def _two(first: bytes, second: bytes, data_bytes: int = 256) -> bytes:
    return gguf([LLAMA], [first, second], bytes(data_bytes))


BROKEN: dict[str, bytes] = {
    "empty": b"",
    "html": b"<!DOCTYPE html><html><head><title>404</title></head></html>",
    "lfs-pointer": POINTER,
    "magic-cut": b"GG",
    "version-cut": b"GGUF\x03\x00",
    "version-0": gguf([], [], version=0),
    "version-1": gguf([], [], version=1),
    "version-4": gguf([], [], version=4),
    "big-endian": BIG_ENDIAN,
    "counts-cut": WHOLE[:20],
    "key-count-2-63": counted(0, 2**63),
    "tensor-count-2-63": counted(2**63, 0),
    "many-keys": counted(0, 65_537, bytes(65_537 * 14)),
    "many-tensors": counted(131_073, 0, bytes(131_073 * 25)),
    "key-empty": gguf([kv("", STRING, "x")], []),
    "key-length-2-60": _one(struct.pack("<Q", 2**60) + b"x" * 10),
    "key-long": gguf([kv("k" * 65_536, U8, 1)], []),
    "key-no-utf8": gguf([kv(b"ab\xff", U8, 1)], []),
    "key-twice": gguf([LLAMA, kv("general.name", STRING, "a"), kv("general.name", STRING, "a")], []),
    "template-twice": gguf(
        [kv("tokenizer.chat_template", STRING, "A"), LLAMA, kv("tokenizer.chat_template", STRING, "B")], []
    ),
    "string-length-1-gib": _one(string("k") + struct.pack("<IQ", STRING, 2**30) + b"x"),
    "string-length-2-63": _one(string("k") + struct.pack("<IQ", STRING, 2**63) + b"x"),
    "string-no-utf8": gguf([LLAMA, kv("general.name", STRING, b"\xc3(")], []),
    "value-type-13": _one(string("k") + struct.pack("<I", 13) + bytes(8)),
    "element-type-13": _array_of(13, 1, bytes(8)),
    "array-nested": NESTED,
    "array-u8-2-40": _array_of(U8, 2**40, bytes(1000)),
    "array-u64-2-63": _array_of(U64, 2**63, bytes(1000)),
    "array-string-2-40": _array_of(STRING, 2**40, bytes(1000)),
    "array-string-inner-2-63": _array_of(STRING, 2, string("a") + struct.pack("<Q", 2**63)),
    "array-string-inner-2-64": _array_of(STRING, 3, struct.pack("<QQQ", 2**64 - 1, 1, 1)),
    "array-string-last": _array_of(STRING, 2, string("a") + struct.pack("<Q", 9) + b"x"),
    "bool-7": gguf([LLAMA, kv("tokenizer.ggml.add_bos_token", BOOL, 7)], []),
    "bool-array-7": gguf([array("k", BOOL, [0, 1, 7])], []),
    "alignment-0": gguf([kv(ALIGNMENT, U32, 0)], []),
    "alignment-3": gguf([kv(ALIGNMENT, U32, 3)], []),
    "alignment-2-30": gguf([kv(ALIGNMENT, U32, 2**30)], []),
    "alignment-string": gguf([kv(ALIGNMENT, STRING, "32")], []),
    "alignment-u64": gguf([kv(ALIGNMENT, U64, 32)], []),
    "alignment-array": gguf([array(ALIGNMENT, U32, [32])], []),
    "tensor-name-empty": gguf([LLAMA], [tensor("", (32,))], ROW),
    "tensor-name-nul": gguf([LLAMA], [tensor("a\0b", (32,))], ROW),
    "tensor-name-64": gguf([LLAMA], [tensor("n" * 64, (32,))], ROW),
    "tensor-name-no-utf8": gguf([LLAMA], [tensor(b"\xfe", (32,))], ROW),
    "tensor-twice": _two(tensor("t", (32,)), tensor("t", (32,), 0, 128)),
    "tensor-table-cut": WHOLE[:90],
    "dimensions-5": gguf([LLAMA], [tensor("t", (1, 1, 1, 1, 32))], ROW),
    "dims-overflow": gguf([LLAMA], [tensor("t", (2**32, 2**32))], ROW),
    "dims-wrap": gguf([LLAMA], [tensor("t", (2**22, 2**22, 2**20 + 1))], ROW),
    "dims-negative": gguf([LLAMA], [tensor("t", (2**64 - 1, 0))], ROW),
    "row-not-whole": gguf([LLAMA], [tensor("t", (100,), 12)], ROW),
    "row-scalar": gguf([LLAMA], [tensor("t", (), 2)], ROW),
    "offset-first": gguf([LLAMA], [tensor("t", (32,), 0, 32)], bytes(256)),
    "offset-overlap": _two(tensor("a", (32,)), tensor("b", (32,), 0, 64)),
    "offset-gap": _two(tensor("a", (32,)), tensor("b", (32,), 0, 160), 512),
    "offset-unpadded": _two(tensor("a", (3,)), tensor("b", (32,), 0, 12)),
    "offset-after-unknown": _two(tensor("a", (32,), 156), tensor("b", (32,), 0, 33)),
    "data-cut": WHOLE[:192],
    "data-missing": WHOLE[:100],
    "data-huge": gguf([LLAMA], [tensor("t", (2**50,))], ROW),
}


def main() -> None:
    """Write every broken file into the folder named on the command line."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in BROKEN.items():
        (folder / f"gguf.{name}.gguf").write_bytes(content)


if __name__ == "__main__":
    main()
