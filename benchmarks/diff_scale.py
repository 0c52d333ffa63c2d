"""Time and memory of ``qlock diff`` on a large exam.

Run: ``python benchmarks/diff_scale.py [ITEMS]``. Two points of one run, 100,000 items each unless told otherwise, in 20
slices, each answer 60 tokens long and a hundred of them 1 MB; the run is written to a temporary folder and its seal is
checked as ever. Printed: wall time, processor time and peak memory of ``qlock diff`` in a process of its own for each
format, the size of the page, and, where there is a chromium, how long it takes to open it and lay it out. Exit code 1 when
any takes more than 30 s or 1 GB, or the page more than 3 s, or when a command fails. The limits are of wall time; where
something else kept the processors visibly busy meanwhile, the time that the command itself used is taken instead, and said.
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
BUSY_SHARE = 0.15
"""Of all processors: what others may use of them before a wall time says more about the others."""


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
    others_s: float
    """Processor time that anything else on the machine used meanwhile."""

    @property
    def is_among_others(self) -> bool:
        """Whether others were so busy meanwhile that the wall time says little."""
        return self.others_s > BUSY_SHARE * self.wall_s * (os.cpu_count() or 1)

    @property
    def counted_s(self) -> float:
        """What is held against a limit."""
        return self.processor_s if self.is_among_others else self.wall_s

    @property
    def told(self) -> str:
        """Both times, and which of them counts where it is not the wall time."""
        times = f"{self.wall_s:.1f} s, {self.processor_s:.1f} s of processor time"
        if not self.is_among_others:
            return times
        return f"{times} (which counts: others used {self.others_s:.1f} s meanwhile)"


def busy_s() -> float:
    """Processor time that the machine has used so far, of all processors."""
    user, nice, system, _, _, irq, softirq = Path("/proc/stat").read_text().split()[1:8]
    return sum(map(int, (user, nice, system, irq, softirq))) / os.sysconf("SC_CLK_TCK")


def measured(*words: str, output: str = os.devnull) -> Cost:
    """The cost of a command of its own, what it prints going to a file."""
    written = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    quiet = [
        (os.POSIX_SPAWN_OPEN, 1, output, written, 0o600),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, written, 0),
    ]
    began, busy_before = time.perf_counter(), busy_s()
    pid = os.posix_spawn(words[0], list(words), os.environ, file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    processor_s = usage.ru_utime + usage.ru_stime
    return Cost(
        code=os.waitstatus_to_exitcode(status),
        wall_s=time.perf_counter() - began,
        processor_s=processor_s,
        most_bytes=usage.ru_maxrss * 1024,
        others_s=max(busy_s() - busy_before - processor_s, 0.0),
    )


def is_opened_late(page: Path, place: Path) -> bool:
    """Whether a browser fails or takes too long to open a page; what it takes to open an empty one does not count."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("there is no chromium here to open the page with")
        return False
    empty = place / "empty.html"
    empty.write_text("<!doctype html><title>empty</title>")
    dom = place / "dom.html"
    words = (
        chromium,
        "--headless",
        "--single-process",  # else the processor time of the process that lays the page out is not told
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={place / 'profile'}",
        "--dump-dom",
    )
    # The first start makes the profile.
    first, without, with_it = (
        measured(*words, one.as_uri(), output=str(dom)) for one in (empty, empty, page)
    )
    failed = [cost.code for cost in (first, without, with_it) if cost.code]
    if failed:
        print(f"chromium failed to open a page: it exited with {failed[0]}")
        return True
    if dom.stat().st_size < page.stat().st_size / 2:
        print(f"chromium did not read the whole page: it gave {dom.stat().st_size} bytes back")
        return True
    more = with_it._replace(
        wall_s=with_it.wall_s - without.wall_s, processor_s=with_it.processor_s - without.processor_s
    )
    print(f"opening it in chromium: {more.told}, more than an empty page")
    return more.counted_s > MOST_OPENING_S


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
            if cost.code not in {0, 1}:
                print(f"qlock diff --format {name} failed: it exited with {cost.code}")
                return 1
            print(
                f"qlock diff --format {name}: {cost.told}, "
                f"{cost.most_bytes / 1e6:.0f} MB of memory, {page.stat().st_size / 1e3:.0f} kB written",
                flush=True,
            )
            is_over |= cost.counted_s > MOST_S or cost.most_bytes > MOST_BYTES
        is_over |= is_opened_late(place / "report.html", place)
    return int(is_over)


if __name__ == "__main__":
    sys.exit(main())
