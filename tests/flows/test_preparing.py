"""A point made ready: what is loaded for it, and that it is held to its pins at every start."""

from __future__ import annotations

from qlock.core.lock import read_lock
from qlock.flows.preparing import load_of
from tests.fakes.project import Project, sealed, wheres


def test_what_is_loaded_are_the_points_files_under_its_setting(project: Project) -> None:
    lock = read_lock(project.lock_path.read_bytes(), name="x")
    load = load_of(lock, lock.point[1], ("/models/b.gguf",))
    assert (load.weights, load.setting) == (("/models/b.gguf",), lock.setting[0])


def test_every_point_is_loaded_once(project: Project) -> None:
    project.script.loads.clear()
    sealed(project)
    assert project.script.loads == ["a.gguf", "b.gguf"]


def test_a_point_that_behaves_otherwise_after_a_restart_is_refused(project: Project) -> None:
    def changed(item: str) -> None:
        if item == "q03":
            project.script.salt = "x"
            project.script.kills["q05"] = 1

    project.script.before_item = changed
    ran = project.run()
    assert ran.state == "refused"
    assert ("canaries", "point.A@plain.plain_text_nats") in wheres(ran)
