"""Kept files: written once, gone on with after a kill, reused, and refused where they are of something else."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from qlock.core.canon import from_json
from qlock.core.distance import Distance
from qlock.core.kept_base import Identity
from qlock.core.kept_logits import layout_in
from qlock.core.kept_top import sizes_in
from qlock.core.plan import jobs
from qlock.engines.interface import Contrast, Load
from qlock.errors import AbsentError, InputError
from qlock.flows import check, kept_base
from qlock.flows.kept_base import KeptBase
from qlock.flows.locks import read_lock_file
from qlock.flows.run import Ran
from qlock.world.interface import HeldError
from tests.fakes.documents import a_digest
from tests.fakes.engine import VOCAB_TOKENS
from tests.fakes.kld import KLD, add_kld, kept, kept_paths, stored, written
from tests.fakes.project import Project, edit, refusal, sealed, tiny_gguf, undisturbed, wheres
from tests.flows.test_traces import take

FEW = "stored = true\nstored_tokens = 9\n"
"""Further keys of a suite."""


class Killed(BaseException):
    """Stands for SIGKILL: nobody expects it."""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return stored(tmp_path)


def contrasted(project: Project) -> list[str]:
    """Items that were held against something, in the order in which they were asked."""
    return [work.id for work in project.script.work if isinstance(work, Contrast)]


def distances(ran: Ran) -> dict[str, float]:
    return {score.point: score.score.value for score in ran.scores if score.suite == "distance"}


def test_a_file_is_written_once_and_read_by_each_point(project: Project) -> None:
    ran = sealed(project)
    path = kept(project)
    names = sorted(entry.name for entry in path.parent.iterdir())
    assert names == [f"{path.stem}.jsonl", path.name]
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


def delete(folder: Path, what: str) -> None:
    """Some of what lies in a folder, or the folder itself."""
    found = [folder] if what == "all" else list(folder.glob(what))
    assert found
    for path in found:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


DELETED = pytest.mark.parametrize("what", ["all", "*.kld", "*.jsonl"])


@DELETED
def test_what_is_deleted_is_written_again_where_it_is_needed(project: Project, what: str) -> None:
    first = sealed(project)
    data = kept(project).read_bytes()
    delete(kept(project).parent, what)
    project.script.work.clear()
    assert project.run().answers_digest == first.answers_digest
    assert project.script.work == []  # a sealed run needs no such file
    again = project.run(repeat_lock=True)
    assert (again.state, again.answers_digest) == ("sealed", first.answers_digest)
    assert written(project) == [0, 1, 2]
    assert kept(project).read_bytes() == data


@DELETED
def test_what_is_deleted_half_written_is_written_again(project: Project, what: str) -> None:
    expected = undisturbed(project)
    data = kept(project).read_bytes()
    delete(kept(project).parent, "all")

    def stop(item: str) -> None:
        if item == "part-1":
            raise Killed

    project.script.before_item = stop
    with pytest.raises(Killed):
        project.run(repeat_lock=True)
    project.script.before_item = lambda _: None
    delete(kept(project).parent, what)
    assert project.run().answers_digest == expected
    assert kept(project).read_bytes() == data


@pytest.mark.parametrize("what", ["all", "*.kld"])
def test_what_is_deleted_while_it_is_read_is_seen_and_measured_again(project: Project, what: str) -> None:
    expected = undisturbed(project)

    def go(_: str) -> None:
        if "text.B" in project.progress[-1].job and kept_paths(project):  # what was read stands in the record
            delete(kept(project).parent, what)

    project.script.before_item = go
    ran = project.run(repeat_lock=True)
    assert (ran.state, wheres(ran)) == ("refused", [("after-the-run", "suite.distance.reference.kept")])
    project.script.before_item = lambda _: None
    assert project.run().answers_digest == expected


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
        "give the suite `stored_tokens` or fewer `windows`, or set `stored = false`: then nothing is written"
    )
    assert project.script.loads == []


def test_the_disk_is_that_on_which_the_files_lie(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other-disk").mkdir()
    project.runs.mkdir(parents=True)
    (project.runs / "references").symlink_to(tmp_path / "other-disk")
    monkeypatch.setattr(kept_base, "free_bytes", lambda path: 1e9 if path.name == "references" else 0)
    assert project.run().state == "sealed"


def test_what_is_there_needs_no_more_room(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed(project)
    monkeypatch.setattr(kept_base, "free_bytes", lambda _: 0)
    assert project.run(repeat_lock=True).state == "sealed"


def test_the_likeliest_tokens_alone_take_less_room(tmp_path: Path) -> None:
    project = stored(tmp_path, tokens=VOCAB_TOKENS)
    whole = distances(sealed(project))
    size = kept(project).stat().st_size
    add_kld(project, more=FEW).lock(upgrade=("distance",))
    project.script.work.clear()
    ran = sealed(project)
    (path,) = (path for path in kept_paths(project) if path.stat().st_size < size)
    sizes = sizes_in(path.read_bytes())
    assert (sizes.parts, sizes.kept_tokens, written(project)) == (3, 9, [0, 1, 2])
    assert distances(ran) == pytest.approx(whole, abs=1e-3)
    said = {score.point: score.distance for score in ran.scores if score.suite == "distance"}
    bounds = {point: isinstance(one, Distance) and one.is_lower_bound for point, one in said.items()}
    assert bounds == {"A@plain": False, "B@plain": True}


def test_traces_are_stored_too(tmp_path: Path) -> None:
    project = add_kld(Project(tmp_path, tokens=VOCAB_TOKENS))
    project.lock()
    sealed(project)
    data = take(project).output.read_bytes()
    add_kld(project, traces=data, more="limit = 5\n").lock(upgrade=("distance",))
    beside = distances(sealed(project))
    add_kld(project, traces=data, more=FEW + "limit = 5\n").lock(upgrade=("distance",))
    project.script.work.clear()
    ran = sealed(project)
    assert written(project) == [0, 1, 2, 3, 4]
    assert sizes_in(kept(project).read_bytes()).parts == 5
    assert distances(ran)["B@plain"] == pytest.approx(beside["B@plain"], abs=1e-3)


def test_more_tokens_than_there_are_are_refused_when_the_spec_is_resolved(tmp_path: Path) -> None:
    project = add_kld(Project(tmp_path, tokens=VOCAB_TOKENS), more="stored = true\nstored_tokens = 257\n")
    opened = project.script.opened
    message, hint = refusal(project, InputError)
    assert project.script.opened == opened
    assert message == "suite.distance: got `257` as `stored_tokens`, expected at most `256`"
    assert hint == "leave it out: then the whole vocabulary is stored"
    # Of traces no whole rows are stored.
    add_kld(project).lock()
    sealed(project)
    add_kld(project, traces=take(project).output.read_bytes(), more="stored = true\nstored_tokens = 257\n")
    with pytest.raises(InputError) as caught:
        project.lock(upgrade=("distance",))
    assert (str(caught.value), caught.value.hint) == (message, "give it at most `256`")


# Somebody else writes it


def first_base(project: Project) -> KeptBase:
    """The only kept file of the lock."""
    lock = read_lock_file(project.world, project.lock_path)[0]
    (base,) = kept_base.bases_of(lock, jobs(lock), project.runs)
    return base


def placed_for(project: Project) -> Path:
    """The folder that whoever writes the kept file holds."""
    holding = first_base(project).holding
    holding.mkdir(parents=True)
    return holding


def held_now(
    project: Project, base: KeptBase, *, is_over: bool = False
) -> contextlib.AbstractContextManager[bool]:
    """Holds a kept file."""
    return kept_base.held(project.world, base, tell=lambda done: None, is_over=lambda: is_over)


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
        other.enter_context(project.world.folders.hold(placed_for(project)))

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


def test_the_held_folder_goes_with_its_last_holder_and_never_from_under_one(project: Project) -> None:
    holding, base = placed_for(project), first_base(project)
    with held_now(project, base) as is_mine:
        assert is_mine
        assert [path.name for path in holding.iterdir()] == ["held.1.json"]
    assert not holding.exists()
    # Whoever gives up waiting leaves it to the one who has it.
    holding.mkdir()
    with project.world.folders.hold(holding):
        with held_now(project, base, is_over=True) as is_mine:
            assert not is_mine
        assert [path.name for path in holding.iterdir()] == ["held.1.json"]


def test_a_folder_that_went_between_making_and_taking_it_is_made_again(project: Project) -> None:
    holding, base = placed_for(project), first_base(project)
    folders, turns = project.world.folders, [1, 2]

    class Removing:
        """Stands for another holder, who is done in that very moment."""

        release = staticmethod(folders.release)

        def hold(self, folder: Path) -> contextlib.AbstractContextManager[None]:
            if turns:
                turns.pop()
                folder.rmdir()
            return folders.hold(folder)

    project.change_world(folders=Removing())
    with held_now(project, base) as is_mine:
        assert is_mine
        assert holding.is_dir()
    assert (turns, holding.exists()) == ([], False)


def test_a_folder_that_is_there_and_cannot_be_held_is_an_error(project: Project) -> None:
    base, folders = first_base(project), project.world.folders

    class Refusing:
        """Stands for a disk that takes no file."""

        release = staticmethod(folders.release)

        def hold(self, folder: Path) -> contextlib.AbstractContextManager[None]:
            raise AbsentError(f"cannot write `{folder.name}`")

    project.change_world(folders=Refusing())
    with pytest.raises(AbsentError) as caught, held_now(project, base):
        pass
    assert str(caught.value) == f"cannot write `{base.holding.name}`"


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
        other.enter_context(project.world.folders.hold(placed_for(project)))

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
        (lambda one: msgspec.structs.replace(one, parts=9), "parts"),
        (lambda one: msgspec.structs.replace(one, kept_tokens=9), "kept_tokens"),
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
    assert finding.why == f"`{path.name}` was changed after it was written"
    assert finding.remedy == "remove the file and the journal beside it: then both are written again"


def test_a_journal_that_was_changed_is_refused_for_what_was_changed(project: Project) -> None:
    sealed(project)
    path, size = kept(project), kept(project).stat().st_size
    journal = path.with_suffix(".jsonl")
    edit(journal, f'"size_bytes":{size}'.encode(), b'"size_bytes":7')
    ran = project.run(repeat_lock=True)
    (finding,) = ran.findings
    assert wheres(ran) == [("suite-files", "suite.distance.reference.kept.size_bytes")]
    assert (finding.expected, finding.found) == ("7", str(size))
    assert finding.why == f"`{journal.name}` was changed after it was written: its digest is that of the file"
    assert finding.remedy == "remove the file and the journal beside it: then both are written again"


@pytest.mark.parametrize(
    "put, told",
    [
        (lambda place: place.write_bytes(b""), "is no folder"),
        (lambda place: place.symlink_to("nowhere"), "is a symbolic link that leads nowhere"),
    ],
)
def test_what_stands_in_the_place_of_the_folder_is_named(
    project: Project, put: Callable[[Path], object], told: str
) -> None:
    place = project.runs / "references"
    project.runs.mkdir(parents=True)
    put(place)
    holding = first_base(project).holding
    with pytest.raises(AbsentError) as caught:
        project.run()
    assert str(caught.value) == f"cannot make the folder `{holding}`: `{place}` {told}"


def test_of_a_damaged_journal_it_is_said_what_to_do(project: Project) -> None:
    sealed(project)
    journal = kept(project).with_suffix(".jsonl")
    journal.write_bytes(b"nothing\n")
    with pytest.raises(InputError) as caught:
        project.run(repeat_lock=True)
    assert str(caught.value).startswith(f"{journal.name}: line 1: not JSON")
    assert caught.value.hint == f"remove it: then `{kept(project).name}` is written again"


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
