"""Tasks brought together: the answers of one undisturbed run, whatever happened, and a refusal of what does not fit."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from qlock.core.canon import json_bytes
from qlock.core.record import Part
from qlock.core.tasks import tasks
from qlock.errors import AbsentError, InputError
from qlock.flows.merge import Asked, Merged, merge
from qlock.flows.run_folder import RunFolder
from qlock.flows.tasks import place_of, task_folder
from qlock.flows.verify_run import verify_run
from qlock.world import files, folder
from tests.fakes.project import Project, items_jsonl, undisturbed
from tests.fakes.world import CPU, FixedHost

TASKS = ("A@plain", "B@plain")


def merged(project: Project) -> Merged:
    return merge(project.world, Asked(path=project.lock_path))


def done(project: Project, *tasks: str) -> None:
    for task in tasks or TASKS:
        assert project.run(task=task).state == "sealed"


def task(project: Project, id_: str) -> RunFolder:
    return task_folder(project.world, place_of(project.world, project.lock_path).folder, id_)


def refused(project: Project, kind: type[Exception] = InputError) -> str:
    with pytest.raises(kind) as caught:
        merged(project)
    return str(caught.value)


def contents(path: Path) -> dict[str, bytes]:
    return {
        found.relative_to(path).as_posix(): found.read_bytes()
        for found in sorted(path.rglob("*"))
        if found.is_file() and "tasks" not in found.relative_to(path).parts
    }


def test_the_merged_run_has_the_answers_of_one_run(project: Project) -> None:
    done(project)
    found = merged(project)
    assert (found.state, found.tasks, found.missing, found.findings) == ("sealed", 2, (), ())
    assert verify_run(project.world, found.folder).state == "verified"
    shutil.rmtree(found.folder)
    alone = project.run()
    assert alone.answers_digest == found.answers_digest
    assert alone.scores == found.scores
    assert merged(project).state == "already-sealed"


def test_each_row_names_its_stretch_in_the_facts_of_the_whole(project: Project) -> None:
    project.script.kills["q03"] = 4
    assert project.run(task="A@plain").state == "incomplete"
    done(project)
    whole = RunFolder(project.world, merged(project).folder)
    assert len(whole.facts().segment) == 3
    first, second = (whole.record(f"digits.{model}@plain.1") for model in "AB")
    assert first is not None
    assert second is not None
    assert [row.segment for row in first.rows] == [0, 0, 0, 1, 0, 0, 0, 0]
    assert {row.segment for row in second.rows} == {2}


def test_while_a_task_is_not_done_nothing_is_written(project: Project) -> None:
    assert (merged(project).state, merged(project).missing) == ("incomplete", TASKS)
    assert not project.runs.exists()
    done(project, "A@plain")
    before = contents(project.runs)
    found = merged(project)
    assert (found.state, found.missing) == ("incomplete", ("B@plain",))
    assert contents(project.runs) == before


def test_a_task_may_be_done_again_after_the_merge(project: Project) -> None:
    done(project)
    found = merged(project)
    shutil.rmtree(found.folder / "tasks")
    assert project.run(task="A@plain").state == "already-sealed"
    assert project.run().answers_digest == found.answers_digest


def test_tasks_of_another_lock_are_refused(project: Project) -> None:
    done(project)
    (task(project, "B@plain").path / "lock.toml").write_bytes(b"other")
    assert refused(project) == "tasks/B@plain: the task was done for another lock"


def test_the_task_of_another_point_is_refused(project: Project) -> None:
    done(project, "A@plain")
    shutil.copytree(task(project, "A@plain").path, task(project, "B@plain").path)
    assert refused(project) == "tasks/B@plain: the seal names other jobs than the task has"


@pytest.mark.parametrize(
    "name", ["record/digits.A@plain.1.jsonl", "facts.json", "grades/text.A@plain.1.jsonl"]
)
def test_a_task_that_was_edited_is_refused(project: Project, name: str) -> None:
    done(project)
    path = task(project, "A@plain").path / name
    path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))
    assert refused(project) == "tasks/A@plain: the files are not as sealed"


def test_tasks_of_two_devices_are_refused(project: Project) -> None:
    done(project, "A@plain")
    other = msgspec.structs.replace(CPU, cpu_model_number=9)
    project.change_world(host=FixedHost(cpu=other))
    assert project.run(task="B@plain", allow=(f"device.{CPU.name}",)).state == "sealed"
    found = merged(project)
    assert found.state == "refused"
    assert [(one.rule, one.where, one.expected, one.found) for one in found.findings] == [
        ("device", "task.B@plain.device.cpu_model_number", "2", "9")
    ]
    assert not (found.folder / "seal.json").exists()


def test_tasks_of_two_engines_are_refused(project: Project) -> None:
    done(project, "A@plain")
    (project.script.folder / "libllama.so").write_bytes(b"another build")
    assert project.run(task="B@plain", allow=("engine.llama-cpp-python",)).state == "sealed"
    found = merged(project)
    assert found.state == "refused"
    (finding,) = found.findings
    assert (finding.rule, finding.where) == ("engine-files", "task.B@plain.engine.libllama.so")
    assert {part.name for part in finding.parts} == {"size_bytes", "blake3", "sha256"}


def test_a_run_that_was_begun_without_tasks_keeps_what_it_has(project: Project) -> None:
    project.script.kills["q03"] = 4
    begun = project.run()
    assert begun.state == "incomplete"
    done(project)
    assert refused(project) == f"the run in `{begun.folder}` was begun without tasks"
    assert project.run().state == "sealed"


def test_a_merge_beside_another_is_refused(project: Project) -> None:
    done(project)
    path = place_of(project.world, project.lock_path).folder.path
    with folder.hold(path):
        assert refused(project, AbsentError).startswith(f"folder `{path}` is held by process `{os.getpid()}`")


class KilledError(BaseException):
    """Stands for SIGKILL: nobody expects it."""


def test_a_kill_at_any_write_of_the_merge_costs_nothing(project: Project) -> None:
    wanted = undisturbed(project)
    shutil.rmtree(project.runs)
    done(project)
    shutil.rmtree(
        project.runs / f"{place_of(project.world, project.lock_path).folder.path.name}.2", ignore_errors=True
    )
    plain = project.world
    writes = 0
    while True:
        project.change_world(files=_Dying(writes))
        try:
            found = merged(project)
            break
        except KilledError:
            writes += 1
            project.world = plain
    assert writes > 10
    assert found.answers_digest == wanted
    assert verify_run(plain, found.folder).state == "verified"


class _Dying:
    """Files that are written until the process dies."""

    def __init__(self, writes: int) -> None:
        self._left = writes

    read_bounded = staticmethod(files.read_bounded)
    read_prefix = staticmethod(files.read_prefix)
    read_lines = staticmethod(files.read_lines)

    def write_atomic(self, path: Path, data: bytes) -> None:
        if self._left == 0:
            raise KilledError
        self._left -= 1
        files.write_atomic(path, data)


def test_sealed_answers_of_earlier_locks_are_taken_over_into_tasks(project: Project) -> None:
    first = project.run()
    project.models["C"] = "file:models/c.gguf"
    project.write("models/c.gguf", (project.path / "models/a.gguf").read_bytes()[:-1] + b"\x07")
    project.write_spec()
    project.lock()
    project.script.asked.clear()
    taken = project.run(task="A@plain")
    assert taken.taken_over == ("digits.A@plain.1", "text.A@plain.1")
    assert project.script.asked == []
    done(project, "B@plain", "C@plain")
    found = merged(project)
    seal = RunFolder(project.world, found.folder).seal()
    assert seal is not None
    assert first.folder is not None
    assert {job.job: job.taken_from for job in seal.job} == {
        "digits.A@plain.1": first.folder.name,
        "text.A@plain.1": first.folder.name,
        "digits.B@plain.1": first.folder.name,
        "text.B@plain.1": first.folder.name,
        "digits.C@plain.1": "",
        "text.C@plain.1": "",
    }


def test_folders_that_no_flock_holds_are_enough(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def no_flock(*_: Any) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", no_flock)
    monkeypatch.setattr(fcntl, "lockf", no_flock)
    done(project)
    assert merged(project).state == "sealed"


def test_a_task_measures_its_own_model_alone(project: Project) -> None:
    (project.path / "models/b.gguf").unlink()
    assert project.run().state == "absent"
    assert project.run(task="A@plain").state == "sealed"
    assert set(project.script.loads[-1:]) == {"a.gguf"}


def test_a_task_that_no_lock_has_is_refused(project: Project) -> None:
    with pytest.raises(InputError) as caught:
        project.run(task="../../x")
    assert (str(caught.value), caught.value.hint) == (
        "got task `../../x`, expected one of the lock",
        "list them with `qlock plan LOCK`",
    )


def test_when_the_time_is_up_nothing_more_is_begun(project: Project) -> None:
    asked: list[str] = []
    clock: Any = project.world.clock

    def pass_a_second(item: str) -> None:
        asked.append(item)
        clock.pass_s(1.0)

    project.script.before_item = pass_a_second
    wanted = undisturbed(project)
    shutil.rmtree(project.runs)
    asked.clear()
    ran = project.run(task="A@plain", ask_until_s=clock.monotonic_s() + 2.5)
    assert (ran.state, ran.why) == ("incomplete", "the time is up")
    # Three were asked until then, and what was under way is waited for.
    assert len(asked) == ran.measured < 11
    before = list(asked)
    asked.clear()
    done(project)
    assert not set(before) & set(asked[: 11 - len(before)])
    assert merged(project).answers_digest == wanted


def test_a_seal_of_an_older_lock_is_refused(project: Project) -> None:
    done(project)
    path = task(project, "A@plain").path / "seal.json"
    seal = json.loads(path.read_text())
    seal["lock_digest"] = "blake3:" + "0" * 64
    path.write_bytes(json_bytes(seal))
    assert refused(project) == "tasks/A@plain: the task was done for another lock"


def test_more_items_make_another_lock_with_tasks_of_its_own(project: Project) -> None:
    done(project)
    project.write("tasks/digits.jsonl", items_jsonl(9))
    project.lock(upgrade=("all",))
    assert merged(project).missing == TASKS


# Shards


CUTS = ("A@plain@1of3", "A@plain@2of3", "A@plain@3of3", "B@plain@1of2", "B@plain@2of2")


def test_shards_become_the_run_that_one_process_would_have_made(project: Project) -> None:
    alone = project.run()
    assert alone.folder is not None
    wanted = contents(alone.folder)
    shutil.rmtree(alone.folder)
    done(project, *reversed(CUTS))
    found = merged(project)
    assert (found.state, found.tasks, found.answers_digest) == ("sealed", 5, alone.answers_digest)
    assert found.scores == alone.scores
    assert verify_run(project.world, found.folder).state == "verified"
    now = contents(found.folder)
    assert now.keys() - wanted.keys() == {"merging.json"}
    for name in wanted:
        if name.startswith(("items/", "grades/")):
            assert now[name] == wanted[name]
    whole = RunFolder(project.world, found.folder)
    record = whole.record("digits.A@plain.1")
    assert record is not None
    assert record.header.part is UNSET
    assert [row.item for row in record.rows] == [f"q{number:02d}" for number in range(8)]
    assert [row.segment for row in record.rows] == [0, 0, 0, 1, 1, 1, 1, 2]


def test_a_shard_that_is_missing_is_named(project: Project) -> None:
    done(project, *(id_ for id_ in CUTS if id_ not in ("A@plain@2of3", "B@plain@1of2")))
    found = merged(project)
    assert (found.state, found.missing) == ("incomplete", ("A@plain@2of3", "B@plain@1of2"))
    assert not (found.folder / "record/digits.A@plain.1.jsonl").exists()


def test_a_shard_that_was_stopped_goes_on(project: Project) -> None:
    wanted = undisturbed(project)
    shutil.rmtree(project.runs)
    project.script.kills["q04"] = 4
    ran = project.run(task="A@plain@2of3")
    assert (ran.state, ran.measured, [one.item for one in ran.broken]) == ("incomplete", 3, ["q04"])
    assert merged(project).missing == ("A@plain@1of3", "A@plain@2of3", "A@plain@3of3", "B@plain")
    project.script.asked.clear()
    done(project, "A@plain@2of3")
    assert project.script.asked == ["q04"]
    done(project, *CUTS[:1], *CUTS[2:])
    assert merged(project).answers_digest == wanted


def test_a_shard_has_the_scores_of_its_whole_jobs_alone(project: Project) -> None:
    first, last = project.run(task="A@plain@1of2"), project.run(task="A@plain@2of2")
    assert (first.scores, first.unscored) == ((), ())
    assert [score.job for score in last.scores] == ["text.A@plain.1"]
    assert last.unscored == ()
    assert last.folder is not None
    assert sorted(path.name for path in (last.folder / "grades").iterdir()) == ["text.A@plain.1.jsonl"]


def test_the_seal_of_a_shard_says_what_it_has(project: Project) -> None:
    done(project, *CUTS)
    folder = task(project, "A@plain@3of3")
    seal = folder.seal()
    assert seal is not None
    assert [(job.job, job.items, job.part) for job in seal.job] == [
        ("digits.A@plain.1", 1, Part(start=7, stop=8)),
        ("text.A@plain.1", 3, UNSET),
    ]
    for id_ in CUTS:
        assert verify_run(project.world, task(project, id_).path).faults == ()


def test_the_folder_of_another_shard_is_refused(project: Project) -> None:
    done(project, "A@plain@2of3")
    shutil.copytree(task(project, "A@plain@2of3").path, task(project, "A@plain@1of3").path)
    assert refused(project) == "tasks/A@plain@1of3: the seal names other jobs than the task has"
    faults = verify_run(project.world, task(project, "A@plain@1of3").path).faults
    assert ("job.digits.A@plain.1.part", str(Part(start=0, stop=3)), str(Part(start=3, stop=7))) in [
        (fault.what, fault.expected, fault.found) for fault in faults
    ]


def test_a_shard_of_other_items_is_none(project: Project) -> None:
    project.write("tasks/digits.jsonl", items_jsonl(7))
    with pytest.raises(InputError) as caught:
        project.run(task="A@plain@1of3", allow=("suite.digits", "point.A@plain"))
    assert str(caught.value) == (
        "digits: got 7 items, expected 8: a shard of other items than those that are locked is none"
    )


ANCHOR = """
[[anchor]]
model = "A"
suite = "digits"
published = {published}
source = "https://example.org"
tolerance = 0.01
"""


@pytest.mark.parametrize("off_by, state", [(0.0, "sealed"), (0.5, "anchor-off")])
def test_an_anchor_whose_job_was_cut_is_looked_at_in_the_merge(
    project: Project, off_by: float, state: str
) -> None:
    measured = project.run().scores[0].score.value
    project.write_spec(lambda text: text + ANCHOR.format(published=measured + off_by))
    project.lock()
    shutil.rmtree(project.runs)
    done(project, *CUTS)
    found = merged(project)
    assert (found.state, [one.holds for one in found.anchors]) == (state, [state == "sealed"])
    assert (found.folder / "seal.json").exists() == (state == "sealed")
    assert merged(project).state == ("already-sealed" if state == "sealed" else "anchor-off")


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.integers(1, 11), second=st.integers(1, 11), order=st.randoms(use_true_random=False))
def test_however_points_are_cut_the_answers_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, first: int, second: int, order: Random
) -> None:
    made = Project(tmp_path_factory.mktemp("cut"))
    made.lock()
    wanted = made.run().answers_digest
    shutil.rmtree(made.runs)
    place = place_of(made.world, made.lock_path)
    every = [task.id for task in tasks(place.lock, {"A@plain": first, "B@plain": second})]
    order.shuffle(every)
    done(made, *every)
    assert merged(made).answers_digest == wanted
