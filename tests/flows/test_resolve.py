from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

from qlock.core.lock import Lock, MissingPin, write_lock
from qlock.errors import AbsentError, InputError, RefusedError, UsageError
from qlock.flows.locks import read_lock_file
from qlock.flows.moving import Move
from qlock.flows.resolve import Asked, in_name_order, read_spec_file, resolve
from tests.fakes.project import Project, refusal, tiny_gguf
from tests.fakes.world import CPU, FixedHost

ROOT = Path(__file__).resolve().parents[2]


# The same spec, the same bytes


def test_two_resolves_in_a_row_give_the_same_bytes(tmp_path: Path) -> None:
    project = Project(tmp_path)
    first = project.resolve()
    assert first.state == "new"
    assert project.resolve().data == first.data
    project.lock()
    again = project.resolve()
    assert (again.state, again.data, again.moves) == ("same", first.data, ())


def test_two_clones_in_two_folders_give_the_same_bytes(tmp_path: Path) -> None:
    locks = {
        Project(tmp_path / place, name=name).resolve().data
        for place, name in [("a", "work"), ("b", "ü 中 🦙")]
    }
    assert len(locks) == 1


def test_a_relative_path_is_taken_from_the_working_folder_of_the_world(tmp_path: Path) -> None:
    project = Project(tmp_path)
    whole = project.resolve()
    project.change_world(cwd=project.path / "specs")
    near = resolve(project.world, Asked(spec_path=Path("small.toml")), project.script.open_engine)
    assert (near.data, near.path) == (whole.data, whole.path)


PROGRAM = """
import sys, os
from pathlib import Path
from tests.fakes.project import Project
place = Path(sys.argv[1])
os.chdir(place)
sys.stdout.buffer.write(Project(place).resolve().data)
"""


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONHASHSEED": "0", "LC_ALL": "C"},
        {"PYTHONHASHSEED": "1", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Tokyo"},
    ],
    ids=["C", "another locale, zone and hash seed"],
)
def test_other_processes_give_the_same_bytes(tmp_path: Path, variables: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], **variables},
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout == Project(tmp_path / "here").resolve().data


def test_order_comments_and_white_space_of_the_spec_do_not_matter(tmp_path: Path) -> None:
    project = Project(tmp_path)
    plain = project.resolve().data
    head, *tables = re.split(
        r"(?=\n\[\[(?:model|setting|suite)\]\])", (project.path / "specs/small.toml").read_text()
    )
    project.write(
        "specs/small.toml", "# a comment\n" + head + "".join(f"\n\n# and one\n{t}" for t in reversed(tables))
    )
    assert project.resolve().data == plain


@pytest.mark.parametrize(
    "written",
    [
        "[suite.sampling]\nanswer_tokens = 8\ntemperature = 0\n",
        "[suite.sampling]\nanswer_tokens = 8\ntemperature = -0.0\n",
        "sampling.answer_tokens = 8\nsampling.temperature = 0.0\n",
        "sampling = {temperature = 0.0, answer_tokens = 0x8}\n",
    ],
)
def test_one_meaning_written_otherwise_gives_one_lock(tmp_path: Path, written: str) -> None:
    project = Project(tmp_path)
    plain = project.resolve().data
    project.write_spec(lambda text: text.replace("[suite.sampling]\nanswer_tokens = 8\n", written))
    assert project.resolve().data == plain


def test_names_within_a_suite_are_taken_in_order_too(tmp_path: Path) -> None:
    project = Project(tmp_path)
    spec = read_spec_file(project.world, project.path / "specs/small.toml")
    suites = tuple(
        msgspec.structs.replace(suite, models=("B", "A"), settings=("plain",)) for suite in spec.suite
    )
    ordered = in_name_order(msgspec.structs.replace(spec, suite=suites))
    assert [suite.models for suite in ordered.suite] == [("A", "B"), ("A", "B")]
    assert in_name_order(spec).suite[0].models is UNSET


def test_no_absolute_path_no_host_and_no_day_stands_in_a_lock(tmp_path: Path) -> None:
    text = Project(tmp_path).resolve().data.decode()
    assert str(tmp_path) not in text
    assert "node-1" not in text
    assert re.findall(r"20\d\d-\d\d-\d\d", text) == ["2026-01-01"]


# Without the engine


def test_without_the_engine_what_only_it_knows_is_listed_missing(tmp_path: Path) -> None:
    project = Project(tmp_path)
    resolved = project.resolve(prove=False)
    assert project.script.opened == 0
    fields = ("canary", "plain_text_nats", "probe", "prompts", "read_back", "repeatable")
    pins = [f"point.{point}.{field}" for point in ("A@plain", "B@plain") for field in fields]
    pins += ["suite.digits.items_limit", "suite.text.items_limit"]
    assert resolved.lock.missing == tuple(
        MissingPin(pin=pin, why="the engine was not asked", until="prove") for pin in pins
    )
    resolved.path.parent.mkdir()
    resolved.path.write_bytes(resolved.data)
    with pytest.raises(RefusedError) as caught:
        project.run()
    assert (str(caught.value), caught.value.hint) == (
        "the lock still misses 14 pins, first `point.A@plain.canary`: the engine was not asked",
        "run `qlock resolve specs/small.toml`, on the machine that shall run it",
    )
    proved = project.lock()
    assert {entry.until for entry in proved.lock.missing} == {"never"}
    assert proved.data == Project(tmp_path / "fresh").resolve().data


def test_without_the_engine_what_was_proved_stays(tmp_path: Path) -> None:
    project = Project(tmp_path)
    before = project.lock()
    assert project.resolve(prove=False).data == before.data
    project.models["C"] = "file:models/c.gguf"
    project.write("models/c.gguf", tiny_gguf(3))
    project.write_spec()
    after = project.resolve(prove=False)
    assert (after.moves, after.lock.point[:2]) == ((), before.lock.point)
    assert {entry.pin.split(".")[1] for entry in after.lock.missing if entry.until == "prove"} == {"C@plain"}


# What moved


def replaced_model(project: Project) -> None:
    project.write("models/a.gguf", tiny_gguf(7))


def replaced_data(project: Project) -> None:
    project.write("data/text.txt", b"Another text altogether, and no word of the sea in it. " * 8)


def other_cpu(project: Project) -> None:
    project.change_world(host=FixedHost(msgspec.structs.replace(CPU, cpu_model="AMD EPYC 2")))


@pytest.mark.parametrize(
    "change, move",
    [
        (
            replaced_model,
            Move(name="A", what="model", why="tensors differ; tokenizer, template, metadata identical"),
        ),
        (replaced_data, Move(name="text", what="suite", why="text: the file changed")),
        (other_cpu, Move(name=CPU.name, what="device", why="cpu_model")),
    ],
)
def test_what_moved_unasked_is_named_before_anything_is_loaded(
    project: Project, change: Callable[[Project], None], move: Move
) -> None:
    before, opened = project.resolve(), project.script.opened
    change(project)
    found = project.resolve()
    assert found.moves == (move,)
    assert project.script.opened == opened
    assert (found.state, found.lock.point, found.notes) == (
        "changed",
        before.lock.point,
        ("no point was proved again, since what they stand on moved",),
    )
    assert project.resolve(prove=False).notes == ()
    assert project.resolve(upgrade=(move.name,)).moves == ()
    assert project.script.opened == opened + 1


def test_what_moved_is_named_where_the_engine_is_another_kind_too(project: Project) -> None:
    replaced_model(project)
    kind = '[engine]\nkind = "replay"\npath = "tape"\n\n[[model]]'
    project.write_spec(lambda text: text.replace("[[model]]", kind, 1))
    assert [move.name for move in project.resolve().moves] == ["A"]


# The lock that was there


def edited(project: Project) -> None:
    path = project.lock_path
    path.write_bytes(path.read_bytes().replace(b"slots = 4\n", b"slots = 2\n", 1))


def test_an_edited_lock_is_refused_and_made_anew_only_when_asked(tmp_path: Path) -> None:
    project = Project(tmp_path)
    fresh = project.lock()
    edited(project)
    assert refusal(project, InputError) == (
        "small@cpu-amd-1a-02.toml: the lock was edited by hand: its body_digest does not fit",
        "restore it from git; `qlock resolve --upgrade all specs/small.toml` makes it anew, and may move every pin",
    )
    anew = project.resolve(upgrade=("all",))
    assert (anew.before, anew.moves, anew.data) == (None, (), fresh.data)


def test_conflict_markers_in_the_lock_are_named(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock()
    project.lock_path.write_bytes(b"<<<<<<< HEAD\n" + project.lock_path.read_bytes())
    message, _ = refusal(project, InputError)
    assert message == "small@cpu-amd-1a-02.toml: unresolved git conflict at line 1"


@pytest.mark.parametrize("upgrade", [(), ("all",)])
def test_the_lock_of_another_spec_of_that_name_is_not_written_over(
    tmp_path: Path, upgrade: tuple[str, ...]
) -> None:
    project = Project(tmp_path)
    before = project.lock().data
    project.write("specs/other.toml", (project.path / "specs/small.toml").read_bytes() + b"# another\n")
    with pytest.raises(InputError) as caught:
        resolve(
            project.world,
            Asked(spec_path=Path("specs/other.toml"), upgrade=upgrade),
            project.script.open_engine,
        )
    assert (str(caught.value), caught.value.hint) == (
        "small@cpu-amd-1a-02.toml: this lock belongs to `specs/small.toml`",
        "give one of the two specs another `name`",
    )
    assert project.lock_path.read_bytes() == before


def test_the_lock_of_a_renamed_spec_goes_with_it(tmp_path: Path) -> None:
    project = Project(tmp_path)
    before = project.lock()
    (project.path / "specs/small.toml").rename(project.path / "specs/new name.toml")
    opened = project.script.opened
    renamed = resolve(project.world, Asked(spec_path=Path("specs/new name.toml")), project.script.open_engine)
    assert (renamed.lock, renamed.moves, renamed.state) == (before.lock, (), "changed")
    assert renamed.data.split(b"\n")[0].endswith(b"qlock resolve specs/new name.toml")
    assert project.script.opened == opened + 1


def test_files_that_are_not_there_are_named_at_once_before_anything_is_read(tmp_path: Path) -> None:
    project = Project(tmp_path)
    for name in ("models/a.gguf", "models/b.gguf", "tasks/digits.jsonl"):
        (project.path / name).unlink()
    said, hint = refusal(project, AbsentError)
    assert said == (
        "3 files are not there: `models/a.gguf` (model.A), `models/b.gguf` (model.B), "
        "`tasks/digits.jsonl` (suite.digits.items)"
    )
    assert hint == (
        f"files are looked up from the project folder `{project.path}`: put them there, or correct the spec"
    )


def test_a_folder_is_no_lock(tmp_path: Path) -> None:
    project = Project(tmp_path)
    with pytest.raises(InputError) as caught:
        read_lock_file(project.world, project.path)
    assert str(caught.value) == "got the folder `work`, expected a lock file"


def test_a_resolved_lock_reads_back_as_itself(tmp_path: Path) -> None:
    project = Project(tmp_path)
    resolved = project.lock()
    lock, data = read_lock_file(project.world, project.lock_path)
    assert data == resolved.data
    assert msgspec.structs.replace(lock, body_digest="") == resolved.lock
    assert write_lock(lock, spec_path="specs/small.toml") == data
    assert isinstance(lock, Lock)


@pytest.mark.parametrize(
    "name, hint",
    [
        ("digts", "did you mean `digits`?"),
        (
            "???",
            "one of all, model, suite, engine, device, setting, point, llama-cpp-python, cpu-amd-1a-02, A and 6 more",
        ),
    ],
)
def test_an_upgrade_of_nothing_is_refused(tmp_path: Path, name: str, hint: str) -> None:
    project = Project(tmp_path)
    assert refusal(project, UsageError, upgrade=("A", name)) == (
        f"got `--upgrade {name}`, expected the name of a pin",
        hint,
    )
    assert project.script.opened == 0
