"""What need not be measured: sealed answers of other runs, and of the run's own tasks; what lies there is checked."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qlock.core.plan import Job
from qlock.core.record import Part, line_bytes
from qlock.errors import InputError
from qlock.flows.merge import Asked, merge
from qlock.flows.run_folder import RunFolder
from qlock.flows.taking_over import is_covered, joined
from tests.broken.make import sealed
from tests.fakes.documents import a_digest, a_record, a_row
from tests.fakes.project import (
    Killed,
    Project,
    edit,
    folder_of,
    items_jsonl,
    kill_after,
    sealed_jobs,
    tiny_gguf,
    undisturbed,
    with_a_third_model,
)

JOBS = ("digits.A@plain.1", "text.A@plain.1", "digits.B@plain.1", "text.B@plain.1")
JOB = Job(name="x.A@plain.1", digest=a_digest("x"), point="A@plain", suite="x", repeat=1, items=9)


def test_an_added_model_is_measured_alone_and_the_rest_is_taken_over(project: Project) -> None:
    first = project.run()
    assert first.folder is not None
    with_a_third_model(project)
    project.script.asked.clear()
    project.script.loads.clear()
    ran = project.run()
    assert (ran.state, ran.measured, ran.taken_over) == ("sealed", 11, tuple(sorted(JOBS)))
    assert project.script.loads == ["c.gguf"]
    before, after = sealed_jobs(project, first), sealed_jobs(project, ran)
    for job in JOBS:
        assert after[job].answers_digest == before[job].answers_digest
        assert after[job].taken_from == first.folder.name
    assert after["digits.C@plain.1"].taken_from == ""
    (segment,) = folder_of(project, ran).facts().segment
    assert segment.taken_over == dict.fromkeys(JOBS, first.folder.name)
    assert {score.job for score in ran.scores} == {*JOBS, "digits.C@plain.1", "text.C@plain.1"}


def test_what_was_taken_over_is_still_told_after_a_kill(project: Project) -> None:
    first = project.run()
    assert first.folder is not None
    with_a_third_model(project)
    kill_after(project, 2)
    ran = project.run()
    assert (ran.state, ran.taken_over) == ("sealed", ())
    jobs = sealed_jobs(project, ran)
    assert {job: jobs[job].taken_from for job in JOBS} == dict.fromkeys(JOBS, first.folder.name)


def test_what_could_not_be_taken_over_any_more_is_measured_and_so_told(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = project.run()
    assert first.folder is not None
    with_a_third_model(project)

    def kill(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write_closed", kill)
        with pytest.raises(Killed):
            project.run()
    first.folder.rename(project.path / "moved away")
    ran = project.run()
    assert (ran.measured, {job.taken_from for job in sealed_jobs(project, ran).values()}) == (33, {""})


def test_other_names_do_not_matter_to_what_is_taken_over(project: Project) -> None:
    project.run()
    project.models = {"Alpha": "file:models/a.gguf", "B": "file:models/b.gguf"}
    project.write_spec()
    project.lock()
    ran = project.run()
    assert (ran.state, ran.measured, len(ran.taken_over)) == ("sealed", 0, 4)
    record = folder_of(project, ran).record("digits.Alpha@plain.1")
    assert record is not None
    assert (record.header.job, record.header.point) == ("digits.Alpha@plain.1", "Alpha@plain")


def test_nothing_is_taken_of_a_forced_run_or_into_one(project: Project) -> None:
    project.run(allow=("device.cpu-amd-1a-02.cpu_model",))
    with_a_third_model(project)
    assert project.run().taken_over == ()
    del project.models["C"]
    project.write_spec()
    project.lock()
    assert project.run(allow=("device.cpu-amd-1a-02.cpu_model",), repeat_lock=True).taken_over == ()


def test_a_taken_over_record_is_not_set_aside_by_rule_8(project: Project) -> None:
    project.run()
    with_a_third_model(project)

    def swap(_: str) -> None:
        project.write("models/a.gguf", tiny_gguf(9))
        project.write("models/c.gguf", tiny_gguf(8))

    project.script.before_item = swap
    assert project.run().state == "refused"
    project.script.before_item = lambda _: None
    project.write("models/a.gguf", tiny_gguf(1))
    project.write("models/c.gguf", tiny_gguf(3))
    assert project.run().measured == 11


@pytest.mark.parametrize(
    "damage, message",
    [
        (
            lambda folder: os.truncate(folder / "record/digits.A@plain.1.jsonl", 2000),
            "the sealed run `{name}` misses the record of `digits.A@plain.1`",
        ),
        (
            lambda folder: (folder / "record/digits.A@plain.1.jsonl").unlink(),
            "the sealed run `{name}` misses the record of `digits.A@plain.1`",
        ),
        (
            lambda folder: edit(folder / "record/digits.A@plain.1.jsonl", b'"text":"', b'"text":"9'),
            "{runs}/{name}/record/digits.A@plain.1.jsonl: the rows do not fit the answers_digest of the closing line",
        ),
        (
            lambda folder: edit(items_file(folder), b'"expected":"0"', b'"expected":"1"'),
            "the items of `digits.A@plain.1` in `{name}` are not those that were asked",
        ),
        (
            lambda folder: edit(
                folder / "seal.json", b'"answers_digest": "blake3:', b'"answers_digest": "blake3:0'
            ),
            (
                "{runs}/{name}/seal.json: answers_digest: got `blake3:0{answers}`, expected `blake3:` or `sha256:` "
                "and 64 lower-case hex digits"
            ),
        ),
    ],
    ids=["torn", "gone", "another answer", "another gold", "seal"],
)
def test_damage_in_a_sealed_run_beside_is_an_error_and_never_skipped(
    project: Project, damage: object, message: str
) -> None:
    first = project.run()
    assert first.folder is not None
    assert callable(damage)
    damage(first.folder)
    with_a_third_model(project)
    with pytest.raises(InputError) as caught:
        project.run()
    assert str(caught.value) == message.format(
        runs=project.runs.relative_to(project.path),
        name=first.folder.name,
        answers=first.answers_digest.removeprefix("blake3:"),
    )


def test_a_run_of_another_qlock_beside_is_named_with_what_to_do(project: Project) -> None:
    first = project.run()
    assert first.folder is not None
    lock = first.folder / "lock.toml"
    lock.write_bytes(sealed(lock.read_bytes().replace(b"replicas = 1\n", b"", 1)))
    with_a_third_model(project)
    with pytest.raises(InputError) as caught:
        project.run()
    run = first.folder.name
    assert str(caught.value) == f"{run}/lock.toml: setting[0]: the key `replicas` is missing"
    assert (
        caught.value.hint == f"move the folder `{run}` away to measure anew what would be taken over from it"
    )
    first.folder.rename(project.path / run)
    assert project.run().state == "sealed"


def items_file(folder: Path) -> Path:
    return next(path for path in (folder / "items").iterdir() if b"expected" in path.read_bytes())


def test_other_items_are_other_jobs(project: Project) -> None:
    project.run()
    project.write("tasks/digits.jsonl", items_jsonl(8, start=2))
    resolved = project.resolve(upgrade=("digits",))
    project.lock_path.write_bytes(resolved.data)
    ran = project.run()
    assert (ran.measured, ran.taken_over) == (16, ("text.A@plain.1", "text.B@plain.1"))


# Of the run's own tasks


def test_what_tasks_have_done_is_not_measured_again(project: Project) -> None:
    wanted = undisturbed(project)
    shutil.rmtree(project.runs)
    task = project.run(task="A@plain")
    assert task.folder is not None
    project.script.asked.clear()
    ran = project.run()
    assert (ran.state, ran.measured, ran.answers_digest) == ("sealed", 11, wanted)
    assert ran.taken_over == JOBS[:2]
    name = task.folder.relative_to(project.runs).as_posix()
    assert name.endswith("/tasks/A@plain")
    assert {job.job: job.taken_from for job in sealed_jobs(project, ran).values()} == dict.fromkeys(
        JOBS[:2], name
    ) | dict.fromkeys(JOBS[2:], "")


def test_shards_that_did_a_whole_job_are_taken_over_together(project: Project) -> None:
    wanted = undisturbed(project)
    shutil.rmtree(project.runs)
    # The 8 questions and 3 windows of a point: 3, 4 and 4 items.
    for number in (1, 2):
        assert project.run(task=f"A@plain@{number}of3").state == "sealed"
    ran = project.run(task="B@plain")
    assert ran.folder is not None
    whole = ran.folder.parents[1]
    ran = project.run()
    assert (ran.state, ran.measured, ran.taken_over) == ("sealed", 11, ("digits.B@plain.1", "text.B@plain.1"))
    assert ran.answers_digest == wanted
    (whole / "seal.json").unlink()
    shutil.rmtree(whole / "record")
    (whole / "facts.json").unlink()
    assert project.run(task="A@plain@3of3").state == "sealed"
    ran = project.run()
    assert (ran.state, ran.measured, ran.answers_digest) == ("sealed", 0, wanted)
    assert {job.taken_from for job in sealed_jobs(project, ran).values()} == {
        f"{whole.name}/tasks",
        f"{whole.name}/tasks/A@plain@3of3",
        f"{whole.name}/tasks/B@plain",
    }


def test_a_shard_takes_its_part_of_a_sealed_job_over(project: Project) -> None:
    first = project.run()
    assert first.folder is not None
    with_a_third_model(project)
    ran = project.run(task="A@plain@2of3")
    assert (ran.state, ran.measured, ran.taken_over) == ("sealed", 0, ("digits.A@plain.1",))
    record = folder_of(project, ran).record("digits.A@plain.1")
    assert record is not None
    assert [row.item for row in record.rows] == ["q03", "q04", "q05", "q06"]
    assert record.header.part == Part(start=3, stop=7)
    for task in ("A@plain@1of3", "A@plain@3of3", "B@plain", "C@plain"):
        assert project.run(task=task).state == "sealed"
    merged = merge(project.world, Asked(path=project.lock_path))
    assert merged.answers_digest == undisturbed(project)


def test_a_forced_task_is_not_taken_over(project: Project) -> None:
    assert project.run(task="A@plain", allow=("device.cpu-amd-1a-02.cpu_model",)).state == "sealed"
    assert project.run().taken_over == ()


def test_a_task_whose_record_was_edited_is_an_error(project: Project) -> None:
    task = project.run(task="A@plain@1of3")
    project.run(task="A@plain@2of3")
    project.run(task="A@plain@3of3")
    assert task.folder is not None
    folder = RunFolder(project.world, task.folder)
    record = folder.present_record("digits.A@plain.1")
    assert record.closing is not None
    header = msgspec.structs.replace(record.header, part=Part(start=4, stop=7))
    lines = (header, *record.rows, record.closing)
    folder.write("record/digits.A@plain.1.jsonl", b"".join(line_bytes(line) for line in lines))
    with pytest.raises(InputError) as caught:
        project.run()
    place = f"{task.folder.parents[1].name}/tasks"
    assert str(caught.value) == f"the record of `digits.A@plain.1` in `{place}` does not fit its seal"


# ---------------------------------------------------------------- laws


@given(st.sets(st.integers(1, 8)))
def test_parts_that_follow_one_another_are_the_whole(cuts: set[int]) -> None:
    ends = [0, *sorted(cuts), 9]
    parts = [Part(start=a, stop=b) for a, b in itertools.pairwise(ends)]
    assert is_covered(JOB, reversed(parts))
    assert not is_covered(msgspec.structs.replace(JOB, part=parts[0]), parts)
    for number in range(len(parts)):
        assert not is_covered(JOB, parts[:number] + parts[number + 1 :])
        assert not is_covered(JOB, [*parts, parts[number]])


@given(st.sets(st.integers(1, 8)))
def test_joined_parts_are_in_the_order_of_the_items(cuts: set[int]) -> None:
    rows = tuple(a_row(f"q{number}") for number in range(9))
    ends = [0, *sorted(cuts), 9]
    records = []
    for start, stop in itertools.pairwise(ends):
        header = msgspec.structs.replace(a_record().header, items=9, part=Part(start=start, stop=stop))
        records.append(msgspec.structs.replace(a_record(), header=header, rows=rows[start:stop]))
    assert joined(records[::-1]) == rows
