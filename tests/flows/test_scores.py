from __future__ import annotations

import msgspec
import pytest

from qlock.core.exchange import Right, Wrong
from qlock.core.record import Row
from qlock.errors import InputError
from qlock.flows.grading import Score
from qlock.flows.locks import read_lock_file
from qlock.flows.scores import JobScore, grades_of, job_scores, score_of, write_grades
from tests.fakes.engine import Script
from tests.fakes.project import Project, folder_of, sealed


def rightly(script: Script, *numbers: int) -> None:
    for number in numbers:
        script.replies[f"q{number:02d}"] = str(number % 10)


def test_grades_are_worked_out_from_the_record_and_the_items(project: Project) -> None:
    rightly(project.script, 0, 1, 2)
    project.script.replies |= {f"q{number:02d}": "x" for number in range(3, 8)}
    folder = folder_of(project, sealed(project))
    lock, _ = read_lock_file(project.world, project.lock_path)
    record = folder.record("digits.A@plain.1")
    assert record is not None
    grades = grades_of(folder, lock, record)
    assert [grade.outcome for grade in grades] == [Right()] * 3 + [
        Wrong(why=f"got `x`, expected `{number}`") for number in range(3, 8)
    ]
    assert folder.grades("digits.A@plain.1")[1] == grades
    assert score_of(folder, lock, record) == Score(what="right_share", value=0.375, items=8, left_out=0)


def test_grades_can_be_written_anew_without_an_engine(project: Project) -> None:
    folder = folder_of(project, sealed(project))
    lock, _ = read_lock_file(project.world, project.lock_path)
    record = folder.record("text.B@plain.1")
    assert record is not None
    before = (folder.path / "grades/text.B@plain.1.jsonl").read_bytes()
    (folder.path / "grades/text.B@plain.1.jsonl").unlink()
    write_grades(folder, lock, record)
    assert (folder.path / "grades/text.B@plain.1.jsonl").read_bytes() == before


def test_items_that_are_not_those_of_the_rows_are_not_graded(project: Project) -> None:
    folder = folder_of(project, sealed(project))
    lock, _ = read_lock_file(project.world, project.lock_path)
    record = folder.record("digits.A@plain.1")
    assert record is not None
    path = next(path for path in (folder.path / "items").iterdir() if b'"q00"' in path.read_bytes())
    path.write_bytes(path.read_bytes().replace(b'"expected":"0"', b'"expected":"1"', 1))
    with pytest.raises(InputError) as caught:
        grades_of(folder, lock, record)
    assert str(caught.value) == (
        f"items/{path.name}: the item `q00` is not the one that `digits.A@plain.1` answers"
    )


def test_jobs_without_grades_or_without_a_score_have_none(project: Project) -> None:
    folder = folder_of(project, sealed(project))
    lock, _ = read_lock_file(project.world, project.lock_path)
    assert len(list(job_scores(folder, lock))) == 4
    (folder.path / "grades/digits.A@plain.1.jsonl").unlink()
    text = folder.record("text.A@plain.1")
    assert text is not None

    def broken(row: Row) -> Row:
        return msgspec.structs.replace(row, replies=())

    rows = (broken(text.rows[0]), *text.rows[1:])
    write_grades(folder, lock, msgspec.structs.replace(text, rows=rows))
    assert [score.job for score in job_scores(folder, lock)] == ["digits.B@plain.1", "text.B@plain.1"]


def test_a_score_says_of_which_job_it_is(project: Project) -> None:
    rightly(project.script, *range(8))
    (first, *_) = sealed(project).scores
    assert first == JobScore(
        job="digits.A@plain.1",
        suite="digits",
        point="A@plain",
        repeat=1,
        score=Score(what="right_share", value=1.0, items=8, left_out=0),
    )
