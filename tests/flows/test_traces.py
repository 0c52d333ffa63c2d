"""Traces of a run: the very tokens that were asked and answered, and what is no ground for any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qlock.core.exchange import Complete, Completed, Failed, Raw
from qlock.core.lock import read_lock
from qlock.core.traces import read_traces
from qlock.engines.interface import Broken, Generate
from qlock.errors import AbsentError, IncompleteError, InputError, RefusedError, UsageError
from qlock.flows import traces
from qlock.flows.refusal import FindingsError
from qlock.suites import tasks
from qlock.suites.interface import Answer, Item, Play
from tests.fakes.kld import add_kld
from tests.fakes.project import Project, folder_of, sealed, tiny_gguf


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = add_kld(Project(tmp_path))
    made.lock()
    return made


def take(project: Project, *, suite: str = "digits", **asked: Any) -> traces.Taken:
    order = traces.Asked(
        path=asked.pop("path", None) or project.runs,
        suite=suite,
        output=project.path / "data/traces.jsonl",
        **asked,
    )
    return traces.traces(project.world, order, project.script.open_engine)


def refused(project: Project, kind: type[Exception] = UsageError, **asked: Any) -> str:
    with pytest.raises(kind) as caught:
        take(project, **asked)
    return str(caught.value)


def test_a_trace_is_what_was_asked_and_what_was_answered(project: Project) -> None:
    ran = sealed(project)
    asked = {work.id: work.tokens for work in project.script.work[:8] if isinstance(work, Generate)}
    record = folder_of(project, ran).present_record("digits.A@plain.1")
    project.script.loads.clear()
    taken = take(project)
    assert (taken.job, taken.traces, taken.answer_tokens, taken.empty) == ("digits.A@plain.1", 8, 8, 0)
    assert project.script.loads == []  # a vocabulary is enough
    read = read_traces(taken.output.read_bytes())
    assert {trace.id: trace.prompt for trace in read.trace} == asked
    answers = {row.item: row.replies[0] for row in record.rows}
    for trace in read.trace:
        reply = answers[trace.id]
        assert isinstance(reply, Completed)
        assert (trace.answer, trace.ending) == (reply.tokens, reply.ending)
    assert read.trace[0].slices == {"part": "a"}


def test_the_header_says_whose_answers_these_are(project: Project) -> None:
    ran = sealed(project)
    lock = read_lock(project.lock_path.read_bytes(), name="x")
    header = read_traces(take(project).output.read_bytes()).header
    record = folder_of(project, ran).present_record("digits.A@plain.1")
    assert record.closing is not None
    assert (header.traces, header.suite, header.point) == (8, "digits", "A@plain")
    assert header.job_digest == record.header.job_digest
    assert header.answers_digest == record.closing.answers_digest
    model = lock.model[0]
    assert (header.tensors_digest, header.tokenizer_digest, header.template_digest) == (
        model.tensors_digest,
        model.tokenizer_digest,
        model.template_digest,
    )
    prompts = next(prompts for prompts in lock.point[0].prompts or () if prompts.suite == "digits")
    assert header.prompts_digest == prompts.tokens_digest
    assert header.setting == lock.setting[0]


def test_another_point_may_be_asked_for(project: Project) -> None:
    sealed(project)
    assert take(project, point="B@plain").job == "digits.B@plain.1"


def test_an_empty_answer_is_no_trace(project: Project) -> None:
    project.script.replies["q00"] = ""
    sealed(project)
    taken = take(project)
    assert (taken.traces, taken.empty) == (7, 1)
    assert "q00" not in {trace.id for trace in read_traces(taken.output.read_bytes()).trace}


def test_a_run_on_traces_scores_what_was_answered(project: Project) -> None:
    sealed(project)
    take(project)
    add_kld(project, traces=(project.path / "data/traces.jsonl").read_bytes())
    assert project.lock(upgrade=("distance",)).moves == ()
    ran = sealed(project)
    record = folder_of(project, ran).present_record("distance.B@plain.1")
    assert [row.item for row in record.rows] == [f"q{number:02d}" for number in range(8)]


def test_an_answer_that_was_edited_is_refused_at_resolve(project: Project) -> None:
    sealed(project)
    taken = take(project)
    edited = taken.output.read_bytes().replace(b'"answer":[', b'"answer":[9')
    add_kld(project, traces=edited)
    with pytest.raises(InputError) as caught:
        project.lock(upgrade=("distance",))
    assert str(caught.value) == (
        "data/traces.jsonl: the file was changed after it was written: its last line is the digest of other ones"
    )


def test_what_cannot_be_meant_is_named(project: Project) -> None:
    sealed(project)
    assert refused(project, suite="x") == "got suite `x`, expected one of: digits, distance, text"
    with pytest.raises(UsageError) as caught:
        take(project, point="B")
    assert caught.value.hint == "did you mean `B@plain`?"
    assert refused(project, point="x") == "got point `x`, expected one of: A@plain, B@plain"
    assert refused(project, suite="text") == "nothing was written in `text.A@plain.1`"
    assert refused(project, suite="distance") == "nothing was written in `distance.A@plain.1`"


def test_a_run_that_names_no_reference_needs_a_point(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    sealed(project)
    assert refused(project) == "nothing says which point is the reference"
    assert take(project, point="A@plain").traces == 8


def test_a_run_that_is_not_whole_gives_none(project: Project) -> None:
    project.script.replies["q03"] = Broken(id="q03", why="no")
    assert project.run().state == "incomplete"
    assert refused(project, IncompleteError).endswith("is not sealed")


def test_a_run_that_was_forced_gives_none(project: Project) -> None:
    fact = "device.cpu-amd-1a-02.cpu_model"
    assert project.run(allow=(fact,)).state == "sealed"
    assert refused(project, RefusedError) == (
        f"the run `{project.lock_path.stem}/{next(project.runs.iterdir()).name}` is marked: "
        "device.cpu-amd-1a-02.cpu_model may differ from its lock"
    )


@pytest.mark.parametrize("depth", ["", "far/away/from/here"])
def test_a_run_that_lies_outside_of_its_project_gives_none(project: Project, depth: str) -> None:
    elsewhere = project.path.parent / depth / "elsewhere"
    assert project.run(runs=elsewhere).state == "sealed"
    where = f"runs/{project.lock_path.stem}"
    assert refused(project, AbsentError, path=next(elsewhere.iterdir())) == (
        f"the run lies in `{elsewhere}`, expected `{where}` of its project"
    )


def test_a_record_that_was_changed_gives_none(project: Project) -> None:
    ran = sealed(project)
    assert ran.folder is not None
    path = ran.folder / "record/digits.A@plain.1.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"prefill_s":0.25', b'"prefill_s":0.75', 1))
    assert "record/digits.A@plain.1.jsonl" in refused(project, InputError)


def test_another_model_under_the_name_gives_none(project: Project) -> None:
    sealed(project)
    project.write("models/a.gguf", tiny_gguf(9))
    assert "model.A.file.a.gguf" in refused(project, FindingsError)


def test_an_item_of_two_turns_gives_two_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def two_turns(item: Item, params: object) -> Play:
        for turn in range(2):
            match (yield Complete(prompt=Raw(text=f"{item.id} turn {turn}"))):
                case Failed(why=why):
                    return Answer(failed=why)
                case _:
                    pass
        return Answer(text="done")

    monkeypatch.setattr(tasks, "ask", two_turns)
    monkeypatch.setattr(tasks, "trials", lambda *_: ())
    project = add_kld(Project(tmp_path))
    project.lock()
    sealed(project)
    read = read_traces(take(project).output.read_bytes())
    assert [trace.id for trace in read.trace[:3]] == ["q00", "q00#2", "q01"]
    assert bytes(read.trace[1].prompt[1:]) == b"q00 turn 1"
