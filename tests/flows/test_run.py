from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from qlock.engines.interface import Done, Load, Measured, Work
from qlock.errors import AbsentError, EngineError, InputError
from qlock.flows.anchors import AnchorCheck
from qlock.flows.preparing import Progress
from qlock.flows.run_folder import RunFolder
from qlock.flows.verify_run import verify_run
from qlock.world.journal import Journal
from tests.fakes.engine import FakeEngine
from tests.fakes.project import (
    Project,
    folder_of,
    is_whole,
    items_jsonl,
    kill_after,
    sealed,
    tiny_gguf,
    undisturbed,
    wheres,
)
from tests.fakes.world import CPU, FixedHost

DEVICE = "device.cpu-amd-1a-02"
ENGINE = "engine.llama-cpp-python"


# A run that goes well


def test_a_run_on_what_is_locked_is_sealed(project: Project) -> None:
    ran = sealed(project)
    assert (ran.findings, ran.broken, ran.trials, ran.anchors, ran.taken_over) == ((), (), (), (), ())
    assert ran.measured == 22
    assert list(project.runs.iterdir()) == [ran.folder]
    assert [(job.job, job.score.what, job.score.items) for job in ran.scores] == [
        ("digits.A@plain.1", "right_share", 8),
        ("text.A@plain.1", "perplexity", 3),
        ("digits.B@plain.1", "right_share", 8),
        ("text.B@plain.1", "perplexity", 3),
    ]
    seal = folder_of(project, ran).seal()
    assert seal is not None
    assert (seal.answers_digest, seal.forced) == (ran.answers_digest, ())
    last = project.progress[-1]
    assert (last.job, last.done, last.items) == ("text.B@plain.1", 3, 3)


def test_the_facts_say_who_ran_it_when_and_with_which_files(project: Project) -> None:
    (segment,) = folder_of(project, sealed(project)).facts().segment
    assert (segment.host_name, segment.kernel, segment.python) == ("node-1", "Linux 6.1.0", "3.11.9")
    assert (segment.started_utc, segment.ended_utc) == (
        "2026-01-01T12:00:00+00:00",
        "2026-01-01T12:00:00+00:00",
    )
    assert segment.engine_label == "b6000 (fake)"
    assert [(file.name, file.role) for file in segment.engine_file] == [
        ("libllama.so", "build"),
        ("libm.so.6", "math"),
        ("libc.so.6", "system"),
    ]
    assert (segment.device, segment.forced, segment.taken_over) == (CPU, (), {})


def test_a_sealed_run_is_not_run_again(project: Project) -> None:
    first = sealed(project)
    project.script.asked.clear()
    again = project.run()
    assert (again.state, again.folder, again.answers_digest) == (
        "already-sealed",
        first.folder,
        first.answers_digest,
    )
    assert (again.scores, project.script.asked) == (first.scores, [])


def test_finishing_order_does_not_show_in_rows_or_digests(project: Project, tmp_path: Path) -> None:
    plain = sealed(project)
    other = Project(tmp_path / "other")
    other.script.takes = lambda names: len(names) - 1
    other.lock()
    backwards = sealed(other)
    assert other.script.asked[:3] == ["q07", "q06", "q05"]
    assert backwards.answers_digest == plain.answers_digest
    for ran in (plain, backwards):
        record = folder_of(other, ran).record("digits.A@plain.1")
        assert record is not None
        assert [row.item for row in record.rows] == [f"q{number:02d}" for number in range(8)]


def test_a_job_without_a_score_is_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = FakeEngine._done

    def negative(self: FakeEngine, work: Work) -> Done:
        done = plain(self, work)
        match done:
            case Measured(id="window-0002", nats=nats):
                return msgspec.structs.replace(done, nats=(-1.0, *nats[1:]))
            case _:
                return done

    monkeypatch.setattr(FakeEngine, "_done", negative)
    for state in ("sealed", "already-sealed"):
        ran = project.run()
        assert (ran.state, ran.unscored) == (state, ("text.A@plain.1", "text.B@plain.1"))
        assert [score.job for score in ran.scores] == ["digits.A@plain.1", "digits.B@plain.1"]


def test_the_run_reaches_no_further_than_slots_and_one_more_round_ahead(project: Project) -> None:
    under_way: list[int] = []

    def take(names: list[str]) -> int:
        under_way.append(len(names))
        return 0

    project.script.takes = take
    sealed(project)
    assert max(under_way) == 8


def test_other_line_breaks_of_unicode_in_answers_stay_in_their_row(project: Project) -> None:
    said = "a\u2028b\u0085c\x1cd\r\ne"
    project.script.replies["q01"] = said
    project.write_spec(lambda text: text.replace("answer_tokens = 8", "answer_tokens = 64"))
    project.lock()
    record = folder_of(project, sealed(project)).record("digits.A@plain.1")
    assert record is not None
    (reply,) = record.rows[1].replies
    assert (len(record.rows), msgspec.to_builtins(reply)["text"]) == (8, said)


# Before the start


def test_a_changed_spec_makes_the_lock_stale_unless_it_is_frozen(project: Project) -> None:
    project.write_spec(lambda text: text.replace("answer_tokens = 8", "answer_tokens = 9"))
    ran = project.run()
    assert (ran.state, ran.why, ran.folder) == (
        "stale",
        "the spec `specs/small.toml` changed since this lock was made",
        None,
    )
    assert project.run(frozen=True).state == "sealed"


def test_a_lock_without_its_spec_runs(project: Project) -> None:
    (project.path / "specs/small.toml").unlink()
    assert project.run().state == "sealed"


def test_an_edited_lock_is_refused(project: Project) -> None:
    project.lock_path.write_bytes(project.lock_path.read_bytes().replace(b"threads = 2", b"threads = 3", 1))
    with pytest.raises(InputError) as caught:
        project.run()
    assert str(caught.value) == (
        "small@cpu-amd-1a-02.toml: the lock was edited by hand: its body_digest does not fit"
    )


# During the run, and after it


def test_a_model_replaced_between_look_and_load_is_refused(project: Project) -> None:
    def swap(load: Load) -> None:
        if load.weights[0].endswith("b.gguf"):
            project.write("models/b.gguf", tiny_gguf(7))

    project.script.before_load = swap
    ran = project.run()
    assert (ran.state, is_whole(ran)) == ("refused", False)
    assert {rule for rule, _ in wheres(ran)} == {"canaries", "after-the-run"}


def test_a_model_replaced_during_the_run_is_refused_and_measured_again(project: Project) -> None:
    def swap(item: str) -> None:
        if item == "q05" and len(project.script.asked) < 8:
            project.write("models/a.gguf", tiny_gguf(7))

    project.script.before_item = swap
    ran = project.run()
    assert (ran.state, is_whole(ran)) == ("refused", False)
    (finding,) = ran.findings
    assert (finding.rule, finding.where, finding.why) == (
        "after-the-run",
        "model.A.file.a.gguf.blake3",
        "the file was replaced while the run went on",
    )
    project.script.before_item = lambda _: None
    project.write("models/a.gguf", tiny_gguf(1))
    project.script.asked.clear()
    again = sealed(project)
    assert (again.measured, len(project.script.asked)) == (11, 11)
    assert again.answers_digest == undisturbed(project)


def test_a_library_replaced_during_the_run_is_refused_and_all_is_measured_again(project: Project) -> None:
    def swap(item: str) -> None:
        if item == "q05" and len(project.script.asked) < 8:
            new = project.script.folder.parent / "new"
            new.write_bytes(b"code of another libm")
            new.replace(project.script.folder / "libm.so.6")

    project.script.before_item = swap
    project.models.pop("B")
    project.write_spec()
    project.lock()
    ran = project.run()
    assert (ran.state, is_whole(ran)) == ("refused", False)
    (finding,) = ran.findings
    assert (finding.rule, finding.where, finding.expected, finding.found) == (
        "after-the-run",
        f"{ENGINE}.file",
        "as locked",
        "missing",
    )
    assert "libm.so.6` was replaced while the engine ran it" in finding.why
    (project.script.folder / "libm.so.6").write_bytes(b"code of libm.so.6")
    assert sealed(project).measured == 11


def overwrite(path: Path, *contents: bytes) -> None:
    """Write into a file that is there, without another inode."""
    for data in contents:
        with path.open("r+b") as file:
            file.write(data)


def there_and_back(project: Project, item: str) -> None:
    if item == "q05" and len(project.script.asked) < 8:
        overwrite(project.path / "models/a.gguf", tiny_gguf(7), tiny_gguf(1))


def test_a_model_that_has_its_bytes_again_was_touched_and_is_measured_again(project: Project) -> None:
    project.script.before_item = lambda item: there_and_back(project, item)
    ran = project.run()
    assert (ran.state, is_whole(ran)) == ("refused", False)
    (finding,) = ran.findings
    assert (finding.rule, finding.where, finding.expected, finding.found, finding.why) == (
        "after-the-run",
        "model.A.file.a.gguf.touched",
        "untouched since it was loaded",
        "written to or replaced",
        "it has its bytes again, and may have had others while the run went on",
    )
    project.script.before_item = lambda _: None
    assert sealed(project).measured == 11


def test_a_run_that_ends_in_an_error_looks_at_its_files_again(project: Project) -> None:
    def stop(item: str) -> None:
        there_and_back(project, item)
        if item == "q06":
            project.script.start_error = "no engine any more"
            project.script.kills["q07"] = 1

    project.script.before_item = stop
    ran = project.run()
    assert (ran.state, ran.why, wheres(ran)) == (
        "refused",
        "no engine any more",
        [("after-the-run", "model.A.file.a.gguf.touched")],
    )
    project.script.before_item = lambda _: None
    project.script.start_error = ""
    project.script.asked.clear()
    assert sealed(project).measured == 22


def test_an_engine_that_is_gone_leaves_rows_of_files_that_were_not_touched(project: Project) -> None:
    def stop(item: str) -> None:
        if item == "q06":
            project.script.start_error = "no engine any more"
            project.script.kills["q07"] = 1

    project.script.before_item = stop
    with pytest.raises(EngineError) as caught:
        project.run()
    assert str(caught.value) == "no engine any more"
    project.script.before_item = lambda _: None
    project.script.start_error = ""
    ran = sealed(project)
    assert ran.measured == 22 - 7
    segments = folder_of(project, ran).facts().segment
    assert [(segment.ended_utc != "", segment.looked_again) for segment in segments] == [(True, True)] * 2


def test_anchors_and_trials_do_not_hide_a_file_that_was_touched(project: Project) -> None:
    anchored(project, 100.0)

    def touch(_: str) -> None:
        overwrite(project.path / "models/b.gguf", tiny_gguf(7), tiny_gguf(2))

    project.script.before_item = touch
    ran = project.run()
    assert (ran.state, wheres(ran)) == ("refused", [("after-the-run", "model.B.file.b.gguf.touched")])
    record = folder_of(project, ran).record("text.B@plain.1")
    assert record is not None
    assert (record.rows, record.closing) == ((), None)


def test_a_library_that_has_its_bytes_again_was_touched_and_all_is_measured_again(project: Project) -> None:
    def touch(item: str) -> None:
        if item == "q05" and len(project.script.asked) < 8:
            overwrite(project.script.folder / "libm.so.6", b"CODE", b"code")
            overwrite(
                project.script.folder / "libc.so.6", b"CODE", b"code"
            )  # Of the system: no lock pins it.

    project.script.before_item = touch
    ran = project.run()
    assert (ran.state, is_whole(ran), wheres(ran)) == (
        "refused",
        False,
        [("after-the-run", f"{ENGINE}.file.libm.so.6.touched")],
    )
    project.script.before_item = lambda _: None
    assert sealed(project).measured == 22


def test_a_suite_file_replaced_during_the_run_is_refused_and_nothing_is_lost(project: Project) -> None:
    before = (project.path / "tasks/digits.jsonl").read_bytes()

    def swap(_: str) -> None:
        project.write("tasks/digits.jsonl", items_jsonl(9))

    project.script.before_item = swap
    ran = project.run()
    assert (ran.state, is_whole(ran)) == ("refused", False)
    assert {rule for rule, _ in wheres(ran)} == {"after-the-run"}
    project.script.before_item = lambda _: None
    project.write("tasks/digits.jsonl", before)
    assert sealed(project).measured == 0


# Anchors

ANCHOR = """
[[anchor]]
model = "B"
suite = "text"
published = {published}
source = "https://example.org/paper"
tolerance = 0.1
"""


def anchored(project: Project, published: float) -> None:
    project.write_spec(lambda text: text + ANCHOR.format(published=published))
    project.lock()


def test_an_anchor_that_is_off_stops_everything_else_now_and_on_resume(project: Project) -> None:
    anchored(project, 100.0)
    for asked in (3, 0):
        project.script.asked.clear()
        ran = project.run()
        assert (ran.state, ran.why, is_whole(ran)) == ("anchor-off", "B text", False)
        assert [name.partition("-")[0] for name in project.script.asked] == ["window"] * asked
        (anchor,) = ran.anchors
        assert anchor == AnchorCheck(
            model="B", suite="text", published=100.0, tolerance=0.1, found=anchor.found, holds=False
        )


def test_a_wall_clock_that_is_set_while_it_runs_moves_nothing(project: Project) -> None:
    real, steps = project.world.clock, itertools.cycle((-40_000, 90_000, 0, -7))

    class Set:
        """The date is another one at each look; time itself goes on."""

        monotonic_s, sleep_s = staticmethod(real.monotonic_s), staticmethod(real.sleep_s)

        def now(self) -> datetime:
            return real.now() + timedelta(hours=next(steps))

    project.change_world(clock=Set())
    kill_after(project, 5)
    ran = sealed(project)
    assert ran.folder is not None
    assert ran.answers_digest == undisturbed(project)
    assert verify_run(project.world, ran.folder).state == "verified"


def test_an_anchor_that_holds_lets_the_run_go_on(project: Project) -> None:
    found = next(job.score.value for job in sealed(project).scores if job.job == "text.B@plain.1")
    anchored(project, round(found, 2))
    ran = sealed(project)
    assert [anchor.holds for anchor in ran.anchors] == [True]
    assert ran.anchors[0].found == found


# Forced


def test_what_is_allowed_is_a_mark_for_ever(project: Project) -> None:
    project.change_world(host=FixedHost(msgspec.structs.replace(CPU, cpu_model="another")))
    assert project.run().state == "refused"
    ran = project.run(allow=(f"{DEVICE}.cpu_model",))
    assert ran.state == "sealed"
    folder = folder_of(project, ran)
    seal = folder.seal()
    assert seal is not None
    assert seal.forced == (f"{DEVICE}.cpu_model",)
    assert folder.facts().segment[0].device.cpu_model == "another"


def test_a_forced_stretch_marks_the_run_although_a_later_one_ends_it(project: Project) -> None:
    project.script.kills["q07"] = 4
    assert project.run(allow=(DEVICE,)).state == "incomplete"
    seal = folder_of(project, sealed(project)).seal()
    assert seal is not None
    assert seal.forced == (DEVICE,)


def test_what_an_engine_logged_before_it_died_is_kept_with_the_stretch(project: Project) -> None:
    project.script.kills["q07"] = 1
    ran = sealed(project)
    (segment,) = folder_of(project, ran).facts().segment
    assert segment.engine_log == "the last line"
    again = project.run(repeat_lock=True)
    (segment,) = folder_of(project, again).facts().segment
    assert segment.engine_log == ""


def test_other_files_may_be_forced(project: Project) -> None:
    project.write("models/a.gguf", tiny_gguf(9))
    project.write("tasks/digits.jsonl", items_jsonl(6))
    allow = ("model.A", "suite.digits", "point.A@plain", "point.B@plain")
    ran = project.run(allow=allow)
    assert ran.state == "sealed"
    record = folder_of(project, ran).record("digits.A@plain.1")
    assert record is not None
    assert len(record.rows) == 6
    assert project.run(allow=allow[1:]).state == "refused"


# The disk and the folder


def test_a_full_disk_ends_the_run_with_its_rows_intact(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Journal.append
    left = iter(range(6))

    def append(self: Journal, row: bytes, *, sync: bool = True) -> None:
        if next(left, None) is None:
            raise AbsentError("no space left")
        plain(self, row, sync=sync)

    monkeypatch.setattr(Journal, "append", append)
    with pytest.raises(AbsentError) as caught:
        project.run()
    assert str(caught.value) == "no space left"
    monkeypatch.setattr(Journal, "append", plain)
    (folder,) = project.runs.iterdir()
    assert not (folder / "seal.json").exists()
    record = RunFolder(project.world, folder).record("digits.A@plain.1")
    assert record is not None
    assert len(record.rows) == 5
    assert sealed(project).measured == 17


@pytest.mark.parametrize("rows, left", [(1, 21), (22, 0)], ids=["at a row", "after the last"])
def test_a_folder_that_goes_during_the_run_is_absent(
    project: Project, tmp_path: Path, rows: int, left: int
) -> None:
    stored = 0

    def move(progress: Progress) -> None:
        nonlocal stored
        stored += progress.tokens > 0
        if stored == rows and project.runs.exists():
            project.runs.rename(tmp_path / "moved")

    with pytest.raises(AbsentError) as caught:
        project.run(move)
    (moved,) = (tmp_path / "moved").iterdir()
    assert (str(caught.value), caught.value.hint) == (
        f"the run folder `{project.runs / moved.name}` is gone",
        "put it back and run again; the rows that are in it are not asked again",
    )
    (moved / "held.1.json").unlink()  # Otherwise held by a process that has ended, and here by this one.
    (tmp_path / "moved").rename(project.runs)
    assert sealed(project).measured == left


def test_a_second_run_in_one_folder_is_refused(project: Project) -> None:
    seen: list[str] = []

    def second(_: str) -> None:
        if not seen:
            seen.append("")
            with pytest.raises(AbsentError) as caught:
                project.run()
            seen[0] = str(caught.value)

    project.script.before_item = second
    sealed(project)
    (folder,) = (path for path in project.runs.iterdir())
    assert seen[0].startswith(f"folder `{folder}` is held by process ")


def test_a_folder_may_be_named(project: Project, tmp_path: Path) -> None:
    ran = project.run(runs=tmp_path / "elsewhere")
    assert ran.folder is not None
    assert ran.folder.parent == tmp_path / "elsewhere"


def test_models_are_found_in_other_folders_by_their_digest(project: Project, tmp_path: Path) -> None:
    (tmp_path / "store/deep").mkdir(parents=True)
    (project.path / "models/a.gguf").rename(tmp_path / "store/deep/a.gguf")
    project.write("models/a.gguf", tiny_gguf(9))
    assert project.run().state == "refused"
    assert project.run(models=(tmp_path / "store",)).state == "sealed"
