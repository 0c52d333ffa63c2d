"""The tasks that a lock may be run in, told without looking at anything of this machine."""

from __future__ import annotations

import shutil

import msgspec
import pytest

from qlock.errors import RefusedError
from qlock.flows.plan import Asked, Planned, plan
from tests.fakes.project import Project
from tests.fakes.world import CPU, FixedHost


def planned(project: Project, **asked: object) -> Planned:
    return plan(project.world, Asked(**({"lock_path": project.lock_path} | asked)))  # type: ignore[arg-type]


def test_it_needs_neither_models_nor_the_locked_device(project: Project) -> None:
    shutil.rmtree(project.path / "models")
    project.change_world(host=FixedHost(cpu=msgspec.structs.replace(CPU, cpu_model_number=9)))
    assert [task.id for task in planned(project).tasks] == ["A@plain", "B@plain"]
    assert len(planned(project, shard_items=4).tasks) == 6


def test_a_stale_lock_is_told(project: Project) -> None:
    project.write_spec(lambda text: text.replace("answer_tokens = 8", "answer_tokens = 9"))
    assert planned(project) == Planned(
        state="stale", why="the spec `specs/small.toml` changed since this lock was made"
    )
    assert len(planned(project, frozen=True).tasks) == 2


def test_a_lock_that_misses_pins_has_no_tasks_yet(project: Project) -> None:
    project.lock_path.unlink()
    project.lock(prove=False)
    with pytest.raises(RefusedError) as caught:
        planned(project)
    assert str(caught.value).startswith("the lock still misses ")
