"""`qlock run`: what is said, what is answered, and the exit code of every end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from qlock.cli.run import _CODES
from qlock.cli.signals import TerminatedExit
from qlock.core.digest import blake3_of, sha256_of
from qlock.engines.interface import Broken, Done, Measured, Work
from qlock.errors import ExitCode
from qlock.flows.run import Ran
from tests.cli.conftest import Said, Type
from tests.fakes.engine import FakeEngine
from tests.fakes.kld import add_kld
from tests.fakes.project import Project, items_jsonl, tiny_gguf
from tests.fakes.world import CPU, FixedHost

LOCK = "locks/small@cpu-amd-1a-02.toml"


def the_run(project: Project) -> str:
    (folder,) = [path for path in project.runs.iterdir() if path.is_dir()]
    return folder.relative_to(project.path).as_posix()


def test_a_whole_run(locked: Project, typed: Type) -> None:
    said = typed("run", LOCK)
    assert (said.code, said.out) == (0, f"{the_run(locked)}\n")
    first, *_ = said.talk
    assert first == "digits.A@plain.1: 0/8 items"
    heads = [line.split() for line in said.talk]
    table = heads.index(["suite", "point", "repeat", "score", "value", "items", "left", "out"])
    rows = [line.split() for line in said.talk[table + 1 : table + 5]]
    assert [row[:4] for row in rows] == [
        ["digits", "A@plain", "1", "right_share"],
        ["text", "A@plain", "1", "perplexity"],
        ["digits", "B@plain", "1", "right_share"],
        ["text", "B@plain", "1", "perplexity"],
    ]
    seal = json.loads((locked.path / the_run(locked) / "seal.json").read_bytes())
    assert said.talk[-1] == f"ok: sealed, 22 items measured; answers_digest {seal['answers_digest']}"


def test_a_lock_and_a_run_behind_links_are_those_of_their_project(
    locked: Project, typed: Type, tmp_path: Path
) -> None:
    lock, last = tmp_path / "elsewhere" / "lk.toml", tmp_path / "elsewhere" / "last"
    lock.parent.mkdir()
    lock.symlink_to(locked.path / LOCK)
    said = typed("run", lock)
    assert (said.code, said.out) == (0, f"{the_run(locked)}\n")
    last.symlink_to(locked.path / the_run(locked))
    lines: list[tuple[str | Path, ...]] = [
        ("resolve", tmp_path / "elsewhere" / "spec.toml", "--check"),
        *((verb, lock) for verb in ("check", "plan", "fetch", "status", "merge")),
        *((verb, last) for verb in ("verify", "show", "status", "merge")),
        *(("diff", "--reference", "A@plain", which) for which in (lock, last)),
    ]
    (tmp_path / "elsewhere" / "spec.toml").symlink_to(locked.path / "specs/small.toml")
    assert {words: typed(*words).code for words in lines} == dict.fromkeys(lines, 0)
    assert sorted(path.name for path in lock.parent.iterdir()) == ["last", "lk.toml", "spec.toml"]


def test_folders_of_a_project_that_are_links_are_its_own(
    locked: Project, typed: Type, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (locked.path / "runs").mkdir(exist_ok=True)
    for name in ("specs", "locks", "runs"):
        (locked.path / name).rename(disk / name)
        (locked.path / name).symlink_to(disk / name)
    said = typed("run", LOCK)
    assert (said.code, said.out) == (0, f"{the_run(locked)}\n")
    lines = [
        ("resolve", "specs/small.toml", "--check"),
        *((verb, LOCK) for verb in ("check", "plan", "status")),
        *((verb, the_run(locked)) for verb in ("verify", "show", "status")),
        ("diff", "--reference", "A@plain", the_run(locked)),
    ]
    assert {words: typed(*words).code for words in lines} == dict.fromkeys(lines, 0)
    assert sorted(path.name for path in disk.iterdir()) == ["locks", "runs", "specs"]


def test_the_same_lock_again_is_done_already(locked: Project, typed: Type) -> None:
    typed("run", LOCK)
    before = list(locked.script.asked)
    said = typed("run", LOCK)
    assert (said.code, said.out) == (0, f"{the_run(locked)}\n")
    assert locked.script.asked == before
    assert said.talk[-2].startswith("ok: this lock was run before; answers_digest blake3:")
    assert said.talk[-1] == "hint: run it once more with --repeat-lock to see how far two runs differ"


def test_once_more_goes_into_a_folder_of_its_own(locked: Project, typed: Type) -> None:
    first = typed("run", LOCK)
    second = typed("run", LOCK, "--repeat-lock")
    assert (second.code, second.out) == (0, f"{first.out.strip()}.2\n")
    assert second.talk[-1] == first.talk[-1]


def test_runs_go_where_they_are_told_to(locked: Project, typed: Type) -> None:
    said = typed("run", LOCK, "--runs", "elsewhere")
    assert said.out.startswith("elsewhere/")
    assert (locked.path / said.out.strip() / "seal.json").exists()


def test_a_stale_lock(locked: Project, typed: Type) -> None:
    locked.write_spec(lambda text: text.replace("windows = 3", "windows = 2"))
    said = typed("run", LOCK)
    assert (said.code, said.out) == (1, "")
    assert said.talk == [
        "error: the lock is stale: the spec `specs/small.toml` changed since this lock was made",
        "hint: renew it with `qlock resolve`, or trust it with --frozen",
    ]
    assert typed("run", LOCK, "--frozen").code == 0


def test_another_model_is_refused_with_a_block_for_its_file(locked: Project, typed: Type) -> None:
    locked.write("models/a.gguf", tiny_gguf(3))
    said = typed("run", LOCK)
    assert (said.code, said.out) == (3, "")
    assert locked.script.asked == []
    before, after = (tiny_gguf(seed) for seed in (1, 3))
    digests = ", ".join(
        f"{kind} {digest_of(before).partition(':')[2][:12]}… → {digest_of(after).partition(':')[2][:12]}…"
        for kind, digest_of in (("sha256", sha256_of), ("blake3", blake3_of))
    )
    assert said.talk == [
        "error: model.A.file.a.gguf is not as locked (model-files)",
        f"  changed:  {digests}",
        "  why:      tensors differ; tokenizer, template, metadata identical",
        "  hint:     bring back the locked file, or take the new one with `qlock resolve --upgrade NAME`",
        "error: refused: this is not what is locked",
    ]


def test_absent_files_and_where_they_are(locked: Project, typed: Type, tmp_path: Path) -> None:
    (locked.path / "models").rename(tmp_path / "elsewhere")
    said = typed("run", LOCK)
    assert (said.code, said.out) == (8, "")
    assert said.talk[-2:] == [
        "error: files that the lock names are not here",
        f"hint: say where they lie with --models DIR, or `qlock fetch {LOCK}`",
    ]
    assert typed("run", LOCK, "--models", tmp_path / "elsewhere").code == 0


def test_what_is_forced_is_said_before_and_after_and_on_every_later_day(locked: Project, typed: Type) -> None:
    locked.change_world(host=FixedHost(msgspec.structs.replace(CPU, instruction_sets=("avx2",))))
    fact = "device.cpu-amd-1a-02.instruction_sets"
    assert typed("run", LOCK).code == 3
    mark = (
        f"warning: FORCED: `{fact}` may differ; the run carries that mark for ever, "
        "and no comparison with it is valid"
    )
    said = typed("run", LOCK, "--allow", fact)
    assert said.code == 0
    assert (said.talk[0], said.talk[-1]) == (mark, mark)
    assert f"warning: {fact} is not as locked (device) (forced with --allow)" in said.talk
    locked.change_world(host=FixedHost())
    later = typed("run", LOCK)
    assert later.code == 0
    assert later.talk[-1] == mark
    assert json.loads(typed("run", LOCK, "--json").out)["forced"] == [fact]


def test_only_what_a_finding_can_name_is_allowed(locked: Project, typed: Type) -> None:
    said = typed("run", LOCK, "--allow", "device.cpu-amd-1a-02.cpu_modle")
    assert (said.code, said.out) == (2, "")
    assert said.talk == [
        "error: got --allow `device.cpu-amd-1a-02.cpu_modle`, expected a fact that a finding about this lock can name",
        "hint: did you mean `device.cpu-amd-1a-02.cpu_model`?",
    ]
    assert not locked.runs.exists()


def test_an_item_that_is_not_answered_leaves_the_run_open(locked: Project, typed: Type) -> None:
    locked.script.replies = {"q03": Broken(id="q03", why="the row was lost\x1b[1m")}
    said = typed("run", LOCK)
    folder = the_run(locked)
    assert (said.code, said.out) == (5, f"{folder}\n")
    assert "error: digits.A@plain.1: `q03` was not answered: the row was lost\\x1b[1m" in said.talk
    assert said.talk[-2:] == [
        f"error: incomplete: `{folder}` still misses items",
        f"hint: run `qlock run {LOCK}` again; it asks only what is missing",
    ]
    locked.script.replies = {}
    locked.script.asked.clear()
    assert typed("run", LOCK).code == 0
    assert locked.script.asked == ["q03", "q03"]


def test_a_published_score_that_does_not_come_out(project: Project, typed: Type) -> None:
    anchor = (
        '\n[[anchor]]\nmodel = "A"\nsuite = "text"\npublished = 1.5\nsource = "a paper"\ntolerance = 0.1\n'
    )
    project.write_spec(lambda text: text + anchor)
    project.lock()
    said = typed("run", LOCK)
    assert said.code == 1
    (line,) = [line for line in said.talk if line.startswith("error: anchor ")]
    assert line.startswith("error: anchor A text: got `")
    assert line.endswith("`, expected `1.5` ± 0.1")
    assert said.talk[-2].startswith("error: a published score did not come out again")


def test_a_grader_that_fails_its_trials(
    project: Project, typed: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"id": "q", "prompt": "?", "expected": "1", "grader": {"kind": "exact"}, "gold": "2"}
    project.write("tasks/digits.jsonl", json.dumps(row) + "\n")
    with monkeypatch.context() as before:  # A lock of a qlock whose grader took this reply for right.
        before.setattr("qlock.flows.papers.try_grader", lambda *_, **__: ())
        project.lock()
    said = typed("run", LOCK)
    assert said.code == 1
    start = said.talk.index("error: digits: a canned reply to `q` was not graded as it must be")
    assert said.talk[start + 1] == "  expected: right"
    assert said.talk[start + 2].startswith("  found:    wrong: ")
    assert said.talk[-2] == "error: a grader failed its trials; nothing of that suite was measured"


def test_an_engine_that_does_not_start(locked: Project, typed: Type) -> None:
    locked.script.start_error = "the engine did not start: no libllama.so"
    said = typed("run", LOCK)
    assert (said.code, said.out) == (7, "")
    assert said.talk[-1] == "error: the engine did not start: no libllama.so"


def test_an_edited_lock(locked: Project, typed: Type) -> None:
    locked.lock_path.write_text(locked.lock_path.read_text().replace("slots = 4", "slots = 5"))
    said = typed("run", LOCK)
    assert said.code == 6
    assert said.talk == [
        "error: small@cpu-amd-1a-02.toml: the lock was edited by hand: its body_digest does not fit",
        "hint: restore it from git; `qlock resolve --upgrade all specs/small.toml` makes it anew, and may move every pin",
    ]


def test_a_lock_that_still_misses_pins(project: Project, typed: Type) -> None:
    project.lock(prove=False)
    said = typed("run", LOCK)
    assert said.code == 3
    assert said.talk[0].startswith("error: the lock still misses ")


def test_a_folder_that_another_run_holds(locked: Project, typed: Type) -> None:
    def while_running(run_it: Callable[[], Said]) -> Said:
        with locked.world.folders.hold(locked.path / typed("run", LOCK).out.strip()):
            return run_it()

    said = while_running(lambda: typed("run", LOCK))
    assert said.code == 8


@pytest.mark.parametrize("stop, code", [(KeyboardInterrupt(), 130), (TerminatedExit("SIGTERM"), 143)])
def test_a_signal_in_the_middle_keeps_what_was_measured(
    locked: Project, typed: Type, stop: BaseException, code: int
) -> None:
    def at(item: str) -> None:
        if item == "q05":
            raise stop

    locked.script.before_item = at
    said = typed("run", LOCK)
    assert said.code == code
    assert said.talk[-2] == "note: what was measured is kept; the same command goes on from there"
    assert locked.script.closed == locked.script.opened
    measured = list(locked.script.asked)
    locked.script.before_item = lambda _: None
    locked.script.asked.clear()
    assert typed("run", LOCK).code == 0
    assert not set(measured[:4]) & set(locked.script.asked[:4])


def test_json_of_a_refusal(locked: Project, typed: Type) -> None:
    locked.write("tasks/digits.jsonl", items_jsonl(9))
    said = typed("run", LOCK, "--json")
    document = json.loads(said.out)
    assert said.code == 3
    assert (document["verb"], document["state"], document["folder"]) == ("run", "refused", "")
    assert {finding["rule"] for finding in document["findings"]} == {"suite-files"}
    (finding,) = document["findings"]
    assert finding.keys() == {"rule", "where", "expected", "found", "effect", "why", "parts", "hint"}
    sizes = [len(items_jsonl(count)) for count in (8, 9)]
    assert finding["parts"][0] == {"name": "size_bytes", "expected": str(sizes[0]), "found": str(sizes[1])}
    assert [part["name"] for part in finding["parts"]] == ["size_bytes", "sha256", "blake3"]
    assert finding["found"].startswith(f"size_bytes {sizes[1]}, sha256 sha256:")


def test_json_of_a_whole_run(locked: Project, typed: Type) -> None:
    document = json.loads(typed("run", LOCK, "--json").out)
    assert document["state"] == "sealed"
    assert document["folder"] == the_run(locked)
    assert [score["job"] for score in document["scores"]] == [
        "digits.A@plain.1",
        "text.A@plain.1",
        "digits.B@plain.1",
        "text.B@plain.1",
    ]


def test_every_end_of_a_run_has_an_exit_code() -> None:
    from typing import get_args, get_type_hints

    assert set(_CODES) == set(get_args(get_type_hints(Ran)["state"]))
    assert _CODES["sealed"] == ExitCode.YES


def test_sigterm_is_a_number_that_the_shell_knows() -> None:
    assert ExitCode.TERMINATED == 128 + signal.SIGTERM
    assert ExitCode.INTERRUPTED == 128 + signal.SIGINT
    assert os.name == "posix"


def test_a_job_without_a_score_is_said(locked: Project, typed: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = FakeEngine._done

    def negative(self: FakeEngine, work: Work) -> Done:
        done = plain(self, work)
        match done:
            case Measured(id="window-0002", nats=nats):
                return msgspec.structs.replace(done, nats=(-1.0, *nats[1:]))
            case _:
                return done

    monkeypatch.setattr(FakeEngine, "_done", negative)
    said = typed("run", LOCK, "--json")
    assert said.code == 0
    for name in "AB":
        line = f"warning: text.{name}@plain.1 is done and has no score: its record says why"
        assert line in said.talk
    assert json.loads(said.out)["unscored"] == ["text.A@plain.1", "text.B@plain.1"]


def test_a_scratch_folder(locked: Project, typed: Type) -> None:
    (locked.path / "fast").mkdir()
    said = typed("run", LOCK, "--scratch", "fast")
    assert said.code == 0
    assert {path.is_relative_to(locked.path / "fast") for path in locked.script.loaded_paths[-2:]} == {True}
    assert list((locked.path / "fast").iterdir()) == []


def test_a_scratch_folder_that_is_none(locked: Project, typed: Type) -> None:
    said = typed("run", LOCK, "--scratch", "")
    assert (said.code, said.talk) == (
        2,
        [
            "error: --scratch: got no folder",
            "hint: a variable such as $TMPDIR may not be set on this machine",
        ],
    )
    said = typed("run", LOCK, "--scratch", "nowhere")
    assert (said.code, said.talk) == (8, ["error: --scratch: there is no folder `nowhere`"])


def test_distances_from_the_reference_are_said_in_few_lines_and_told_whole(
    project: Project, typed: Type
) -> None:
    add_kld(project).lock()
    said = typed("run", LOCK)
    notes = [line for line in said.talk if line.startswith("note: ")]
    assert notes == [
        "note: 1 distance from A@plain: 0.171621 nats; `qlock diff` shows all figures",
        "note: the same bytes as the reference, so nothing differs: distance.A@plain.1",
    ]
    assert any(line.split()[:5] == ["distance", "B@plain", "1", "kld_nats", "0.171621"] for line in said.talk)
    told = json.loads(typed("run", LOCK, "--json").out)
    found = {score["job"]: score.get("distance") for score in told["scores"]}
    assert found["digits.A@plain.1"] is None
    assert found["distance.A@plain.1"]["is_identical"] is True
    figures = found["distance.B@plain.1"]["figures"]
    assert (figures["items"], figures["tokens"]) == (3, 93)
    assert round(figures["kld_nats"]["value"], 6) == 0.171621


def test_digests_from_the_cache_are_counted_in_the_document_alone(
    locked: Project, typed: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise a file younger than two seconds is never taken from the cache.
    monkeypatch.setattr("qlock.world.digests._SETTLED_NS", 0)
    assert typed("run", LOCK).code == 0
    again = typed("run", LOCK, "--repeat-lock", "--json")
    assert json.loads(again.out)["cached_digests"] == 2
    assert "cache" not in again.err
    looked = typed("check", LOCK, "--quick", "--json")
    assert json.loads(looked.out)["cached_digests"] == 2
    assert "cache" not in looked.err


def test_a_run_that_is_whole_is_not_marked_by_what_is_allowed(locked: Project, typed: Type) -> None:
    assert typed("run", LOCK).code == 0
    said = typed("run", LOCK, "--allow", "device.cpu-amd-1a-02.instruction_sets")
    assert said.code == 0
    assert said.talk[-1] == "note: the run was whole already: nothing is run, and --allow marks nothing"
    assert len([line for line in said.talk if "FORCED" in line]) == 1
