"""Comparing runs that lie in folders: which points are meant, what must be whole, and what comes out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from qlock.core.bridge import Bridge
from qlock.core.canon import json_bytes
from qlock.core.comparison import Comparison, exit_code_of
from qlock.core.pairs import Loss
from qlock.core.record import line_bytes
from qlock.core.sides import Side
from qlock.errors import AbsentError, ExitCode, InputError, QlockError, UsageError
from qlock.flows.diff import Asked, diff
from qlock.flows.opened import OpenRun, open_side
from qlock.flows.run_folder import RunFolder
from tests.fakes.project import Project, tiny_gguf
from tests.fakes.world import CPU, FixedHost

COMPARE = '\n[compare]\nreference = "A@plain"\n'
RUNS = "runs/small@cpu-amd-1a-02"
NEAR = "did you mean `B@plain`?"


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with a sealed run of two models, which no test changes."""
    project = Project(tmp_path_factory.mktemp("diff"), items=12)
    project.write_spec(lambda text: text + COMPARE)
    project.script.replies = {f"q{number:02d}": str(number % 10) for number in range(6)}
    project.lock()
    assert project.run().state == "sealed"
    return project


@pytest.fixture
def project(ready: Project, tmp_path: Path) -> Project:
    """A copy of it."""
    shutil.copytree(ready.path, tmp_path / "work")
    copy = Project.__new__(Project)
    copy.__dict__.update(ready.__dict__, path=tmp_path / "work")
    copy.change_world(cwd=tmp_path / "work")
    return copy


def run_name(project: Project) -> str:
    return next(path.name for path in sorted(project.runs.iterdir()))


def compared(project: Project, left: str = RUNS, **asked: Any) -> list[tuple[str, str]]:
    return [(one.a.point, one.b.point) for one in diff(project.world, Asked(left=left, **asked))]


def refused(project: Project, kind: type[QlockError], left: str = RUNS, **asked: Any) -> tuple[str, str]:
    with pytest.raises(kind) as caught:
        diff(project.world, Asked(left=left, **asked))
    return str(caught.value), caught.value.hint


def test_one_run_compares_every_other_point_with_the_reference(project: Project) -> None:
    (found,) = diff(project.world, Asked(left=RUNS))
    assert (found.a.point, found.b.point, found.state) == ("A@plain", "B@plain", "valid")
    assert found.a.name == f"small@cpu-amd-1a-02/{run_name(project)}:A@plain"
    assert [(suite.suite, suite.score.pairs) for suite in found.suite] == [("digits", 12), ("text", 3)]
    assert exit_code_of((found,)) == ExitCode.YES


def test_two_quants_of_one_run_can_be_named(project: Project) -> None:
    run = f"{RUNS}/{run_name(project)}"
    assert compared(project, f"{run}:B@plain") == [("A@plain", "B@plain")]
    assert compared(project, f"{run}:B@plain", right=f"{run}:A@plain") == [("B@plain", "A@plain")]
    assert compared(project, RUNS, reference="B@plain") == [("B@plain", "A@plain")]


def again(project: Project) -> str:
    """The folder of a further run of the lock, begun a minute later."""
    project.world.clock.sleep_s(60)
    ran = project.run(repeat_lock=True)
    assert ran.state == "sealed"
    return str(ran.folder)


def test_two_runs_compare_points_of_one_name(project: Project) -> None:
    first, second = f"{RUNS}/{run_name(project)}", again(project)
    assert compared(project, first, right=second) == [("A@plain", "A@plain"), ("B@plain", "B@plain")]
    assert compared(project, f"{first}:A@plain", right=second) == [("A@plain", "A@plain")]
    assert compared(project, first, right=f"{second}:B@plain") == [("B@plain", "B@plain")]
    assert compared(project, first, right=second, reference="A@plain") == [
        ("A@plain", "A@plain"),
        ("A@plain", "B@plain"),
    ]


@pytest.mark.parametrize(
    "left, right", [("", ""), (":A@plain", ":A@plain"), (":A@plain", ""), ("", ":B@plain")]
)
def test_a_run_is_not_compared_with_itself(project: Project, tmp_path: Path, left: str, right: str) -> None:
    name = f"small@cpu-amd-1a-02/{run_name(project)}"
    hint = "name a second run or point"
    assert refused(project, UsageError, f"{RUNS}{left}", right=f"{RUNS}{right}") == (
        f"`{name}` would be compared with itself",
        hint,
    )
    shutil.copytree(project.runs / run_name(project), tmp_path / "other/copy")
    assert refused(project, UsageError, f"{RUNS}{left}", right=f"{tmp_path}/other/copy{right}") == (
        f"`{name}` would be compared with a copy of itself, `other/copy`",
        hint,
    )


def test_other_points_of_a_run_may_be_compared_by_naming_it_twice(project: Project) -> None:
    assert compared(project, RUNS, right=RUNS, reference="A@plain") == [("A@plain", "B@plain")]


def test_a_new_release_is_compared_with_the_old_run(project: Project) -> None:
    old = f"{RUNS}/{run_name(project)}"
    project.models = {"C": "file:models/c.gguf"}
    project.write("models/c.gguf", (project.path / "models/b.gguf").read_bytes()[:-128] + b"\x03" * 128)
    project.write_spec()
    project.lock()
    ran = project.run()
    assert (ran.state, ran.folder is not None) == ("sealed", True)
    new = str(ran.folder)
    assert refused(project, UsageError, old, right=new) == (
        f"`small@cpu-amd-1a-02/{Path(old).name}` has several points: A@plain, B@plain",
        "name one: RUN:A@plain",
    )
    (found,) = diff(project.world, Asked(left=f"{old}:A@plain", right=new))
    assert (found.a.point, found.b.point, found.state) == ("A@plain", "C@plain", "valid")


def test_points_that_are_not_there_are_refused_with_those_that_are(project: Project) -> None:
    name = f"small@cpu-amd-1a-02/{run_name(project)}"
    told = (f"got point `X@plain`, expected one of `{name}`: A@plain, B@plain", NEAR)
    assert refused(project, UsageError, f"{RUNS}:X@plain") == told
    assert refused(project, UsageError, reference="X@plain") == told
    assert refused(project, UsageError, right=f"{RUNS}:X@plain") == told


@pytest.mark.parametrize("point, hint", [("B", "did you mean `B@plain`?"), ("zzz", ""), ("b@c@d", "")])
def test_what_stands_behind_the_colon_of_a_run_is_a_point(project: Project, point: str, hint: str) -> None:
    name = f"small@cpu-amd-1a-02/{run_name(project)}"
    told = (f"got point `{point}`, expected one of `{name}`: A@plain, B@plain", hint)
    whole = f"{RUNS}/{run_name(project)}"
    for run in (RUNS, whole, project.path / whole):
        assert refused(project, UsageError, f"{run}:{point}") == told
        assert refused(project, UsageError, whole, right=f"{run}:{point}") == told
    lock = project.lock_path
    assert refused(project, UsageError, f"{lock}:{point}") == (
        f"got point `{point}`, expected one of `{lock}`: A@plain, B@plain",
        hint,
    )


def test_a_run_whose_path_has_a_colon_is_a_run(project: Project) -> None:
    (project.path / RUNS).rename(project.path / "runs/a:b")
    assert compared(project, "runs/a:b") == [("A@plain", "B@plain")]
    project.write("runs/a/x", b"")  # `runs/a` is there too
    assert compared(project, "runs/a:b") == [("A@plain", "B@plain")]
    assert refused(project, AbsentError, "nowhere:b") == (
        "there is no run at `nowhere:b`",
        "give the folder that holds `lock.toml`",
    )


def test_a_point_is_not_compared_with_itself_by_mistake(project: Project) -> None:
    assert refused(project, UsageError, f"{RUNS}:A@plain") == (
        "there is nothing to compare `A@plain` with",
        "name a second run or point",
    )


def test_two_ways_to_name_the_reference_must_agree(project: Project) -> None:
    assert refused(project, UsageError, f"{RUNS}:B@plain", right=RUNS, reference="A@plain") == (
        "got reference `A@plain` and point `B@plain` of the first run",
        "",
    )


def test_a_run_is_found_by_its_folder_or_the_folder_above_while_it_is_the_only_one(project: Project) -> None:
    assert refused(project, AbsentError, "runs/nothing") == (
        "there is no run at `runs/nothing`",
        "give the folder that holds `lock.toml`",
    )
    name = run_name(project)
    shutil.copytree(project.runs / name, project.runs / "00000000")
    assert refused(project, AbsentError) == (
        f"`{RUNS}` holds several runs: 00000000, {name}",
        f"name one: {RUNS}/00000000",
    )
    (project.runs / "00000000" / "seal.json").unlink()
    assert compared(project) == [("A@plain", "B@plain")]


def test_the_reference_and_the_treatment_come_from_the_lock_unless_said(project: Project) -> None:
    (found,) = diff(project.world, Asked(left=RUNS, treatment="kv"))
    assert (found.treatment, found.state) == ("kv", "invalid")
    assert refused(project, UsageError, treatment="everything") == (
        "got treatment `everything`, expected one of: weights, kv, context, template, sampling",
        "",
    )


def test_without_a_reference_one_must_be_named(project: Project) -> None:
    project.write_spec()
    project.lock()
    ran = project.run()
    assert refused(project, UsageError, str(ran.folder)) == (
        "nothing says which point is the reference",
        "give --reference POINT",
    )


def test_locks_that_declare_two_treatments_must_be_told_which(project: Project) -> None:
    first = run_name(project)
    project.write_spec(lambda text: f'{text}{COMPARE}treatment = "kv"\n')
    project.lock()
    ran = project.run()
    asked = {"left": f"{RUNS}/{first}", "right": str(ran.folder)}
    assert refused(project, UsageError, **asked) == (
        "the locks declare two treatments: kv and weights",
        "give --treatment",
    )
    assert len(compared(project, **asked, treatment="kv")) == 2


def test_a_second_run_of_the_lock_measures_the_noise(project: Project) -> None:
    first = run_name(project)
    run = f"{RUNS}/{first}"
    (found,) = diff(project.world, Asked(left=run, noise=(again(project),)))
    assert [(floor.side, floor.value) for floor in found.suite[0].noise] == [("a", 0.0), ("b", 0.0)]


def test_the_run_itself_and_a_copy_of_it_show_no_noise(project: Project, tmp_path: Path) -> None:
    first = run_name(project)
    shutil.copytree(project.runs / first, tmp_path / "other/copy")
    for noise, name in (
        (f"{RUNS}/{first}", f"small@cpu-amd-1a-02/{first}"),
        (str(tmp_path / "other/copy"), "other/copy"),
    ):
        assert refused(project, UsageError, f"{RUNS}/{first}", noise=(noise,)) == (
            f"`{name}` is the compared run itself or a copy of it, which shows no noise",
            "run the same lock once more",
        )


def test_a_run_of_another_lock_shows_no_noise(project: Project) -> None:
    first = run_name(project)
    project.write_spec()
    project.lock()
    ran = project.run()
    assert ran.folder is not None
    assert refused(project, UsageError, f"{RUNS}/{first}", noise=(str(ran.folder),)) == (
        f"`small@cpu-amd-1a-02/{ran.folder.name}` is no further run of a compared lock",
        "run the same lock once more",
    )


def test_a_second_run_that_answers_otherwise_is_no_noise_but_a_fault(project: Project) -> None:
    first = run_name(project)
    project.script.replies = project.script.replies | {"q03": "9"}
    second = again(project)
    found = diff(project.world, Asked(left=f"{RUNS}/{first}", right=second))
    assert [one.state for one in found] == ["invalid", "invalid"]
    (with_noise,) = diff(project.world, Asked(left=f"{RUNS}/{first}", noise=(second,)))
    assert [one.path for one in with_noise.difference if one.standing == "fatal"] == [
        "noise.a.suite.digits.answers.1",
        "noise.b.suite.digits.answers.1",
    ]


def elsewhere(project: Project) -> str:
    """The folder of a run on another machine, where the original does not fit: points B and C, and no reference."""
    project.models = {"B": "file:models/b.gguf", "C": "file:models/c.gguf"}
    project.write("models/c.gguf", tiny_gguf(3))
    project.write_spec()
    project.change_world(host=FixedHost(msgspec.structs.replace(CPU, cpu_model="AMD EPYC 2")))
    project.lock_path.unlink()
    project.lock()
    ran = project.run()
    assert ran.state == "sealed"
    return str(ran.folder)


def test_a_bridge_describes_the_way_to_every_other_point_of_the_second_run(project: Project) -> None:
    here = f"{RUNS}/{run_name(project)}"
    there = elsewhere(project)
    (found,) = diff(project.world, Asked(left=here, right=there, bridge="B@plain"))
    assert (found.a.point, found.b.point, found.state) == ("A@plain", "C@plain", "invalid")
    assert isinstance(found.bridge, Bridge)
    assert (found.bridge.point, found.bridge.unfit) == ("B@plain", ())
    assert [(span.suite, span.items) for span in found.bridge.span] == [("digits", 12), ("text", 3)]
    assert [stop.point for stop in found.bridge.span[0].stop] == ["A@plain", "B@plain", "B@plain", "C@plain"]
    assert exit_code_of((found,)) == ExitCode.INVALID
    for left, right in ((f"{here}:A@plain", there), (here, f"{there}:C@plain")):
        assert compared(project, left, right=right, bridge="B@plain") == [("A@plain", "C@plain")]
    for reference in (None, "C@plain"):
        assert compared(project, there, right=here, reference=reference, bridge="B@plain") == [
            ("C@plain", "A@plain")
        ]
    (plain,) = diff(project.world, Asked(left=f"{here}:A@plain", right=f"{there}:C@plain"))
    assert plain.bridge is UNSET


def test_a_bridge_that_leads_nowhere_is_refused(project: Project) -> None:
    here = f"{RUNS}/{run_name(project)}"
    there = elsewhere(project)
    names = {run: "/".join(Path(run).parts[-2:]) for run in (here, there)}
    asked = {"right": there, "bridge": "B@plain"}
    assert refused(project, UsageError, here, bridge="B@plain") == (
        f"got --bridge and `{names[here]}` alone, expected a second one of another device",
        "",
    )
    assert refused(project, UsageError, here, right=there, bridge="C@plain") == (
        f"got point `C@plain`, expected one of `{names[here]}`: A@plain, B@plain",
        NEAR,
    )
    itself = ("the bridge `B@plain` is what would be compared", "name another point")
    assert refused(project, UsageError, f"{here}:B@plain", **asked) == itself
    assert refused(project, UsageError, here, right=f"{there}:B@plain", bridge="B@plain") == itself
    assert refused(project, UsageError, f"{here}:A@plain", reference="B@plain", **asked) == (
        "got reference `B@plain` and point `A@plain` of the first run",
        "",
    )
    assert (
        refused(project, UsageError, here, right=here, bridge="B@plain", reference="B@plain")[0] == itself[0]
    )


def test_of_several_points_without_a_reference_one_must_be_named(project: Project) -> None:
    project.models = project.models | {"D": "file:models/d.gguf"}
    project.write("models/d.gguf", tiny_gguf(4))
    project.write_spec()
    project.lock()
    here = str(project.run().folder)
    there = elsewhere(project)
    assert refused(project, UsageError, here, right=there, bridge="B@plain") == (
        f"`{'/'.join(Path(here).parts[-2:])}` has several points: A@plain, B@plain, D@plain",
        "name one: RUN:A@plain",
    )


def test_points_of_one_device_need_no_bridge(project: Project) -> None:
    first, second = f"{RUNS}/{run_name(project)}", again(project)
    names = ["/".join(Path(run).parts[-2:]) for run in (first, second)]
    assert refused(project, UsageError, first, right=f"{second}:A@plain", bridge="B@plain") == (
        f"`{names[0]}:A@plain` and `{names[1]}:A@plain` have one engine and device, which needs no bridge",
        "leave out --bridge",
    )


def opened(project: Project) -> RunFolder:
    """The run's folder with its seal taken off."""
    folder = RunFolder(project.world, project.runs / run_name(project))
    (folder.path / "seal.json").unlink()
    return folder


def only(project: Project) -> Comparison:
    (found,) = diff(project.world, Asked(left=RUNS))
    return found


def test_an_open_run_is_compared_as_far_as_it_goes(project: Project) -> None:
    folder = opened(project)
    record = folder.record("digits.B@plain.1")
    assert record is not None
    lines = b"".join(line_bytes(line) for line in (record.header, *record.rows[:7]))
    folder.write("record/digits.B@plain.1.jsonl", lines)
    (folder.path / "record/text.B@plain.1.jsonl").unlink()
    shutil.rmtree(folder.path / "grades")
    found = only(project)
    assert (found.state, exit_code_of((found,))) == ("incomplete", ExitCode.INCOMPLETE)
    digits, text = found.suite
    assert (digits.score.pairs, digits.lost) == (7, 5)
    assert digits.losses == (
        Loss(side="b", why="absent", items=5, examples=("q07", "q08", "q09", "q10", "q11")),
    )
    assert (text.score.pairs, text.lost) == (0, 3)


def test_a_record_that_was_never_begun_is_all_missing(project: Project) -> None:
    folder = opened(project)
    for job in ("digits.A@plain.1", "digits.B@plain.1"):
        (folder.path / f"record/{job}.jsonl").unlink()
    assert only(project).suite[0].losses == (Loss(side="both", why="absent", items=12, examples=()),)


def changed(name: str) -> Callable[[RunFolder], None]:
    def change(folder: RunFolder) -> None:
        path = folder.path / name
        path.write_bytes(path.read_bytes().replace(b"q00", b"q99"))

    return change


@pytest.mark.parametrize("name", ["record/digits.A@plain.1.jsonl", "grades/digits.A@plain.1.jsonl"])
def test_what_was_changed_after_the_seal_is_refused(project: Project, name: str) -> None:
    changed(name)(RunFolder(project.world, project.runs / run_name(project)))
    assert refused(project, InputError) == (
        f"{RUNS}/{run_name(project)}/{name}: the file was changed after the run was sealed",
        "get it again from whoever measured it, or measure again",
    )
    # From elsewhere the run is named by its whole path.
    whole = project.runs / run_name(project)
    project.change_world(cwd=project.path / "specs")
    assert refused(project, InputError, str(whole))[0].startswith(f"{whole}/{name}: ")


def test_another_lock_than_the_sealed_one_is_refused(project: Project) -> None:
    folder = RunFolder(project.world, project.runs / run_name(project))
    lock = project.lock_path.read_bytes()
    assert lock == folder.read("lock.toml")
    project.write_spec(lambda text: text.replace("slots = 4", "slots = 2") + COMPARE)
    project.lock()
    folder.write("lock.toml", project.lock_path.read_bytes())
    assert (
        refused(project, InputError)[0]
        == f"{RUNS}/{folder.path.name}/lock.toml: the lock is not the one that was sealed"
    )


def test_grades_of_another_record_are_refused(project: Project) -> None:
    folder = opened(project)
    grades = (folder.path / "grades/digits.B@plain.1.jsonl").read_bytes()
    folder.write("grades/digits.A@plain.1.jsonl", grades)
    assert refused(project, InputError) == (
        f"{RUNS}/{run_name(project)}/grades/digits.A@plain.1.jsonl: the grades are not of this record",
        "put the file back as it was",
    )


def test_a_record_of_another_lock_is_refused(project: Project) -> None:
    folder = opened(project)
    other = (folder.path / "record/digits.B@plain.1.jsonl").read_bytes()
    folder.write("record/digits.A@plain.1.jsonl", other)
    assert refused(project, InputError) == (
        f"{RUNS}/{run_name(project)}/record/digits.A@plain.1.jsonl: the record belongs to another lock",
        "",
    )


def test_a_forced_run_is_never_valid(project: Project) -> None:
    folder = opened(project)
    seen = folder.facts()
    raw = json_bytes(seen).replace(b'"forced":[]', b'"forced":["device.cores"]')
    folder.write("facts.json", raw)
    found = only(project)
    assert found.state == "invalid"
    assert found.why[0].startswith("fatal: forced.device.cores: A has `forced`, B has `forced`")
    assert exit_code_of((found,)) == ExitCode.INVALID


def test_a_path_with_a_colon_is_a_path(project: Project, tmp_path: Path) -> None:
    shutil.copytree(project.runs / run_name(project), tmp_path / "a:b@c d")
    assert compared(project, str(tmp_path / "a:b@c d")) == [("A@plain", "B@plain")]


def test_locks_are_compared_without_a_run(project: Project) -> None:
    lock = project.lock_path
    lock = lock if not Path(lock).is_absolute() else Path(lock).relative_to(project.path)
    (found,) = diff(project.world, Asked(left=str(lock)))
    assert (found.a.name, found.b.name) == (f"{lock}:A@plain", f"{lock}:B@plain")
    assert (found.state, found.b.record, found.suite) == ("valid", "none", ())
    assert compared(project, str(lock), right=str(lock)) == [("A@plain", "A@plain"), ("B@plain", "B@plain")]
    assert compared(project, f"{lock}:B@plain", right=f"{lock}:A@plain") == [("B@plain", "A@plain")]


def test_a_bridge_between_locks_says_whether_it_would_bear(project: Project) -> None:
    lock = project.lock_path
    here = lock.rename(lock.with_name("here.toml"))
    shutil.copy(here, lock)
    elsewhere(project)
    (found,) = diff(project.world, Asked(left=str(here), right=str(lock), bridge="B@plain"))
    assert found.bridge == Bridge(point="B@plain", unfit=(), span=())
    assert (found.state, found.b.record) == ("invalid", "none")


def test_a_lock_is_not_compared_with_a_run_and_has_no_noise(project: Project) -> None:
    lock = "locks/x.toml"
    assert refused(project, UsageError, lock, right=RUNS) == (
        f"got a lock and `{RUNS}`, expected two locks or two runs",
        "each run holds its lock as `lock.toml`",
    )
    assert refused(project, UsageError, lock, noise=(RUNS,)) == (
        "got --noise with locks, expected runs: a lock has no noise",
        "",
    )
    assert refused(project, AbsentError, lock)[0].endswith("locks/x.toml` is not there")


def test_each_side_is_read_once_and_like_the_reference(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[str, str | None]] = []

    def counted(run: OpenRun, point: str, *, like: Side | None = None) -> Side:
        read.append((point, None if like is None else like.point))
        return open_side(run, point, like=like)

    monkeypatch.setattr("qlock.flows.diff.open_side", counted)
    assert compared(project) == [("A@plain", "B@plain")]
    assert read == [("A@plain", None), ("B@plain", "A@plain")]
    read.clear()
    first, second = f"{RUNS}/{run_name(project)}", again(project)
    assert len(compared(project, first, right=second, reference="A@plain")) == 2
    assert read == [("A@plain", None), ("A@plain", "A@plain"), ("B@plain", "A@plain")]
