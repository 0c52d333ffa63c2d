"""``traces``: the answers of a sealed run as traces, which a suite `kld` then holds other points against.

The prompts are rendered and tokenized again, with the model's vocabulary alone, and must come out as they are pinned. Of
an item that was answered in several turns each turn is a trace. Nothing is generated.

Does not live here: the file (``core.traces``), and scoring traces (``suites.kld``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import UNSET

from qlock.core.base import Count
from qlock.core.digest import Digest, blake3_of
from qlock.core.escape import for_message
from qlock.core.exchange import Complete, Completed
from qlock.core.gguf import describe
from qlock.core.lock import named
from qlock.core.plan import Job, jobs, prompts_of
from qlock.core.record import Record, Row
from qlock.core.traces import TRACES_VERSION, Header, Trace, write_traces
from qlock.core.verify import differences
from qlock.core.words import did_you_mean
from qlock.errors import AbsentError, IncompleteError, RefusedError, UsageError
from qlock.flows.asking import Asker, Question, Respondent
from qlock.flows.beside import build_folder, spec_of
from qlock.flows.headers import header_of
from qlock.flows.layout import project_of_run
from qlock.flows.look import look
from qlock.flows.opened import OpenRun, items_of, open_run, sitting_of
from qlock.flows.papers import asker
from qlock.flows.pinning import TEMPLATE_KEY
from qlock.flows.places import Places
from qlock.flows.proving import Opener
from qlock.flows.refusal import refuse
from qlock.flows.seat import Seat
from qlock.flows.vocabularies import Vocabularies
from qlock.flows.writing import check_output, write_file
from qlock.world.files import shown
from qlock.world.interface import World
from qlock.world.render import Renderer

_OURS = re.compile(rb'\{"traces_version":')


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks of ``traces``."""

    path: Path
    """Folder of a sealed run."""
    suite: str
    output: Path
    point: str = ""
    """Whose answers; the reference's when not given."""
    models: tuple[Path, ...] = ()
    engine: Path | None = None
    """Folder of the engine's libraries, where it is not as the spec beside the lock says."""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    output: Path
    job: str
    traces: Count
    answer_tokens: Count
    empty: Count
    """Answers without a token, which are no traces."""
    digest: Digest
    """Of the file."""


def traces(world: World, asked: Asked, open_engine: Opener) -> Taken:
    """Write the traces of one job of a run.

    Raises:
        UsageError: The run has no such suite or point, nothing is written in the suite, or something else is in the
            place of the output.
        IncompleteError: The run is not sealed.
        RefusedError: The run was forced: its answers need not be those of what the lock says.
        FindingsError: The model's files, or the prompts, are not as locked.
        AbsentError: The run is not there, or not in its project, or the folder to write in is not there.
        InputError: A file of the run was changed after the seal.
        EngineError: The engine could not tokenize.
    """
    run = open_run(world, asked.path)
    if run.seal is None:
        raise IncompleteError(f"the run `{run.name}` is not sealed", hint="run its lock again to go on")
    if run.seal.forced:
        raise RefusedError(
            f"the run `{run.name}` is marked: {', '.join(map(for_message, run.seal.forced))} may differ from its lock",
            hint="run its lock again without --allow",
        )
    job = _job(run, asked)
    check_output(world, asked.output, _OURS)
    if not asked.output.parent.is_dir():
        raise AbsentError(f"there is no folder `{shown(str(asked.output.parent))}`", hint="make it first")
    sitting_of(run, job)  # held against the seal
    record = run.folder.present_record(job.name)
    found = tuple(_taken(world, run, job, record, asked=asked, open_engine=open_engine))
    if not found:
        raise UsageError(f"nothing was written in `{job.name}`", hint="take a suite whose answers are text")
    data = write_traces(_header(run, job, record, traces=len(found)), found)
    write_file(world, asked.output, data)
    return Taken(
        output=asked.output,
        job=job.name,
        traces=len(found),
        answer_tokens=sum(len(trace.answer) for trace in found),
        empty=sum(1 for row in record.rows for reply in row.replies if _is_empty(reply)),
        digest=blake3_of(data),
    )


def _job(run: OpenRun, asked: Asked) -> Job:
    """The first repeat of what is asked for."""
    point = asked.point
    if not point:
        if run.lock.compare is UNSET:
            raise UsageError("nothing says which point is the reference", hint="give --point POINT")
        point = run.lock.compare.reference
    for what, name, known in (
        ("suite", asked.suite, [suite.name for suite in run.lock.suite]),
        ("point", point, list(run.points)),
    ):
        if name not in known:
            raise UsageError(
                f"got {what} `{for_message(name)}`, expected one of: {', '.join(known)}",
                hint=did_you_mean(name, known),
            )
    for job in jobs(run.lock):
        if (job.suite, job.point) == (asked.suite, point):
            return job
    raise UsageError(f"the point `{point}` does not sit the suite `{asked.suite}`")


def _project(run: OpenRun) -> Path:
    """Where the run's models and its spec are looked up."""
    found = project_of_run(run.folder.path, run.lock)
    if found is None:
        where = f"runs/{run.lock.name}@{run.lock.device[0].name}"
        raise AbsentError(
            f"the run lies in `{run.folder.path.parent}`, expected `{where}` of its project",
            hint=f"copy the run's folder into {where} of the project",
        )
    return found


def _header(run: OpenRun, job: Job, record: Record, *, traces: int) -> Header:
    point = named(run.lock.point, job.point)
    model = named(run.lock.model, point.model)
    assert record.closing is not None  # a sealed run has no open record
    assert model.tensors_digest is not UNSET  # nor was it run without
    return Header(
        traces_version=TRACES_VERSION,
        traces=traces,
        suite=job.suite,
        point=job.point,
        job_digest=job.digest,
        answers_digest=record.closing.answers_digest,
        tensors_digest=model.tensors_digest,
        tokenizer_digest=model.tokenizer_digest,
        template_digest=model.template_digest,
        prompts_digest=prompts_of(point, job.suite).tokens_digest,
        setting=named(run.lock.setting, point.setting),
    )


def _taken(
    world: World, run: OpenRun, job: Job, record: Record, *, asked: Asked, open_engine: Opener
) -> Iterator[Trace]:
    """Every trace of a job, in the order of its items."""
    point = named(run.lock.point, job.point)
    setting = named(run.lock.setting, point.setting)
    suite = named(run.lock.suite, job.suite)
    project = _project(run)
    # Of the suite only its chat template is needed: what was asked lies in the run.
    part = msgspec.structs.replace(
        run.lock,
        device=(),
        model=tuple(pin for pin in run.lock.model if pin.name == point.model),
        suite=(
            msgspec.structs.replace(
                suite, file=tuple(file for file in suite.file if file.key == TEMPLATE_KEY)
            ),
        ),
    )
    sight = look(world, part, Places(world, base=project, folders=asked.models))
    refuse(sight.findings)
    lock_path = project / "locks" / f"{run.folder.path.parent.name}.toml"
    build = asked.engine or build_folder(spec_of(world, lock_path, run.data), lock_path)
    header = header_of(world, Path(sight.weights[point.model][0]))
    template = describe(header).template
    with Vocabularies() as kept, Renderer() as renderer, Seat(lambda: open_engine(lib_folder=build)) as seat:
        vocabulary = seat.vocabulary(str(kept.path(kept.keep(header))))
        made = asker(
            Respondent(engine=seat, vocabulary=vocabulary, context_tokens=setting.context_tokens),
            renderer,
            sight.exams[0],
            model_template=template,
            frozen_date=run.lock.frozen_date,
        )
        questions = made.questions_of(items_of(run, job))
        where = f"point.{point.name}.prompts.{suite.name}"
        refuse(differences("prompts", where, prompts_of(point, suite.name), made.pin(questions)))
        rows = {row.item: row for row in record.rows}
        for question in questions:
            yield from _turns(made, question, rows[question.item.id])


def _turns(asker: Asker, question: Question, row: Row) -> Iterator[Trace]:
    """A trace for each turn of an item in which something was written."""
    item, prompt, turn = question.item, question.first.tokens, 0
    play = asker.play(item)
    next(play)
    for reply in row.replies:
        match reply:
            case Completed(tokens=tokens, ending=ending):
                turn += 1
                if tokens:
                    name = item.id if turn == 1 else f"{item.id}#{turn}"
                    yield Trace(id=name, slices=item.slices, prompt=prompt, answer=tokens, ending=ending)
            case _:
                pass
        try:
            request = play.send(reply)
        except StopIteration:
            return
        match request:
            case Complete():
                prompt = asker.work(item, request, repeat=1).tokens
            case _:
                pass


def _is_empty(reply: object) -> bool:
    match reply:
        case Completed(tokens=()):
            return True
        case _:
            return False
