"""Writing a kept file: gone on with after a kill, and what ends it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from qlock.core.kept_logits import layout_in
from qlock.engines.interface import Broken, Work
from qlock.errors import AbsentError, EngineError
from tests.conftest import ROOT
from tests.fakes.engine import FakeEngine
from tests.fakes.kld import add_kld, kept, stored, written
from tests.fakes.project import Project, sealed, undisturbed


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return stored(tmp_path)


_KILLED = """
import os, signal, sys
from pathlib import Path
from tests.fakes.kld import stored
project = stored(Path(sys.argv[1]))
project.script.before_item = lambda item: item == "part-1" and os.kill(os.getpid(), signal.SIGKILL)
project.run()
"""


def test_a_file_is_gone_on_with_after_a_kill(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path)], check=False, cwd=ROOT, env={**os.environ}
    )
    assert done.returncode == -signal.SIGKILL
    project = Project(tmp_path)
    add_kld(project, more="stored = true\n")
    assert kept(project).exists()
    ran = sealed(project)
    assert written(project) == [1, 2]
    whole = kept(project).read_bytes()
    digest = ran.answers_digest
    kept(project).unlink()
    assert undisturbed(project) == digest
    assert kept(project).read_bytes() == whole


def test_a_part_that_was_cut_off_is_written_again(project: Project) -> None:
    sealed(project)
    path = kept(project)
    whole = path.read_bytes()
    journal = path.with_suffix(".jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:3]) + lines[3][:20])  # two parts, and the third torn
    layout = layout_in(whole)
    broken = bytearray(whole)
    broken[layout.offset(0) + 5] ^= 1
    path.write_bytes(broken)
    project.script.work.clear()
    assert project.run(repeat_lock=True).state == "sealed"
    assert written(project) == [0, 2]
    assert path.read_bytes() == whole


def test_a_file_that_is_gone_is_written_again(project: Project) -> None:
    sealed(project)
    kept(project).unlink()
    project.script.work.clear()
    assert project.run(repeat_lock=True).state == "sealed"
    assert written(project) == [0, 1, 2]


def test_when_the_time_is_up_the_next_run_goes_on(project: Project) -> None:
    clock = project.world.clock
    until_s = clock.monotonic_s() + 10
    project.script.before_item = lambda item: clock.sleep_s(20) if item.startswith("part-") else None
    ran = project.run(ask_until_s=until_s, task="B@plain")
    assert (ran.state, ran.why) == ("incomplete", "the time is up")
    first = written(project)
    project.script.work.clear()
    assert project.run(task="B@plain").state == "sealed"
    assert set(first).isdisjoint(written(project)) or len(first) == 3


def test_a_death_while_it_is_written_costs_no_part(project: Project) -> None:
    project.script.kills["part-1"] = 2
    sealed(project)
    assert sorted(set(written(project))) == [0, 1, 2]
    project.script.kills["part-0"] = 9
    kept(project).unlink()
    with pytest.raises(EngineError) as caught:
        project.run(repeat_lock=True)
    assert str(caught.value) == "the engine died (signal SIGSEGV)"


def test_a_part_that_cannot_be_kept_ends_the_run(project: Project) -> None:
    project.script.replies["part-2"] = Broken(id="part-2", why="a logit is not finite")
    with pytest.raises(EngineError) as caught:
        project.run()
    assert str(caught.value) == ("the reference's log-probabilities could not be kept: a logit is not finite")


def test_a_disk_that_fills_up_meanwhile_is_told_as_one(project: Project) -> None:
    project.script.replies["part-2"] = Broken(id="part-2", why="no space left on device", is_disk_full=True)
    with pytest.raises(AbsentError) as caught:
        project.run()
    assert str(caught.value) == (
        "the reference's log-probabilities could not be kept: no space left on device"
    )
    assert caught.value.hint == "free some space and run again; what is written is gone on with"


def test_what_lies_in_front_of_the_parts_must_be_as_it_was_written(project: Project) -> None:
    sealed(project)
    path = kept(project)
    whole = path.read_bytes()
    journal = path.with_suffix(".jsonl")
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:3]))
    broken = bytearray(whole)
    broken[25] ^= 1
    path.write_bytes(broken)
    project.script.work.clear()
    assert project.run(repeat_lock=True).state == "sealed"
    assert (written(project), path.read_bytes()) == ([0, 1, 2], whole)


class Refusing(FakeEngine):
    """An engine that dies while it is given its third part; the next one lives."""

    def submit(self, work: Work) -> None:
        if work.id == "part-2" and self._script.opened == 1:
            self._is_alive = False
        super().submit(work)


def test_a_death_while_an_order_is_given_costs_no_part(project: Project) -> None:
    project.script.opened = 0
    project.script.kind = Refusing
    assert project.run(task="B@plain").state == "sealed"
    assert (project.script.opened, sorted(set(written(project)))) == (2, [0, 1, 2])


def cannot_reserve(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_where_no_room_can_be_reserved_the_file_gets_its_length(
    project: Project, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    cannot_reserve(monkeypatch, number)
    assert project.run(task="B@plain").state == "sealed"


@pytest.mark.parametrize(
    "number, message",
    [
        (errno.ENOSPC, "no space left to write file `{}`"),
        (errno.EDQUOT, "no quota left to write file `{}`"),
        (errno.EFBIG, "file `{}` cannot be used: file too large"),
        (errno.EIO, "file `{}` cannot be used: input/output error"),
    ],
)
def test_room_that_is_not_given_ends_the_run(
    project: Project, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    cannot_reserve(monkeypatch, number)
    with pytest.raises(AbsentError) as caught:
        project.run(task="B@plain")
    assert str(caught.value) == message.format(kept(project))
