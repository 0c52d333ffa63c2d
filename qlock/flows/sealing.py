"""What makes a run folder whole: which jobs are open, segments, and the seal.

Does not live here: measuring (``flows.run``), taking over what others measured (``flows.taking_over``), the files
themselves (``flows.run_folder``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import UNSET

from qlock import __version__
from qlock.core.escape import for_shell
from qlock.core.lock import Lock
from qlock.core.plan import Job, models_of
from qlock.core.record import Record, Seal, SealedJob, run_answers_digest
from qlock.errors import InputError
from qlock.flows.device import locked_device
from qlock.flows.fitting import refuse_misfit
from qlock.flows.kept_base import base_of_job
from qlock.flows.loaded import LoadedFile, is_untouched, lies_untouched, model_places
from qlock.flows.run_folder import RunFolder
from qlock.flows.scores import write_grades
from qlock.flows.segments import FACTS_VERSION, EngineEnd, RunFacts, Segment, with_segment
from qlock.world.interface import World


def open_jobs(folder: RunFolder, lock: Lock, jobs: Iterable[Job]) -> dict[str, Job]:
    """Those of the jobs, by name, whose record has no closing line yet.

    Raises:
        InputError: A record is damaged, of another lock, or not one of its job, or has rows of a stretch that ``facts.json``
            lacks.
    """
    facts = folder.facts()
    forced = any(segment.forced for segment in facts.segment)
    found = {}
    for job in jobs:
        record = folder.record(job.name)
        if record is not None and record.header.job_digest != job.digest:
            raise InputError(
                f"the record of `{job.name}` belongs to another lock", hint="give another folder with --runs"
            )
        if record is not None:
            _check_segments(record, len(facts.segment))
            refuse_misfit(folder, lock, job, record, forced=forced)
        if record is None or record.closing is None:
            found[job.name] = job
    return found


def _check_segments(record: Record, segments: int) -> None:
    """Every row is of a stretch that is told of: what was seen and forced in it would be lost otherwise."""
    last = max((row.segment for row in record.rows), default=-1)
    if last >= segments:
        raise InputError(
            f"got {segments} segments, expected {last + 1} as `{record.header.job}` has rows of",
            hint="put the file back as it was, or give another folder with --runs",
        ).in_document("facts.json")


def set_doubtful_aside(
    folder: RunFolder, lock: Lock, jobs: Iterable[Job], loaded: tuple[LoadedFile, ...]
) -> bool:
    """Open the jobs again that may have been measured with other bytes than those that are locked.

    Rule 8 comes at the end of a stretch; one that was killed did not get there. Its rows are kept where the files
    that it loaded are the untouched ones of today, whose digests were just looked at, and taken out otherwise.

    Args:
        folder: The run.
        lock: What it runs.
        jobs: All that are done in this folder.
        loaded: The models' files of today.

    Returns:
        Whether anything was taken out.
    """
    now = {file.where: file for file in loaded}
    models = {model.name: model_places(model) for model in lock.model}
    facts = folder.facts()
    taken_out = False
    runs = folder.whole.parent
    for number, segment in enumerate(facts.segment):
        before = {} if segment.looked_again else {file.where: file for file in segment.loaded}
        for job in () if segment.looked_again else jobs:
            is_sure = job.name in segment.taken_over or (
                all(
                    where in before and where in now and is_untouched(before[where], now[where])
                    for model in models_of(lock, job)
                    for where in models[model]
                )
                and _is_base_untouched(lock, job, runs, before)
            )
            if not is_sure:
                taken_out = folder.set_aside(job.name, number) or taken_out
    if not all(segment.looked_again for segment in facts.segment):
        # Only after the doubtful rows are gone: a kill in between must not make them sure.
        segments = tuple(msgspec.structs.replace(segment, looked_again=True) for segment in facts.segment)
        folder.write_facts(msgspec.structs.replace(facts, segment=segments))
    return taken_out


def _is_base_untouched(lock: Lock, job: Job, runs: Path, before: Mapping[str, LoadedFile]) -> bool:
    """Whether the kept file that a job reads is still the one that it read."""
    base = base_of_job(lock, job, runs)
    return base is None or (base.place in before and lies_untouched(before[base.place], base.path))


def begin_segment(
    world: World,
    folder: RunFolder,
    lock: Lock,
    *,
    forced: tuple[str, ...],
    taken: dict[str, str],
    loaded: tuple[LoadedFile, ...],
) -> int:
    """Note that a stretch of running begins; gives its number."""
    before = folder.facts()
    here = world.host.surroundings()
    seen = locked_device(world, lock.device[0])
    segment = Segment(
        started_utc=world.clock.now().isoformat(timespec="seconds"),
        ended_utc="",
        host_name=here.host_name,
        boot_id=here.boot_id,
        kernel=here.kernel,
        python=here.python,
        qlock=__version__,
        engine_label="",
        engine_file=(),
        device=seen.device,
        gpu_uuid=seen.gpu_uuid,
        forced=tuple(sorted(forced)),
        taken_over=taken,
        loaded=loaded,
        looked_again=False,
    )
    folder.write_facts(RunFacts(facts_version=FACTS_VERSION, segment=(*before.segment, segment)))
    return len(before.segment)


def note_loaded(folder: RunFolder, number: int, file: LoadedFile) -> None:
    """Note that a stretch of running uses one more file, before anything is measured with it."""
    before = folder.facts()
    segment = before.segment[number]
    after = msgspec.structs.replace(segment, loaded=(*segment.loaded, file))
    folder.write_facts(with_segment(before, number, after))


def end_segment(
    world: World,
    folder: RunFolder,
    number: int,
    *,
    engine: EngineEnd,
    looked_again: bool,
) -> None:
    """Note when a stretch ended and which engine it had; a sealed run's facts stay as they are sealed."""
    if folder.seal() is not None:
        return
    folder.still_here()
    before = folder.facts()
    if number >= len(before.segment):
        raise InputError(f"got {len(before.segment)} segments, expected at least {number + 1}").in_document(
            "facts.json"
        )
    ended = msgspec.structs.replace(
        before.segment[number],
        ended_utc=world.clock.now().isoformat(timespec="seconds"),
        engine_label=engine.label,
        engine_file=engine.file,
        engine_log=engine.log,
        looked_again=looked_again,
    )
    folder.write_facts(with_segment(before, number, ended))


def seal_run(folder: RunFolder, lock: Lock, jobs: Iterable[Job], lock_bytes: bytes) -> Seal:
    """Grade every whole record and seal the folder; each of its jobs must be closed."""
    facts = folder.facts()
    sealed_jobs = []
    for job in jobs:
        record = folder.present_record(job.name)
        if record.closing is None:
            raise InputError("the closing line is gone").in_document(f"record/{job.name}.jsonl")
        if job.part is UNSET:
            write_grades(folder, lock, record)
        sealed_jobs.append(
            SealedJob(
                job=job.name,
                job_digest=job.digest,
                answers_digest=record.closing.answers_digest,
                items=record.closing.items,
                part=job.part,
                taken_from=_taken_from(record, facts),
            )
        )
    forced = {fact for segment in facts.segment for fact in segment.forced}
    return folder.write_seal(tuple(sealed_jobs), forced=tuple(sorted(forced)), lock_bytes=lock_bytes)


def _taken_from(record: Record, facts: RunFacts) -> str:
    """The run that a record was taken over from; empty when it was measured here.

    The rows of a record that is taken over carry the segment in which that was done.
    """
    _check_segments(record, len(facts.segment))
    return facts.segment[record.rows[0].segment].taken_over.get(record.header.job, "")


def refuse_broken(folder: RunFolder, seal: Seal) -> None:
    """Stop when a file of a run is not as it was sealed.

    Raises:
        InputError: Naming the first one.
    """
    sealed_as = {file.path: file.digest for file in seal.file}
    for file in folder.sealed_files():
        digest = sealed_as.pop(file.path, None)
        if digest != file.digest:
            raise _broken(folder, f"`{file.path}` is {'not sealed' if digest is None else 'another one'}")
    for name in sealed_as:
        raise _broken(folder, f"`{name}` is gone")
    if run_answers_digest(seal.job) != seal.answers_digest:
        raise _broken(folder, "its `answers_digest` does not follow from its jobs")


def _broken(folder: RunFolder, why: str) -> InputError:
    return InputError(
        f"the run in `{folder.path}` is not as it was sealed: {why}",
        hint=f"look at all of it with `qlock verify {for_shell(str(folder.path))}`",
    )
