from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from qlock.core.effects import effects_of
from qlock.core.facts import Device, EngineFile, ReadBack
from qlock.core.verify import Finding
from qlock.engines.interface import Broken as BrokenReply
from qlock.engines.interface import Load
from qlock.errors import AbsentError, EngineError, InputError
from qlock.flows.run import AnchorCheck, Ran
from qlock.flows.run_folder import RunFolder
from qlock.flows.run_point import Broken
from qlock.world.interface import FileDigest
from qlock.world.journal import Journal
from tests.fakes.engine import FakeEngine
from tests.fakes.project import Project, items_jsonl, tiny_gguf
from tests.fakes.world import CPU, FixedHost, ScriptedMaps

DEVICE = "device.cpu-amd-1a-02"
ENGINE = "engine.llama-cpp-python"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.lock()
    return made


def sealed(project: Project) -> Ran:
    ran = project.run()
    assert ran.state == "sealed"
    return ran


def folder_of(project: Project, ran: Ran) -> RunFolder:
    assert ran.folder is not None
    return RunFolder(project.world, ran.folder)


def wheres(ran: Ran) -> list[tuple[str, str]]:
    return [(finding.rule, finding.where) for finding in ran.findings]


def is_whole(ran: Ran) -> bool:
    return ran.folder is not None and (ran.folder / "seal.json").exists()


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


def test_every_finding_before_the_start_is_shown_at_once(project: Project) -> None:
    project.write("models/a.gguf", tiny_gguf(9))
    project.write("tasks/digits.jsonl", items_jsonl(7))
    project.change_world(host=FixedHost(msgspec.structs.replace(CPU, cpu_model="another", cores=3)))
    opened = project.script.opened
    ran = project.run()
    assert (ran.state, ran.folder, project.script.opened) == ("refused", None, opened)
    assert [(finding.rule, finding.where, finding.effect) for finding in ran.findings] == [
        ("model-files", "model.A.file.a.gguf.sha256", "output"),
        ("model-files", "model.A.file.a.gguf.blake3", "output"),
        ("suite-files", "suite.digits.file.items.size_bytes", "output"),
        ("suite-files", "suite.digits.file.items.sha256", "output"),
        ("suite-files", "suite.digits.file.items.blake3", "output"),
        ("device", f"{DEVICE}.cpu_model", "output"),
        ("device", f"{DEVICE}.cores", "timing"),
    ]
    assert ran.findings[0].why == "tensors differ; tokenizer, template, metadata identical"
    assert not project.runs.exists()


def test_what_is_not_here_is_absent_and_cannot_be_allowed(project: Project) -> None:
    (project.path / "models/a.gguf").unlink()
    (project.path / "data/text.txt").unlink()
    for allow in ((), ("model.A", "suite.text")):
        ran = project.run(allow=allow)
        assert (ran.state, ran.findings) == (
            "absent",
            (
                Finding(
                    rule="model-files",
                    where="model.A.file.a.gguf",
                    expected="present",
                    found="missing",
                    effect="output",
                    why="no file of this name was found",
                ),
                Finding(
                    rule="suite-files",
                    where="suite.text.file.text",
                    expected="present",
                    found="missing",
                    effect="output",
                    why="no file called `text.txt` was found",
                ),
            ),
        )


def _other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return f"{value} changed"
        case tuple():
            return (*value, *(value[:1] or ("more",)))
        case _:
            raise NotImplementedError(value)


def leaves_of(kind: type[Any], *without: str) -> list[str]:
    return [name for name in kind.__struct_fields__ if name not in without]


@pytest.mark.parametrize("name", leaves_of(Device, "name", "kind", "gpu"))
def test_every_fact_of_the_device_that_differs_is_named(project: Project, name: str) -> None:
    project.change_world(host=FixedHost(msgspec.structs.replace(CPU, **{name: _other(getattr(CPU, name))})))
    ran = project.run()
    assert wheres(ran) == [("device", f"{DEVICE}.{name}")]
    refusing = effects_of(Device)[name] == "output"
    assert ran.state == ("refused" if refusing else "sealed")


# Held against the running engine


class ChangedMaps(ScriptedMaps):
    """Engine files with one fact of libm changed."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self.changes = changes

    def engine_files(
        self, mapped: Any, *, build_folders: Any, digest: Callable[[Path], FileDigest]
    ) -> tuple[EngineFile, ...]:
        files = super().engine_files(mapped, build_folders=build_folders, digest=digest)
        return tuple(
            msgspec.structs.replace(file, **self.changes) if file.name == "libm.so.6" else file
            for file in files
        )


HEX = f"blake3:{'0' * 64}"


@pytest.mark.parametrize(
    "changes, found",
    [
        ({"role": "driver"}, ["role"]),
        ({"size_bytes": 5}, ["size_bytes"]),
        ({"sha256": HEX}, ["sha256"]),
        ({"blake3": HEX}, ["blake3"]),
        ({"code_digest": HEX}, ["code_digest"]),
    ],
)
def test_every_fact_of_an_engine_file_that_differs_is_named(
    project: Project, changes: dict[str, Any], found: list[str]
) -> None:
    project.change_world(maps=ChangedMaps(**changes))
    ran = project.run()
    assert ran.state == "refused"
    assert wheres(ran) == [("engine-files", f"{ENGINE}.file.libm.so.6.{name}") for name in found]
    assert project.script.asked == []


def test_an_engine_file_more_or_fewer_is_named(project: Project) -> None:
    lost = project.script.folder / "libm.so.6"
    lost.rename(lost.with_name("libgomp.so.1"))
    ran = project.run()
    assert [(finding.where, finding.expected, finding.found) for finding in ran.findings] == [
        (f"{ENGINE}.file.libm.so.6", "present", "absent"),
        (f"{ENGINE}.file.libgomp.so.1", "absent", "present"),
    ]


def test_another_feature_line_refuses_and_another_label_does_not(project: Project) -> None:
    project.script.label = "b7000"
    project.script.system_info = "CPU : FAKE = 0"
    ran = project.run()
    assert ran.state == "refused"
    assert wheres(ran) == [("engine-files", f"{ENGINE}.system_info")]
    project.script.system_info = "CPU : FAKE = 1"
    assert project.run().state == "sealed"


@pytest.mark.parametrize("name", leaves_of(ReadBack))
def test_every_fact_that_the_engine_says_of_itself_is_held_against_the_lock(
    project: Project, name: str
) -> None:
    pin = project.resolve().lock.point[0].read_back
    assert pin is not UNSET
    project.script.read_back = {name: _other(getattr(pin, name))}
    ran = project.run()
    assert ran.state == "refused"
    assert ("read-back", f"point.A@plain.read_back.{name}") in wheres(ran)
    follows = {where for rule, where in wheres(ran) if rule == "read-back"}
    assert follows == {f"point.A@plain.read_back.{name}"}
    assert project.script.asked == []


def test_an_engine_that_computes_otherwise_is_refused_at_the_canaries(project: Project) -> None:
    project.script.salt = "broken kernel"
    ran = project.run()
    assert ran.state == "refused"
    names = {where for rule, where in wheres(ran) if rule == "canaries"}
    assert names >= {"point.A@plain.canary.long-prompt.logits_digest", "point.A@plain.plain_text_nats"}
    assert {rule for rule, _ in wheres(ran)} == {"canaries"}
    assert project.script.asked == []


def test_every_rule_at_the_start_of_a_point_speaks_at_once(project: Project) -> None:
    project.script.salt = "broken kernel"
    project.script.read_back = {"add_bos": False}
    project.change_world(maps=ChangedMaps(size_bytes=1))
    assert {rule for rule, _ in wheres(project.run())} == {"canaries", "read-back", "engine-files"}


def test_a_tokenizer_that_cuts_otherwise_is_refused_for_every_suite(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = FakeEngine.tokenize

    def tokenize(self: FakeEngine, texts: Any, *, add_special: bool, parse_special: bool) -> Any:
        found = plain(self, texts, add_special=add_special, parse_special=parse_special)
        return [
            (*ids[:-1], 255) if text.startswith(("3 and", "The sea")) else ids
            for text, ids in zip(texts, found, strict=True)
        ]

    monkeypatch.setattr(FakeEngine, "tokenize", tokenize)
    ran = project.run()
    assert ran.state == "refused"
    assert wheres(ran) == [("prompts", "point.A@plain.prompts.digits.tokens_digest")]


# During the run, and after it


def test_a_model_replaced_between_look_and_load_is_refused(project: Project) -> None:
    def swap(load: Load) -> None:
        if load.weights[0].endswith("b.gguf"):
            project.write("models/b.gguf", tiny_gguf(7))

    project.script.before_load = swap
    ran = project.run()
    assert (ran.state, is_whole(ran)) == ("refused", False)
    assert {rule for rule, _ in wheres(ran)} == {"canaries"}


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


def undisturbed(project: Project) -> str:
    """The digest of the same lock's run without any trouble."""
    return project.run(repeat_lock=True).answers_digest


# Items that cannot be had


def test_an_engine_that_dies_at_one_item_sets_it_aside_and_the_next_run_asks_only_that(
    project: Project,
) -> None:
    project.script.kills["q07"] = 4
    opened = project.script.opened
    ran = project.run()
    assert ran.state == "incomplete"
    assert ran.broken == (
        Broken(
            job="digits.A@plain.1",
            item="q07",
            why="the engine died 3 times at this item: the engine died (signal SIGSEGV)",
        ),
    )
    assert (ran.measured, is_whole(ran)) == (21, False)
    assert project.script.opened - opened == 1 + 1 + 3
    project.script.asked.clear()
    again = sealed(project)
    assert (again.measured, project.script.asked) == (1, ["q07"])
    assert again.answers_digest == undisturbed(project)


def test_a_death_that_is_none_of_the_items_costs_no_item(project: Project) -> None:
    project.script.kills["q03"] = 1
    ran = sealed(project)
    assert ran.measured == 22
    assert ran.answers_digest == undisturbed(project)


def test_a_broken_reply_leaves_the_item_open(project: Project) -> None:
    project.script.replies["q02"] = BrokenReply(id="q02", why="logits are not finite at step `0`")
    ran = project.run()
    assert (ran.state, [broken.why for broken in ran.broken]) == (
        "incomplete",
        ["logits are not finite at step `0`"] * 2,
    )
    del project.script.replies["q02"]
    project.script.asked.clear()
    sealed(project)
    assert project.script.asked == ["q02", "q02"]


def test_an_engine_that_cannot_be_started_again_ends_the_run(project: Project) -> None:
    def kill(_: str) -> None:
        if len(project.script.asked) == 4:
            project.script.kills["q05"] = 1
            project.script.start_error = "the engine did not start: no memory"

    project.script.before_item = kill
    with pytest.raises(EngineError) as caught:
        project.run()
    assert str(caught.value) == "the engine did not start: no memory"
    project.script.start_error = ""
    project.script.before_item = lambda _: None
    done = list(project.script.asked)
    assert sealed(project).measured == 22 - len(done)
    assert sorted(project.script.asked[:8]) == [f"q{number:02d}" for number in range(8)]


def test_an_engine_that_dies_at_everything_ends_the_run(project: Project) -> None:
    project.script.kills.update({f"q{number:02d}": 99 for number in range(8)})
    with pytest.raises(EngineError) as caught:
        project.run()
    assert (str(caught.value), caught.value.hint) == (
        "the engine died at 3 items in a row: the engine died (signal SIGSEGV)",
        "look at the engine; the items are asked again by the next run",
    )
    assert project.script.closed <= project.script.opened
    project.script.kills.clear()
    assert sealed(project).measured == 22


def test_a_prompt_longer_than_the_context_is_ungraded_and_not_wrong(tmp_path: Path) -> None:
    project = Project(tmp_path)
    rows = items_jsonl(2) + items_jsonl(1, start=5).replace(b"5 and 5 is", b"x" * 2100)
    project.write("tasks/digits.jsonl", rows)
    project.lock()
    ran = sealed(project)
    folder = folder_of(project, ran)
    record = folder.record("digits.A@plain.1")
    assert record is not None
    assert [msgspec.to_builtins(row.replies[0])["ending"] for row in record.rows] == ["eos", "eos", "context"]
    _, grades = folder.grades("digits.A@plain.1")
    assert msgspec.to_builtins(grades[2].outcome) == {
        "kind": "ungraded",
        "why": "the prompt does not fit the context: a prompt of `2101` tokens leaves no room in a context of `2048`",
    }
    score = ran.scores[0].score
    assert (score.items, score.left_out) == (2, 1)


def test_a_grader_that_fails_its_trials_stops_before_anything_is_asked(tmp_path: Path) -> None:
    project = Project(tmp_path)
    row = b'{"id": "q", "prompt": "1", "expected": "1", "grader": {"kind": "exact"}, "gold": "2"}\n'
    project.write("tasks/digits.jsonl", row)
    project.lock()
    ran = project.run()
    assert (ran.state, is_whole(ran), project.script.asked) == ("trials-failed", False, [])
    assert [(trial.suite, trial.item, trial.expected) for trial in ran.trials] == [("digits", "q", "right")]
    assert ran.trials[0].found == "wrong: got `2`, expected `1`"


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
