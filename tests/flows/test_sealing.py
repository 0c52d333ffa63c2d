from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qlock.errors import InputError
from qlock.flows.preparing import Progress
from qlock.flows.run_folder import RunFolder
from tests.fakes.project import Killed, Project, edit, folder_of, kill_after, tiny_gguf, with_a_third_model

ALL_ITEMS = 22


@pytest.fixture
def undisturbed(tmp_path: Path) -> str:
    other = Project(tmp_path / "undisturbed")
    other.lock()
    return other.run().answers_digest


# Going on


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 12, 21])
def test_a_killed_run_goes_on_at_the_next_item_and_ends_the_same(
    project: Project, undisturbed: str, rows: int
) -> None:
    kill_after(project, rows)
    stored = rows + 1
    project.script.asked.clear()
    ran = project.run()
    assert (ran.state, ran.measured, len(project.script.asked)) == (
        "sealed",
        ALL_ITEMS - stored,
        ALL_ITEMS - stored,
    )
    assert ran.answers_digest == undisturbed
    segments = folder_of(project, ran).facts().segment
    assert [segment.ended_utc != "" for segment in segments] == [False, True]
    assert project.script.opened == project.script.closed


def test_a_run_that_is_killed_again_and_again_ends_the_same_and_asks_nothing_twice(
    project: Project, undisturbed: str
) -> None:
    for _ in range(4):
        kill_after(project, 2)
    ran = project.run()
    assert ran.answers_digest == undisturbed
    assert set(Counter(project.script.asked).values()) == {2}  # once for each of both models
    assert len(project.script.asked) == ALL_ITEMS


def test_a_torn_last_line_costs_its_item_alone(project: Project, undisturbed: str) -> None:
    kill_after(project, 4)
    (folder,) = project.runs.iterdir()
    path = folder / "record/digits.A@plain.1.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    project.script.asked.clear()
    ran = project.run()
    assert (ran.state, ran.measured) == ("sealed", ALL_ITEMS - 4)
    assert project.script.asked[:4] == ["q04", "q05", "q06", "q07"]
    assert ran.answers_digest == undisturbed


def test_a_header_that_was_torn_is_written_anew(project: Project, undisturbed: str) -> None:
    kill_after(project, 0)
    (folder,) = project.runs.iterdir()
    (folder / "record/digits.A@plain.1.jsonl").write_bytes(b'{"kind":"head')
    assert project.run().answers_digest == undisturbed


def test_a_kill_between_the_last_record_and_the_seal_measures_nothing_again(
    project: Project, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write_seal", kill)
        with pytest.raises(Killed):
            project.run()
    project.script.asked.clear()
    opened = project.script.opened
    ran = project.run()
    assert (ran.state, ran.measured, project.script.asked, project.script.opened) == ("sealed", 0, [], opened)
    assert ran.answers_digest == undisturbed


def test_a_file_that_a_kill_left_unfinished_is_no_part_of_the_seal(project: Project) -> None:
    kill_after(project, 0)
    (folder,) = project.runs.iterdir()
    (folder / "record/.qlock-0123456789abcdef.tmp").write_bytes(b"half")
    ran = project.run()
    seal = folder_of(project, ran).seal()
    assert seal is not None
    assert [file.path for file in seal.file if "tmp" in file.path] == []
    # facts.json and lock.toml, items of two suites, a record and grades of each job
    assert len(seal.file) == 2 + 2 + 4 + 4


def test_damage_within_a_record_is_an_error(project: Project) -> None:
    kill_after(project, 4)
    (folder,) = project.runs.iterdir()
    path = folder / "record/digits.A@plain.1.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], b"{broken", *lines[3:]]))
    with pytest.raises(InputError) as caught:
        project.run()
    assert str(caught.value).startswith("record/digits.A@plain.1.jsonl: line 3: not JSON:")


def test_a_record_of_another_lock_is_an_error(project: Project) -> None:
    kill_after(project, 0)
    (folder,) = project.runs.iterdir()
    path = folder / "record/digits.A@plain.1.jsonl"
    header, _, rest = path.read_bytes().partition(b"\n")
    fields = msgspec.json.decode(header)
    fields["job_digest"] = f"blake3:{'0' * 64}"
    path.write_bytes(msgspec.json.encode(fields) + b"\n" + rest)
    with pytest.raises(InputError) as caught:
        project.run()
    assert (str(caught.value), caught.value.hint) == (
        "the record of `digits.A@plain.1` belongs to another lock",
        "give another folder with --runs",
    )


def test_a_folder_of_another_lock_is_an_error(project: Project) -> None:
    kill_after(project, 0)
    (folder,) = project.runs.iterdir()
    (folder / "lock.toml").write_bytes(b"another")
    with pytest.raises(InputError) as caught:
        project.run()
    assert (str(caught.value), caught.value.hint) == (
        f"the run in `{folder}` was made with another lock",
        "give another folder with --runs",
    )


# What was sealed


def test_a_sealed_run_is_told_of_only_while_it_is_as_sealed(project: Project) -> None:
    ran = project.run()
    assert ran.folder is not None
    for name, said in (
        ("grades/digits.A@plain.1.jsonl", "`grades/digits.A@plain.1.jsonl` is another one"),
        ("record/text.B@plain.1.jsonl", "`record/text.B@plain.1.jsonl` is another one"),
        ("grades/more.jsonl", "`grades/more.jsonl` is not sealed"),
    ):
        path = ran.folder / name
        before = path.read_bytes() if path.exists() else None
        path.write_bytes((before or b"") + b" ")
        assert not_as_sealed(project) == (
            f"the run in `{ran.folder}` is not as it was sealed: {said}",
            f"look at all of it with `qlock verify {ran.folder}`",
        )
        path.unlink() if before is None else path.write_bytes(before)
    assert project.run().state == "already-sealed"
    (ran.folder / "facts.json").unlink()
    assert not_as_sealed(project)[0].endswith("sealed: `facts.json` is gone")


def test_a_seal_whose_answers_digest_does_not_follow_from_its_jobs_is_an_error(project: Project) -> None:
    ran = project.run()
    assert ran.folder is not None
    edit(ran.folder / "seal.json", ran.answers_digest.encode(), f"blake3:{'0' * 64}".encode())
    assert not_as_sealed(project)[0].endswith("sealed: its `answers_digest` does not follow from its jobs")


def not_as_sealed(project: Project) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        project.run()
    return str(caught.value), caught.value.hint


# Stretches that did not look again


def overwrite(path: Path, *contents: bytes) -> None:
    """Write into a file that is there, without another inode."""
    for data in contents:
        with path.open("r+b") as file:
            file.write(data)


def kill_in_b(project: Project) -> None:
    """Run, and kill it after all 11 items of model A and 2 of B."""
    kill_after(project, 12)
    (folder,) = project.runs.iterdir()
    record = RunFolder(project.world, folder).record("digits.A@plain.1")
    assert record is not None
    assert record.closing is not None


def test_what_a_killed_run_measured_with_a_file_that_was_touched_since_is_asked_again(
    project: Project, undisturbed: str
) -> None:
    kill_in_b(project)
    overwrite(project.path / "models/a.gguf", tiny_gguf(7), tiny_gguf(1))
    project.script.asked.clear()
    ran = project.run()
    assert (ran.state, ran.measured, ran.answers_digest) == ("sealed", ALL_ITEMS - 2, undisturbed)
    assert len(project.script.asked) == ALL_ITEMS - 2
    segments = folder_of(project, ran).facts().segment
    assert [segment.looked_again for segment in segments] == [True, True]


@pytest.mark.parametrize(
    "touch, left",
    [
        (lambda _: None, ALL_ITEMS - 13),
        (lambda path: overwrite(path, tiny_gguf(7), tiny_gguf(1)), ALL_ITEMS - 2),
        (lambda path: path.unlink(), ALL_ITEMS - 2),
    ],
    ids=["untouched", "there and back", "gone"],
)
def test_a_run_that_is_ended_by_a_signal_looks_at_its_files_on_the_way_out(
    project: Project, undisturbed: str, touch: Callable[[Path], None], left: int
) -> None:
    def stop(_: str) -> None:
        if len(project.script.asked) == 13:
            touch(project.path / "models/a.gguf")
            raise KeyboardInterrupt

    project.script.before_item = stop
    with pytest.raises(KeyboardInterrupt):
        project.run()
    project.script.before_item = lambda _: None
    # Another copy of the same bytes, as on the next node: whoever looked at the first in time may go on.
    project.write("models/a.gguf", tiny_gguf(1))
    ran = project.run()
    assert (ran.measured, ran.answers_digest) == (left, undisturbed)


def test_doubt_is_settled_before_the_next_kill(project: Project, undisturbed: str) -> None:
    kill_in_b(project)
    overwrite(project.path / "models/a.gguf", tiny_gguf(7), tiny_gguf(1))
    kill_after(project, 3)
    ran = project.run()
    assert (ran.measured, ran.answers_digest) == (ALL_ITEMS - 2 - 4, undisturbed)


def test_what_rule_8_passed_once_is_kept_whatever_happens_to_the_files_later(project: Project) -> None:
    project.script.kills["q07"] = 4
    assert project.run().state == "incomplete"
    project.write("models/a.gguf", tiny_gguf(1))
    ran = project.run()
    assert (ran.state, ran.measured) == ("sealed", 1)


def test_what_was_taken_over_is_never_doubtful(project: Project) -> None:
    project.run()
    with_a_third_model(project)
    kill_after(project, 2)
    for name, seed in (("a", 1), ("b", 2), ("c", 3)):
        project.write(f"models/{name}.gguf", tiny_gguf(seed))
    assert project.run().measured == 11


def test_a_stretch_that_does_not_say_what_it_loaded_is_doubtful(project: Project) -> None:
    kill_in_b(project)
    (folder,) = project.runs.iterdir()
    facts = RunFolder(project.world, folder).facts()
    (segment,) = facts.segment
    assert [file.where for file in segment.loaded] == ["model.A.file.a.gguf", "model.B.file.b.gguf"]
    untold = msgspec.structs.replace(segment, loaded=())
    RunFolder(project.world, folder).write_facts(msgspec.structs.replace(facts, segment=(untold,)))
    assert project.run().measured == ALL_ITEMS


# Once more


def test_a_repeat_has_a_folder_of_its_own_and_takes_nothing_over(project: Project) -> None:
    first = project.run()
    project.script.asked.clear()
    again = project.run(repeat_lock=True)
    assert (again.state, again.measured, again.taken_over) == ("sealed", ALL_ITEMS, ())
    assert again.folder == (first.folder.with_name(f"{first.folder.name}.2") if first.folder else None)
    third = project.run(repeat_lock=True)
    assert third.folder is not None
    assert third.folder.name.endswith(".3")
    assert again.answers_digest == third.answers_digest == first.answers_digest


def test_a_repeat_that_was_killed_is_gone_on_with_and_still_takes_nothing_over(project: Project) -> None:
    project.run()
    stored = 0

    def talk(progress: Progress) -> None:
        nonlocal stored
        stored += progress.tokens > 0
        if stored > 5:
            raise Killed

    with pytest.raises(Killed):
        project.run(talk, repeat_lock=True)
    ran = project.run()
    assert ran.folder is not None
    assert (ran.folder.name[8:], ran.state, ran.measured, ran.taken_over) == (
        ".2",
        "sealed",
        ALL_ITEMS - 6,
        (),
    )


# Facts


def test_facts_that_went_are_an_error(project: Project) -> None:
    kill_after(project, 0)
    (folder,) = project.runs.iterdir()
    kill_after(project, 0)
    (folder / "facts.json").unlink()
    before = sorted(folder.rglob("*"))
    with pytest.raises(InputError) as caught:
        project.run()
    assert str(caught.value) == ("facts.json: got 0 segments, expected 2 as `digits.A@plain.1` has rows of")
    assert caught.value.hint == "put the file back as it was, or give another folder with --runs"
    assert sorted(folder.rglob("*")) == before


def test_facts_of_another_version_are_an_error(project: Project) -> None:
    kill_after(project, 0)
    (folder,) = project.runs.iterdir()
    (folder / "facts.json").write_bytes(b'{"facts_version": 99, "segment": [], "more": 1}')
    with pytest.raises(InputError) as caught:
        project.run()
    assert (str(caught.value), caught.value.hint) == (
        "facts.json: got facts_version `99`, this qlock reads up to `1`",
        "upgrade qlock",
    )


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kills=st.lists(st.integers(0, 5), max_size=3),
    order=st.integers(0, 7),
    killer=st.none() | st.integers(0, 4),
    deaths=st.integers(0, 3),
)
def test_whatever_happens_on_the_way_a_run_that_ends_well_ends_the_same(
    tmp_path: Path, kills: list[int], order: int, killer: int | None, deaths: int
) -> None:
    place = Path(tempfile.mkdtemp(dir=tmp_path))
    project = Project(place, items=5)
    project.models.pop("B")
    project.write_spec()
    project.lock()
    project.script.takes = lambda names: order % len(names)
    if killer is not None:
        project.script.kills[f"q{killer:02d}"] = deaths
    for rows in kills:
        stop_after(project, rows)
    ended = project.run()
    assert ended.state in ("sealed", "already-sealed")
    assert set(Counter(project.script.asked).values()) == {1}
    project.script.kills.clear()
    assert project.run(repeat_lock=True).answers_digest == ended.answers_digest


def stop_after(project: Project, rows: int) -> None:
    """As ``kill_after``, where so many rows may not be left."""
    with contextlib.suppress(Killed):
        stored = 0

        def talk(progress: Progress) -> None:
            nonlocal stored
            stored += progress.tokens > 0
            if stored > rows:
                raise Killed

        project.run(talk)
