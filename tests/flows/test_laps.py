from pathlib import Path

from qlock.flows.laps import Laps
from tests.fakes.documents import a_row
from tests.fakes.project import Project, folder_of, kill_after, sealed
from tests.fakes.world import fake_world


def test_laps_add_up_to_the_time_since_the_asking_began(tmp_path: Path) -> None:
    clock = fake_world(tmp_path).clock
    clock.sleep_s(5)
    laps = Laps(clock)
    clock.sleep_s(2)
    first = laps.timed(a_row("a"))
    second = laps.timed(a_row("b"))
    clock.sleep_s(3)
    third = laps.timed(a_row("c"))
    assert [row.times.lap_s for row in (first, second, third)] == [2.0, 0.0, 3.0]
    assert (first.times.prefill_s, first.item) == (a_row().times.prefill_s, "a")


def test_what_passes_before_the_asking_goes_on_is_no_part_of_a_lap(tmp_path: Path) -> None:
    clock = fake_world(tmp_path).clock
    laps = Laps(clock)
    clock.sleep_s(100)
    laps.begin()
    clock.sleep_s(1)
    assert laps.timed(a_row()).times.lap_s == 1.0


def laps_of(project: Project, ran: object, job: str) -> list[object]:
    record = folder_of(project, ran).present_record(job)  # type: ignore[arg-type]
    return [row.times.lap_s for row in record.rows]


def test_every_row_of_a_run_has_its_lap(project: Project) -> None:
    project.script.before_item = lambda _: project.world.clock.sleep_s(0.5)
    ran = sealed(project)
    for job in ("digits.A@plain.1", "text.B@plain.1"):
        assert set(laps_of(project, ran, job)) == {0.5}


def test_a_killed_run_goes_on_with_laps_of_its_own(project: Project) -> None:
    project.script.before_item = lambda _: project.world.clock.sleep_s(0.5)
    kill_after(project, 3)
    project.world.clock.sleep_s(3_600)
    ran = sealed(project)
    assert set(laps_of(project, ran, "digits.A@plain.1")) == {0.5}


def test_a_restart_of_the_engine_is_no_part_of_a_lap(project: Project) -> None:
    project.script.before_item = lambda _: project.world.clock.sleep_s(0.5)
    project.script.before_load = lambda _: project.world.clock.sleep_s(600)
    project.script.kills["q02"] = 1
    ran = sealed(project)
    laps = laps_of(project, ran, "digits.A@plain.1")
    assert all(isinstance(lap, float) and lap < 100 for lap in laps)
