"""Time and memory of ``qlock diff`` on a large exam.

Run: ``python benchmarks/diff_scale.py [ITEMS]``. Two points of one run, 100,000 items each unless told otherwise, in
20 slices, each answer 60 tokens long and ten of them 1 MB; the run is written to a temporary folder and its seal
is checked as ever. Printed: wall time and peak memory of ``qlock diff`` in a process of its own for each format, and
the size of the page. Exit code 1 when any takes more than 30 s or 1 GB.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from written import of_points, write_run

from qlock.core.exchange import Completed, Outcome, Right, Wrong
from qlock.core.lock import Lock
from qlock.core.plan import Job
from qlock.core.record import Row, item_digest
from qlock.core.rules import NonInferior
from qlock.core.spec import CompareSpec
from tests.fakes.documents import a_lock, a_row, a_suite

SLICES, LONG = 20, 10
MOST_S, MOST_BYTES = 30.0, 1_000_000_000
FORMATS = ("text", "json", "html")


def a_large_lock(items: int) -> Lock:
    lock = a_lock(
        suite=(a_suite(repeats=1),),
        gate=(NonInferior(suite="orders", margin_share=0.01),),
        compare=CompareSpec(reference="F16@f16kv"),
    )
    return of_points(lock, {"F16": {"orders": items}, "Q4_K_M": {"orders": items}})


def answered(job: Job, items: int) -> Iterator[tuple[Row, Outcome]]:
    """Rows of a point: one answer in ten is not the other point's, and half of those are wrong."""
    same, own = random.Random(1), random.Random(job.point)
    for number in range(items):
        tokens = [same.randrange(32_000) for _ in range(60)]
        right = same.random() < 0.8
        if own.random() < 0.1:
            tokens[own.randrange(60) :] = [own.randrange(32_000) for _ in range(20)]
            right = own.random() < 0.5
        text = " ".join(map(str, tokens))
        if number < LONG:
            text, tokens = text * (1_000_000 // len(text)), tokens * 4_000
        item, slices = f"item-{number:06d}", {"part": f"{number % SLICES:02d}"}
        yield (
            a_row(
                item,
                item_digest=item_digest(item, slices, {"question": number}),
                slices=slices,
                replies=(Completed(text=text, tokens=tuple(tokens), ending="eos", prompt_tokens=100),),
            ),
            Right() if right else Wrong(why="got something else"),
        )


def measured(*words: str) -> tuple[int, float, int]:
    """Exit code, seconds and peak bytes of one command of its own."""
    began = time.perf_counter()
    pid = os.posix_spawn(sys.executable, [sys.executable, "-m", "qlock", *words], os.environ)
    _, status, usage = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), time.perf_counter() - began, usage.ru_maxrss * 1024


def main() -> int:
    items = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    worst = 0
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        write_run(run, a_large_lock(items), lambda job: answered(job, items))
        size = sum(path.stat().st_size for path in run.rglob("*.jsonl"))
        print(
            f"{items} items x 2 points, {SLICES} slices, {LONG} answers of 1 MB each side: {size / 1e6:.0f} MB"
        )
        for name in FORMATS:
            page = Path(place) / f"report.{name}"
            code, wall_s, most = measured("diff", str(run), "--format", name, "--output", str(page))
            assert code in {0, 1}, f"qlock diff exited with {code}"
            print(
                f"qlock diff --format {name}: {wall_s:.1f} s, {most / 1e6:.0f} MB of memory, "
                f"{page.stat().st_size / 1e3:.0f} kB written"
            )
            worst = max(worst, int(wall_s > MOST_S or most > MOST_BYTES))
    return worst


if __name__ == "__main__":
    sys.exit(main())
