"""What eight slots are worth against one, and whether two runs with eight give the same answers.

Run: ``python benchmarks/slots.py``. The small model in Q4_K_M sits an exam of 64 items, answers of up to 32 tokens;
runs with eight slots and with one take turns in one process. Printed: the wall time of each run (asking alone, and
with checks, loading and canaries), the ratio of the best times, and whether all runs with eight slots have one
``answers_digest``. Exit code 1 when they have not. Good: the digests are equal and the ratio is well above 1. With
one slot other bits come out than with eight (llama.cpp computes with other kernels), which is why the width is locked.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from project import locked, models, timed

from qlock.world.real import real_world

ITEMS = 64
TURNS = 2
SPEC = """\
spec_version = 1
name = "slots-{slots}"
[[model]]
name = "Q4_K_M"
source = "file:models/Q4_K_M.gguf"
[[setting]]
name = "plain"
context_tokens = 512
slots = {slots}
threads = 2
[[suite]]
name = "sums"
kind = "tasks"
items = "file:tasks/sums.jsonl"
[suite.sampling]
answer_tokens = 32
"""


def sums() -> str:
    """Sixty-four small sums, as an exam."""
    rows = [
        {
            "id": f"sum-{number:02}",
            "messages": [{"role": "user", "content": f"How much is {number} + {7 * number % 50}, and why?"}],
            "expected": number + 7 * number % 50,
            "grader": {"kind": "number"},
        }
        for number in range(ITEMS)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def main() -> int:
    """Exit code: 0 when every run with eight slots gave the same answers."""
    asking: dict[int, list[float]] = {8: [], 1: []}
    digests = set()
    with tempfile.TemporaryDirectory(prefix="qlock-benchmark-") as name:
        folder = Path(name)
        models(real_world(), folder, "Q4_K_M")
        (folder / "tasks").mkdir()
        (folder / "tasks/sums.jsonl").write_text(sums())
        locks = {slots: locked(folder, SPEC.format(slots=slots)) for slots in asking}
        for _ in range(TURNS):
            for slots, times in asking.items():
                result = timed(locks[slots])
                times.append(result.asking_s)
                if slots == 8:
                    digests.add(result.ran.answers_digest)
                print(f"slots = {slots}: asking {result.asking_s:.1f} s, whole run {result.wall_s:.1f} s")
    print(
        f"{ITEMS} items, Q4_K_M, 2 threads: 8 slots are {min(asking[1]) / min(asking[8]):.2f} times as fast as one "
        f"(best of {TURNS} each)"
    )
    print(f"{TURNS} runs with 8 slots: {len(digests)} different answers_digest, expected 1")
    return 0 if len(digests) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
