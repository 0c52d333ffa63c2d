"""A machine held against a lock: everything that is not as locked, in one look, and nothing measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qlock.core.verify import Finding
from qlock.errors import EngineError, InputError, RefusedError
from qlock.flows import check
from qlock.flows.check import Checked
from qlock.world import digests
from qlock.world.interface import Blake3Digest, FileDigest
from tests.fakes.project import Project, items_jsonl, tiny_gguf
from tests.fakes.world import CPU, FixedHost


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.lock()
    made.script.asked.clear()
    made.script.opened = made.script.closed = 0
    made.script.loads.clear()
    return made


def look(project: Project, **asked: Any) -> Checked:
    order = check.Asked(**({"lock_path": project.lock_path} | asked))
    return check.check(project.world, order, project.script.open_engine)


def told(checked: Checked) -> list[tuple[str, str]]:
    return [(finding.rule, finding.where) for finding in checked.findings]


def test_the_machine_that_the_lock_was_made_on_is_as_locked(project: Project) -> None:
    checked = look(project)
    assert (checked.state, checked.findings, checked.why_stale) == ("verified", (), "")
    assert checked.points == ("A@plain", "B@plain")
    assert checked.left_out == ()
    assert project.script.loads == ["a.gguf", "b.gguf"]


def test_nothing_is_asked_and_nothing_written(project: Project) -> None:
    before = sorted(project.path.rglob("*"))
    look(project)
    assert project.script.asked == []
    assert sorted(project.path.rglob("*")) == before
    assert project.script.opened == project.script.closed == 1


def test_quick_leaves_the_engine_alone(project: Project) -> None:
    checked = look(project, quick=True)
    assert (checked.state, checked.points, checked.left_out) == ("verified", (), ())
    assert project.script.opened == 0


def test_a_changed_model_is_found_and_the_others_are_still_asked(project: Project) -> None:
    project.write("models/a.gguf", tiny_gguf(3))
    checked = look(project)
    assert checked.state == "refused"
    assert told(checked) == [("model-files", "model.A.file.a.gguf")]
    assert (checked.points, checked.left_out) == (("B@plain",), ("A@plain",))


def test_absent_files_alone_are_absent(project: Project) -> None:
    (project.path / "models/a.gguf").unlink()
    (project.path / "models/b.gguf").unlink()
    checked = look(project)
    assert checked.state == "absent"
    assert [finding.found for finding in checked.findings] == ["missing", "missing"]
    assert project.script.opened == 0


def test_an_absent_file_and_another_finding_are_a_refusal(project: Project) -> None:
    (project.path / "models/a.gguf").unlink()
    project.write("models/b.gguf", tiny_gguf(3))
    assert look(project).state == "refused"


def test_files_are_found_in_the_folders_that_are_named(project: Project, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (project.path / "models").rename(elsewhere)
    assert look(project).state == "absent"
    assert look(project, models=(elsewhere,)).state == "verified"


def test_changed_items_are_found(project: Project) -> None:
    project.write("tasks/digits.jsonl", items_jsonl(9))
    checked = look(project)
    assert checked.state == "refused"
    assert told(checked) == [("suite-files", "suite.digits.file.items")]


def test_another_cpu_is_found(project: Project) -> None:
    other = msgspec.structs.replace(CPU, instruction_sets=("avx2",))
    project.change_world(host=FixedHost(other))
    checked = look(project, quick=True)
    assert checked.state == "refused"
    assert told(checked) == [("device", "device.cpu-amd-1a-02.instruction_sets")]


def test_what_can_change_speed_alone_is_told_and_refuses_nothing(project: Project) -> None:
    project.change_world(host=FixedHost(msgspec.structs.replace(CPU, cores=64)))
    checked = look(project, quick=True)
    assert checked.state == "verified"
    assert [(finding.where, finding.effect) for finding in checked.findings] == [
        ("device.cpu-amd-1a-02.cores", "timing")
    ]


def test_another_build_is_found_once_for_all_points(project: Project) -> None:
    (project.script.folder / "libllama.so").unlink()
    (project.script.folder / "libllama.so").write_bytes(b"another code")
    checked = look(project)
    assert checked.state == "refused"
    assert {finding.rule for finding in checked.findings} == {"engine-files"}
    assert len(set(checked.findings)) == len(checked.findings)


def test_an_engine_that_does_not_do_as_it_is_told_is_found(project: Project) -> None:
    project.script.read_back = {"threads": 7}
    checked = look(project)
    assert checked.state == "refused"
    assert ("read-back", "point.A@plain.read_back.threads") in told(checked)


def test_an_engine_that_says_something_else_is_found(project: Project) -> None:
    project.script.salt = "another kernel"
    checked = look(project)
    assert checked.state == "refused"
    assert {finding.rule for finding in checked.findings} == {"canaries"}


def test_other_prompts_are_found(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rendering that is another one, as a new version of the renderer could give."""
    from qlock.flows.asking import Asker

    honest = Asker.pin
    monkeypatch.setattr(
        Asker,
        "pin",
        lambda self, questions: msgspec.structs.replace(
            honest(self, questions), text_digest="blake3:" + "0" * 64
        ),
    )
    checked = look(project)
    assert checked.state == "refused"
    assert ("prompts", "point.A@plain.prompts.digits.text_digest") in told(checked)


def test_a_stale_lock_is_said_and_the_machine_is_still_looked_at(project: Project) -> None:
    project.write_spec(lambda text: text.replace("windows = 3", "windows = 2"))
    checked = look(project)
    assert checked.state == "stale"
    assert checked.why_stale == "the spec `specs/small.toml` changed since this lock was made"
    assert checked.points == ("A@plain", "B@plain")


def test_a_refusal_weighs_more_than_a_stale_lock(project: Project) -> None:
    project.write_spec(lambda text: text.replace("windows = 3", "windows = 2"))
    project.write("models/a.gguf", tiny_gguf(3))
    checked = look(project, quick=True)
    assert checked.state == "refused"
    assert checked.why_stale


def test_a_lock_that_misses_pins_is_refused(tmp_path: Path) -> None:
    made = Project(tmp_path)
    made.lock(prove=False)
    with pytest.raises(RefusedError, match=r"^the lock still misses \d+ pins, first `"):
        look(made)


def test_an_edited_lock_is_unreadable(project: Project) -> None:
    text = project.lock_path.read_text()
    project.lock_path.write_text(text.replace("slots = 4", "slots = 5"))
    with pytest.raises(InputError, match="the lock was edited by hand"):
        look(project)


def test_an_engine_that_does_not_start_is_no_answer(project: Project) -> None:
    project.script.start_error = "the engine did not start"
    with pytest.raises(EngineError, match=r"^the engine did not start$"):
        look(project)


class Remembered:
    """Digests that are always in the cache, unless every byte is asked for."""

    def blake3_file(self, path: Path, *, cache: Path | None, rehash: bool = False) -> Blake3Digest:
        seen = digests.blake3_file(path, cache=cache, rehash=rehash)
        return msgspec.structs.replace(seen, cached=not rehash)

    def digest_file(self, path: Path, *, cache: Path | None, rehash: bool = False) -> FileDigest:
        return digests.digest_file(path, cache=cache, rehash=rehash)

    def spans_digest(self, path: Path, spans: Sequence[tuple[int, int]]) -> tuple[str, ...]:
        return digests.spans_digest(path, spans)


def test_digests_of_the_cache_are_counted_until_every_byte_is_asked_for(project: Project) -> None:
    project.change_world(digests=Remembered())
    assert look(project, quick=True).cached_digests == 2
    assert look(project, quick=True, rehash=True).cached_digests == 0


def test_each_finding_says_what_to_do(project: Project) -> None:
    project.write("models/a.gguf", tiny_gguf(3))
    first: Finding = look(project, quick=True).findings[0]
    assert (
        first.remedy == "bring back the locked file, or take the new one with `qlock resolve --upgrade NAME`"
    )


def test_the_build_is_the_one_that_the_spec_beside_the_lock_names(tmp_path: Path) -> None:
    project = Project(tmp_path)
    build = project.path / "build"
    build.mkdir()
    for file in project.script.folder.iterdir():
        (build / file.name).write_bytes(file.read_bytes())
    (build / "libllama.so").write_bytes(b"code of another build")
    engine = '[engine]\nkind = "llama-cpp-python"\npath = "build"\n\n[[setting]]'
    project.write_spec(lambda text: text.replace("[[setting]]", engine, 1))
    project.lock()
    assert look(project).state == "verified"
    assert look(project, engine=project.script.folder).state == "refused"


def test_what_is_missing_is_said_with_the_spec_to_resolve(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.lock(prove=False)
    with pytest.raises(RefusedError) as caught:
        look(project)
    assert caught.value.hint == "run `qlock resolve specs/small.toml`, on the machine that shall run it"
