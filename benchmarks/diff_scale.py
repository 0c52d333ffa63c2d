"""Time and memory of ``qlock diff`` on a large exam.

Run: ``python benchmarks/diff_scale.py [ITEMS]``. Two points of one run, 100,000 items each unless told otherwise, in 20
slices, each answer 60 tokens long and a hundred of them 1 MB; the run is written to a temporary folder and its seal is
checked as ever. Printed: processor time, wall time and peak memory of ``qlock diff`` in a process of its own for each
format, the size of the page, and, where there is a chromium, how long it takes to open it and lay it out. Exit code 1 when
any takes more than 30 s or 1 GB, or the page more than 3 s. The limit is one of processor time: on an idle machine the
wall time is hardly longer, on a busy one it says more of the others.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from written import of_points, write_run

from qlock.core.exchange import Completed, Outcome, Right, Wrong
from qlock.core.lock import Lock
from qlock.core.plan import Job
from qlock.core.record import Row, item_digest
from qlock.core.rules import NonInferior
from qlock.core.spec import CompareSpec
from tests.fakes.documents import a_lock, a_row, a_suite

SLICES, LONG = 20, 100
MOST_S, MOST_BYTES, MOST_OPENING_S = 30.0, 1_000_000_000, 3.0
FORMATS = ("text", "json", "html")
QUIET = [(os.POSIX_SPAWN_OPEN, out, os.devnull, os.O_WRONLY, 0) for out in (1, 2)]


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


class Cost(NamedTuple):
    """What a command took."""

    code: int
    wall_s: float
    processor_s: float
    most_bytes: int


def measured(*words: str) -> Cost:
    """The cost of a command of its own."""
    began = time.perf_counter()
    pid = os.posix_spawn(words[0], list(words), os.environ, file_actions=QUIET)
    _, status, usage = os.wait4(pid, 0)
    return Cost(
        code=os.waitstatus_to_exitcode(status),
        wall_s=time.perf_counter() - began,
        processor_s=usage.ru_utime + usage.ru_stime,
        most_bytes=usage.ru_maxrss * 1024,
    )


def is_opened_late(page: Path, place: Path) -> bool:
    """Whether a browser takes too long to open a page; what it takes to open an empty one does not count."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("there is no chromium here to open the page with")
        return False
    empty = place / "empty.html"
    empty.write_text("<!doctype html><title>empty</title>")
    words = (
        chromium,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={place / 'profile'}",
        "--dump-dom",
    )
    measured(*words, empty.as_uri())  # the first start makes the profile
    without, with_it = (measured(*words, one.as_uri()) for one in (empty, page))
    took_s = with_it.processor_s - without.processor_s
    wall_s = with_it.wall_s - without.wall_s
    print(
        f"opening it in chromium: {took_s:.1f} s of processor time, {wall_s:.1f} s, more than an empty page"
    )
    return took_s > MOST_OPENING_S


def main() -> int:
    items = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    is_over = False
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run = place / "run"
        write_run(run, a_large_lock(items), lambda job: answered(job, items))
        size = sum(path.stat().st_size for path in run.rglob("*.jsonl"))
        print(
            f"{items} items x 2 points, {SLICES} slices, {LONG} answers of 1 MB each side: {size / 1e6:.0f} MB"
        )
        for name in FORMATS:
            page = place / f"report.{name}"
            words = ("-m", "qlock", "diff", str(run), "--format", name, "--output", str(page))
            cost = measured(sys.executable, *words)
            assert cost.code in {0, 1}, f"qlock diff exited with {cost.code}"
            print(
                f"qlock diff --format {name}: {cost.processor_s:.1f} s of processor time, {cost.wall_s:.1f} s, "
                f"{cost.most_bytes / 1e6:.0f} MB of memory, {page.stat().st_size / 1e3:.0f} kB written",
                flush=True,
            )
            is_over |= cost.processor_s > MOST_S or cost.most_bytes > MOST_BYTES
        is_over |= is_opened_late(place / "report.html", place)
    return int(is_over)


if __name__ == "__main__":
    sys.exit(main())
