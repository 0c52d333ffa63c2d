from __future__ import annotations

from pathlib import Path

import pytest

from qlock.core.plan import jobs
from qlock.errors import AbsentError
from qlock.flows.anchors import Anchors
from qlock.flows.locks import read_lock_file
from tests.fakes.project import Project, folder_of

ANCHOR = """
[[anchor]]
model = "B"
suite = "text"
published = 100.0
source = "https://example.org/paper"
tolerance = 0.1
"""


def test_anchors_are_checked_for_their_own_jobs_alone(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write_spec(lambda text: text + ANCHOR)
    project.lock()
    folder = folder_of(project, project.run())
    lock, _ = read_lock_file(project.world, project.lock_path)
    anchors = Anchors(folder, lock)
    assert (anchors.of("A@plain"), [anchor.published for anchor in anchors.of("B@plain")]) == ([], [100.0])
    by_name = {job.name: job for job in jobs(lock)}
    for name in ("text.A@plain.1", "digits.B@plain.1"):
        anchors.check(by_name[name])
    assert (anchors.checks, anchors.off()) == ([], "")
    anchors.check(by_name["text.B@plain.1"])
    (found,) = anchors.checks
    assert (found.model, found.suite, found.holds, anchors.off()) == ("B", "text", False, "B text")


def test_a_record_that_is_gone_is_absent(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write_spec(lambda text: text + ANCHOR)
    project.lock()
    folder = folder_of(project, project.run())
    lock, _ = read_lock_file(project.world, project.lock_path)
    (folder.path / "record/text.B@plain.1.jsonl").unlink()
    with pytest.raises(AbsentError) as caught:
        Anchors(folder, lock).check(next(job for job in jobs(lock) if job.name == "text.B@plain.1"))
    assert (str(caught.value), caught.value.hint) == (
        f"`record/text.B@plain.1.jsonl` is gone from the run in `{folder.path}`",
        "leave the folder alone while qlock works in it, and run again",
    )
