"""Under which conditions answers came about, also those that were taken over."""

from __future__ import annotations

import msgspec

from qlock.core.facts import Buffer
from qlock.flows.conditions import Conditions, conditions_of, note_memory
from qlock.flows.opened import open_run, open_side
from qlock.flows.run_folder import RunFolder
from tests.fakes.project import (
    Project,
    folder_of,
    kill_after,
    sealed,
    with_a_third_model,
)
from tests.fakes.world import CPU, FixedHost

replace = msgspec.structs.replace
MORE_CORES = replace(CPU, cores=CPU.cores + 2)
TOLD = f"device.cores: `{CPU.cores}` and `{MORE_CORES.cores}`"


def conditions(folder: RunFolder, *jobs: str) -> Conditions:
    """Of point A, as its jobs were measured."""
    records = {job: folder.present_record(job) for job in jobs or ("digits.A@plain.1", "text.A@plain.1")}
    segments = {job: frozenset(row.segment for row in record.rows) for job, record in records.items()}
    return conditions_of(folder, "A@plain", segments)


def with_more_cores(project: Project) -> None:
    """A run on another number of cores goes on: no answer depends on them."""
    project.change_world(host=FixedHost(MORE_CORES))


def test_what_a_point_took_and_on_what_it_was_seen_are_kept_with_the_run(project: Project) -> None:
    folder = folder_of(project, sealed(project))
    assert conditions(folder) == Conditions(device=(CPU,), memory=project.script.memory, other_timing=())
    (segment,) = folder.facts().segment
    assert segment.memory == dict.fromkeys(("A@plain", "B@plain"), project.script.memory)


def test_an_engine_that_tells_nothing_leaves_nothing(project: Project) -> None:
    project.script.memory = ()
    folder = folder_of(project, sealed(project))
    assert conditions(folder).memory == ()
    assert folder.facts().segment[0].memory == {}


def test_the_last_account_of_a_point_counts(project: Project) -> None:
    folder = folder_of(project, sealed(project))
    last = (Buffer(place="CPU", use="model", size_bytes=7),)
    note_memory(folder, 0, "A@plain", last)
    assert conditions(folder).memory == last
    note_memory(folder, 0, "B@plain", last)
    assert folder.facts().segment[0].memory == {"A@plain": last, "B@plain": last}


def test_a_run_that_goes_on_elsewhere_has_both_devices(project: Project) -> None:
    kill_after(project, 3)
    with_more_cores(project)
    folder = folder_of(project, sealed(project))
    assert conditions(folder).device == (CPU, MORE_CORES)
    assert conditions(folder, "text.A@plain.1").device == (MORE_CORES,)


def test_a_segment_that_is_not_told_of_has_no_device(project: Project) -> None:
    folder = folder_of(project, sealed(project))
    found = conditions_of(folder, "X@plain", {"digits.A@plain.1": frozenset({7})})
    assert found == Conditions(device=(), memory=(), other_timing=())


def test_answers_that_are_taken_over_bring_what_their_point_took(project: Project) -> None:
    sealed(project)
    with_a_third_model(project)
    project.script.memory = project.script.memory[:1]
    folder = folder_of(project, sealed(project))
    (segment,) = folder.facts().segment
    assert len(segment.memory["A@plain"]) == 3
    assert len(segment.memory["C@plain"]) == 1
    assert segment.other_timing == {}


def test_what_was_otherwise_there_is_kept_with_answers_that_are_taken_over(project: Project) -> None:
    sealed(project)
    with_more_cores(project)
    with_a_third_model(project)
    second = sealed(project)
    folder = folder_of(project, second)
    assert conditions(folder) == Conditions(
        device=(MORE_CORES,), memory=project.script.memory, other_timing=(TOLD,)
    )
    assert "digits.C@plain.1" not in folder.facts().segment[0].other_timing
    assert second.folder is not None
    run = open_run(project.world, second.folder)
    assert (open_side(run, "A@plain").other_timing, open_side(run, "C@plain").other_timing) == ((TOLD,), ())
    assert open_side(run, "C@plain").devices == (MORE_CORES,)
    assert open_side(run, "A@plain").memory == project.script.memory


def test_it_is_handed_on_when_they_are_taken_over_again(project: Project) -> None:
    sealed(project)
    with_more_cores(project)
    with_a_third_model(project)
    sealed(project)
    project.write("models/d.gguf", (project.path / "models/c.gguf").read_bytes()[:-8] + b"12345678")
    project.models = project.models | {"D": "file:models/d.gguf"}
    project.write_spec()
    project.lock()
    again = folder_of(project, sealed(project))
    told = conditions(again).other_timing
    assert told == (TOLD,)


def test_answers_of_another_mmap_bring_no_memory(project: Project) -> None:
    sealed(project)
    project.write_spec(lambda text: text.replace("slots = 4", "slots = 4\nmmap = false"))
    project.lock()
    ran = sealed(project)
    assert len(ran.taken_over) == 4
    (segment,) = folder_of(project, ran).facts().segment
    assert segment.memory == {}
    assert set(segment.other_timing.values()) == {"setting.mmap: `true` and `false`"}
