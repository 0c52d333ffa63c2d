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

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from qlock.core.canon import json_bytes  # noqa: E402  # the fakes lie at the root, which is no package
from qlock.core.exchange import Completed, Outcome, Right, Wrong  # noqa: E402
from qlock.core.lock import Lock, lock_digest  # noqa: E402
from qlock.core.plan import Job, jobs  # noqa: E402
from qlock.core.record import (  # noqa: E402
    Closing,
    Grade,
    GradeHeader,
    Header,
    Row,
    Seal,
    SealedJob,
    Times,
    answers_digest,
    item_digest,
    line_bytes,
    run_answers_digest,
    sealed,
)
from qlock.core.spec import CompareSpec, GateSpec  # noqa: E402
from tests.fakes.documents import a_lock, a_suite, lock_bytes  # noqa: E402

SLICES, LONG = 20, 10
MOST_S, MOST_BYTES = 30.0, 1_000_000_000
FORMATS = ("text", "json", "html")


def a_large_lock(items: int) -> Lock:
    lock = a_lock(
        suite=(a_suite(repeats=1),),
        gate=(GateSpec(suite="orders", rule="non-inferior", margin_share=0.01),),
        compare=CompareSpec(reference="F16@f16kv"),
    )
    points = []
    for point in lock.point:
        prompts = [one for one in point.prompts or () if one.suite == "orders"]
        points.append(
            msgspec.structs.replace(point, prompts=(msgspec.structs.replace(prompts[0], items=items),))
        )
    return msgspec.structs.replace(lock, point=tuple(points), anchor=())


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
            Row(
                item=item,
                item_digest=item_digest(item, slices, {"question": number}),
                slices=slices,
                replies=(Completed(text=text, tokens=tuple(tokens), ending="eos", prompt_tokens=100),),
                times=Times(prefill_s=0.1, decode_s=0.5),
                segment=0,
            ),
            Right() if right else Wrong(why="got something else"),
        )


def write_job(folder: Path, job: Job, items: int) -> SealedJob:
    rows, outcomes = zip(*answered(job, items), strict=True)
    closing = Closing(items=items, answers_digest=answers_digest(rows))
    header = Header(
        record_version=1,
        job=job.name,
        job_digest=job.digest,
        suite=job.suite,
        point=job.point,
        repeat=job.repeat,
        items=items,
    )
    with (folder / f"record/{job.name}.jsonl").open("wb") as file:
        file.writelines(line_bytes(line) for line in (header, *rows, closing))
    graded = GradeHeader(
        job=job.name, job_digest=job.digest, grade_version=1, answers_digest=closing.answers_digest
    )
    grades = (Grade(item=row.item, outcome=outcome) for row, outcome in zip(rows, outcomes, strict=True))
    with (folder / f"grades/{job.name}.jsonl").open("wb") as file:
        file.writelines(line_bytes(line) for line in (graded, *grades))
    return SealedJob(
        job=job.name,
        job_digest=job.digest,
        answers_digest=closing.answers_digest,
        items=items,
        taken_from="",
    )


def write_run(folder: Path, items: int) -> None:
    lock = a_large_lock(items)
    for name in ("record", "grades"):
        (folder / name).mkdir(parents=True)
    data = lock_bytes(lock)
    (folder / "lock.toml").write_bytes(data)
    done = tuple(write_job(folder, job, items) for job in jobs(lock))
    files = sorted(path for path in folder.rglob("*.jsonl"))
    seal = Seal(
        seal_version=1,
        lock_digest=lock_digest(data),
        answers_digest=run_answers_digest(done),
        forced=(),
        job=done,
        file=tuple(sealed(path.relative_to(folder).as_posix(), path.read_bytes()) for path in files),
    )
    (folder / "seal.json").write_bytes(json_bytes(seal))


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
        write_run(run, items)
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
