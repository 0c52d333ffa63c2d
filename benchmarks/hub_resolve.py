"""How long a sweep of 300 models on the Hub takes to lock, and how many bytes of them are read.

Run: ``python -m benchmarks.hub_resolve [ENTRIES]``. A Hub on loopback, in a process of its own, serves sparse files of
10 to 60 GB with headers of real size (vocabularies of 150,000 to 262,144 tokens with their merges; ten quants of a model
share one, and so do several models) and answers each request after 50 ms; qlock keeps at most 8 connections. The prompts
of an exam of 200 conversations are rendered and tokenized by the embedded engine, from the headers alone.

Printed: seconds and share of the bytes of a first resolve, seconds and requests of a second one with nothing changed,
seconds of one with a second exam, the lock's size, and the lines of its diff after one file was uploaded again with
another template and let move. Good: under 60 s, under 0.2 %, under 10 s; else the exit code is 1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qlock.engines.llama_cpp_python import open_engine
from qlock.flows.moving import text_difference
from qlock.flows.resolve import Asked, Resolved, resolve
from qlock.world.real import real_world

if TYPE_CHECKING:
    from tests.fakes.hub import FakeHub
    from tests.fakes.repositories import Content

ROOT = Path(__file__).resolve().parent.parent
ENTRIES = 300
QUANTS = ("Q2_K", "Q3_K_M", "IQ4_XS", "Q4_0", "Q4_K_S", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "UD-Q4_K_XL")
TOKENS = (150_000, 128_000, 152_064, 200_064, 262_144, 32_000)
"""Of the vocabularies; models take them in turn."""
ITEMS = 200
ROUND_TRIP_S = 0.05
MOST_S, MOST_SHARE, MOST_AGAIN_S = 60.0, 0.002, 10.0
F32_BYTES = 4
BYTES = [chr(code) for code in (*range(33, 127), *range(0x100, 0x120), 0x120)]
"""Letters as a BPE vocabulary writes them, the space and control characters moved up."""
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{# "
    + "as long as others are " * 200
    + "#}"
)


def header(size_gb: int, template: str, tokens: int) -> Content:
    """A sparse model whose header is as long as a real one's."""
    from tests.broken.make_gguf import I32, STRING, U32, array, gguf, kv, tensor
    from tests.fakes.repositories import Content

    tensors, place = [], 0
    elements = size_gb * 10**9 // (300 * F32_BYTES) // 256 * 256
    for number in range(300):
        tensors.append(tensor(f"blk.{number}.ffn_down.weight", (256, elements // 256), 0, place))
        place += elements * F32_BYTES
    fields = [
        kv("general.architecture", STRING, "llama"),
        kv("llama.context_length", U32, 131_072),
        kv("tokenizer.ggml.model", STRING, "gpt2"),
        kv("tokenizer.ggml.pre", STRING, "llama-bpe"),
        array(
            "tokenizer.ggml.tokens",
            STRING,
            [*BYTES, *(f"token{number}" for number in range(tokens - len(BYTES)))],
        ),
        array("tokenizer.ggml.token_type", I32, [1] * tokens),
        array("tokenizer.ggml.merges", STRING, [f"to ken{number}" for number in range(tokens)]),
        kv("tokenizer.chat_template", STRING, template),
    ]
    head = gguf(fields, tensors)
    return Content(head=head, size=len(head) + place, digest=f"{size_gb:064x}")


def serve(entries: int) -> None:
    """Be the Hub: tell the address, then counts for each line that comes in, until there is none."""
    from tests.fakes.hub import served

    sizes = [[header(size_gb, TEMPLATE, tokens) for size_gb in (10, 20, 40, 60)] for tokens in TOKENS]
    changed = header(10, TEMPLATE + "assistant:", TOKENS[0])
    with served() as hub:
        hub.trouble.delay_s = ROUND_TRIP_S
        for number in range(0, entries, len(QUANTS)):
            files = {
                f"m-{quant}.gguf": replace(
                    sizes[number // len(QUANTS) % len(TOKENS)][(number + index) % 4],
                    digest=f"{number + index + 1:064x}",
                )
                for index, quant in enumerate(QUANTS)
            }
            hub.repository(f"publisher/model-{number}").commit(files)
        total = sum(
            one.size for found in hub.repositories.values() for one in found.commits[0].files.values()
        )
        print(hub.endpoint, total, flush=True)
        for order in sys.stdin:
            if order == "reupload\n":
                fixed = replace(changed, digest="f" * 64)
                hub.repository("publisher/model-0").commit({"m-Q2_K.gguf": fixed})
            print(json.dumps(counts(hub)), flush=True)


def counts(hub: FakeHub) -> dict[str, int]:
    """Requests and bytes since the last time."""
    with hub.lock:
        told = {"requests": len(hub.seen), "bytes": hub.bytes_sent}
        hub.seen.clear()
        hub.bytes_sent = 0
    return told


def timed(spec: Path, *upgrade: str) -> tuple[Resolved, float]:
    """A resolve, written, and its seconds."""
    start = time.perf_counter()
    found = resolve(real_world(), Asked(spec_path=spec, upgrade=upgrade), open_engine)
    seconds = time.perf_counter() - start
    assert not found.moves, found.moves
    found.path.parent.mkdir(exist_ok=True)
    found.path.write_bytes(found.data)
    return found, seconds


def spec_in(folder: Path, entries: int) -> Path:
    """A sweep of so many models with a small exam."""
    models = "".join(
        f'[[model]]\nname = "m{number}"\n'
        f'source = "hub:publisher/model-{number - number % len(QUANTS)}:{QUANTS[number % len(QUANTS)]}"\n\n'
        for number in range(entries)
    )
    rows = [
        {
            "id": f"q{number}",
            "messages": [{"role": "user", "content": f"{number} and {number} is " * 20}],
            "expected": str(2 * number),
            "grader": {"kind": "exact"},
        }
        for number in range(ITEMS)
    ]
    (folder / "specs").mkdir()
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "specs" / "sweep.toml"
    path.write_text(
        f'spec_version = 1\nname = "sweep"\n\n{models}[[setting]]\nname = "s"\n\n'
        '[[suite]]\nname = "exam"\nkind = "tasks"\nitems = "file:tasks.jsonl"\n'
    )
    return path


SECOND = '\n[[suite]]\nname = "other"\nkind = "tasks"\nitems = "file:tasks.jsonl"\nlimit = 20\n'


def missing(found: Resolved) -> int:
    """Points whose prompts are not pinned."""
    return sum(entry.pin.endswith(".prompts") for entry in found.lock.missing)


def main() -> int:
    """Exit code: 0 when all figures are good."""
    entries = int(sys.argv[1]) if len(sys.argv) > 1 else ENTRIES
    entries -= entries % len(QUANTS)
    command = [sys.executable, "-m", "benchmarks.hub_resolve", "--serve", str(entries)]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as hub,
    ):
        assert hub.stdin is not None
        assert hub.stdout is not None

        def told(order: str) -> dict[str, int]:
            assert hub.stdin is not None
            assert hub.stdout is not None
            print(order, file=hub.stdin, flush=True)
            answer: dict[str, int] = json.loads(hub.stdout.readline())
            return answer

        endpoint, total = hub.stdout.readline().split()
        os.environ |= {"HF_ENDPOINT": endpoint, "HF_HOME": folder, "QLOCK_CACHE": folder}
        spec = spec_in(Path(folder), entries)
        first, first_s = timed(spec)
        read = told("count")
        share = read["bytes"] / int(total)
        print(
            f"{entries} models of {int(total) / 1e12:.1f} TB: resolved in {first_s:.1f} s, {read['requests']} requests, "
            f"{read['bytes'] / 1e6:.0f} MB read ({100 * share:.4f} %)"
        )
        _, again_s = timed(spec)
        print(f"again with nothing changed: {again_s:.1f} s, {told('count')['requests']} requests")
        spec.write_text(spec.read_text() + SECOND)
        _, more_s = timed(spec)
        read = told("count")
        print(
            f"with a second exam: {more_s:.1f} s, {read['requests']} requests, {read['bytes'] / 1e6:.0f} MB read; "
            f"{missing(first)} prompts missing"
        )
        told("reupload")
        kept, _ = timed(spec)
        moved, moved_s = timed(spec, "m0")
        shown = text_difference(kept.data, moved.data, name="the lock").split("\n")[2:]
        lines = [line for line in shown if line.startswith(("-", "+"))]
        print(f"one file uploaded again: {len(kept.notes)} notes, upgraded in {moved_s:.1f} s")
        print(
            f"lock: {len(first.data) / 1e3:.0f} kB, {len(kept.data) / 1e3:.0f} kB with two exams; diff of that upgrade: {len(lines)} lines"
        )
        print("\n".join(lines))
        hub.stdin.close()
    good = first_s < MOST_S and share < MOST_SHARE and again_s < MOST_AGAIN_S
    return 0 if good else 1


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve(int(sys.argv[-1]))
    else:
        sys.exit(main())
