"""Kept files: written once, gone on with after a kill, reused, and refused where they are of something else."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from qlock.core.canon import from_json
from qlock.core.kept_base import Identity
from qlock.core.kept_logits import layout_in
from qlock.core.plan import jobs
from qlock.engines.interface import Broken, Contrast, Keep, Load, Work
from qlock.errors import AbsentError, EngineError
from qlock.flows import check, kept_base
from qlock.flows.resolve import read_lock_file
from qlock.flows.run import Ran
from qlock.world.interface import HeldError
from tests.conftest import ROOT
from tests.fakes.documents import a_digest
from tests.fakes.engine import FakeEngine
from tests.fakes.kld import KLD, add_kld
from tests.fakes.project import Project, sealed, tiny_gguf, undisturbed, wheres


class Killed(BaseException):
    """Stands for SIGKILL: nobody expects it."""


def stored(place: Path) -> Project:
    """A project whose suite `distance` reads what the reference said from a file."""
    project = add_kld(Project(place), more="stored = true\n")
    project.lock()
    project.script.loads.clear()
    project.script.references.clear()
    return project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return stored(tmp_path)


def kept(project: Project) -> Path:
    """The one kept file."""
    (path,) = (project.runs / "references").glob("*.kld")
    return path


def written(project: Project) -> list[int]:
    """Parts in the order in which they were asked for."""
    return [work.part for work in project.script.work if isinstance(work, Keep)]


def contrasted(project: Project) -> list[str]:
    """Items that were held against something, in the order in which they were asked."""
    return [work.id for work in project.script.work if isinstance(work, Contrast)]


def distances(ran: Ran) -> dict[str, float]:
    return {score.point: score.score.value for score in ran.scores if score.suite == "distance"}


def test_a_file_is_written_once_and_read_by_each_point(project: Project) -> None:
    ran = sealed(project)
    path = kept(project)
    names = sorted(entry.name for entry in path.parent.iterdir())
    assert names == [f"{path.stem}.held", f"{path.stem}.jsonl", path.name]
    assert path.stat().st_size == layout_in(path.read_bytes()).total_bytes
    assert written(project) == [0, 1, 2]
    # A for itself, A for the file, then B.
    assert project.script.loads == ["a.gguf", "a.gguf", "b.gguf"]
    assert project.script.references == ["a.gguf", path.name]
    found = distances(ran)
    assert found["A@plain"] == 0.0 < found["B@plain"]


def test_it_says_what_it_writes_and_how_much_that_takes(project: Project) -> None:
    sealed(project)
    told = [p for p in project.progress if "kept" in p.job]
    size = kept(project).stat().st_size
    assert {p.job for p in told} == {f"A@plain for distance, kept in {size / 1000:.1f} kB"}
    assert [(p.done, p.items, p.tokens) for p in told] == [(0, 3, 0), (1, 3, 31), (2, 3, 62), (3, 3, 93)]


def test_another_run_reads_the_same_file(project: Project) -> None:
    first = sealed(project)
    project.script.work.clear()
    again = project.run(repeat_lock=True)
    assert (again.answers_digest, written(project)) == (first.answers_digest, [])


def test_a_point_that_is_added_reads_it_too(project: Project) -> None:
    sealed(project)
    before = kept(project)
    project.write("models/c.gguf", tiny_gguf(3))
    project.models["C"] = "file:models/c.gguf"
    add_kld(project, more="stored = true\n").lock()
    project.script.work.clear()
    project.script.loads.clear()
    sealed(project)
    assert (written(project), project.script.loads, kept(project)) == ([], ["c.gguf"], before)


def test_what_does_not_fit_the_disk_is_said_before_anything_is_loaded(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_base, "free_bytes", lambda _: 1000)
    with pytest.raises(AbsentError) as caught:
        project.run()
    assert str(caught.value) == (
        f"the reference's log-probabilities need 49.5 kB more, and `{project.runs}` has 1.0 kB left"
    )
    assert caught.value.hint == (
        "lower `windows` of the suite, or set `stored = false`: then nothing is written"
    )
    assert project.script.loads == []


def test_what_is_there_needs_no_more_room(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed(project)
    monkeypatch.setattr(kept_base, "free_bytes", lambda _: 0)
    assert project.run(repeat_lock=True).state == "sealed"


_KILLED = """
import os, signal, sys
from pathlib import Path
from tests.flows.test_kept_base import stored
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


# Somebody else writes it


def placed_for(project: Project) -> Path:
    """The folder that whoever writes the kept file holds."""
    lock = read_lock_file(project.world, project.lock_path)[0]
    (base,) = kept_base.bases_of(lock, jobs(lock), project.runs)
    base.holding.mkdir(parents=True)
    return base.holding


def when_waiting(project: Project, monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    """Do something when a run begins to wait."""
    clock, wait = project.world.clock, project.world.clock.sleep_s

    def sleep_s(duration_s: float) -> None:
        wait(duration_s)
        then()

    monkeypatch.setattr(clock, "sleep_s", sleep_s)


def test_who_writes_there_is_waited_for_with_nothing_loaded(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[tuple[str, ...]] = []
    with contextlib.ExitStack() as other:
        other.enter_context(project.world.folders.hold(placed_for(project)))

        def leave() -> None:
            loaded.append(tuple(project.script.loads))
            other.close()

        when_waiting(project, monkeypatch, leave)
        assert project.run(task="B@plain").state == "sealed"
    assert (loaded, written(project)) == ([()], [0, 1, 2])


def test_what_another_process_wrote_meanwhile_is_only_read(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed(project)
    path = kept(project)
    files = {one: one.read_bytes() for one in (path, path.with_suffix(".jsonl"))}
    for one in files:
        one.unlink()
    project.script.work.clear()
    project.script.loads.clear()
    project.progress.clear()
    with contextlib.ExitStack() as other:
        other.enter_context(project.world.folders.hold(path.with_suffix(".held")))

        def finish() -> None:
            for one, data in files.items():
                one.write_bytes(data)
            other.close()

        when_waiting(project, monkeypatch, finish)
        assert project.run(repeat_lock=True, task="B@plain").state == "sealed"
    assert (written(project), project.script.loads) == ([], ["b.gguf"])
    size = path.stat().st_size / 1000
    first = project.progress[0]
    assert (first.job, first.done, first.items) == (
        f"A@plain for distance, kept in {size:.1f} kB by another process",
        0,
        3,
    )


def test_nobody_waits_longer_than_there_is_time(project: Project) -> None:
    until_s = project.world.clock.monotonic_s() + 60
    with project.world.folders.hold(placed_for(project)):
        ran = project.run(ask_until_s=until_s, task="B@plain")
    assert (ran.state, ran.why, project.script.loads) == ("incomplete", "the time is up", [])


def test_who_holds_a_file_and_adds_nothing_is_named_in_the_end(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_base, "STALLED_S", 100.0)
    folder, began_s = placed_for(project), project.world.clock.monotonic_s()
    with project.world.folders.hold(folder), pytest.raises(HeldError) as caught:
        project.run(task="B@plain")
    assert str(caught.value) == (
        f"folder `{folder}` is held by process `{os.getpid()}` on host `{os.uname().nodename}`"
    )
    assert (project.world.clock.monotonic_s() - began_s, project.script.loads) == (100.0, [])


def test_who_adds_parts_is_waited_for_however_long_it_takes(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_base, "STALLED_S", 15.0)
    sealed(project)
    path = kept(project)
    journal = path.with_suffix(".jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"")
    with contextlib.ExitStack() as other:
        other.enter_context(project.world.folders.hold(path.with_suffix(".held")))

        def add() -> None:
            with journal.open("ab") as file:
                file.write(lines.pop(0))
            if not lines:
                other.close()

        when_waiting(project, monkeypatch, add)
        assert project.run(repeat_lock=True, task="B@plain").state == "sealed"
    assert lines == []


# What is read


def test_a_file_that_nobody_says_to_be_whole_is_not_read(project: Project) -> None:
    def forget(load: Load) -> None:
        if load.weights[0].endswith("b.gguf"):
            kept(project).with_suffix(".jsonl").unlink()

    project.script.before_load = forget
    ran = project.run(task="B@plain", allow=("suite.distance",))
    (finding,) = ran.findings
    name = kept(project).name
    assert (ran.state, finding.where, finding.expected, finding.found, finding.why) == (
        "refused",
        "suite.distance.reference.kept",
        "whole",
        "missing",
        f"`{name}` or its journal is gone, or was begun anew, since the run began",
    )
    assert name not in project.script.references


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


# Writing


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


def other_identity(project: Project, change: Callable[[Identity], Identity]) -> None:
    """Put the file of another identity in the place of the one that is there."""
    journal = kept(project).with_suffix(".jsonl")
    first, _, rest = journal.read_bytes().partition(b"\n")
    identity = from_json(first, Identity, name="x")
    journal.write_bytes(msgspec.json.encode(change(identity)) + b"\n" + rest)


def _other_setting(identity: Identity) -> Identity:
    setting = msgspec.structs.replace(identity.setting, cache_type_k="q8_0")
    return msgspec.structs.replace(identity, setting=setting)


@pytest.mark.parametrize(
    "change, where",
    [
        (lambda one: msgspec.structs.replace(one, model=a_digest("x")), "model"),
        (lambda one: msgspec.structs.replace(one, tokenizer=a_digest("x")), "tokenizer"),
        (lambda one: msgspec.structs.replace(one, text=a_digest("x")), "text"),
        (lambda one: msgspec.structs.replace(one, window_tokens=32), "window_tokens"),
        (lambda one: msgspec.structs.replace(one, windows=9), "windows"),
        (lambda one: msgspec.structs.replace(one, vocab_tokens=9), "vocab_tokens"),
        (_other_setting, "setting.cache_type_k"),
        (lambda one: msgspec.structs.replace(one, engine=a_digest("x")), "engine"),
        (lambda one: msgspec.structs.replace(one, device=a_digest("x")), "device"),
    ],
)
def test_a_file_of_something_else_is_refused_and_named(
    project: Project, change: Callable[[Identity], Identity], where: str
) -> None:
    sealed(project)
    other_identity(project, change)
    ran = project.run(repeat_lock=True)
    assert ran.state == "refused"
    assert wheres(ran) == [("suite-files", f"suite.distance.reference.kept.{where}")]


def test_a_file_that_was_changed_is_refused(project: Project) -> None:
    sealed(project)
    path = kept(project)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    ran = project.run(repeat_lock=True)
    (finding,) = ran.findings
    assert (ran.state, finding.where) == ("refused", "suite.distance.reference.kept.blake3")
    assert (
        finding.why == f"`{path.name}` was changed after it was written; remove it to have it written again"
    )


def test_what_was_read_from_a_file_that_was_touched_meanwhile_is_measured_again(project: Project) -> None:
    expected = undisturbed(project)

    def touch(item: str) -> None:
        if item == "window-0003" and "distance.B" in project.progress[-1].job:
            path = kept(project)
            data = path.read_bytes()
            path.unlink()
            path.write_bytes(data)

    project.script.before_item = touch
    ran = project.run(repeat_lock=True)
    assert (ran.state, wheres(ran)) == (
        "refused",
        [("after-the-run", "suite.distance.reference.kept.touched")],
    )
    project.script.before_item = lambda _: None
    project.script.asked.clear()
    assert project.run().answers_digest == expected
    # All jobs of the suite, and no other's.
    assert project.script.asked == [f"window-000{number}" for number in (1, 2, 3)] * 2


def replaced(path: Path) -> None:
    """Another file of the same bytes in its place."""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize("touch, again", [(lambda _: None, [2, 3]), (replaced, [1, 2, 3])])
@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, Killed])
def test_a_run_that_is_ended_while_it_reads_a_file_doubts_one_that_was_touched(
    project: Project, end: type[BaseException], touch: Callable[[Path], None], again: list[int]
) -> None:
    expected = undisturbed(project)

    def stop(item: str) -> None:
        if item == "window-0002" and "distance.B" in project.progress[-1].job:
            touch(kept(project))
            raise end

    project.script.before_item = stop
    with pytest.raises(end):
        project.run(repeat_lock=True)
    project.script.before_item = lambda _: None
    project.script.work.clear()
    assert project.run().answers_digest == expected
    assert contrasted(project) == [f"window-000{number}" for number in again]


def test_a_file_that_went_after_a_kill_leaves_nothing_that_was_read_from_it(project: Project) -> None:
    expected = undisturbed(project)

    def stop(item: str) -> None:
        if item == "window-0002" and "distance.B" in project.progress[-1].job:
            raise Killed

    project.script.before_item = stop
    with pytest.raises(Killed):
        project.run(repeat_lock=True)
    project.script.before_item = lambda _: None
    kept(project).unlink()
    project.script.work.clear()
    assert project.run().answers_digest == expected
    assert contrasted(project) == ["window-0001", "window-0002", "window-0003"]


def test_suites_that_share_a_file_are_doubted_together(tmp_path: Path) -> None:
    second = KLD.replace('"distance"', '"second"') + "stored = true\n"
    project = add_kld(Project(tmp_path), more=f"stored = true\n{second}")
    project.lock()

    def touch(item: str) -> None:
        if item == "window-0003" and "second.B" in project.progress[-1].job:
            replaced(kept(project))

    project.script.before_item = touch
    ran = project.run()
    assert (ran.state, wheres(ran)) == (
        "refused",
        [
            ("after-the-run", "suite.distance.reference.kept.touched"),
            ("after-the-run", "suite.second.reference.kept.touched"),
        ],
    )
    project.script.before_item = lambda _: None
    project.script.asked.clear()
    sealed(project)
    assert project.script.asked == [f"window-000{number}" for number in (1, 2, 3)] * 4


def test_a_file_of_something_else_is_seen_before_anything_is_run(project: Project) -> None:
    order = check.Asked(lock_path=project.lock_path)
    assert check.check(project.world, order, project.script.open_engine).state == "verified"
    sealed(project)
    assert check.check(project.world, order, project.script.open_engine).state == "verified"
    other_identity(project, _other_setting)
    found = check.check(project.world, order, project.script.open_engine)
    assert [finding.where for finding in found.findings] == [
        "suite.distance.reference.kept.setting.cache_type_k"
    ]
