"""Records of unfinished runs that were edited: none is gone on with, graded or sealed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from qlock.core.exchange import Completed, Diverge, Diverged, Failed, Reply, Scored
from qlock.core.lock import Lock
from qlock.core.plan import Job, jobs
from qlock.core.record import Closing, Header, Row, answers_digest, line_bytes
from qlock.errors import InputError
from qlock.flows import fitting as module
from qlock.flows.fitting import locked_items, misfits
from qlock.flows.locks import read_lock_file
from qlock.flows.preparing import Progress
from qlock.flows.run_folder import RunFolder, items_name
from tests.fakes.project import Project, folder_of, sealed

JOB = "digits.A@plain.1"
TEXT = "text.A@plain.1"
ANSWER = Completed(text="1", tokens=(49,), ending="eos", prompt_tokens=9)


class Killed(BaseException):
    """Stands for a kill: nothing in qlock catches it."""


@pytest.fixture
def folder(project: Project) -> RunFolder:
    """A run that was killed at the third item of model B: the jobs of A are closed."""
    stored = 0

    def talk(progress: Progress) -> None:
        nonlocal stored
        stored += progress.tokens > 0
        if stored > 13:
            raise Killed

    with pytest.raises(Killed):
        project.run(talk)
    (path,) = project.runs.iterdir()
    return RunFolder(project.world, path)


def rewrite(
    folder: RunFolder,
    job: str,
    edit: Callable[[Header, list[Row]], tuple[Header, list[Row]]],
    *,
    is_closed: bool = True,
) -> None:
    """Another record, with a closing line that fits it."""
    record = folder.record(job)
    assert record is not None
    header, rows = edit(record.header, list(record.rows))
    closing = Closing(items=len(rows), answers_digest=answers_digest(tuple(rows)))
    lines = (header, *rows, *([closing] if is_closed else []))
    folder.write(f"record/{job}.jsonl", b"".join(line_bytes(line) for line in lines))


def refusal(project: Project) -> tuple[str, str]:
    before = len(project.script.asked)
    with pytest.raises(InputError) as caught:
        project.run()
    assert len(project.script.asked) == before
    return str(caught.value), caught.value.hint


def of_header(**changes: object) -> Callable[[Header, list[Row]], tuple[Header, list[Row]]]:
    return lambda header, rows: (msgspec.structs.replace(header, **changes), rows)


def of_row(**changes: object) -> Callable[[Header, list[Row]], tuple[Header, list[Row]]]:
    return lambda header, rows: (header, [msgspec.structs.replace(rows[0], **changes), *rows[1:]])


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize(
    "edit, said",
    [
        (of_header(job="../../../../escaped"), f"header.job: got `../../../../escaped`, expected `{JOB}`"),
        (of_header(suite="text"), "header.suite: got `text`, expected `digits`"),
        (of_header(point="B@plain"), "header.point: got `B@plain`, expected `A@plain`"),
        (of_header(repeat=7), "header.repeat: got `7`, expected `1`"),
        (of_row(item="ghost"), "item: got `ghost`, expected `one that was asked`"),
        (of_row(slices={}), "q00.slices: got `{}`, expected `{'part': 'a'}`"),
        (
            of_row(replies=()),
            "q00.replies: got `0 replies, and the play goes on`, expected `what the suite asks for`",
        ),
        (
            of_row(replies=(ANSWER, ANSWER)),
            "q00.replies: got `2 replies to 1 requests`, expected `what the suite asks for`",
        ),
        (
            of_row(replies=(msgspec.structs.replace(ANSWER, tokens=(7, 258)),)),
            "q00.tokens: got `258`, expected `ids below the vocabulary's 258`",
        ),
        (
            of_row(replies=(Scored(nats=(1.0,)),)),
            "q00.replies: got `another reply at 1`, expected `what the suite asks for`",
        ),
    ],
)
def test_a_record_that_is_not_one_of_its_job_is_refused(
    project: Project,
    folder: RunFolder,
    edit: Callable[[Header, list[Row]], tuple[Header, list[Row]]],
    said: str,
    *,
    is_closed: bool,
) -> None:
    rewrite(folder, JOB, edit, is_closed=is_closed)
    assert refusal(project) == (f"record/{JOB}.jsonl: {said}", "")
    assert not list(project.path.parent.rglob("*escaped*"))


def test_an_item_digest_that_is_not_that_of_the_item_is_refused(project: Project, folder: RunFolder) -> None:
    record = folder.record(JOB)
    assert record is not None
    other = f"blake3:{'0' * 64}"
    rewrite(folder, JOB, of_row(item_digest=other))
    assert refusal(project)[0] == (
        f"record/{JOB}.jsonl: q00.item_digest: got `{other}`, expected `{record.rows[0].item_digest}`"
    )


def test_other_counts_of_items_and_of_costs_are_refused(project: Project, folder: RunFolder) -> None:
    record = folder.record(TEXT)
    assert record is not None
    rewrite(folder, TEXT, of_header(items=99), is_closed=False)
    assert refusal(project)[0] == f"record/{TEXT}.jsonl: header.items: got `99`, expected `3`"
    rewrite(folder, TEXT, of_header(items=3))
    rewrite(folder, TEXT, of_row(replies=(Scored(nats=(1.0,)),)))
    assert refusal(project)[0] == (
        f"record/{TEXT}.jsonl: window-0001.replies: got `another reply at 1`, expected `what the suite asks for`"
    )


def test_a_failed_row_may_be_redone_and_may_not_be_closed(project: Project, folder: RunFolder) -> None:
    lost: tuple[Reply, ...] = (Failed(why="hung"),)
    rewrite(folder, JOB, of_row(replies=lost))
    assert refusal(project)[0] == f"record/{JOB}.jsonl: q00.replies: got `none`, expected `an answer`"
    rewrite(folder, JOB, of_row(replies=lost), is_closed=False)
    project.script.asked.clear()
    sealed(project)
    assert project.script.asked[0] == "q00"


def the_job(project: Project) -> tuple[Lock, Job]:
    lock, _ = read_lock_file(project.world, project.lock_path)
    return lock, next(job for job in jobs(lock) if job.name == JOB)


def items_path(project: Project, folder: RunFolder) -> Path:
    return folder.path / items_name(locked_items(*the_job(project)))


def test_items_that_were_edited_are_refused(project: Project, folder: RunFolder) -> None:
    path = items_path(project, folder)
    path.write_bytes(path.read_bytes().replace(b'"expected":"0"', b'"expected":"1"', 1))
    assert refusal(project) == (
        f"items/{path.name}: the items are not those that were asked: the file was edited",
        "put it back as it was, or give another folder with --runs",
    )


def test_items_of_a_closed_job_that_went_are_named(project: Project, folder: RunFolder) -> None:
    path = items_path(project, folder)
    path.unlink()
    assert refusal(project) == (
        f"items/{path.name}: the items of `{JOB}` are gone",
        f"put the file back, or remove `record/{JOB}.jsonl` to have them asked again",
    )
    folder.record_path(JOB).unlink()
    ran = sealed(project)
    assert path.exists()
    assert folder_of(project, ran).path == folder.path


def test_rows_are_not_looked_at_where_items_are_not_known(project: Project, folder: RunFolder) -> None:
    lock, job = the_job(project)
    rewrite(folder, JOB, of_row(slices={"part": "z"}))
    record = folder.record(JOB)
    assert record is not None
    assert list(misfits(lock, job, record, None)) == []
    (one,) = misfits(lock, job, record, folder.items(locked_items(lock, job)))
    assert (one.what, one.found) == ("q00.slices", "{'part': 'z'}")


DIVERGED = Diverged(
    nats=(1.0, 2.0),
    reference_nats=(1.0, 2.0),
    kld_nats=(0.0, 0.0),
    reverse_kld_nats=(0.0, 0.0),
    same_top=(True, True),
    pieces=("a", "b"),
)


@pytest.mark.parametrize(
    "reply, pieces, fits",
    [
        (DIVERGED, True, True),
        (DIVERGED, False, False),
        (msgspec.structs.replace(DIVERGED, pieces=()), True, False),
        (msgspec.structs.replace(DIVERGED, pieces=()), False, True),
        *(
            (msgspec.structs.replace(DIVERGED, **{name: getattr(DIVERGED, name)[:1]}), True, False)
            for name in Diverged.__struct_fields__
            if name != "kld_slack_nats"
        ),
        (msgspec.structs.replace(DIVERGED, kld_slack_nats=(0.0, 0.5)), True, True),
        (msgspec.structs.replace(DIVERGED, kld_slack_nats=(0.5,)), True, False),
        (Scored(nats=(1.0, 2.0)), True, False),
    ],
)
def test_a_divergence_answers_with_as_many_numbers_as_there_are_scored_tokens(
    reply: Reply, *, pieces: bool, fits: bool
) -> None:
    request = Diverge(tokens=(1, 2, 3), score_from=1, pieces=pieces)
    assert module._answers(request, reply) is fits
