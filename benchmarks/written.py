"""Runs that nobody measured, for the other scripts: a lock, records, grades and the seal, as `qlock run` leaves them.

Run by itself it prints nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from qlock.core.canon import json_bytes  # noqa: E402  # the fakes lie at the root, which is no package
from qlock.core.digest import blake3_of  # noqa: E402
from qlock.core.exchange import Outcome  # noqa: E402
from qlock.core.lock import Lock, lock_digest  # noqa: E402
from qlock.core.plan import Job, jobs  # noqa: E402
from qlock.core.record import (  # noqa: E402
    Closing,
    Grade,
    GradeHeader,
    Row,
    Seal,
    SealedFile,
    SealedJob,
    answers_digest,
    line_bytes,
    run_answers_digest,
)
from qlock.flows.run_folder import header_of  # noqa: E402
from tests.fakes.documents import a_model, a_point, a_prompts, lock_bytes  # noqa: E402

Answers = Callable[[Job], Iterable[tuple[Row, Outcome]]]


def of_points(lock: Lock, points: dict[str, dict[str, int]]) -> Lock:
    """The lock with these points, named by their models, and how many items each is asked in each of its suites."""
    return msgspec.structs.replace(
        lock,
        model=tuple(a_model(name) for name in sorted(points)),
        point=tuple(
            a_point(name, prompts=tuple(a_prompts(suite, items=items) for suite, items in asked.items()))
            for name, asked in sorted(points.items())
        ),
        suite=tuple(
            msgspec.structs.replace(
                suite, points=tuple(f"{name}@f16kv" for name in sorted(points) if suite.name in points[name])
            )
            for suite in lock.suite
        ),
        anchor=(),
    )


def write_run(folder: Path, lock: Lock, answers: Answers) -> None:
    """A sealed run in which each job was answered and graded so."""
    for name in ("record", "grades"):
        (folder / name).mkdir(parents=True)
    data = lock_bytes(lock)
    (folder / "lock.toml").write_bytes(data)
    done = tuple(_write_job(folder, job, answers(job)) for job in jobs(lock))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    seal = Seal(
        seal_version=1,
        lock_digest=lock_digest(data),
        answers_digest=run_answers_digest(done),
        forced=(),
        job=done,
        file=tuple(
            SealedFile(path=path.relative_to(folder).as_posix(), digest=blake3_of(path.read_bytes()))
            for path in files
        ),
    )
    (folder / "seal.json").write_bytes(json_bytes(seal))


def _write_job(folder: Path, job: Job, answers: Iterable[tuple[Row, Outcome]]) -> SealedJob:
    rows, outcomes = zip(*answers, strict=True)
    closing = Closing(items=len(rows), answers_digest=answers_digest(rows))
    with (folder / f"record/{job.name}.jsonl").open("wb") as file:
        file.writelines(line_bytes(line) for line in (header_of(job, items=len(rows)), *rows, closing))
    header = GradeHeader(
        job=job.name, job_digest=job.digest, grade_version=1, answers_digest=closing.answers_digest
    )
    grades = (Grade(item=row.item, outcome=outcome) for row, outcome in zip(rows, outcomes, strict=True))
    with (folder / f"grades/{job.name}.jsonl").open("wb") as file:
        file.writelines(line_bytes(line) for line in (header, *grades))
    return SealedJob(
        job=job.name,
        job_digest=job.digest,
        answers_digest=closing.answers_digest,
        items=len(rows),
        taken_from="",
    )
